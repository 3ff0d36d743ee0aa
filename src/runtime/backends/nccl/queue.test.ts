/** How a communicator's queue ends and what it leaves, over the stand-in library: closing, splitting, waiting for the stream. */

import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();
const options = { backend: "nccl", timeoutMs: 30_000, backendOptions: { timeoutMs: 15_000 } } as const;

describe.skipIf(!available)("the NCCL queue (needs a C++ compiler)", () => {
  it("takes no call after close, lets go of signals, and counts the options of calls in a batch", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, done) => {
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
          group.allReduce(x, { signal, timeoutMs: 10_000 });
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
            : "TimeoutError";
        const took = performance.now() - start;
        const split =
          third.rank === 0
            ? await Promise.resolve(third.split(0, 0, { timeoutMs: 200 })).catch(String)
            : "TimeoutError";
        // Rank 1 calls nothing, and must not have left before rank 0 has given up.
        if (other.rank === 0) Atomics.store(done, 0, 1);
        else while (Atomics.load(done, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 2));
        const gone = other.parts.queue.cause === undefined && other.rank === 0 ? "open" : "ended";
        return { listeners, codes, late, split, took, gone };
      },
    });
    for (const { listeners, codes, late, split, took, gone } of found) {
      expect(split).toMatch(/TimeoutError/);
      expect(listeners).toBe(0);
      expect(codes).toEqual(["CLOSED", "CLOSED", "CLOSED"]);
      expect(late).toMatch(/TimeoutError/);
      expect(took).toBeLessThan(10_000);
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
    for (const { took } of found) expect(took).toBeLessThan(options.backendOptions.timeoutMs);
  });

  it("tells a call from those before it that were like it but for one thing", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const x = world.tensor("f32", [64]);
        const [half, whole, y] = [x.slice(0, 32), world.tensor("i32", [64]), world.tensor("f32", [64])];
        const others = [
          (comm: typeof world.comm) => comm.allReduce(half),
          (comm: typeof world.comm) => comm.allReduce(whole),
          (comm: typeof world.comm) => comm.allReduce(x, { op: "max" }),
          (comm: typeof world.comm) => comm.allGather(half, { output: y }),
        ];
        const codes: string[] = [];
        for (const other of others) {
          const comm = await world.comm.split(0);
          if (comm === undefined) throw new Error("no group");
          for (let i = 0; i < 3; i++) await comm.allReduce(x);
          await (comm.rank === 0 ? comm.allReduce(x) : other(comm)).then(
            () => codes.push("met"),
            ({ code }: { code: string }) => codes.push(code),
          );
        }
        return codes;
      },
    });
    expect(found).toEqual([0, 1].map(() => Array(4).fill("MISMATCH")));
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
    expect(took).toBeLessThan(20_000);
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

  it("settles no call by a mark that was put on the stream before it, while it waited to get there", async () => {
    const [seen] = await launch({
      ...options,
      ranks: 2,
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, looked) => {
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const [x, y] = [world.tensor("f32", [16]), world.tensor("f32", [16])];
        await comm.allReduce(x);
        const first = comm.allReduce(x);
        if (comm.rank === 1) {
          await first;
          while (Atomics.load(looked, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 2));
          await comm.allReduce(y);
          return "";
        }
        const { queue } = comm.parts;
        const { device } = queue.options.at;
        const { activate } = device;
        // As a call that waits for memory does: the queues are looked at meanwhile, its own too.
        device.activate = () => {
          device.activate = activate;
          device.activate();
          queue.poll(performance.now());
        };
        let state = "runs";
        const second = comm.allReduce(y).then(() => {
          state = "has ended";
        });
        await first;
        for (let i = 0; i < 50; i++) await new Promise((resolve) => setImmediate(resolve));
        const seen = state;
        Atomics.store(looked, 0, 1);
        await second;
        return seen;
      },
    });
    expect(seen).toBe("runs");
  });
});
