/** Kernels that reach buffers of others and are told to end before those have come, over the stand-in library. */
import { launch } from "chorale/world";
import { describe, expect, it } from "vitest";
import { available, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { spread } from "../../../../test/support/spread.ts";

describe.skipIf(!available)("launches that end before others have begun them, on stand-in devices (needs g++)", () => {
  const kinds = [
    ["thread", "two-phase-all-reduce*2@32"],
    ["process", "two-phase-push-all-reduce*2@32"],
  ] as const;
  it.each(spread(kinds, 2))("reach nowhere, ranks as %s, by %s", { timeout: 120_000 }, async (isolation, algorithm) => {
    const ends = await launch({
      ...worldOf(isolation),
      data: algorithm,
      run: async (world, algorithm) => {
        const told = async (call: () => PromiseLike<unknown>) => {
          try {
            await call();
            return "done";
          } catch (error) {
            return (error as Error).message;
          }
        };
        const group = (await world.comm.split(0)) as import("chorale/nccl").NcclCommunicator;
        const x = world.tensor("i32", [1000]);
        await group.allReduce(x, { algorithm });
        // Its first launch is the second of all, of which no peer has told anything yet where it tells of this one.
        const graph = group.capture((one) => void one.allReduce(x, { algorithm }));
        const replayed = world.rank === 0 ? await told(() => group.replay(graph, { timeoutMs: 300 })) : undefined;
        await world.comm.barrier();
        const end = replayed ?? (await told(() => group.allReduce(x)));
        await group.close().catch(() => {});
        // The device is as good as before.
        world.upload(x, new Int32Array(1000).fill(1 + world.rank));
        await world.comm.allReduce(x);
        return [end, world.download(x)[999]] as const;
      },
    });
    const late = /replay.* did not complete within 300 ms; arrived: ranks \[0\], missing: ranks \[1\]/;
    expect(ends).toEqual(Array(2).fill([expect.stringMatching(late), 3]));
  });
});
