/** How far a failure reaches: what it ends, and what it leaves alone. Over the stand-in. */
import type { RankDevice } from "chorale/cuda";
import { launch } from "chorale/world";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { buildFakeGpu, type HeldByFakeGpu, heldByFakeGpu, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
const MIB = 2 ** 20;

describe.skipIf(!available)("how far a failure reaches (needs a C++ compiler)", () => {
  let before: HeldByFakeGpu;
  beforeEach(() => {
    before = heldByFakeGpu(library);
  });
  afterEach(() => {
    // Also nothing was called that no caller may call: a communicator after its end.
    expect(heldByFakeGpu(library)).toEqual(before);
  });

  it("keeps a call from NCCL whose world ends while it waits for memory", async () => {
    const world = launch({
      ranks: 3,
      backend: "nccl",
      backendOptions: { timeoutMs: 10_000, memoryLimitBytes: 8 * MIB },
      data: MIB,
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { deviceStorageOf } = await import("chorale/cuda");
        const at = deviceOf(world) as RankDevice;
        const pair = (await world.comm.split(world.rank === 2 ? 1 : 0)) as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [256]);
        await pair.allReduce(x);
        await world.comm.barrier();
        if (world.rank === 0) {
          // Set aside behind a call that rank 1 never makes: the exchange waits in the pool for it.
          const big = world.tensor("u8", [5 * (world.data as number)]);
          pair.allReduce(x).then(undefined, () => {});
          const storage = deviceStorageOf(big);
          if (storage === undefined) throw new Error("no device memory");
          at.pool.recordUse(storage.allocation, pair.stream);
          world.free(big);
        }
        const exchange = world.comm.gatherObjects("x".repeat(700_000));
        exchange.then(undefined, () => {});
        if (world.rank === 2) {
          await new Promise((resolve) => setTimeout(resolve, 300));
          throw new Error("rank 2 gives up");
        }
        await exchange;
      },
    });
    await expect(world).rejects.toThrow(/rank 2 gives up/);
  });
});
