/** Plans that serve collectives on the devices of a group, over the stand-in library. */

import { describe, expect, it } from "vitest";
import { available, choices, library, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";

const ISOLATIONS = ["thread", "process"] as const;

describe.skipIf(!available)("the cuda backend over a stand-in library (needs g++)", () => {
  it.each(spread(ISOLATIONS, 2))(
    "opens no plan while calls of another group wait for a peer, ranks as %s",
    { timeout: 120_000 },
    async (isolation) => {
      const results = await launch({
        ...worldOf(isolation),
        run: async (world) => {
          const { comm, rank } = world;
          const [one, other] = [await comm.split(0, rank), await comm.split(0, rank)];
          if (one === undefined || other === undefined) throw new Error("no group");
          const [x, y] = [world.tensor("i32", [4]), world.tensor("i32", [4])];
          const fill = () => {
            world.upload(x, Int32Array.of(1, 2, 3, 4));
            world.upload(y, Int32Array.of(0, 0, 0, 0));
          };
          fill();
          await one.allReduce(y);
          const found: number[][] = [];
          // Rank 0 has launched a call that waits for rank 1, which makes it once it has the result of the other group's call.
          const first = rank === 0 ? one.allReduce(x) : undefined;
          await other.allGather(y.slice(2 * rank, 2 * rank + 2), { output: y });
          await (first ?? one.allReduce(x));
          found.push([...(world.download(x) as Int32Array)]);
          const before = other.stats().choices;
          await comm.barrier();
          fill();
          await other.allGather(x.slice(2 * rank, 2 * rank + 2), { output: y });
          found.push([...(world.download(y) as Int32Array)]);
          return { found, before, after: other.stats().choices };
        },
      });
      for (const { found, before, after } of results) {
        expect(found).toEqual([
          [2, 4, 6, 8],
          [1, 2, 3, 4],
        ]);
        expect([before, after]).toEqual([{}, { "all_gather packet-all-gather@32": 1 }]);
      }
    },
  );

  it.each(spread(ISOLATIONS, 2, 1))(
    "serves collectives by plans, ranks as %s",
    { timeout: 120_000 },
    async (isolation) => {
      const results = await launch({
        ...worldOf(isolation),
        run: async (world) => {
          const { comm } = world;
          const [x, y] = [world.tensor("f32", [1000]), world.tensor("f32", [1000])];
          const fill = (t: typeof x) =>
            world.upload(
              t,
              Float32Array.from({ length: t.size }, (_, i) => (i % 100) + 1000 * world.rank),
            );
          const found: number[][] = [];
          const sample = (t: typeof x) => {
            const got = world.download(t);
            found.push([got[0] ?? 0, got[1] ?? 0, got[Math.min(99, t.size - 1)] ?? 0, got[t.size - 1] ?? 0]);
          };
          for (const count of [7, 100, 1000]) {
            const [a, b] = [x.slice(0, count), y.slice(0, count)];
            fill(x);
            await comm.allReduce(a, { output: b });
            sample(b);
            await comm.allReduce(a, { op: "max" });
            sample(a);
          }
          fill(x);
          sample((await comm.allGather(x.slice(0, 10))) as typeof x);
          sample((await comm.reduceScatter(x.slice(0, 20), { op: "sum" })) as typeof x);
          for (const root of [0, 1]) {
            fill(x);
            await comm.broadcast(x, { root });
            sample(x);
            fill(x);
            await comm.reduce(x, { root });
            sample(x);
            const own = x.slice(0, 500);
            await comm.gather(own, { root, ...(world.rank === root && { output: y }) });
            sample(world.rank === root ? y : own);
          }
          const host = await comm.allReduce(Int32Array.of(1 + world.rank, 5));
          found.push([...(host.data as Int32Array)].map(Number));
          return { found, choices: comm.stats().choices, backend: comm.backend, name: comm.capabilities().backend };
        },
      });
      const [first] = results;
      expect(results[1]?.found.slice(0, 6)).toEqual(first?.found.slice(0, 6));
      // After a reduce to rank 0, the other rank has what it had; then it is the other way round.
      const rooted = (root: number, rank: number) => [
        [1000 * root, 1000 * root + 1, 1000 * root + 99, 1000 * root + 99],
        ...(rank === root
          ? [[1000, 1002, 1198, 1198], root === 0 ? [1000, 1002, 1198, 1099] : [0, 1, 99, 1198]]
          : [
              [1000 * rank, 1000 * rank + 1, 1000 * rank + 99, 1000 * rank + 99],
              [1000 * rank, 1000 * rank + 1, 1000 * rank + 99, 1000 * rank + 99],
            ]),
      ];
      expect(results[1]?.found.slice(8, 14)).toEqual([...rooted(0, 1), ...rooted(1, 1)]);
      expect(first?.found).toEqual([
        [1000, 1002, 1012, 1012],
        [1000, 1001, 1006, 1006],
        [1000, 1002, 1198, 1198],
        [1000, 1001, 1099, 1099],
        [1000, 1002, 1198, 1198],
        [1000, 1001, 1099, 1099],
        [0, 1, 1009, 1009],
        [1000, 1002, 1018, 1018],
        ...rooted(0, 0),
        ...rooted(1, 0),
        [3, 10],
      ]);
      expect(first).toMatchObject({ backend: "cuda", name: "cuda" });
      expect(first?.choices).toEqual({
        "all_reduce one-shot-packet-all-reduce@32.lines": 5,
        "all_reduce streaming-all-reduce@32.unit1K": 2,
        "all_gather packet-all-gather@32": 1,
        "reduce_scatter packet-reduce-scatter@32.words": 1,
        "broadcast packet-broadcast@32.lines": 2,
        "reduce staged-reduce@32.unit1K": 2,
        "gather staged-gather@32.unit1K": 2,
      });
    },
  );

  it("learns from the kernel, not from the driver, that a call has ended", { timeout: 120_000 }, async () => {
    const [counts] = await launch({
      ...worldOf(),
      data: { library, isRead: new Int32Array(new SharedArrayBuffer(4)) },
      run: async (world, { library, isRead }) => {
        const { default: koffi } = await import("koffi");
        const called = koffi.load(library).func("int fakeGpuCalled(void *out)");
        const read = () => {
          const out = new BigInt64Array(5);
          called(out);
          return [...out].map(Number);
        };
        const { comm } = world;
        const [x, y] = [world.tensor("f32", [100]), world.tensor("f32", [100])];
        world.upload(x, new Float32Array(100).fill(1 + world.rank));
        await comm.allReduce(x, { output: y });
        await comm.broadcast(x, { root: 0 });
        await comm.barrier();
        const [before, begin] = [read(), performance.now()];
        for (let i = 0; i < 50; i++) {
          await comm.allReduce(x, { output: y });
          await comm.broadcast(x, { root: 0 });
          comm.allReduce(x, { output: y }).wait();
          comm.allReduce(x, { output: y });
          comm.allReduce(x, { output: y });
          await comm.allReduce(x, { output: y });
        }
        const spentMs = performance.now() - begin;
        // What the other rank does at its end does not count.
        if (world.rank === 1) Atomics.wait(isRead, 0, 0, 30_000);
        const [queries = 0, writes = 0, launches = 0, replays = 0] = read().map((count, i) => count - (before[i] ?? 0));
        Atomics.store(isRead, 0, 1);
        Atomics.notify(isRead, 0);
        // The other rank's are among them: it may be one round ahead or behind.
        return { queries, writes, launches, replays, spentMs, sum: world.download(y)[99] };
      },
    });
    const { queries = 0, writes, launches = 0, replays = 0, spentMs = 0, sum } = counts ?? {};
    expect(sum).toBe(2); // of what was broadcast
    expect(launches + replays).toBeGreaterThanOrEqual(590);
    expect(launches + replays).toBeLessThanOrEqual(616);
    // Of each rank the first eight of both kinds are launched one by one.
    expect(launches).toBeLessThanOrEqual(40);
    expect(writes).toBeLessThanOrEqual(2);
    // Each rank looks for failures every 20 ms.
    expect(queries).toBeLessThanOrEqual(2 * (spentMs / 20 + 2));
  });

  it("has calls that are timed end with the event behind them, not with their kernels", {
    timeout: 120_000,
  }, async () => {
    const marks = await launch({
      ...worldOf(),
      backendOptions: { choices, flightTimings: true },
      run: async (world) => {
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const [x, y] = [world.tensor("f32", [100]), world.tensor("f32", [100])];
        await comm.allReduce(x, { output: y });
        const work = comm.allReduce(x, { output: y });
        const { running } = comm.parts.queue as unknown as { running: readonly { marker: number }[] };
        const mark = running.at(-1)?.marker;
        await work;
        return mark;
      },
    });
    expect(marks).toEqual([0, 0]);
  });
});
