import { describe, expect, it } from "vitest";
import { DEFAULT_PLAN_OPTIONS, type ExecutionPlan, type Op, type SimpleOp } from "../plan/index.ts";
import { verifyPlan } from "./index.ts";
import { sizesToCheck } from "./loop-units.ts";

const UNIT = 1024;
const loop = (body: readonly SimpleOp[], numChunks = 1, unitBytes = UNIT): Op => ({
  kind: "pipeline",
  unitBytes,
  numChunks,
  body,
});
const acquire = (id: number): SimpleOp => ({ kind: "acquire", semaphores: [id] });
const release = (id: number): SimpleOp => ({ kind: "release", semaphores: [id] });
const signal: SimpleOp = { kind: "signal", relaxed: false, channelKind: "memory", channels: [0] };
const wait: SimpleOp = { kind: "wait", relaxed: false, channelKind: "memory", channels: [0] };
const copy = (to: "output" | "scratch", from: "input" | "scratch", size = 1, index = 0): SimpleOp => ({
  kind: "copy",
  format: "plain",
  src: { buffer: from, index, size },
  dst: { buffer: to, index: 0, size },
});

/** Ranks by strands by operations; each rank has a channel to the next. */
function planOf(
  ranks: readonly (readonly (readonly Op[])[])[],
  semaphores: readonly number[],
  chunks = 1,
): ExecutionPlan {
  const buffer = { chunks, segments: 1 };
  return {
    schemaVersion: 1,
    name: "loops",
    mode: "imported",
    collective: { operation: "test", numRanks: ranks.length, chunksPerPart: chunks, inPlace: false },
    options: DEFAULT_PLAN_OPTIONS,
    ranks: ranks.map((strands, rank) => ({
      rank,
      input: buffer,
      output: buffer,
      scratch: { chunks: 2 * chunks, segments: 1 },
      channels: { memory: ranks.length > 1 ? [(rank + 1) % ranks.length] : [], port: [], switch: [] },
      semaphores: semaphores.map((initialValue) => ({ initialValue })),
      strands: strands.map((ops, id) => ({ id, ops })),
    })),
    sources: [],
  };
}
const codes = (plan: ExecutionPlan, unitsPerChunk?: readonly number[]) => [
  ...new Set(
    verifyPlan(plan, { lint: false, ...(unitsPerChunk === undefined ? {} : { unitsPerChunk }) })
      .findings.filter((f) => f.severity === "error")
      .map((f) => f.code),
  ),
];

describe("loops", () => {
  it("are unrolled for one and two units, for credits + 2, and for messages of one iteration", () => {
    const bytes = (plan: ExecutionPlan) => sizesToCheck(plan).list.map(({ chunkBytes }) => chunkBytes);
    expect(bytes(planOf([[[loop([copy("output", "input")])]]], []))).toEqual([UNIT, 2 * UNIT]);
    const lock = [acquire(0), release(0)];
    expect(bytes(planOf([[[loop(lock)]]], [3]))).toEqual([UNIT, 2 * UNIT, 5 * UNIT]);
    expect(bytes(planOf([[[loop([copy("output", "input", 3)], 3)]]], [], 3))).toEqual([UNIT, 2 * UNIT, UNIT / 4]);
    expect(bytes(planOf([[[loop([copy("output", "input", 3)], 3, 1025)]]], [], 3))).toEqual([1025, 2050, 1025 / 4]);
    expect(bytes(planOf([[[copy("output", "input")]]], []))).toEqual([0]);
    // Two rates: every size below two units at which one of the loops runs once more, and between.
    const rates = sizesToCheck(planOf([[[loop([{ kind: "nop" }], 1, 600), loop([copy("output", "input")])]]], []));
    expect(rates.list.map(({ chunkBytes }) => chunkBytes)).toEqual([
      1024, 2048, 600, 1200, 812, 1112, 1500, 1800, 1924, 2560,
    ]);
    expect(rates.notCovered).toBeUndefined();
  });

  it("are undecided where not all of them are looked at: many units of one rate, parts that do not divide at many distances", () => {
    const nops = (count: number) =>
      Array.from({ length: count }, (_, k) => loop([{ kind: "nop" }], k + 1, 16 * (k + 1)));
    expect(sizesToCheck(planOf([[nops(20)]], [], 20)).notCovered).toBeUndefined();
    expect(codes(planOf([[nops(60)]], [], 60))).toEqual(["undecided"]);
    const half = (index: number, size: number): SimpleOp =>
      ({ ...copy("output", "input", size, index), tbg: { index: 0, size: 2 } }) as SimpleOp;
    const notCovered = (...body: SimpleOp[]) => sizesToCheck(planOf([[[loop(body, 4)]]], [], 4)).notCovered;
    expect(notCovered(half(0, 3))).toBeUndefined();
    expect(notCovered(half(1, 2))).toBeUndefined();
    expect(notCovered(half(0, 3), half(1, 3))?.message).toContain("do not divide");
  });

  it("that block only when credits are used up are found, which one and two units would not show", () => {
    // The second strand gives the tokens back in a loop of its own, after the first loop: too late for the third unit.
    const late = planOf([[[loop([acquire(0), release(1)])], [loop([acquire(1)]), loop([release(0)])]]], [2, 0]);
    expect(codes(late, [1, 2])).toEqual([]);
    expect(codes(late)).toEqual(["deadlock"]);
    const inTime = planOf([[[loop([acquire(0), release(1)])], [loop([acquire(1), release(0)])]]], [2, 0]);
    expect(codes(inTime)).toEqual([]);
    expect(codes(inTime, [1, 2, 3, 4, 5, 6, 7])).toEqual([]);
  });

  it("that count alike at one and two units, but not at three, are found without unrolling", () => {
    // 2 per unit against 1 per 0.6 units: 2 and 2, 4 and 4, then 6 and 5.
    const ends = planOf([[[loop([signal], 2, 1000)]], [[loop([wait], 1, 600)]]], []);
    expect(codes(ends)).toEqual(["loop-mismatch"]);
    // The same rate said otherwise is one rate.
    expect(codes(planOf([[[loop([signal], 2, 1000)]], [[loop([wait], 1, 500)]]], []))).toEqual([]);
  });

  it("count as credits what is signalled before them: every id of a release, puts that notify, all ranks together", () => {
    const units = (plan: ExecutionPlan) => sizesToCheck(plan).list.map(({ chunkBytes }) => chunkBytes / UNIT);
    const thrice: Op = { kind: "release", semaphores: [0, 0, 0] };
    expect(units(planOf([[[thrice, loop([acquire(0)])]]], [1]))).toContain(6);
    // Two strands of one rank and one of another: the sum counts, not the largest.
    expect(units(planOf([[[signal, loop([wait])], [signal]], [[signal, loop([wait])]]], []))).toContain(5);
  });

  it("over several chunks are checked for small messages too: one iteration has all of them", () => {
    // Per unit, chunk 1 is copied on before chunk 0's iteration writes it; in one iteration both happen, unsynchronised.
    const shifted = (sync: SimpleOp[]) =>
      planOf([[[loop([copy("scratch", "input", 2), ...sync, copy("output", "scratch", 2, 0)], 2)]]], [], 2);
    expect(codes(shifted([]))).toEqual([]);
    const crossed = planOf(
      [
        [
          [
            loop(
              [
                copy("scratch", "input", 2),
                {
                  kind: "copy",
                  format: "plain",
                  src: { buffer: "scratch", index: 1, size: 1 },
                  dst: { buffer: "output", index: 0, size: 1 },
                },
              ],
              2,
            ),
          ],
        ],
      ],
      [],
      2,
    );
    expect(codes(crossed, [0.5])).toEqual(["hazard"]);
    expect(codes(crossed)).not.toEqual([]);
  });
});
