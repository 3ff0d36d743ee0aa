import { runConformance, SEMANTIC_CASES } from "chorale/conformance";
import { afterAll, describe, expect, it } from "vitest";
import { buildFakeGpu, heldByFakeGpu, NOTHING_HELD } from "../helpers/fake-gpu.ts";
import { spread } from "../support/spread.ts";
import { FEW, failuresOf, MOST_NCCL_RANKS } from "./failures.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const library = buildFakeGpu();
const env = {
  CHORALE_CUDA_LIBRARY: library ?? "",
  CHORALE_NCCL_LIBRARY: library ?? "",
};

/** On a machine with GPUs the same suite runs over NCCL itself: `npm run conformance:full -- --backend nccl`. */
describe.skipIf(library === undefined)("nccl backend over a stand-in library (needs g++)", () => {
  afterAll(() => {
    expect(heldByFakeGpu(library ?? "")).toEqual(NOTHING_HELD);
  });

  it("moves and reduces as the reference says", { timeout: 600_000 }, async () => {
    const result = await runConformance({
      backend: "nccl",
      only: "data",
      seed,
      ranks: spread([1, 2, 3], 2),
      env,
      filter: "count=uneven",
    });
    expect(failuresOf(result)).toEqual([]);
    expect(result.numPassed).toBeGreaterThan(30);
  });

  it.each(spread([{ registerBuffers: true }, { blocking: false }], 2))(
    "moves and reduces with %o as the reference says",
    { timeout: 300_000 },
    async (backendOptions) => {
      const result = await runConformance({
        backend: "nccl",
        backendOptions,
        only: "data",
        seed,
        ranks: [2],
        env,
        filter: "count=uneven output=none",
      });
      expect(failuresOf(result)).toEqual([]);
      expect(result.numPassed).toBeGreaterThan(10);
    },
  );

  // By turns with nccl-processes.test.ts.
  const { threads: maxRanks = 5 } = MOST_NCCL_RANKS;
  it.runIf("threads" in MOST_NCCL_RANKS)("behaves as the contract says", { timeout: 600_000 }, async () => {
    const result = await runConformance({ backend: "nccl", only: "behaviour", seed, env, ...FEW, maxRanks });
    expect(failuresOf(result)).toEqual([]);
    expect(result.numPassed + result.numSkipped).toBe(SEMANTIC_CASES.length);
    expect(result.skipped.filter(({ why }) => !why.endsWith("are the most that was asked for"))).toEqual([
      { why: expect.stringContaining("minMaxPropagatesNan"), cases: 1 },
      { why: expect.stringContaining("plans on GPUs"), cases: 3 },
    ]);
    const numFitting = SEMANTIC_CASES.filter(({ ranks }) => ranks <= maxRanks).length;
    expect(result.numPassed).toBe(numFitting - 4);
  });
});
