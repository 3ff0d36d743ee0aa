/**
 * What calls come behind on the device that are not on their group's stream yet: those that are held back, and those that
 * NCCL's own thread has yet to launch (`blocking: false`). Over the stand-in library.
 */

import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();
const options = { backend: "nccl", timeoutMs: 30_000, backendOptions: { timeoutMs: 15_000 } } as const;
const nonBlocking = { ...options, backendOptions: { ...options.backendOptions, blocking: false } } as const;

describe.skipIf(!available)("the order of calls that are not on the stream yet (needs a C++ compiler)", () => {
  it("sends what a collective has left that NCCL is still at", async () => {
    const found = await launch({
      ...nonBlocking,
      ranks: 2,
      run: async (world) => {
        const { comm, rank } = world;
        const [x, y] = [world.tensor("f32", [4]), world.tensor("f32", [4])];
        await comm.allReduce(x);
        const received: (number | undefined)[] = [];
        for (let i = 0; i < 5; i++) {
          world.upload(x, new Float32Array(4).fill(1));
          await comm.barrier();
          const works = [comm.allReduce(x), comm.send(x, 1 - rank), comm.recv(y, 1 - rank)];
          for (const work of works) await work;
          received.push(world.download(y)[0]);
        }
        return received;
      },
    });
    expect(found).toEqual([Array(5).fill(2), Array(5).fill(2)]);
  });

  it("receives nothing into what a collective has yet to read that NCCL is still at", async () => {
    const found = await launch({
      ...nonBlocking,
      ranks: 2,
      run: async (world) => {
        const { comm, rank } = world;
        const [x, y, z] = [world.tensor("f32", [4]), world.tensor("f32", [4]), world.tensor("f32", [4])];
        await comm.allReduce(x, { output: z });
        const sums: (number | undefined)[] = [];
        for (let i = 0; i < 5; i++) {
          world.upload(x, new Float32Array(4).fill(1));
          world.upload(y, new Float32Array(4).fill(50));
          await comm.barrier();
          await comm.send(y, 1 - rank);
          // The message is there after this.
          await comm.barrier();
          const works = [comm.allReduce(x, { output: z }), comm.recv(x, 1 - rank)];
          for (const work of works) await work;
          sums.push(world.download(z)[0]);
        }
        return sums;
      },
    });
    expect(found).toEqual([Array(5).fill(2), Array(5).fill(2)]);
  });

  it("puts no call behind another stream that NCCL is at when the program asks for it", async () => {
    const found = await launch({
      ...nonBlocking,
      ranks: 2,
      run: async (world) => {
        type Group = import("./communicator.ts").NcclCommunicator;
        const [a, b] = [(await world.comm.split(0)) as Group, (await world.comm.split(0)) as Group];
        const [x, y] = [world.tensor("f32", [4]), world.tensor("f32", [4])];
        for (const group of [a, b]) for (const tensor of [x, y]) await group.allReduce(tensor);
        await world.comm.barrier();
        const first = a.allReduce(x);
        // Rank 1 has its second call behind the first; rank 0 has only later calls of the first group behind the second.
        if (world.rank === 1) {
          a.orderBefore(a.stream);
          b.orderAfter(a.stream);
        }
        const second = b.allReduce(y);
        if (world.rank === 0) {
          b.orderBefore(a.stream);
          a.orderAfter(b.stream);
        }
        await first;
        await second;
        return "done";
      },
    });
    expect(found).toEqual(["done", "done"]);
  });

  it.each(["orderAfter", "orderBefore"] as const)(
    "puts no call that is held back behind another stream: %s",
    async (how) => {
      const found = await launch({
        ...options,
        ranks: 2,
        data: { how },
        run: async (world, { how }) => {
          type Group = import("./communicator.ts").NcclCommunicator;
          const { comm, rank } = world;
          const [a, b, side] = [comm as Group, (await comm.split(0)) as Group, (await comm.split(0)) as Group];
          const [x, y, z] = [world.tensor("f32", [4]), world.tensor("f32", [4]), world.tensor("f32", [4])];
          for (const group of [a, b]) for (const tensor of [x, y]) await group.allReduce(tensor);
          if (rank === 0) {
            await side.recv(z, 1);
            world.upload(x, new Float32Array(4).fill(3));
            // The echo comes before this rank's part of what rank 1 asks to come behind.
            void a.send(x, 1);
            await a.recv(x, 1);
            world.upload(y, new Float32Array(4).fill(1));
            await b.allReduce(y);
            await a.recv(z, 1);
            return world.download(z)[0];
          }
          world.upload(y, new Float32Array(4).fill(1));
          // Held back until the message is there.
          const works = [a.recv(x, 0), a.send(x, 0), b.allReduce(y)];
          if (how === "orderAfter") a.orderAfter(b.stream);
          else b.orderBefore(a.stream);
          // A later call of the group does come behind it.
          works.push(a.send(y, 0), side.send(z, 0));
          for (const work of works) await work;
          return world.download(x)[0];
        },
      });
      expect(found).toEqual([2, 3]);
    },
  );

  it("lets a send overtake a held-back receive without what only the send comes behind", async () => {
    const found = await launch({
      ...options,
      ranks: 3,
      run: async (world) => {
        type Group = import("./communicator.ts").NcclCommunicator;
        const { deviceOf } = await import("chorale/world");
        const main = deviceOf(world)?.main;
        const { comm, rank } = world;
        const side = (await comm.split(0)) as Group;
        const pair = (await comm.split(rank < 2 ? 0 : -1)) as Group | undefined;
        const [x, y, z] = [world.tensor("f32", [4]), world.tensor("f32", [4]), world.tensor("f32", [4])];
        await comm.allReduce(x);
        await pair?.allReduce(y);
        await comm.barrier();
        if (rank === 2) {
          await comm.recv(z, 1);
          return world.download(z)[0];
        }
        if (rank === 0) {
          await side.recv(z, 1);
          void comm.send(x, 1);
          await comm.recv(x, 1);
          world.upload(y, new Float32Array(4).fill(1));
          await pair?.allReduce(y);
          return 2;
        }
        world.upload(y, new Float32Array(4).fill(1));
        // Held back until the message is there.
        const works = [comm.recv(x, 0), comm.send(x, 0), pair?.allReduce(y), side.send(z, 0)];
        pair?.orderBefore(main);
        works.push(comm.send(y, 2));
        for (const work of works) await work;
        return 2;
      },
    });
    expect(found).toEqual([2, 2, 2]);
  });

  it("does not have a send wait for a receive before it, whose peer comes later", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const { comm, rank } = world;
        const [x, y] = [Float32Array.of(rank), new Float32Array(1)];
        await comm.barrier();
        const received = comm.recv(y, 1 - rank);
        await comm.send(x, 1 - rank);
        await received;
        return y[0];
      },
    });
    expect(found).toEqual([1, 0]);
  });
});
