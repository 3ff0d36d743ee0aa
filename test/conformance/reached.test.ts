import { runConformance } from "chorale/conformance";
import { afterAll, describe, expect, it } from "vitest";
import { available, choicesAlone, library } from "../helpers/cuda-worlds.ts";
import { fakeGpuFolder } from "../helpers/fake-gpu.ts";
import { isFull, spread } from "../support/spread.ts";
import { failuresOf } from "./failures.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const USES = {
  all_reduce: "two-phase-all-reduce*2@32",
  all_gather: "streaming-all-gather@32",
  reduce_scatter: "read-reduce-scatter*2@32.u8",
  all_to_all: "one-pass-all-to-all@32",
  broadcast: "one-pass-broadcast@32",
  reduce: "one-pass-reduce@32",
  gather: "direct-gather@32",
  scatter: "one-pass-scatter@32",
} as const;
const choices = choicesAlone(USES, [2, 8]);

describe.skipIf(!available)(
  "kernels that reach buffers of other processes, over a stand-in library (needs g++)",
  () => {
    const folder = fakeGpuFolder();
    afterAll(() => folder.remove());

    it.each(spread([2, 3], 2))("move as the reference says, with %s ranks", { timeout: 600_000 }, async (ranks) => {
      const result = await runConformance({
        backend: "cuda",
        backendOptions: { choices },
        isolation: "process",
        only: "data",
        seed,
        ranks: [ranks],
        // Each type and operator is a kernel that a compiler takes seconds for.
        filter: isFull ? "count=uneven" : "bf16 sum",
        env: {
          CHORALE_CUDA_LIBRARY: library,
          CHORALE_NCCL_LIBRARY: library,
          CHORALE_NVRTC_LIBRARY: library,
          FAKE_GPU_FOLDER: folder.path,
        },
      });
      expect(failuresOf(result)).toEqual([]);
      expect(result.numPassed).toBeGreaterThan(5);
    });
  },
);
