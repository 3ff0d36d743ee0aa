/** Plans on the devices of a group, over the stand-in library, which runs their kernels on the host (needs g++). */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import {
  buildFakeGpu,
  fakeGpuFolder,
  heldByFakeGpu,
  NOTHING_HELD,
  useFakeGpu,
} from "../../../../test/helpers/fake-gpu.ts";
import type { ChoiceDocument } from "../../executor/index.ts";

const library = buildFakeGpu();
const available = library !== undefined && useFakeGpu();
const cache = mkdtempSync(join(tmpdir(), "chorale-cuda-"));
process.env["XDG_CACHE_HOME"] = cache;
if (library !== undefined) process.env["CHORALE_NVRTC_LIBRARY"] = library;
const folder = fakeGpuFolder();
afterAll(() => {
  rmSync(cache, { recursive: true });
  folder.remove();
});

/** Small blocks: every thread is a fiber here. */
const rows = (...list: readonly (readonly [number, string])[]) => list.map(([fromBytes, use]) => ({ fromBytes, use }));
const choices: ChoiceDocument = {
  schemaVersion: 1,
  source: "test",
  date: "2026-11-23",
  tables: [
    {
      backend: "cuda",
      collective: "all_reduce",
      ranks: [2, 2],
      rows: rows([0, "one-shot-packet-all-reduce@32.lines"], [2048, "streaming-all-reduce@32.unit1K"], [65536, "nccl"]),
    },
    {
      backend: "cuda",
      collective: "all_gather",
      ranks: [2, 2],
      rows: rows([0, "packet-all-gather@32"], [65536, "nccl"]),
    },
    {
      backend: "cuda",
      collective: "reduce_scatter",
      ranks: [2, 2],
      rows: rows([0, "packet-reduce-scatter@32.words"], [65536, "nccl"]),
    },
    { backend: "cuda", collective: "broadcast", ranks: [2, 2], rows: rows([0, "packet-broadcast@32.lines"]) },
    { backend: "cuda", collective: "reduce", ranks: [2, 2], rows: rows([0, "staged-reduce@32.unit1K"]) },
    { backend: "cuda", collective: "gather", ranks: [2, 2], rows: rows([0, "staged-gather@32.unit1K"]) },
  ],
};
const common = { ranks: 2, backend: "cuda", backendOptions: { choices }, timeoutMs: 110_000 } as const;

describe.skipIf(!available)("the cuda backend over a stand-in library (needs g++)", () => {
  afterAll(() => {
    expect(heldByFakeGpu(library ?? "")).toEqual(NOTHING_HELD);
  });

  it.each(["thread", "process"] as const)(
    "opens no plan while calls of another group wait for a peer, ranks as %s",
    { timeout: 120_000 },
    async (isolation) => {
      const env = isolation === "process" ? { FAKE_GPU_FOLDER: folder.path } : {};
      const results = await launch({
        ...common,
        isolation,
        env,
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

  it.each(["thread", "process"] as const)(
    "serves collectives by plans, ranks as %s",
    { timeout: 120_000 },
    async (isolation) => {
      const env = isolation === "process" ? { FAKE_GPU_FOLDER: folder.path } : {};
      const results = await launch({
        ...common,
        isolation,
        env,
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
      ...common,
      data: { library, isRead: new Int32Array(new SharedArrayBuffer(4)) },
      run: async (world, { library, isRead }) => {
        const { default: koffi } = await import("koffi");
        const called = koffi.load(library ?? "").func("int fakeGpuCalled(void *out)");
        const read = () => {
          const out = new BigInt64Array(3);
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
        const [queries, writes, launches] = read().map((count, i) => count - (before[i] ?? 0)) as [
          number,
          number,
          number,
        ];
        Atomics.store(isRead, 0, 1);
        Atomics.notify(isRead, 0);
        // The other rank's are among them: it may be one round ahead or behind.
        return { queries, writes, launches, spentMs, sum: world.download(y)[99] };
      },
    });
    const { queries = 0, writes, launches, spentMs = 0, sum } = counts ?? {};
    expect(sum).toBe(2); // of what was broadcast
    expect(launches).toBeGreaterThanOrEqual(590);
    expect(launches).toBeLessThanOrEqual(612);
    expect(writes).toBeLessThanOrEqual(2);
    // Each rank looks for failures every 20 ms.
    expect(queries).toBeLessThanOrEqual(2 * (spentMs / 20 + 2));
  });

  it("has calls that are timed end with the event behind them, not with their kernels", {
    timeout: 120_000,
  }, async () => {
    const marks = await launch({
      ...common,
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

  it("keeps a plan that makes room for others open for the calls of it that wait", { timeout: 120_000 }, async () => {
    const results = await launch({
      ...common,
      data: new Int32Array(new SharedArrayBuffer(8)),
      run: async (world, steps) => {
        const { algorithm } = await import("chorale/algorithms");
        const group = await world.comm.split(0);
        if (group === undefined) throw new Error("no group");
        const names = ["one-shot-packet-all-reduce", "ring-all-reduce"];
        const [first, second] = names.map((name) => algorithm(name).make({ numRanks: 2 }));
        if (first === undefined || second === undefined) throw new Error("no plans");
        const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [100])];
        world.upload(x, new Int32Array(100).fill(1 + group.rank));
        await group.run(first, { input: x, output: y, op: "max" });
        world.upload(y, new Int32Array(100));
        const reached = async (step: number, ranks: number) => {
          while (Atomics.load(steps, step) < ranks) await new Promise((resolve) => setTimeout(resolve, 2));
        };
        // Rank 0 makes calls that rank 1 never makes: none of their plans is opened, and nothing else before all are made.
        if (group.rank === 1) await reached(0, 1);
        void Promise.allSettled([group.run(second, { input: x, output: y, op: "max" })]);
        const waits = group.run(first, { input: x, output: y, op: "max" });
        let numOthers = 0;
        for (const dtype of ["f32", "f64", "f16", "bf16", "i8", "u8", "u32", "i64", "u64"] as const)
          for (const op of ["sum", "prod", "max", "min"] as const)
            for (const plan of [first, second])
              if (group.rank === 0 && numOthers++ < 64)
                void Promise.allSettled([group.run(plan, { input: world.tensor(dtype, [8]), op })]);
        Atomics.store(steps, 0, 1);
        await Promise.resolve(waits);
        const found = world.download(y)[99];
        Atomics.add(steps, 1, 1);
        await reached(1, 2);
        group.abort("the others are not needed");
        return found;
      },
    });
    expect(results).toEqual([2, 2]);
  });

  it("runs programs on device tensors and arrays, also from graphs", { timeout: 120_000 }, async () => {
    const results = await launch({
      ...common,
      backend: "nccl",
      backendOptions: {},
      run: async (world) => {
        const { algorithm } = await import("chorale/algorithms");
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const packets = algorithm("one-shot-packet-all-reduce").make({ numRanks: 2 });
        const reads = algorithm("two-phase-all-reduce").make({ numRanks: 2, inPlace: true });
        const x = world.tensor("i32", [100]);
        const y = world.tensor("i32", [100]);
        const fill = () =>
          world.upload(
            x,
            Int32Array.from({ length: 100 }, (_, i) => i + 1000 * world.rank),
          );
        const ends = (t: typeof x) => [world.download(t)[0], world.download(t)[99]];
        const found: unknown[] = [];
        fill();
        const out = await comm.run(packets, { input: x, output: y });
        found.push(out === y, ends(y));
        await comm.run(packets, { input: x, output: y, op: "max" });
        found.push(ends(y));
        await comm.run(reads, { input: x });
        found.push(ends(x));
        const made = await comm.run(packets, { input: Float32Array.of(1, 2, 3 + comm.rank) });
        found.push([...((made as typeof made & object).data as Float32Array)]);
        const scaled = await comm.run(packets, { input: Float32Array.of(2), op: comm.preMulSum(0.5) });
        found.push([...((scaled as typeof scaled & object).data as Float32Array)]);
        fill();
        const graph = comm.capture((group) => {
          group.run(packets, { input: x, output: y });
          group.run(reads, { input: x });
        });
        await comm.replay(graph);
        await comm.replay(graph);
        found.push(ends(y), ends(x));
        graph.close();
        return { found, runs: comm.stats().operations["run"]?.calls };
      },
    });
    for (const result of results) {
      expect(result.found).toEqual([
        true,
        [1000, 1198],
        [1000, 1099],
        [1000, 1198],
        [2, 4, 7],
        [2],
        [2000, 2396],
        [2000, 2396],
      ]);
      expect(result.runs).toBe(5);
    }
  });

  it("fails calls that a member stopped, though the device is done with them", { timeout: 60_000 }, async () => {
    // Two turns, and how the three calls ended: 1 well, 2 with the abort's error.
    const shared = new Int32Array(new SharedArrayBuffer(20));
    const ended = launch({
      ...common,
      data: shared,
      run: async (world, turns) => {
        const { comm } = world;
        const [x, y] = [world.tensor("f32", [100]), world.tensor("f32", [100])];
        await comm.allReduce(x, { output: y });
        if (comm.rank === 1) {
          while (Atomics.load(turns, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 1));
          comm.allReduce(x, { output: y });
          comm.abort("rank 1 gives up");
          Atomics.store(turns, 1, 1);
          Atomics.notify(turns, 1);
          return;
        }
        const works = [1, 2, 3].map(() => comm.allReduce(x, { output: y }));
        // Time for marks behind them; then nobody looks while the other rank makes one of the three and stops the rest.
        const ends = Promise.allSettled(works);
        await new Promise((resolve) => setTimeout(resolve, 50));
        Atomics.store(turns, 0, 1);
        Atomics.wait(turns, 1, 0, 10_000);
        const { stream } = comm as { stream?: { isDone(): boolean } };
        for (const until = performance.now() + 10_000; stream?.isDone() === false && performance.now() < until; );
        (await ends).forEach((end, i) => {
          if (end.status === "fulfilled") turns[2 + i] = 1;
          else if ((end.reason as { code: string }).code === "ABORTED") turns[2 + i] = 2;
        });
      },
    });
    // Whether rank 1's own call was done when it gave up is open; if not, nobody looked at its failure.
    await ended.catch((error: Error) => expect(error.message).toContain("rank 1 gives up"));
    expect([...shared.subarray(3)]).toEqual([2, 2]);
  });

  it.each(["thread", "process"] as const)(
    "ends kernels that wait for ever when their ranks are killed, ranks as %s",
    { timeout: 120_000 },
    async (isolation) => {
      const world = new AbortController();
      let running = 0;
      const ended = launch({
        ...common,
        isolation,
        env: isolation === "process" ? { FAKE_GPU_FOLDER: folder.path } : {},
        signal: world.signal,
        onOutput: ({ text }) => {
          if (text.includes("it runs") && ++running === 2) world.abort("enough");
        },
        run: async (world) => {
          const { algorithm } = await import("chorale/algorithms");
          const { comm } = world;
          const good = algorithm("packet-all-gather").make({ numRanks: 2 }).plan();
          const plan = structuredClone(good) as unknown as { ranks: { strands: { ops: { kind: string }[] }[] }[] };
          // Rank 0 sends nothing.
          for (const strand of plan.ranks[0]?.strands ?? []) {
            strand.ops = strand.ops.filter(({ kind }) => kind !== "put");
          }
          const [x, y] = [world.tensor("f32", [64]), world.tensor("f32", [128])];
          const { stream } = comm as { stream?: { isDone(): boolean } };
          const work = comm.run(plan as never, { input: x, output: y, force: true });
          void Promise.allSettled([work]);
          // Its kernel is on the stream when the plan has been opened, in a turn of the event loop.
          while (stream?.isDone() !== false) await new Promise(setImmediate);
          console.log("it runs");
          await new Promise(() => {});
        },
      });
      await expect(ended).rejects.toThrow("enough");
    },
  );

  it("refuses what is not proved, differs between ranks, or cannot be opened; the group goes on", {
    timeout: 120_000,
  }, async () => {
    const [told] = await launch({
      ...common,
      run: async (world) => {
        const { algorithm } = await import("chorale/algorithms");
        const { compile } = await import("chorale/language");
        const { comm } = world;
        const x = world.tensor("f32", [64]);
        const said: string[] = [];
        const refused = async (make: () => unknown) => {
          try {
            await make();
            said.push("done");
          } catch (error) {
            said.push((error as Error).message);
          }
        };
        const entry = algorithm("one-shot-packet-all-reduce");
        const unproved = compile(entry.make({ numRanks: 2 }), { verify: false });
        await refused(() => comm.run(unproved, { input: x }));
        await refused(() => comm.run(entry.make({ numRanks: 3 }), { input: x }));
        await refused(() => comm.run(entry.make({ numRanks: 2, instances: 3 }), { input: x }));
        await refused(() => comm.run(unproved, { input: x, force: true }));
        await refused(() => comm.allReduce(x, { algorithm: "no-such-thing" }));
        await refused(() => comm.allReduce(x, { algorithm: "one-shot-packet-all-reduce@33" }));
        await refused(() => comm.allReduce(x, { algorithm: "one-shot-packet-all-reduce@32" }));
        await refused(() => comm.allReduce(x, { algorithm: "nccl" }));
        await refused(() => comm.allGatherV(x, { counts: [64, 64], algorithm: "nccl" }));
        // Room on one rank is missing: no rank opens it.
        const filler = comm.rank === 0 ? world.tensor("u8", [80 << 20]) : undefined;
        await refused(() =>
          comm.run(entry.make({ numRanks: 2, instances: 2 }), { input: world.tensor("f64", [1 << 18]) }),
        );
        if (filler !== undefined) world.free(filler);
        await refused(() => comm.allReduce(x));
        await refused(() =>
          comm.run(comm.rank === 0 ? entry.make({ numRanks: 2 }) : algorithm("ring-all-reduce").make({ numRanks: 2 }), {
            input: x,
          }),
        );
        return said;
      },
      backendOptions: { ...common.backendOptions, memoryLimitBytes: 128 << 20 },
    }).catch((error: Error) => [[error.message]]);
    expect(told).toEqual([
      expect.stringMatching(/which was not verified/),
      expect.stringMatching(/for 3 ranks/),
      "done",
      "done",
      expect.stringMatching(/no-such-thing.*one of nccl, one-shot/),
      expect.stringMatching(/@33.*a kernel's shape/),
      "done",
      "done",
      expect.stringMatching(/NCCL serves this operation/),
      expect.stringMatching(/rank 0.*bytes asked for|CUDA device 0: \d+ bytes asked for/),
      "done",
      expect.stringMatching(
        /ranks of world disagree on operation #6(.|\n)*with plan (one-shot-packet|ring)-all-reduce/,
      ),
    ]);
  });
});
