/** The cuda backend's plans by kernels that reach buffers of other processes, and by copy engines: one of these ways with every seed. */
import { runConformance } from "chorale/conformance";
import { afterAll, describe, expect, it } from "vitest";
import { available, choicesAlone, library } from "../helpers/cuda-worlds.ts";
import { fakeGpuFolder } from "../helpers/fake-gpu.ts";
import { isFull, spread } from "../support/spread.ts";
import { failuresOf } from "./failures.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const REACHED = {
  all_reduce: "two-phase-all-reduce*2@32",
  all_gather: "streaming-all-gather@32",
  reduce_scatter: "read-reduce-scatter*2@32.u8",
  all_to_all: "one-pass-all-to-all@32",
  broadcast: "one-pass-broadcast@32",
  reduce: "one-pass-reduce@32",
  gather: "direct-gather@32",
  scatter: "one-pass-scatter@32",
} as const;
const COPIES = {
  all_gather: "direct-all-gather*2@copies.32",
  all_to_all: "direct-all-to-all@copies",
  broadcast: "direct-broadcast@copies",
  gather: "direct-gather@copies",
  scatter: "direct-scatter@copies",
} as const;
const WORLDS = [
  { what: "kernels that reach buffers", uses: REACHED, isolation: "process", ranks: 2, least: 5 },
  { what: "copy engines", uses: COPIES, isolation: "thread", ranks: 2, least: 20 },
  { what: "kernels that reach buffers", uses: REACHED, isolation: "process", ranks: 3, least: 5 },
  { what: "copy engines", uses: COPIES, isolation: "process", ranks: 2, least: 20 },
  { what: "copy engines", uses: COPIES, isolation: "thread", ranks: 3, least: 20 },
] as const;

describe.skipIf(!available)("the cuda backend over a stand-in library (needs g++)", () => {
  const folder = fakeGpuFolder();
  afterAll(() => folder.remove());

  it.each(spread(WORLDS, 5))(
    "moves as the reference says by $what, ranks as $isolation, $ranks of them",
    { timeout: 600_000 },
    async ({ uses, isolation, ranks, least }) => {
      const result = await runConformance({
        backend: "cuda",
        backendOptions: { choices: choicesAlone(uses, [2, 8]) },
        isolation,
        only: "data",
        seed,
        ranks: [ranks],
        // Each type and operator is a kernel that a compiler takes seconds for.
        filter: uses === COPIES || isFull ? "count=uneven" : "bf16 sum",
        env: {
          CHORALE_CUDA_LIBRARY: library,
          CHORALE_NCCL_LIBRARY: library,
          CHORALE_NVRTC_LIBRARY: library,
          ...(isolation === "process" && { FAKE_GPU_FOLDER: folder.path }),
        },
      });
      expect(failuresOf(result)).toEqual([]);
      expect(result.numPassed).toBeGreaterThan(least);
    },
  );
});
