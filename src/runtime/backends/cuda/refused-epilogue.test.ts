/** An epilogue that one rank cannot load (needs g++). */
import { expect, it } from "vitest";
import { available, choicesAlone, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { launch } from "../../world/index.ts";

it.skipIf(!available)(
  "an epilogue is refused on all ranks where one cannot load its kernel, and their group goes on",
  {
    timeout: 120_000,
  },
  async () => {
    const said = await launch({
      ...worldOf("process"),
      backendOptions: { choices: choicesAlone({ all_reduce: "nccl" }, [2, 2]) },
      run: async (world) => {
        const { allReduceResidualRmsNorm } = await import("chorale/extensions");
        if (world.rank === 1) process.env["CHORALE_NVRTC_LIBRARY"] = "/nowhere/libnvrtc.so";
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const [input, residual, weight] = [64, 64, 32].map((count) => {
          const made = world.tensor("f32", [count]);
          world.upload(made, new Float32Array(count).fill(1));
          return made;
        }) as [never, never, never];
        const hear = async (fn: () => unknown) => {
          try {
            await fn();
            return "made";
          } catch (error) {
            return `${(error as { code?: string }).code}: ${(error as Error).message}`;
          }
        };
        const call = () => allReduceResidualRmsNorm(comm, { input, residual, weight });
        const all = [await hear(call), await hear(call), await hear(() => comm.capture(() => void call()))];
        await comm.allReduce(input);
        return [...all, world.download(input)[0], world.download(residual)[0]];
      },
    });
    for (const [rank, [first, second, captured, ...values]] of said.entries()) {
      expect(first).toMatch(rank === 1 ? /^UNAVAILABLE: .*NVRTC/s : /^UNSUPPORTED: .*rank 1 cannot run it: .*NVRTC/s);
      expect([second, captured]).toEqual([first, first]);
      // The sum of what no refused call has touched.
      expect(values).toEqual([2, 1]);
    }
  },
);
