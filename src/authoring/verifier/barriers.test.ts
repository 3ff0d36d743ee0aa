import { describe, expect, it } from "vitest";
import { DEFAULT_PLAN_OPTIONS, type ExecutionPlan, type SimpleOp } from "../plan/index.ts";
import { verifyPlan } from "./index.ts";

/** One rank whose strands do this, with one semaphore. */
function planOf(strands: readonly (readonly SimpleOp[])[]): ExecutionPlan {
  const buffer = { chunks: 1, segments: 1 };
  return {
    schemaVersion: 1,
    name: "barriers",
    mode: "imported",
    collective: { operation: "test", numRanks: 1, chunksPerPart: 1, inPlace: false },
    options: DEFAULT_PLAN_OPTIONS,
    ranks: [
      {
        rank: 0,
        input: buffer,
        output: buffer,
        scratch: buffer,
        channels: { memory: [], port: [], switch: [] },
        semaphores: [{ initialValue: 0 }],
        strands: strands.map((ops, id) => ({ id, ops })),
      },
    ],
    sources: [],
  };
}
const errors = (plan: ExecutionPlan) =>
  verifyPlan(plan, { lint: false }).findings.flatMap((f) => (f.severity === "error" ? [f.code] : []));
const meet = (numStrands: number): SimpleOp => ({ kind: "barrier", barrier: 0, numStrands });
const acquire: SimpleOp = { kind: "acquire", semaphores: [0] };
const release: SimpleOp = { kind: "release", semaphores: [0] };

describe("barriers", () => {
  it("may be named by more strands than meet, where a strand comes only after the meeting before", () => {
    const late = (first: readonly SimpleOp[], last: readonly SimpleOp[]) =>
      planOf([[meet(4), ...first, meet(4)], [meet(4), meet(4)], [meet(4), meet(4)], [meet(4)], [...last, meet(4)]]);
    expect(errors(late([release], [acquire]))).toEqual([]);
    expect(errors(late([], []))).toContain("barrier-mismatch");
  });

  it("may meet different numbers of strands one after the other, where it is sure who", () => {
    const sure = planOf([[meet(3), meet(2)], [meet(3), meet(2)], [meet(3)]]);
    expect(errors(sure)).toEqual([]);
    const unsure = planOf([
      [meet(3), meet(2)],
      [meet(3), meet(2)],
      [meet(3), meet(2), meet(2)],
    ]);
    expect(errors(unsure)).toEqual(["barrier-mismatch"]);
  });

  it("of one strand hold nobody", () => {
    expect(errors(planOf([[meet(1)], [meet(1), meet(1)]]))).toEqual([]);
  });
});
