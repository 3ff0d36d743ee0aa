/** Graphs of collectives and work of the program's own, over the stand-in library. */

import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();

describe.skipIf(!available)("graphs and order (needs a C++ compiler)", () => {
  it("records copies of the program among collectives, in their place, and replays both", async () => {
    const results = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { devicePtr } = await import("chorale/device");
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const at = deviceOf(world);
        if (at === undefined) throw new Error("no device");
        const x = world.tensor("f32", [4]);
        const y = world.tensor("f32", [4]);
        await comm.allReduce(x);
        const graph = comm.capture((group) => {
          group.allReduce(x);
          const [to, from] = [devicePtr(y, at.device), devicePtr(x, at.device)];
          at.device.call("cuMemcpyDtoDAsync_v2", "copy", to, from, 16, comm.stream.handle);
          group.allReduce(x);
        });
        world.upload(x, Float32Array.of(1, 2, 3, 4));
        const before = [...world.download(y)];
        comm.replay(graph);
        // The main stream, which downloads, comes after.
        comm.orderBefore(at.main);
        const once = [[...world.download(x)], [...world.download(y)]];
        comm.replay(graph);
        comm.synchronize();
        const twice = [[...world.download(x)], [...world.download(y)]];
        graph.close();
        return { before, once, twice };
      },
    });
    const scaled = (by: number) => [1, 2, 3, 4].map((value) => value * by);
    for (const { before, once, twice } of results) {
      expect(before).toEqual([0, 0, 0, 0]);
      expect(once).toEqual([scaled(4), scaled(2)]);
      expect(twice).toEqual([scaled(16), scaled(8)]);
    }
  });

  it("keeps two graphs of many calls on the stream, while others wait for their turn", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      timeoutMs: 30_000,
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, looked) => {
        const CALLS = 4500;
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const { queue } = comm.parts;
        const x = world.tensor("u32", [1]);
        await comm.allReduce(x);
        await comm.allReduce(x, { op: "max" });
        const [large, small] = [CALLS, 1].map((calls) =>
          comm.capture((group) => {
            for (let i = 0; i < calls; i++) group.allReduce(x, { op: "max" });
            group.allReduce(x);
          }),
        );
        world.upload(x, Uint32Array.of(1));
        await comm.barrier();
        if (large === undefined || small === undefined) throw new Error("no graph");
        // Rank 0 goes ahead: what its peer has not replayed does not end.
        if (comm.rank === 1) Atomics.wait(looked, 0, 0, 20_000);
        for (let i = 0; i < 3; i++) comm.replay(large);
        const last = comm.replay(small);
        const [onStream, pending] = [queue["running"].length, queue.pending];
        Atomics.store(looked, 0, 1);
        Atomics.notify(looked, 0);
        await last;
        const sum = [...world.download(x)];
        for (const graph of [large, small]) graph.close();
        return { onStream, pending, sum, left: queue.pending };
      },
    });
    expect(found[0]).toMatchObject({ onStream: 2, pending: 4 });
    // Each graph doubles it: 2 ranks.
    for (const { sum, left } of found) expect([sum, left]).toEqual([[2 ** 4], 0]);
  });

  it("refuses what no graph can hold, and goes on", async () => {
    const [found] = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [4]);
        await comm.barrier();
        const refusals = [
          () => comm.capture((group) => void group.allReduce(x)),
          () => comm.capture((group) => void group.allReduce(new Float32Array(4))),
          () => comm.capture((group) => void group.barrier()),
        ].map((fn) => {
          try {
            fn();
            return "accepted";
          } catch (error) {
            return String(error);
          }
        });
        world.upload(x, Float32Array.of(1, 1, 1, 1));
        await comm.allReduce(x);
        return { refusals, sum: [...world.download(x)] };
      },
    });
    expect(found?.refusals[0]).toMatch(/make all_reduce once outside of the graph/);
    expect(found?.refusals[1]).toMatch(/device tensors only/);
    expect(found?.refusals[2]).toMatch(/inside capture\(\)/);
    expect(found?.sum).toEqual([2, 2, 2, 2]);
  });

  it("keeps the tensors of a graph, refuses it when one was freed, and takes no call of another group", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      timeoutMs: 30_000,
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, tried) => {
        const { setFlagsFromString } = await import("node:v8");
        const { runInNewContext } = await import("node:vm");
        setFlagsFromString("--expose-gc");
        const gc = runInNewContext("gc") as () => void;
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const other = await comm.split(0);
        const filled = () => {
          const tensor = world.tensor("f32", [64]);
          world.upload(tensor, new Float32Array(64).fill(5));
          return tensor;
        };
        const [x, y] = [filled(), filled()];
        await comm.allReduce(x);
        await comm.allGather(x);
        await other?.allReduce(x);
        const attempt = (fn: () => unknown) => {
          try {
            fn();
            return "accepted";
          } catch (error) {
            return String(error);
          }
        };
        const refusals = [
          () => comm.capture(async (group) => void group.allReduce(x)),
          () => comm.capture(() => void other?.allReduce(y)),
          () => comm.capture((group) => void group.allGather(x)),
          () => comm.capture((group) => void group.allReduce(x, { timeoutMs: 5 })).close(),
        ].map(attempt);
        const graph = (() => {
          const local = filled();
          return comm.capture((group) => void group.allReduce(local));
        })();
        for (let i = 0; i < 5; i++) {
          gc();
          await new Promise((resolve) => setTimeout(resolve, 2));
        }
        const others = [filled(), filled(), filled()];
        comm.replay(graph);
        comm.synchronize();
        const untouched = others.map((tensor) => world.download(tensor)[0]);
        const second = comm.capture((group) => void group.allReduce(y));
        while (world.rank === 1 && Atomics.load(tried, 0) === 0) await new Promise((resolve) => setImmediate(resolve));
        const replayed = comm.replay(second);
        const early = world.rank === 0 ? attempt(() => world.free(y)) : "in use by 1 pending call";
        Atomics.store(tried, 0, 1);
        await replayed;
        world.free(y);
        const late = attempt(() => comm.replay(second));
        const bypassed = attempt(() => second.launch(comm.stream));
        const { barrier, replay } = comm.stats().operations;
        await comm.barrier();
        return { refusals, untouched, early, late, bypassed, calls: [barrier?.calls, replay?.calls] };
      },
    });
    for (const { refusals, untouched, early, late, bypassed, calls } of found) {
      expect(refusals[0]).toMatch(/^InvalidArgumentError: fn is a function that returns a promise/);
      expect(refusals[1]).toMatch(/^UnsupportedError: a call of world\/split0\.0 inside capture\(\) of world/);
      expect(refusals[2]).toMatch(/^InvalidArgumentError: capture is of all_gather without an output/);
      expect(refusals[3]).toBe("accepted");
      expect(untouched).toEqual([5, 5, 5]);
      expect(early).toMatch(/in use by 1 pending call/);
      expect(late).toMatch(/^ClosedError: device tensor of the graph was freed/);
      expect(bypassed).toMatch(/^InvalidArgumentError: graph is .*replay of world runs this one/);
      expect(calls).toEqual([undefined, 2]);
    }
  });

  it("compares graphs, and calls after captures of different lengths, like calls", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      timeoutMs: 30_000,
      run: async (world) => {
        const groups = [await world.comm.split(0), await world.comm.split(0)];
        const [graphs, calls] = groups as import("./communicator.ts").NcclCommunicator[];
        if (graphs === undefined || calls === undefined) throw new Error("no groups");
        const x = world.tensor("f32", [64]);
        for (const group of [graphs, calls]) {
          await group.allReduce(x);
          await group.allReduce(x, { op: "max" });
        }
        const op = world.rank === 0 ? "sum" : "max";
        const same = graphs.capture((group) => void group.allReduce(x));
        await graphs.replay(same);
        const graph = graphs.capture((group) => void group.allReduce(x, { op }));
        calls.capture((group) => {
          for (let i = 0; i <= world.rank; i++) group.allReduce(x);
        });
        const answer = (fn: () => PromiseLike<unknown>) =>
          Promise.resolve()
            .then(fn)
            .then(() => "not seen", String);
        return [await answer(() => graphs.replay(graph)), await answer(() => calls.allReduce(x, { op }))];
      },
    });
    for (const [graph, call] of found) {
      expect(graph).toMatch(/MismatchError: .*\n.*rank 0: replay\(graph [0-9a-f]{8}\)/);
      expect(call).toMatch(/MismatchError: .*\n.*rank 0: all_reduce\(f32\[64\], sum\)/);
    }
  });

  it("misses no recorded call with strictWork, but a call that was made", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      backendOptions: { strictWork: true },
      run: async (world) => {
        const x = world.tensor("f32", [64]);
        const answers: string[] = [];
        for (const forgets of [false, true]) {
          const comm = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
          await comm.allReduce(x);
          const graph = comm.capture((group) => {
            for (let i = 0; i < 40; i++) group.allReduce(x);
          });
          await comm.replay(graph);
          if (forgets) comm.allReduce(x);
          graph.close();
          answers.push(await comm.close().then(() => "closed", String));
        }
        return answers;
      },
    });
    for (const [recorded, forgotten] of found) {
      expect(recorded).toBe("closed");
      expect(forgotten).toMatch(/a call of group .*nobody awaited.*strictWork is on\):\n {2}all_reduce #2 /s);
    }
  });
});
