import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { parseExact } from "../../src/authoring/interchange/exact-json.ts";
import { checkConformance } from "./check-conformance.ts";

const read = (name: string) => {
  const file = fileURLToPath(new URL(`../fixtures/mscclpp/${name}.jsonl.gz`, import.meta.url));
  return gunzipSync(readFileSync(file)).toString().trim().split("\n");
};
const lines = read("fuzz");

describe("MSCCL++ conformance", () => {
  it("makes the same plan, or fails, for every fuzz program of the fixture", () => {
    expect(lines.length).toBeGreaterThan(300);
    const problems = lines.map((line) => checkConformance(line)).filter((result) => result.problem !== undefined);
    expect(problems).toEqual([]);
  });

  it("does so for odd arguments, wrong programs and double post-processing", () => {
    const edges = read("edges");
    expect(edges.length).toBeGreaterThan(100);
    expect(edges.map((line) => checkConformance(line)).filter((result) => result.problem !== undefined)).toEqual([]);
  });

  it("would notice a plan that differs, and an error that is missing", () => {
    const line = lines.find((text) => text.includes('"plan"')) ?? "";
    const wrong = JSON.parse(line) as { plan: { gpus: { scratch_chunks: number }[] } };
    for (const gpu of wrong.plan.gpus) gpu.scratch_chunks += 1;
    expect(checkConformance(JSON.stringify(wrong)).problem).toContain("scratch_chunks");
    const failing = JSON.parse(line) as Record<string, unknown>;
    delete failing["plan"];
    expect(checkConformance(JSON.stringify({ ...failing, error: ["RuntimeError", "x"] })).problem).toContain(
      "expected an error",
    );
  });

  it("keeps integers beyond 2^53 exact", () => {
    expect(parseExact('{"a":18446744073709551615,"b":"18446744073709551615","c":12}')).toEqual({
      a: "18446744073709551615",
      b: "18446744073709551615",
      c: 12,
    });
  });
});
