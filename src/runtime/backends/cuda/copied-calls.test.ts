/** Collectives that copy engines do, over the stand-in library. */

import { describe, expect, it } from "vitest";
import { available, choicesAlone, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";

const USES = [
  ["all_gather", "direct-all-gather*2@copies.32"],
  ["all_to_all", "direct-all-to-all*3@copies"],
  ["broadcast", "direct-broadcast@copies"],
  ["gather", "direct-gather@copies"],
  ["scatter", "direct-scatter@copies"],
] as const;
const choices = choicesAlone(Object.fromEntries(USES), [2, 4]);

describe.skipIf(!available)("calls by copy engines over a stand-in library (needs g++)", () => {
  const worlds = [
    ["thread", 2],
    ["thread", 3],
    ["process", 2],
  ] as const;
  it.each(spread(worlds, 3))(
    "are right, call by call, in place and from graphs, ranks as %s, %s of them",
    { timeout: 120_000 },
    async (isolation, ranks) => {
      const results = await launch({
        ...worldOf(isolation),
        ranks,
        backendOptions: { choices },
        run: async (world) => {
          const { checker, rankBuffers, value } = await import("../../../../test/helpers/rank-buffers.ts");
          const comm = world.comm as import("chorale/nccl").NcclCommunicator;
          const { rank, size: n } = comm;
          const found: string[] = [];
          const check = checker(world, found);
          for (const [part, skip] of [
            [1, 3],
            [7, 3],
            [1000, 4],
            [5004, 0],
            [5001, 3],
          ] as const) {
            const { own: a, parts: b, wide: c, result: d, fill } = rankBuffers(world, part, skip);
            for (const how of ["called", "captured"] as const) {
              const make = (
                group: Pick<typeof comm, "allGather" | "allToAll" | "broadcast" | "gather" | "scatter">,
                which: number,
                root: number,
              ) => {
                if (which === 0) return group.allGather(a, { output: b });
                if (which === 1) return group.allToAll(c, { output: b });
                if (which === 2) return group.broadcast(a, { output: d, root });
                if (which === 3) return group.gather(a, { root, ...(rank === root && { output: b }) });
                return rank === root ? group.scatter(c, { root, output: d }) : group.scatter(d, { root });
              };
              for (let which = 0; which < 5; which++) {
                for (let root = 0; root < (which < 2 ? 1 : n); root++) {
                  fill();
                  if (how === "called") await make(comm, which, root);
                  else {
                    const graph = comm.capture((group) => {
                      make(group, which, root);
                    });
                    await comm.replay(graph);
                    fill();
                    await comm.replay(graph);
                    graph.close();
                  }
                  const what = `${how} ${which} of ${part}, root ${root}`;
                  if (which === 0) check(what, b, (i) => value(Math.floor(i / part), i % part));
                  if (which === 1) check(what, b, (i) => value(Math.floor(i / part), rank * part + (i % part)));
                  if (which === 2) check(what, d, (i) => value(root, i));
                  if (which === 3 && rank === root) check(what, b, (i) => value(Math.floor(i / part), i % part));
                  if (which === 3 && rank !== root) check(what, b, () => -1);
                  if (which === 4) check(what, d, (i) => value(root, rank * part + i));
                }
              }
            }
            // In place, and staged from the host.
            fill();
            world.upload(b.slice(rank * part, (rank + 1) * part), world.download(a) as Int32Array);
            await comm.allGather(b.slice(rank * part, (rank + 1) * part), { output: b });
            check(`in place of ${part}`, b, (i) => value(Math.floor(i / part), i % part));
            fill();
            await comm.broadcast(a, { root: 1 });
            check(`broadcast in place of ${part}`, a, (i) => value(1, i));
            const host = await comm.allGather(Int32Array.from({ length: part }, (_, i) => value(rank, i)));
            check("host", host.data as Int32Array, (i) => value(Math.floor(i / part), i % part));
          }
          return { found, choices: comm.stats().choices };
        },
      });
      for (const { found, choices } of results) {
        expect(found).toEqual([]);
        expect(Object.keys(choices ?? {}).sort()).toEqual(USES.map((use) => use.join(" ")).sort());
      }
    },
  );

  it.each(spread(["thread", "process"] as const, 2))(
    "keep the order of the stream, groups beside each other, ranks as %s",
    { timeout: 120_000 },
    async (isolation) => {
      const results = await launch({
        ...worldOf(isolation),
        backendOptions: { choices },
        run: async (world) => {
          const { comm, rank } = world;
          const groups = [await comm.split(0, rank), await comm.split(0, -rank)];
          const found: unknown[] = [];
          const made = groups.map((group) => {
            if (group === undefined) throw new Error("no group");
            const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
            world.upload(x, new Int32Array(100).fill(1 + rank));
            return { group, x, y };
          });
          // Nobody waits in between: each call reads what the one before wrote.
          const last = Array.from({ length: 20 }, () =>
            made.map(({ group, x, y }) => {
              group.allGather(x, { output: y });
              return group.broadcast(y.slice(100, 200), { root: 0, output: x });
            }),
          ).at(-1);
          for (const work of last ?? []) await work;
          for (const { group, x, y } of made) found.push([world.download(x)[99], world.download(y)[0], group.rank]);
          return found;
        },
      });
      expect(results).toEqual([
        [
          [2, 2, 0],
          [1, 1, 1],
        ],
        [
          [2, 2, 1],
          [1, 1, 0],
        ],
      ]);
    },
  );

  it.each(spread(["thread", "process"] as const, 2, 1))(
    "run programs that send through port channels, ranks as %s",
    { timeout: 120_000 },
    async (isolation) => {
      const results = await launch({
        ...worldOf(isolation),
        run: async (world) => {
          const { allGather, program } = await import("chorale/language");
          const comm = world.comm as import("chorale/nccl").NcclCommunicator;
          const { rank } = comm;
          const swap = program({ name: "swap", collective: allGather(2) }, (p) => {
            const channels = p.ranks.map((own) => p.portChannel(own, p.rank(1 - own.id)));
            for (const [id, channel] of channels.entries()) {
              p.rank(id).copy(p.rank(id).output.at(id), p.rank(id).input.at(0));
              channel.putWithSignal(p.rank(1 - id).output.at(id), p.rank(id).input.at(0));
            }
            for (const channel of channels) channel.wait();
          });
          const found: unknown[] = [];
          const [x, y] = [world.tensor("i32", [1 << 20]), world.tensor("i32", [2 << 20])];
          world.upload(x, new Int32Array(x.size).fill(5 + rank));
          await comm.run(swap, { input: x, output: y });
          const ends = () => [0, x.size - 1, x.size, y.size - 1].map((i) => world.download(y)[i]);
          found.push(ends());
          const graph = comm.capture((group) => void group.run(swap, { input: x, output: y }));
          world.upload(x, new Int32Array(x.size).fill(7 + rank));
          await comm.replay(graph);
          found.push(ends());
          graph.close();
          await comm.run(swap, { input: x.slice(0, 100), output: y.slice(0, 200) });
          found.push([0, 99, 100, 199].map((i) => world.download(y)[i]));
          return found;
        },
      });
      const all = [
        [5, 5, 6, 6],
        [7, 7, 8, 8],
        [7, 7, 8, 8],
      ];
      expect(results).toEqual([all, all]);
    },
  );

  it.each(spread(["direct", "one-pass"], 2))(
    "take memory that other processes cannot be told of, by %s-all-to-all",
    { timeout: 120_000 },
    async (kind) => {
      const results = await launch({
        ...worldOf("process"),
        env: { ...worldOf("process").env, NCCL_NVLS_ENABLE: "0" },
        backendOptions: { choices, registerBuffers: true },
        data: `${kind}-all-to-all@copies`,
        run: async (world, algorithm) => {
          const comm = world.comm as import("chorale/nccl").NcclCommunicator;
          const found: number[][] = [];
          for (const part of [100, 50, 1000]) {
            const [x, y] = [world.tensor("i32", [2 * part]), world.tensor("i32", [2 * part])];
            const fill = (from: number) =>
              world.upload(
                x,
                Int32Array.from({ length: x.size }, (_, i) => from + 2 * comm.rank + Math.floor(i / part)),
              );
            const ends = () => found.push([0, part - 1, part, y.size - 1].map((i) => world.download(y)[i] ?? -1));
            fill(0);
            await comm.allToAll(x, { output: y, algorithm });
            ends();
            const graph = comm.capture((group) => void group.allToAll(x, { output: y, algorithm }));
            fill(10);
            await comm.replay(graph);
            ends();
            graph.close();
          }
          return { found, choices: comm.stats().choices };
        },
      });
      for (const [rank, { found, choices }] of results.entries()) {
        const all = [0, 10].map((from) => [from + rank, from + rank, from + 2 + rank, from + 2 + rank]);
        expect(found).toEqual([...all, ...all, ...all]);
        expect(choices).toEqual({ [`all_to_all ${kind}-all-to-all@copies`]: 6 });
      }
    },
  );

  it("tell members apart of whom one captures and the other does not, and captures of other roots", {
    timeout: 120_000,
  }, async () => {
    const told = await launch({
      ...worldOf(),
      backendOptions: { choices },
      run: async (world) => {
        const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
        const said: string[] = [];
        for (const kind of ["one captures", "other roots"]) {
          const group = (await world.comm.split(0)) as import("chorale/nccl").NcclCommunicator;
          await group.allGather(x, { output: y });
          try {
            if (kind === "other roots") group.capture((one) => void one.broadcast(x, { root: world.rank }));
            else if (world.rank === 0) group.capture((one) => void one.allGather(x, { output: y }));
            else await group.allGather(x, { output: y });
            said.push("done");
          } catch (error) {
            said.push((error as Error).message);
          }
          await group.close().catch(() => {});
        }
        return said;
      },
    });
    const [gathers, broadcasts] = ["direct-all-gather\\*2@copies.32", "direct-broadcast@copies in a capture"];
    for (const [rank, [one, other]] of told.entries()) {
      const differ = "different calls that reach each other's buffers\\n {2}rank 0: ";
      const roots = rank === 0 ? [broadcasts, "another call in a capture"] : ["another call in a capture", broadcasts];
      expect(one).toMatch(new RegExp(`${differ}${gathers} in a capture\\n {2}rank 1: ${gathers}$`));
      expect(other).toMatch(new RegExp(`${differ}${roots.join("\\n {2}rank 1: ")}$`));
    }
  });

  it("go on in other groups while one captures", { timeout: 120_000 }, async () => {
    const told = await launch({
      ...worldOf(),
      backendOptions: { choices },
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, waiting) => {
        const { rank } = world;
        const captured = (await world.comm.split(0)) as import("chorale/nccl").NcclCommunicator;
        const other = (await world.comm.split(0)) as import("chorale/nccl").NcclCommunicator;
        const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
        world.upload(x, new Int32Array(100).fill(1 + rank));
        for (const group of [captured, other]) await group.allGather(x, { output: y });
        const calls = () => [1, 2, 3].map(() => other.allGather(x, { output: y }));
        const capture = () =>
          captured.capture((one) => {
            if (rank === 0) Atomics.store(waiting, 0, 1);
            one.allGather(x, { output: y });
          });
        // Rank 0 tells of all but the first of its calls while it captures.
        const works = rank === 0 ? calls() : [];
        const early = rank === 0 ? capture() : undefined;
        while (Atomics.load(waiting, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 2));
        for (const work of rank === 0 ? works : calls()) await work;
        const graph = early ?? capture();
        world.upload(y, new Int32Array(200));
        await captured.replay(graph);
        return [world.download(y)[0], world.download(y)[199]];
      },
    });
    expect(told).toEqual([
      [1, 2],
      [1, 2],
    ]);
  });

  it("end the group when a capture has waited for too long: the others must not use what it told", {
    timeout: 120_000,
  }, async () => {
    const told = await launch({
      ...worldOf(),
      backendOptions: { choices },
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, over) => {
        const group = (await world.comm.split(0)) as import("chorale/nccl").NcclCommunicator;
        const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
        await group.allGather(x, { output: y });
        while (world.rank === 1 && Atomics.load(over, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 2));
        try {
          group.capture((one) => void one.allGather(x, { output: y, timeoutMs: world.rank === 0 ? 200 : 100_000 }));
          return "captured";
        } catch (error) {
          return (error as Error).message;
        } finally {
          Atomics.store(over, 0, 1);
        }
      },
    });
    const late =
      /capture of all_gather did not complete within 200 ms; arrived: ranks \[0\], missing: ranks \[1\] \(last operation of rank 1: all_gather/;
    expect(told).toEqual(Array(2).fill(expect.stringMatching(late)));
  });

  it("end when a member leaves, whether it came or not", { timeout: 120_000 }, async () => {
    const told = await launch({
      ...worldOf(),
      backendOptions: { choices },
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, step) => {
        const group = await world.comm.split(0);
        if (group === undefined) throw new Error("no group");
        const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
        await group.allGather(x, { output: y });
        const works = world.rank === 0 ? [1, 2, 3].map(() => group.allGather(x, { output: y })) : [];
        if (world.rank === 0) Atomics.store(step, 0, 1);
        while (Atomics.load(step, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 2));
        if (world.rank === 1) group.abort("enough");
        const ends = await Promise.allSettled(works);
        return ends.map((end) => (end.status === "rejected" ? (end.reason as Error).message : "done"));
      },
    });
    expect(told).toEqual([Array(3).fill(expect.stringMatching(/enough/)), []]);
  });

  // The stand-in notes a copy of memory that was freed.
  it("end when a rank is gone that a graph of them waits for, before its memory is", { timeout: 120_000 }, async () => {
    const world = launch({
      ...worldOf(),
      backendOptions: { choices },
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, step) => {
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const [x, y] = [world.tensor("i32", [1000]), world.tensor("i32", [2000])];
        await comm.allGather(x, { output: y });
        const graph = comm.capture((group) => {
          for (let i = 0; i < 50; i++) group.allGather(x, { output: y });
        });
        if (world.rank === 0) {
          const replayed = comm.replay(graph);
          Atomics.store(step, 0, 1);
          await replayed;
        }
        while (Atomics.load(step, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 2));
        throw new Error("gone");
      },
    });
    await expect(world).rejects.toThrow(/rank 1 failed.*gone/);
  });

  it("are refused of algorithms that do more than copy, and named for one call", { timeout: 120_000 }, async () => {
    const [told] = await launch({
      ...worldOf(),
      run: async (world) => {
        const { comm } = world;
        const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
        const said: string[] = [];
        for (const algorithm of [
          "direct-all-gather@copies",
          "staged-all-gather@copies",
          "direct-all-gather@copies.lines",
        ]) {
          try {
            await comm.allGather(x, { output: y, algorithm });
            said.push("done");
          } catch (error) {
            said.push((error as Error).message);
          }
        }
        return { said, choices: comm.stats().choices };
      },
    });
    expect(told).toEqual({
      said: [
        "done",
        expect.stringMatching(
          /staged-all-gather@copies \(by copy engines\) is not supported.*copies from inputs to outputs/,
        ),
        expect.stringMatching(/@copies.512 for copy engines/),
      ],
      choices: { "all_gather direct-all-gather@copies": 1 },
    });
  });
});
