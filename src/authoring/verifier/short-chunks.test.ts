import { describe, expect, it } from "vitest";
import { at, codes, copy, far, nop, planOf, put, signal, wait } from "../../../test/support/small-plans.ts";
import { verifyPlan } from "./index.ts";

const gather = { operation: "all_gather", chunksPerPart: 3 } as const;

/** Each of two ranks gives its part; rank 0 takes chunk `from` of its input there by way of `by`. */
function parked(from: number, by: ReturnType<typeof at>) {
  const part = (rank: number) => at("output", 3 * rank, 3);
  const gives = (rank: number) => [
    put(far(1 - rank, "output", 3 * rank, 3), at("input", 0, 3)),
    nop,
    signal(),
    wait(),
    nop,
  ];
  const detour = [copy(by, at("input", from)), nop, copy(at("output", from), by), nop];
  const rest = [0, 1, 2].filter((i) => i !== from).map((i) => copy(at("output", i), at("input", i)));
  return planOf(
    [[[...detour, ...rest, nop, ...gives(0)]], [[copy(part(1), at("input", 0, 3)), nop, ...gives(1)]]],
    { input: 3, output: 6, scratch: 1 },
    gather,
  );
}

describe("data in chunks that are short at some sizes", () => {
  it.each([
    ["a later chunk", 0, at("output", 2), ["cut-data"]],
    ["a later chunk, by one", 1, at("output", 2), ["cut-data"]],
    ["an earlier chunk", 2, at("output", 1), []],
    ["scratch", 0, at("scratch", 0), []],
  ] as const)("is a finding when it is kept in %s", (_, from, by, found) => {
    expect(codes(parked(from, by))).toEqual(found);
  });

  it("is told with both chunks, and where it is read", () => {
    const [finding] = verifyPlan(parked(0, at("output", 2)), { lint: false }).findings;
    expect(finding).toMatchObject({ rank: 0, strand: 0, op: 2, chunk: { buffer: "output", index: 2 } });
    expect(finding?.message).toContain("output[2] of rank 0 what comes from chunk 0 of a part");
  });

  it("is right on MSCCL++'s executor, which refuses such sizes", () => {
    expect(codes(parked(0, at("output", 2)), { target: "mscclpp" })).toEqual([]);
  });
});
