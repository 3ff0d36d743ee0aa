/** What a communicator's queue does when a call or its group fails, over the stand-in library. */

import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { buildFakeGpu, type HeldByFakeGpu, heldByFakeGpu, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
const options = { backend: "nccl", timeoutMs: 30_000, backendOptions: { timeoutMs: 15_000 } } as const;

describe.skipIf(!available)("a queue that fails (needs a C++ compiler)", () => {
  let before: HeldByFakeGpu;
  beforeEach(() => {
    before = heldByFakeGpu(library);
  });
  afterEach(() => {
    // Also nothing was freed while its devices needed the thread that freed it.
    expect(heldByFakeGpu(library)).toEqual(before);
  });

  it("leaves no NCCL group open after a throw, and ends the group that it was in", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const at = deviceOf(world);
        if (at === undefined) throw new Error("no device");
        const broken = await world.comm.split(0);
        const sibling = await world.comm.split(0);
        const x = world.tensor("f32", [64]);
        await broken?.allReduce(x);
        await sibling?.allReduce(x);
        const used = at.pool.stats().usedBytes;
        const call = at.device.call.bind(at.device);
        at.device.call = (symbol, operation, ...rest) => {
          if (operation === "own part") throw new Error("no copy");
          call(symbol, operation, ...rest);
        };
        const seen = await Promise.resolve(broken?.allToAllV(x, { sendCounts: [32, 32], recvCounts: [32, 32] })).catch(
          String,
        );
        at.device.call = call;
        world.upload(x, new Float32Array(64).fill(1));
        await sibling?.allReduce(x);
        return { seen, sum: world.download(x)[0], used, later: at.pool.stats().usedBytes };
      },
    });
    for (const { seen, sum } of found) {
      expect(seen).toMatch(/no copy/);
      expect(sum).toBe(2);
    }
  });

  it("fails a call that NCCL refuses, and gives the result of the one before", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const comm = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
        const [x, y] = [world.tensor("f32", [64]), world.tensor("f32", [64])];
        world.upload(x, new Float32Array(64).fill(1));
        await comm.allReduce(y);
        const before = comm.allReduce(x).then(
          () => "done",
          (error) => error.code,
        );
        // Neither rank learns of the failure before it has made the call before.
        await world.comm.barrier();
        const { api } = comm.parts.queue.options.library;
        const { ncclAllReduce } = api;
        if (world.rank === 0) Object.assign(api, { ncclAllReduce: () => 1 });
        const refused = await (async () => comm.allReduce(y))().then(
          () => "done",
          (error) => String(error),
        );
        Object.assign(api, { ncclAllReduce });
        return { before: await before, refused, sum: world.download(x)[0] };
      },
    });
    for (const { before, refused, sum } of found) {
      expect([before, sum]).toEqual(["done", 2]);
      expect(refused).toMatch(/all_reduce returned 1/);
    }
  });

  it("makes a call whose turn was granted, though its group is aborted: the others may be in NCCL with it", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const comm = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
        await comm.barrier();
        const { control } = comm.parts.queue.options;
        const x = world.tensor("f32", [64]);
        world.upload(x, new Float32Array(64).fill(world.rank + 1));
        const call = comm.allReduce(x);
        const work = call.then(
          () => "done",
          (error) => error.code,
        );
        if (world.rank === 1) {
          const until = performance.now() + 10_000;
          const collectives = { kind: "collective" } as const;
          while (control.issued(0, collectives) < control.issued(1, collectives) && performance.now() < until);
          // Offers itself, and does not look again until rank 0 has taken the turn for both; unless it has made the call at once.
          comm.parts.queue.poll(performance.now());
          while (call.state === "queued" && !control.granted && performance.now() < until);
          comm.abort("never mind");
        }
        const result = await work;
        const next = await (async () => comm.allReduce(x))().then(
          () => "done",
          (error) => error.code,
        );
        return [result, world.download(x)[63], next];
      },
    });
    expect(found).toEqual(Array(2).fill(["done", 3, "ABORTED"]));
  });

  it("gives the results of calls that all members have made, also when the group fails before the device is done", async () => {
    const found = await launch({
      ...options,
      ranks: 3,
      run: async (world) => {
        type Group = import("./communicator.ts").NcclCommunicator;
        const comm = (await world.comm.split(0)) as Group;
        const pair = (await world.comm.split(world.rank === 2 ? -1 : 0)) as Group | undefined;
        const [x, y] = [world.tensor("f32", [64]), world.tensor("f32", [64])];
        // Warm, so that they are on the stream at once.
        await comm.allReduce(x);
        await pair?.allReduce(y);
        await world.comm.barrier();
        world.upload(x, new Float32Array(64).fill(world.rank));
        // Rank 0's device comes to the call when rank 1 has made one of another group.
        const before = world.rank === 0 ? pair?.allReduce(y) : undefined;
        if (pair !== undefined && world.rank === 0) comm.orderAfter(pair.stream);
        const whole = comm.allReduce(x).then(
          () => "done",
          (error) => error.code,
        );
        const all = world.comm.barrier();
        if (world.rank === 1) {
          // As long as a device, or the thread that feeds it, may be held up while the others learn of the failure.
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 250);
          await pair?.allReduce(y);
        }
        await all;
        const next = await (async () =>
          comm.allReduce(world.rank === 2 ? new Int32Array(4) : new Float32Array(4)))().then(
          () => "done",
          (error) => error.code,
        );
        const result = await whole;
        await before;
        return [result, next, world.download(x)[63]];
      },
    });
    expect(found).toEqual(Array(3).fill(["done", "MISMATCH", 3]));
  });

  it("gives back what it has when a buffer in host memory cannot be staged", async () => {
    const [found] = await launch({
      ...options,
      ranks: 1,
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const at = deviceOf(world);
        if (at === undefined) throw new Error("no device");
        const used = at.pool.stats().usedBytes;
        const take = at.pinned.take.bind(at.pinned);
        at.pinned.take = () => {
          throw new Error("no pinned memory");
        };
        const errors: string[] = [];
        const attempt = (fn: () => unknown) => {
          try {
            fn();
            errors.push("accepted");
          } catch (error) {
            errors.push(String(error));
          }
        };
        attempt(() => world.comm.allReduce(new Float32Array(1024)));
        at.pinned.take = take;
        const gone = new Float32Array(4);
        structuredClone(gone.buffer, { transfer: [gone.buffer] });
        attempt(() => world.comm.allReduce(gone));
        attempt(() => world.comm.allGatherV(new Float32Array(4), undefined as never));
        attempt(() => world.comm.allToAllV(new Float32Array(4), undefined as never));
        return { errors, kept: at.pool.stats().usedBytes - used };
      },
    });
    expect(found?.errors[0]).toMatch(/no pinned memory/);
    for (const error of found?.errors.slice(1) ?? []) expect(error).toMatch(/^InvalidArgumentError/);
    expect(found?.kept).toBe(0);
  });

  it.each(["here", "by a peer"] as const)(
    "fails the works of a batch whose group fails while its function runs: %s",
    async (where) => {
      const found = await launch({
        ...options,
        ranks: 2,
        data: { where, failed: new Int32Array(new SharedArrayBuffer(8)) },
        run: async (world, { where, failed }) => {
          const group = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
          const x = world.tensor("f32", [4]);
          await group.allReduce(x);
          await world.comm.barrier();
          if (world.rank === 1) {
            // A group that has failed already refuses a batch before its function runs.
            if (where === "here") return ["gave up", "gave up"];
            Atomics.wait(failed, 0, 0, 10_000);
            group.abort("gave up");
            Atomics.store(failed, 1, 1);
            Atomics.notify(failed, 1);
            return ["gave up", "gave up"];
          }
          let work: { readonly error?: unknown; readonly state: string } | undefined;
          const answer = await (async () =>
            group.batch((batch) => {
              work = batch.allReduce(x) as unknown as typeof work;
              if (where === "here") group.abort("gave up");
              else {
                Atomics.store(failed, 0, 1);
                Atomics.notify(failed, 0);
                Atomics.wait(failed, 1, 0, 10_000);
              }
            }))().then(() => "done", String);
          return [answer, `${work?.state}: ${String(work?.error)}`];
        },
      });
      for (const [answer, work] of found) {
        expect(answer).toMatch(/gave up/);
        expect(work).toMatch(/gave up/);
      }
    },
  );

  it("says when the memory of an array is gone that a result is to go to, also to who looks at nothing", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const answers: unknown[] = [];
        for (const looks of [true, false]) {
          const group = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
          const [x, y] = [new Float32Array(16).fill(1), new Float32Array(16).fill(1)];
          const first = group.allReduce(x);
          const second = group.allReduce(y);
          if (world.rank === 0) structuredClone(y.buffer, { transfer: [y.buffer] });
          await first;
          if (looks || world.rank === 1)
            answers.push(
              await second.then(
                () => "done",
                (error) => error.code,
              ),
            );
          answers.push(await group.close().then(() => "closed", String));
        }
        return answers;
      },
    });
    expect(found[0]?.[0]).toBe("INVALID_ARGUMENT");
    expect(found[0]?.[2]).toMatch(/buffer was transferred.*while its call was pending/);
    expect(found[1]?.[0]).toBe("done");
  });
});
