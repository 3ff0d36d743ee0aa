/** Ranks that run far ahead of the others, over the stand-in library: nothing is forgotten that a member has yet to compare or to read. */

import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();
const options = { backend: "nccl", timeoutMs: 30_000, backendOptions: { timeoutMs: 15_000 } } as const;

describe.skipIf(!available)("calls far ahead of the slowest member (needs a C++ compiler)", () => {
  it("forgets nothing for a batch as large as can be, and refuses a larger one", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const { comm } = world;
        const x = world.tensor("f32", [4]);
        await comm.allReduce(x);
        const side = await comm.split(0);
        await side?.barrier();
        const repeat = (numCalls: number) =>
          comm.batch((group) => {
            for (let i = 0; i < numCalls; i++) group.allReduce(x, { op: "max" });
          });
        const refused: string[] = [];
        try {
          await repeat(512);
        } catch (error) {
          refused.push(String(error));
        }
        // Rank 0 has made the batch before rank 1 reads the lengths of the objects.
        const objects = comm.gatherObjects(`object of rank ${world.rank}`);
        if (world.rank === 1) await side?.recv(new Float32Array(1), 0);
        const batch = repeat(511);
        if (world.rank === 0) await side?.send(new Float32Array(1), 1);
        const values = await objects;
        await batch;
        await comm.allReduce(x);
        return [...values, ...refused];
      },
    });
    for (const [first, second, refused] of found) {
      expect([first, second]).toEqual(["object of rank 0", "object of rank 1"]);
      expect(refused).toMatch(/InvalidArgumentError.*512.*at most 511/);
    }
  });

  it.each([100, 1500])("sees that a rank %i calls behind makes another call than the others did", async (ahead) => {
    const found = await launch({
      ...options,
      ranks: 2,
      data: ahead,
      run: async (world, ahead) => {
        const comm = await world.comm.split(0);
        if (comm === undefined) throw new Error("no group");
        const x = world.tensor("f32", [256]);
        await comm.broadcast(x);
        await comm.broadcast(x, { root: 1 });
        const works: PromiseLike<unknown>[] = [];
        const errors: string[] = [];
        const third = comm.barrier();
        await third;
        if (third.seq !== 2) errors.push(`the third call is number ${third.seq}`);
        try {
          if (world.rank === 1) {
            await world.comm.recv(new Float32Array(1), 0);
            works.push(comm.broadcast(x, { root: 1 }));
          }
          // A small broadcast need not wait for its receivers.
          while (works.length < ahead) works.push(comm.broadcast(x));
        } catch (error) {
          errors.push(String(error));
        }
        if (world.rank === 0) await world.comm.send(new Float32Array(1), 1);
        for (const work of works) await Promise.resolve(work).catch((error: unknown) => errors.push(String(error)));
        return errors[0];
      },
    });
    for (const text of found) expect(text).toMatch(/MismatchError.*disagree on operation #3/);
  });

  it("runs far ahead of the others, object collectives and splits among the calls, and nothing is lost", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const { comm } = world;
        const x = world.tensor("f32", [4]);
        world.upload(x, new Float32Array(4).fill(1));
        await comm.allReduce(x, { op: "max" });
        const side = await comm.split(0);
        if (world.rank === 1) await side?.recv(new Float32Array(1), 0);
        const objects = comm.gatherObjects(world.rank);
        const works: PromiseLike<unknown>[] = [];
        for (let i = 0; i < 700; i++) works.push(comm.allReduce(x, { op: "max" }));
        const group = comm.split(0, -world.rank);
        for (let i = 0; i < 700; i++) works.push(comm.allReduce(x, { op: "max" }));
        const last = comm.broadcastObject(world.rank === 0 ? "told" : undefined);
        if (world.rank === 0) await side?.send(new Float32Array(1), 1);
        for (const work of works) await work;
        return [await objects, (await group)?.ranks, await last];
      },
    });
    expect(found).toEqual([
      [[0, 1], [1, 0], "told"],
      [[0, 1], [1, 0], "told"],
    ]);
  });
});
