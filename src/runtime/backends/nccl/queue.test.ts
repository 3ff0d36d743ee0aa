/** What a communicator's queue promises, over the stand-in library: above all while calls are held back. */
import { launch } from "chorale/world";
import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { packCall } from "../../comm/index.ts";
import { kindOf } from "./prepare.ts";

const available = useFakeGpu();
const options = { backend: "nccl", timeoutMs: 30_000, backendOptions: { timeoutMs: 15_000 } } as const;

describe("kinds of calls", () => {
  it("tell element types, operators, sizes and peers apart, and nothing else", () => {
    const f32 = packCall("all_reduce", "f32", "sum", 0);
    const kinds = [
      kindOf(f32, 1000),
      kindOf(f32, 2000),
      kindOf(f32, 2 ** 31),
      kindOf(f32, 2 ** 32),
      kindOf(f32, 2 ** 33),
      kindOf(packCall("all_reduce", "f64", "sum", 0), 1000),
      kindOf(packCall("all_reduce", "f32", "prod", 0), 1000),
      kindOf(packCall("all_gather", "f32", undefined, 0), 1000),
      kindOf(packCall("send", "f32", undefined, 0), 1000, 0),
      kindOf(packCall("send", "f32", undefined, 1), 1000, 1),
      kindOf(packCall("recv", "f32", undefined, 1), 1000, 1),
    ];
    expect(new Set(kinds).size).toBe(kinds.length);
    expect(kindOf(f32, 1023)).toBe(kindOf(f32, 512));
    const broadcast = (root: number) => kindOf(packCall("broadcast", "f32", undefined, root), 1000);
    expect(broadcast(3)).toBe(broadcast(0));
  });
});

describe.skipIf(!available)("the NCCL queue (needs a C++ compiler)", () => {
  it("refuses to free what a held-back call uses, and notices itself when that is done", async () => {
    const [seen] = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [256]);
        const all = world.tensor("f32", [512]);
        const { deviceOf } = await import("chorale/world");
        const main = deviceOf(world)?.main;
        // A send behind a call that is held back would wait with it.
        const side = await comm.split(0);
        if (world.rank === 1) {
          // Rank 0 has tried by then.
          await side?.recv(new Float32Array(1), 0);
          await comm.allReduce(x.slice(10));
          await comm.allGather(x, { output: all });
          return [];
        }
        const answers: string[] = [];
        const free = () => {
          try {
            world.free(x);
            answers.push("freed");
          } catch (error) {
            answers.push(String(error));
          }
        };
        const reduced = comm.allReduce(x.slice(10));
        free();
        await side?.send(new Float32Array(1), 1);
        await reduced;
        // Nobody asks how this one is; the download waits for it on the device.
        comm.allGather(x, { output: all });
        comm.orderBefore(main);
        world.download(all);
        free();
        free();
        return answers;
      },
    });
    expect(seen?.[0]).toMatch(/in use by 1 pending call.*await them first/);
    expect(seen?.[1]).toBe("freed");
    expect(seen?.[2]).toMatch(/freed/);
  });

  it("keeps tensors that nobody but a held-back call refers to", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const { setFlagsFromString } = await import("node:v8");
        const { runInNewContext } = await import("node:vm");
        setFlagsFromString("--expose-gc");
        const gc = runInNewContext("gc") as () => void;
        const { comm } = world;
        const output = world.tensor("f32", [256]);
        const filled = (value: number) => {
          const tensor = world.tensor("f32", [128]);
          world.upload(tensor, new Float32Array(128).fill(value));
          return tensor;
        };
        const ends = () => {
          const all = world.download(output);
          return [all[0], all[255]];
        };
        const side = await comm.split(0);
        if (world.rank === 1) {
          await side?.recv(new Float32Array(1), 0);
          await comm.allGather(filled(2), { output });
          return ends();
        }
        const held = (() => comm.allGather(filled(1), { output }))();
        for (let i = 0; i < 5; i++) {
          gc();
          await new Promise((resolve) => setTimeout(resolve, 2));
        }
        const others = [filled(9), filled(9)];
        await side?.send(new Float32Array(1), 1);
        await held;
        return [...ends(), others.length].slice(0, 2);
      },
    });
    expect(found).toEqual([
      [1, 2],
      [1, 2],
    ]);
  });

  it("puts every group behind the main stream, whichever saw its work first", async () => {
    const found = await launch({
      ...options,
      ranks: 3,
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, issued) => {
        const { deviceOf } = await import("chorale/world");
        const { devicePtr } = await import("chorale/cuda");
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
        const work = comm.allReduce(x).then(
          () => "done",
          (error) => error.code,
        );
        if (world.rank === 1) {
          const until = performance.now() + 10_000;
          const collectives = { kind: "collective" } as const;
          while (control.issued(0, collectives) < control.issued(1, collectives) && performance.now() < until);
          // Offers itself, and does not look again until rank 0 has taken the turn for both.
          comm.parts.queue.poll(performance.now());
          while (!control.granted && performance.now() < until);
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

  it("takes no call after close, lets go of signals, and counts the options of calls in a batch", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const { default: events } = await import("node:events");
        const { getEventListeners } = events as unknown as {
          getEventListeners(of: AbortSignal, name: string): unknown[];
        };
        const comm = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
        const other = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
        const third = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
        const [x, y] = [world.tensor("f32", [16]), world.tensor("f32", [16])];
        const { signal } = new AbortController();
        for (let i = 0; i < 3; i++) await comm.allReduce(x, { signal });
        await comm.batch((group) => {
          group.allReduce(x, { signal, timeoutMs: 2000 });
          group.allReduce(y, { signal });
        });
        const listeners = getEventListeners(signal, "abort").length;
        comm.allReduce(x);
        const closing = comm.close();
        const codes: string[] = [];
        for (const attempt of [() => comm.allReduce(x), () => comm.split(0), () => comm.shrink([1 - comm.rank])]) {
          try {
            attempt();
            codes.push("accepted");
          } catch (error) {
            codes.push((error as { code: string }).code);
          }
        }
        await closing;
        // A batch that the peer never makes ends when its most urgent call must.
        const start = performance.now();
        const late =
          other.rank === 0
            ? await Promise.resolve(
                other.batch((group) => {
                  group.allReduce(x);
                  group.allReduce(y, { timeoutMs: 300 });
                }),
              ).catch(String)
            : await Promise.resolve(new Promise((resolve) => setTimeout(resolve, 600))).then(() => "TimeoutError");
        const took = performance.now() - start;
        const split =
          third.rank === 0
            ? await Promise.resolve(third.split(0, 0, { timeoutMs: 200 })).catch(String)
            : "TimeoutError";
        const gone = other.parts.queue.cause === undefined && other.rank === 0 ? "open" : "ended";
        return { listeners, codes, late, split, took, gone };
      },
    });
    for (const { listeners, codes, late, split, took, gone } of found) {
      expect(split).toMatch(/TimeoutError/);
      expect(listeners).toBe(0);
      expect(codes).toEqual(["CLOSED", "CLOSED", "CLOSED"]);
      expect(late).toMatch(/TimeoutError/);
      expect(took).toBeLessThan(3000);
      expect(gone).toBe("ended");
    }
  });

  it("tells of a send that nobody receives, at once, and of one that meets a receive in a batch", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const [lost, mixed] = [await world.comm.split(0), await world.comm.split(0)];
        if (lost === undefined || mixed === undefined) throw new Error("no group");
        const start = performance.now();
        if (lost.rank === 0) await lost.send(Float32Array.of(1), 1);
        const closed = await lost.close().then(() => "closed", String);
        const into = new Float32Array(1);
        const work = mixed.rank === 0 ? mixed.send(into, 1) : mixed.batch((group) => void group.recv(into, 0));
        // The send may be done before its receive is made; what it left is refused all the same.
        const met = await Promise.resolve(work).then(() => "met", String);
        return { closed, met, took: performance.now() - start };
      },
    });
    expect(found[0]?.closed).toMatch(/rank 1 never received/);
    expect(found[1]?.closed).toBe("closed");
    expect(found[1]?.met).toMatch(/MismatchError/);
    // Who waited for the deadline would be seen, also on a busy host.
    for (const { took } of found) expect(took).toBeLessThan(options.backendOptions.timeoutMs / 2);
  });

  it("splits without waiting while many groups are open and none is closed", async () => {
    const [took] = await launch({
      ...options,
      ranks: 1,
      run: async (world) => {
        const start = performance.now();
        for (let i = 0; i < 60; i++) await world.comm.split(0);
        return performance.now() - start;
      },
    });
    // Every one from the 48th on waited for two seconds.
    expect(took).toBeLessThan(10_000);
  });

  it("has nothing pending once synchronize() has returned", async () => {
    const left = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [64]);
        await comm.allReduce(x);
        let most = 0;
        for (let i = 0; i < 300; i++) {
          comm.allReduce(x);
          comm.synchronize();
          most = Math.max(most, comm.stats().pending);
        }
        return most;
      },
    });
    // A call that ended between the look at the queue and the look at the stream stayed pending: capture() refused it.
    expect(left).toEqual([0, 0]);
  });
});
