/** Ranks that are threads let each other's kernels use their memory. Over the stand-in, which ends a context otherwise. */
import type { RankDevice } from "chorale/device";
import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();

describe.skipIf(!available)("peer access of a world over NCCL (needs a C++ compiler)", () => {
  it.each([["as ranks are counted", undefined] as const, ["in another order", [5, 2, 3]] as const])(
    "lets kernels of each rank write to the next, with devices %s",
    async (_, devices) => {
      const found = await launch({
        ranks: 3,
        backend: "nccl",
        data: new SharedArrayBuffer(24),
        ...(devices === undefined ? {} : { backendOptions: { devices } }),
        run: async (world, shared) => {
          const { deviceOf } = await import("chorale/world");
          const { CudaModule, devicePtr, KernelArguments } = await import("chorale/device");
          const at = deviceOf(world) as RankDevice;
          const addresses = new BigUint64Array(shared);
          const x = world.tensor("u32", [1]);
          addresses[world.rank] = devicePtr(x, at.device, at.generation);
          await world.comm.barrier();
          const kernel = CudaModule.load(at.device, ".version 8.0 // fake image").kernel("store");
          const args = new KernelArguments(at.device, [
            { type: "u64", value: addresses[(world.rank + 1) % world.size] ?? 0n },
            { type: "u32", value: 10 + world.rank },
          ]);
          kernel.launch(at.main, { grid: [1], block: [1] }, args);
          at.main.synchronize("the kernel");
          await world.comm.barrier();
          return [...world.download(x)];
        },
      });
      expect(found).toEqual([[12], [10], [11]]);
    },
  );
});
