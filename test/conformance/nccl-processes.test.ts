import { runConformance, SEMANTIC_CASES } from "chorale/conformance";
import { afterAll, describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder } from "../helpers/fake-gpu.ts";
import { spread } from "../support/spread.ts";
import { FEW, failuresOf, MOST_NCCL_RANKS } from "./failures.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const library = buildFakeGpu();

/**
 * As nccl.test.ts, which has four and five ranks as well, with every rank a process: control by a mapped file, peer memory by
 * IPC handles.
 */
describe.skipIf(library === undefined)("nccl backend, ranks as processes, over a stand-in library (needs g++)", () => {
  const folder = fakeGpuFolder();
  afterAll(() => folder.remove());
  const common = {
    backend: "nccl",
    isolation: "process",
    seed,
    env: {
      CHORALE_CUDA_LIBRARY: library ?? "",
      CHORALE_NCCL_LIBRARY: library ?? "",
      FAKE_GPU_FOLDER: folder.path,
    },
  } as const;

  // By turns with nccl-hosts.test.ts.
  it.runIf(spread([false, true], 2).includes(true))(
    "moves and reduces as the reference says",
    { timeout: 600_000 },
    async () => {
      const result = await runConformance({ ...common, only: "data", ranks: [3], filter: "count=uneven" });
      expect(failuresOf(result)).toEqual([]);
      expect(result.numPassed).toBeGreaterThan(20);
    },
  );

  // By turns with nccl.test.ts.
  const { processes: maxRanks = 3 } = MOST_NCCL_RANKS;
  it.runIf("processes" in MOST_NCCL_RANKS)("behaves as the contract says", { timeout: 600_000 }, async () => {
    const result = await runConformance({ ...common, only: "behaviour", ...FEW, maxRanks });
    expect(failuresOf(result)).toEqual([]);
    expect(result.numPassed + result.numSkipped).toBe(SEMANTIC_CASES.length);
    const cannot = [
      { why: expect.stringContaining("minMaxPropagatesNan"), cases: 1 },
      { why: expect.stringContaining("plans on GPUs"), cases: 3 },
    ];
    const skipped = result.skipped.filter(({ why }) => !why.endsWith("are the most that was asked for"));
    expect(skipped).toEqual(maxRanks < 3 ? [] : cannot);
    const numSmall = SEMANTIC_CASES.filter(({ ranks }) => ranks <= maxRanks).length;
    expect(result.numPassed).toBeGreaterThanOrEqual(numSmall - 4);
  });
});
