/**
 * Plans that earlier verifiers called right and that some run breaks (`holes`), and plans that MSCCL++'s executor treats
 * otherwise than they say, or that say too little (`gaps`). Each stands for a cause; the file's name says which.
 */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { readPlan } from "../../src/authoring/interchange/index.ts";
import { type FindingCode, type Target, verifyPlan } from "../../src/authoring/verifier/index.ts";

const folder = (name: string) => fileURLToPath(new URL(`../fixtures/verifier/${name}/`, import.meta.url));

function errors(kind: string, file: string, target?: Target): FindingCode[] {
  const plan = readPlan(readFileSync(folder(kind) + file), file);
  const { findings } = verifyPlan(plan, { lint: false, ...(target === undefined ? {} : { target }) });
  return [...new Set(findings.filter((f) => f.severity === "error").map((f) => f.code))];
}

const HOLES: Readonly<Record<string, FindingCode>> = {
  "01-barrier-counts.json": "barrier-mismatch",
  "03-packet-plain-packet.json": "race",
  "05-nine-units.json": "deadlock",
  "07-odd-unit.json": "hazard",
  "09-barrier-rates.json": "loop-mismatch",
  "11-pws-credits.json": "deadlock",
  "13-parts-nearly-equal.json": "race",
  "14-port-packet-put-behind-a-race.json": "race",
};

describe("plans that were once passed wrongly", () => {
  it("has an expectation for every file", () => {
    expect(readdirSync(folder("holes")).sort()).toEqual(Object.keys(HOLES));
  });

  it.each(Object.entries(HOLES))("%s: %s", (file, code) => {
    expect(errors("holes", file)).toEqual([code]);
  });
});
