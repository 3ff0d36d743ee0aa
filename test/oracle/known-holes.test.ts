/**
 * Plans that earlier verifiers called right and that some run breaks (`holes`), and plans that MSCCL++'s executor treats
 * otherwise than they say, or that say too little (`gaps`). Each stands for a cause; the file's name says which.
 */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { expectCollective, readPlan } from "../../src/authoring/interchange/index.ts";
import type { ExecutionPlan } from "../../src/authoring/plan/index.ts";
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

/** Of each gap: what is wrong with the plan itself, if anything is, and what is wrong with it on MSCCL++'s executor. */
const GAPS: Readonly<Record<string, readonly [plain: readonly FindingCode[], target: readonly FindingCode[]]>> = {
  "14-pws-two-destinations.json": [[], ["target-defect"]],
  "15-tbg-on-gstore.json": [["undefined-output"], ["undefined-output"]],
  "16-rppkt-two-sources.json": [[], ["target-defect"]],
  "17-re-with-remote-destination.json": [[], ["target-defect"]],
  // The executor does not load a plan of which a rank has no chunks of input or output.
  "18-broadcast-nothing-moved.json": [["undefined-output"], ["target-defect", "undefined-output"]],
  "19-unpack-then-put-no-nop.json": [[], ["target-defect"]],
};

describe("plans that MSCCL++'s executor treats otherwise than they say", () => {
  it("has an expectation for every file", () => {
    expect(readdirSync(folder("gaps")).sort()).toEqual(Object.keys(GAPS));
  });

  it.each(Object.entries(GAPS))("%s", (file, [plain, target]) => {
    expect(errors("gaps", file)).toEqual(plain);
    expect(errors("gaps", file, "mscclpp")).toEqual(target);
  });
});

describe("the collective of a plan's file", () => {
  const read = (
    change: (json: { collective: string; gpus: { input_chunks: number; output_chunks: number }[] }) => void,
  ) => {
    const json = JSON.parse(readFileSync(`${folder("gaps")}18-broadcast-nothing-moved.json`, "utf8"));
    change(json);
    return readPlan(Buffer.from(JSON.stringify(json)), "plan.json");
  };
  const codes = (plan: ExecutionPlan) => [
    ...new Set(verifyPlan(plan, { lint: false }).findings.flatMap((f) => (f.severity === "error" ? [f.code] : []))),
  ];

  it("has its root where the chunks say", () => {
    expect(read(() => undefined).collective).toMatchObject({ operation: "broadcast", root: 0, chunksPerPart: 1 });
    const swapped = read(({ gpus }) => {
      gpus[0]!.input_chunks = 0;
      gpus[1]!.input_chunks = 1;
    });
    expect(swapped.collective).toMatchObject({ operation: "broadcast", root: 1 });
    const scatter = read((json) => {
      json.collective = "scatter";
      json.gpus[0]!.input_chunks = 2;
    });
    expect(scatter.collective).toMatchObject({ operation: "scatter", root: 0, chunksPerPart: 1 });
  });

  it("is an error where nothing says what the outputs hold, unless the caller does", () => {
    const misspelt = read((json) => {
      json.collective = "brodcast";
    });
    expect(codes(misspelt)).toEqual(["unknown-collective"]);
    expect(codes(expectCollective(misspelt, "broadcast:0"))).toEqual(["undefined-output"]);
    expect(codes(expectCollective(misspelt, "anything"))).toEqual([]);
    expect(() => expectCollective(misspelt, "broadcast:2")).toThrow(/a root from 0 to 1/);
    expect(() => expectCollective(misspelt, "all_reduce")).toThrow(/buffers as the plan has them/);
    expect(() => expectCollective(misspelt, "brodcast")).toThrow(
      /one of all_reduce, broadcast, .*, barrier, or anything$/,
    );
    for (const name of ["send", "all_to_all_v"])
      expect(() => expectCollective(misspelt, name)).toThrow(/one of all_reduce/);
  });
});

describe("plans that were once passed wrongly", () => {
  it("has an expectation for every file", () => {
    expect(readdirSync(folder("holes")).sort()).toEqual(Object.keys(HOLES));
  });

  it.each(Object.entries(HOLES))("%s: %s", (file, code) => {
    expect(errors("holes", file)).toEqual([code]);
  });
});
