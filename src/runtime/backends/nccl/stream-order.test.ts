/** What a group's stream comes behind on the device, over the stand-in library. */

import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();
const options = { backend: "nccl", timeoutMs: 30_000, backendOptions: { timeoutMs: 15_000 } } as const;

describe.skipIf(!available)("the order behind the main stream (needs a C++ compiler)", () => {
  it("puts every group behind the main stream, whichever saw its work first", async () => {
    const found = await launch({
      ...options,
      ranks: 3,
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, issued) => {
        const { deviceOf } = await import("chorale/world");
        const { devicePtr } = await import("chorale/device");
        const at = deviceOf(world);
        if (at === undefined) throw new Error("no device");
        const of = async (...ranks: number[]) =>
          (await world.comm.split(ranks.includes(world.rank) ? 0 : -1)) as
            | import("./communicator.ts").NcclCommunicator
            | undefined;
        const [slow, first, second] = [await of(0, 2), await of(0, 1), await of(0, 1)];
        const [x, y, z] = [world.tensor("u8", [256]), world.tensor("u8", [256]), world.tensor("u8", [256])];
        for (const group of [first, second, slow]) await group?.allReduce(z);
        await world.comm.barrier();
        if (world.rank === 2) {
          while (Atomics.load(issued, 0) === 0) await new Promise((resolve) => setImmediate(resolve));
          await slow?.allReduce(z);
          return undefined;
        }
        // The main stream of rank 0 waits for rank 2, and then writes x.
        const waited = slow?.allReduce(z);
        slow?.orderBefore(at.main);
        at.device.call("cuMemsetD8Async", "fill", devicePtr(x, at.device), 5, 256, at.main.handle);
        at.main.touched = true;
        const works = [first?.allReduce(y), second?.allReduce(x)];
        if (world.rank === 0) Atomics.store(issued, 0, 1);
        await waited;
        for (const work of works) await work;
        return world.download(x)[0];
      },
    });
    expect(found).toEqual([10, 10, undefined]);
  });

  it("puts a call that was held back behind what the main stream had before it, and not behind what came later", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, given) => {
        const { deviceOf } = await import("chorale/world");
        const at = deviceOf(world);
        if (at === undefined) throw new Error("no device");
        type Group = import("./communicator.ts").NcclCommunicator | undefined;
        const [held, warm] = [(await world.comm.split(0)) as Group, (await world.comm.split(0)) as Group];
        const [x, y] = [world.tensor("f32", [256]), world.tensor("f32", [256])];
        await warm?.allReduce(y);
        await world.comm.barrier();
        // Rank 1 holds its call back until rank 0 has come, and downloads what rank 0 gives after that call.
        while (world.rank === 0 && Atomics.load(given, 0) === 0) await new Promise((resolve) => setImmediate(resolve));
        world.upload(x, new Float32Array(256).fill(world.rank + 1));
        const work = held?.allReduce(x);
        if (world.rank === 0) await work;
        warm?.allReduce(y);
        warm?.orderBefore(at.main);
        if (world.rank === 1) Atomics.store(given, 0, 1);
        world.download(y);
        await work;
        return world.download(x)[255];
      },
    });
    expect(found).toEqual([3, 3]);
  });
});
