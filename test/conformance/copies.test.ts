import { runConformance } from "chorale/conformance";
import { afterAll, describe, expect, it } from "vitest";
import { available, choicesAlone, library } from "../helpers/cuda-worlds.ts";
import { fakeGpuFolder } from "../helpers/fake-gpu.ts";
import { spread } from "../support/spread.ts";
import { failuresOf } from "./failures.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const USES = {
  all_gather: "direct-all-gather*2@copies.32",
  all_to_all: "direct-all-to-all@copies",
  broadcast: "direct-broadcast@copies",
  gather: "direct-gather@copies",
  scatter: "direct-scatter@copies",
} as const;
const choices = choicesAlone(USES, [2, 8]);

describe.skipIf(!available)("the cuda backend with copy engines, over a stand-in library (needs g++)", () => {
  const folder = fakeGpuFolder();
  afterAll(() => folder.remove());

  const worlds = [
    ["thread", [2]],
    ["process", [2]],
    ["thread", [3]],
  ] as const;
  it.each(spread(worlds, 3))(
    "moves as the reference says, ranks as %s",
    { timeout: 600_000 },
    async (isolation, ranks) => {
      const result = await runConformance({
        backend: "cuda",
        backendOptions: { choices },
        isolation,
        only: "data",
        seed,
        ranks,
        filter: "count=uneven",
        env: {
          CHORALE_CUDA_LIBRARY: library,
          CHORALE_NCCL_LIBRARY: library,
          CHORALE_NVRTC_LIBRARY: library,
          ...(isolation === "process" && { FAKE_GPU_FOLDER: folder.path }),
        },
      });
      expect(failuresOf(result)).toEqual([]);
      expect(result.numPassed).toBeGreaterThan(20);
    },
  );
});
