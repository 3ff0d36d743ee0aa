/** How far a failure reaches: what it ends, and what it leaves alone. Over the stand-in. */
import type { RankDevice } from "chorale/device";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { buildFakeGpu, type HeldByFakeGpu, heldByFakeGpu, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

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
        const { deviceStorageOf } = await import("chorale/device");
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

  it("tells copies of failures only of the calls that they are behind", async () => {
    const results = await launch({
      ranks: 2,
      backend: "nccl",
      backendOptions: { timeoutMs: 20_000 },
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const at = deviceOf(world) as RankDevice;
        const group = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
        const code = (fn: () => unknown) => {
          try {
            return fn();
          } catch (error) {
            return (error as { code?: string }).code;
          }
        };
        const [x, y] = [world.tensor("f32", [4]), world.tensor("f32", [4])];
        for (const one of [x, y]) world.upload(one, Float32Array.of(1, 2, 3, 4));
        await group.allReduce(x);
        // The device has done the call when this returns; that it was done is noticed later.
        const done = group.allReduce(x);
        group.orderBefore(at.main);
        const found: unknown[] = [world.download(x)[0]];
        await done;
        // A call that never ends is behind what main waits for.
        const late = world.rank === 0 ? group.allReduce(x) : undefined;
        await world.comm.barrier();
        if (world.rank === 0) group.abort("not needed any more");
        await late?.then(undefined, () => {});
        await world.comm.barrier();
        found.push(code(() => group.allReduce(x)));
        for (let i = 0; i < 2; i++) found.push(code(() => world.download(y)[3]));
        // And before: main is behind the call that fails.
        const other = (await world.comm.split(0)) as typeof group;
        await other.allReduce(y);
        await world.comm.barrier();
        if (world.rank === 0) {
          const lost = other.allReduce(y);
          lost.then(undefined, () => {});
          other.orderBefore(at.main);
          other.abort("given up");
          found.push(code(() => world.download(x)[0]));
          found.push(code(() => typeof world.download(x)[0]));
        }
        await world.comm.barrier();
        return found;
      },
    });
    const both = [4, "ABORTED", 4, 4];
    expect(results).toEqual([[...both, "ABORTED", "number"], both]);
  });

  it("tells the world why a rank leaves, and not what failed in a group before and was dealt with", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      backendOptions: { timeoutMs: 20_000 },
      onFailure: "respawn",
      restarts: 1,
      run: async (world) => {
        const group = await world.comm.split(0);
        const x = world.tensor("f32", [4]);
        await group?.allReduce(x);
        await world.comm.allReduce(x);
        if (world.rank === 0) group?.abort("an old story");
        const told = await (async () => group?.allReduce(x))().catch((error) => error.code);
        await world.comm.barrier();
        let failure = "";
        if (world.rank === 0) {
          const seen = (async () => {
            for (;;) await world.comm.allReduce(x);
          })();
          failure = await seen.catch((error) => `${error.code} ${error.message}`);
        }
        const next = await world.rebuild();
        await next.comm.barrier();
        return [told, failure, next.generation];
      },
    });
    const left = expect.stringMatching(/^RANK_FAILED rank 1 failed.*rebuild\(\) left it/);
    expect(found).toEqual([
      ["ABORTED", left, 2],
      ["ABORTED", "", 2],
    ]);
  });
});
