/** Kernels of processes that reach each other's buffers, over the stand-in library. */
import { launch } from "chorale/world";
import { describe, expect, it } from "vitest";
import { available, choicesAlone, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { spread } from "../../../../test/support/spread.ts";

const USES = [
  ["all_reduce", "two-phase-all-reduce*2@32"],
  ["all_gather", "streaming-all-gather*2@32.unit1K"],
  ["reduce_scatter", "read-reduce-scatter*2@32"],
  ["all_to_all", "one-pass-all-to-all*2@32"],
  ["broadcast", "direct-broadcast*2@32"],
] as const;
const choices = choicesAlone(Object.fromEntries(USES), [2, 4]);
/** What all ranks find, where nothing is wrong. */
const SERVED = USES.map((use) => use.join(" ")).sort();

describe.skipIf(!available)("kernels that reach other processes' buffers, on a stand-in (needs g++)", () => {
  it.each(spread([2, 3], 2))(
    "are right, call by call, on their input and from graphs, with %s ranks",
    { timeout: 120_000 },
    async (ranks) => {
      const results = await launch({
        ...worldOf("process"),
        ranks,
        backendOptions: { choices },
        run: async (world) => {
          const { checker, rankBuffers, value } = await import("../../../../test/helpers/rank-buffers.ts");
          const comm = world.comm as import("chorale/nccl").NcclCommunicator;
          const { rank, size: n } = comm;
          const found: string[] = [];
          const check = checker(world, found);
          const sum = (i: number) => 500 * n * (n - 1) + n * i;
          for (const [part, skip] of [
            [1, 3],
            [1000, 4],
            [5001, 3],
          ] as const) {
            const { own: a, parts: b, wide: c, result: d, fill } = rankBuffers(world, part, skip);
            const calls: readonly (readonly [
              string,
              (
                group: Pick<typeof comm, "allReduce" | "allGather" | "reduceScatter" | "allToAll" | "broadcast">,
              ) => unknown,
              typeof a,
              (i: number) => number,
            ])[] = [
              ["all_reduce", (group) => group.allReduce(a, { output: d }), d, sum],
              ["all_reduce in place", (group) => group.allReduce(a), a, sum],
              [
                "all_gather",
                (group) => group.allGather(a, { output: b }),
                b,
                (i) => value(Math.floor(i / part), i % part),
              ],
              ["reduce_scatter", (group) => group.reduceScatter(c, { output: d }), d, (i) => sum(rank * part + i)],
              [
                "reduce_scatter on its input",
                (group) => group.reduceScatter(c, { output: c.slice(rank * part, (rank + 1) * part) }),
                c.slice(rank * part, (rank + 1) * part),
                (i) => sum(rank * part + i),
              ],
              [
                "all_to_all",
                (group) => group.allToAll(c, { output: b }),
                b,
                (i) => value(Math.floor(i / part), rank * part + (i % part)),
              ],
              ["broadcast", (group) => group.broadcast(a, { output: d, root: 1 }), d, (i) => value(1, i)],
            ];
            for (const [what, call, result, want] of calls) {
              fill();
              await call(comm);
              check(`${what} of ${part}`, result, want);
              const graph = comm.capture((group) => void call(group));
              fill();
              await comm.replay(graph);
              fill();
              await comm.replay(graph);
              check(`${what} of ${part}, replayed`, result, want);
              graph.close();
            }
            const host = await comm.allGather(Int32Array.from({ length: part }, (_, i) => value(rank, i)));
            check("host", host.data as Int32Array, (i) => value(Math.floor(i / part), i % part));
          }
          return { found, choices: comm.stats().choices };
        },
      });
      for (const { found, choices } of results) {
        expect(found).toEqual([]);
        expect(Object.keys(choices ?? {}).sort()).toEqual(SERVED);
      }
    },
  );

  it("go where a program says that puts into outputs, inputs and a buffer that holds both", {
    timeout: 120_000,
  }, async () => {
    const results = await launch({
      ...worldOf("process"),
      run: async (world) => {
        const { algorithm } = await import("chorale/algorithms");
        const { allGather, program } = await import("chorale/language");
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const { rank } = comm;
        const swap = program({ name: "swap", collective: allGather(2) }, (p) => {
          const channels = p.ranks.map((own) => p.memoryChannel(own, p.rank(1 - own.id)));
          for (const [id, channel] of channels.entries()) {
            p.rank(id).copy(p.rank(id).output.at(id), p.rank(id).input.at(0));
            channel.put(p.rank(1 - id).output.at(id), p.rank(id).input.at(0));
            channel.signal();
          }
          for (const channel of channels) channel.wait();
        });
        const ring = algorithm("ring-all-reduce").make({ numRanks: 2 });
        const inPlace = algorithm("two-phase-all-reduce").make({ numRanks: 2, inPlace: true });
        const found: unknown[] = [];
        const [x, y, z] = [world.tensor("i32", [101]), world.tensor("i32", [202]), world.tensor("i32", [101])];
        const fill = (from: number) => world.upload(x, new Int32Array(101).fill(from + rank));
        const make = (group: Pick<typeof comm, "run">, which: number) => {
          if (which === 0) return group.run(swap, { input: x, output: y });
          if (which === 1) return group.run(ring, { input: x, output: z });
          return group.run(inPlace, { input: x });
        };
        const ends = (which: number) => {
          const result = [y, z, x][which] ?? x;
          return [0, 100, result.size - 1].map((i) => world.download(result)[i]);
        };
        for (const which of [0, 1, 2]) {
          fill(5);
          await make(comm, which);
          found.push(ends(which));
          const graph = comm.capture((group) => void make(group, which));
          fill(7);
          await comm.replay(graph);
          found.push(ends(which));
          graph.close();
        }
        return found;
      },
    });
    const all = [
      [5, 5, 6],
      [7, 7, 8],
      [11, 11, 11],
      [15, 15, 15],
      [11, 11, 11],
      [15, 15, 15],
    ];
    expect(results).toEqual([all, all]);
  });

  it("take memory that other processes cannot be told of, on its input too", { timeout: 120_000 }, async () => {
    const results = await launch({
      ...worldOf("process"),
      env: { ...worldOf("process").env, NCCL_NVLS_ENABLE: "0" },
      backendOptions: { choices, registerBuffers: true },
      run: async (world) => {
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const found: unknown[] = [];
        for (const part of [100, 50, 1000]) {
          const [x, y] = [world.tensor("i32", [2 * part]), world.tensor("i32", [2 * part])];
          const fill = (from: number) =>
            world.upload(
              x,
              Int32Array.from({ length: x.size }, (_, i) => from + 2 * comm.rank + Math.floor(i / part)),
            );
          const ends = (t: typeof x) => [0, part - 1, part, 2 * part - 1].map((i) => world.download(t)[i]);
          const calls: readonly (readonly [
            (group: Pick<typeof comm, "allReduce" | "allToAll">) => unknown,
            typeof x,
          ])[] = [
            [(group) => group.allToAll(x, { output: y }), y],
            [(group) => group.allReduce(x, { output: y }), y],
            [(group) => group.allReduce(x), x],
          ];
          for (const [call, result] of calls) {
            fill(0);
            await call(comm);
            found.push(ends(result));
            const graph = comm.capture((group) => void call(group));
            fill(10);
            await comm.replay(graph);
            found.push(ends(result));
            graph.close();
          }
        }
        return { found, choices: comm.stats().choices };
      },
    });
    for (const [rank, { found, choices }] of results.entries()) {
      const exchanged = [0, 10].map((from) => [from + rank, from + rank, from + 2 + rank, from + 2 + rank]);
      const sums = [0, 10].map((from) => [2 * from + 2, 2 * from + 2, 2 * from + 4, 2 * from + 4]);
      const all = [...exchanged, ...sums, ...sums];
      expect(found).toEqual([...all, ...all, ...all]);
      expect(choices).toEqual({ "all_reduce two-phase-all-reduce*2@32": 12, "all_to_all one-pass-all-to-all*2@32": 6 });
    }
  });

  it("keep the order of the stream, groups beside each other", { timeout: 120_000 }, async () => {
    const results = await launch({
      ...worldOf("process"),
      backendOptions: { choices },
      run: async (world) => {
        const { comm, rank } = world;
        const groups = [await comm.split(0, rank), await comm.split(0, -rank)];
        const made = groups.map((group) => {
          if (group === undefined) throw new Error("no group");
          const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
          world.upload(x, new Int32Array(100).fill(1 + rank));
          return { group, x, y };
        });
        // Nobody waits in between: each call reads what the one before wrote, and windows alone serve some.
        const last = Array.from({ length: 20 }, (_, i) =>
          made.map(({ group, x, y }) => {
            group.allGather(x, { output: y, ...(i % 3 === 1 && { algorithm: "packet-all-gather@32" }) });
            if (i % 4 === 2) group.allReduce(x);
            return group.broadcast(y.slice(100, 200), { root: 0, output: x });
          }),
        ).at(-1);
        for (const work of last ?? []) await work;
        return made.map(({ x, y }) => [world.download(x)[99], world.download(y)[0]]);
      },
    });
    expect(results).toEqual(
      Array(2).fill([
        [2, 2],
        [1, 1],
      ]),
    );
  });

  it("end when a member leaves, and keep what others may still write to", { timeout: 120_000 }, async () => {
    const told = await launch({
      ...worldOf("process"),
      backendOptions: { choices },
      run: async (world) => {
        const { deviceStorageOf } = await import("chorale/device");
        const group = await world.comm.split(0);
        if (group === undefined) throw new Error("no group");
        const make = () => world.tensor("i32", [2000]);
        const addressOf = (one: ReturnType<typeof make>) => deviceStorageOf(one)?.allocation.address;
        const [x, y] = [world.tensor("i32", [1000]), make()];
        await group.allGather(x, { output: y });
        const works = world.rank === 0 ? [1, 2, 3].map(() => group.allGather(x, { output: y })) : [];
        await world.comm.barrier();
        if (world.rank === 1) group.abort("enough");
        const ends = await Promise.allSettled(works);
        const said: unknown[] = ends.map((end) => (end.status === "rejected" ? (end.reason as Error).message : "done"));
        const at = addressOf(y);
        world.free(y);
        const comesAgain = () => Array.from({ length: 6 }, () => addressOf(make())).includes(at);
        said.push(comesAgain());
        await group.close().catch(() => {});
        const until = performance.now() + 60_000;
        while (world.rank === 0 && !comesAgain()) {
          if (performance.now() > until) throw new Error("the memory never came back");
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        return said;
      },
    });
    const enough = expect.stringMatching(/enough/);
    expect(told).toEqual([[enough, enough, enough, false], [expect.any(Boolean)]]);
  });

  it("tell members apart that make different calls, or of whom one captures", { timeout: 120_000 }, async () => {
    const told = await launch({
      ...worldOf("process"),
      backendOptions: { choices },
      run: async (world) => {
        const said: string[] = [];
        for (const how of ["captured", "root"]) {
          const group = (await world.comm.split(0)) as import("chorale/nccl").NcclCommunicator;
          const x = world.tensor("i32", [100]);
          for (const root of [0, 1]) await group.broadcast(x, { root });
          try {
            if (how === "root") await group.broadcast(x, { root: world.rank });
            else if (world.rank === 0) group.capture((one) => void one.broadcast(x, { root: 0 }));
            else await group.broadcast(x, { root: 0 });
            said.push("done");
          } catch (error) {
            said.push((error as Error).message);
          }
        }
        return said;
      },
    });
    for (const [captured, root] of told) {
      expect(captured).toMatch(
        /different calls that reach each other's buffers\n {2}rank 0: direct-broadcast\*2@32 in a capture\n {2}rank 1: direct-broadcast\*2@32$/,
      );
      expect(root).toMatch(/rank 0: .*root 0.*\n.*rank 1: .*root 1/s);
    }
  });
});
