/** Rows of a table that name another algorithm for captured calls, over the stand-in library. */
import { launch } from "chorale/world";
import { describe, expect, it, onTestFinished } from "vitest";
import { available, choicesAlone, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { spread } from "../../../../test/support/spread.ts";
import type { ChoiceDocument } from "../../executor/index.ts";

const USES = {
  all_reduce: ["nccl", "two-phase-all-reduce*2@32"],
  all_gather: ["packet-all-gather@32", "streaming-all-gather*2@32.unit1K"],
  reduce_scatter: ["packet-reduce-scatter@32", "read-reduce-scatter*2@32"],
} as const;
const plain = choicesAlone(Object.fromEntries(Object.entries(USES).map(([op, [use]]) => [op, use])), [2, 2]);
const choices: ChoiceDocument = {
  ...plain,
  tables: plain.tables.map((table) => ({
    ...table,
    rows: table.rows.map((row) => ({ ...row, captured: USES[table.collective as keyof typeof USES][1] })),
  })),
};

const gathers = { backend: "cuda", collective: "all_gather", ranks: [2, 2] } as const;

describe.skipIf(!available)("rows that serve captured calls otherwise, on a stand-in (needs g++)", () => {
  it("have direct calls open both algorithms, and each serve its own", { timeout: 120_000 }, async () => {
    const results = await launch({
      ...worldOf("process"),
      backendOptions: { choices },
      run: async (world) => {
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const { rank } = comm;
        const found: string[] = [];
        const [a, b, c, d] = [1000, 2000, 2000, 1000].map((count) => world.tensor("i32", [count]));
        if (a === undefined || b === undefined || c === undefined || d === undefined) throw new Error("no tensors");
        const calls: readonly (readonly [
          (group: Pick<typeof comm, "allReduce" | "allGather" | "reduceScatter">) => PromiseLike<unknown>,
          typeof a,
          (i: number, from: number) => number,
        ])[] = [
          [(group) => group.allReduce(a, { output: d }), d, (i, from) => 2 * (from + i) + 1],
          [(group) => group.allGather(a, { output: b }), b, (i, from) => from + (i % 1000) + Math.floor(i / 1000)],
          [(group) => group.reduceScatter(c, { output: d }), d, (i, from) => 2 * (from + 1000 * rank + i) + 1],
        ];
        for (const [call, result, want] of calls) {
          const fill = (from: number) => {
            for (const t of [a, c]) {
              world.upload(
                t,
                Int32Array.from({ length: t.size }, (_, i) => from + rank + i),
              );
            }
            for (const t of [b, d]) world.upload(t, new Int32Array(t.size).fill(-1));
          };
          const check = (how: string, from: number) => {
            const got = world.download(result) as Int32Array;
            const at = got.findIndex((value, i) => value !== want(i, from));
            if (at >= 0) found.push(`${how}: element ${at} is ${got[at]}, not ${want(at, from)}`);
          };
          for (const from of [5, 6]) {
            fill(from);
            await call(comm);
            check("direct", from);
          }
          const graph = comm.capture((group) => void call(group));
          for (const from of [7, 8]) {
            fill(from);
            await comm.replay(graph);
            check("replayed", from);
          }
          fill(9);
          await call(comm);
          check("direct again", 9);
          graph.close();
        }
        // By name a call is served alike, captured or not.
        await comm.allGather(a, { output: b, algorithm: "packet-all-gather@32.lines" });
        comm
          .capture((group) => void group.allGather(a, { output: b, algorithm: "packet-all-gather@32.lines" }))
          .close();
        return { found, choices: comm.stats().choices };
      },
    });
    const all = Object.entries(USES).flatMap(([op, [use, captured]]) => [
      [`${op} ${use}`, 3],
      [`${op} ${captured}`, 1],
    ]);
    const counts = { ...Object.fromEntries(all), "all_gather packet-all-gather@32.lines": 2 };
    for (const result of results) expect(result).toEqual({ found: [], choices: counts });
  });

  it.each(
    spread(
      [
        ["nccl", { captured: "streaming-all-gather*2@32.unit1K" }, { "all_gather nccl": 2 }],
        ["packet-all-gather@32", { captured: "streaming-all-gather*2@32.unit1K" }, {}],
        ["packet-all-gather@32", {}, {}],
      ] as const,
      2,
    ),
  )(
    "leave calls to NCCL where no member can open a plan, captured after one direct call: %s %j",
    {
      timeout: 60_000,
    },
    async (use, captured, counts) => {
      process.env["FAKE_CUDA_NO_PEER_ACCESS"] = "1";
      onTestFinished(() => void delete process.env["FAKE_CUDA_NO_PEER_ACCESS"]);
      const rows = [{ fromBytes: 0, use, ...captured }];
      const told = await launch({
        ...worldOf(),
        backendOptions: { choices: { ...plain, tables: [{ ...gathers, rows }] } },
        run: async (world) => {
          const comm = world.comm as import("chorale/nccl").NcclCommunicator;
          const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
          world.upload(x, new Int32Array(100).fill(5 + world.rank));
          await comm.allGather(x, { output: y });
          const graph = comm.capture((one) => void one.allGather(x, { output: y }));
          world.upload(y, new Int32Array(200));
          await comm.replay(graph);
          graph.close();
          return { found: [world.download(y)[99], world.download(y)[199]], choices: comm.stats().choices };
        },
      });
      for (const one of told) expect(one).toEqual({ found: [5, 6], choices: counts });
    },
  );

  it.each(
    spread(
      [
        ["before", "nccl"],
        ["before", "packet-all-gather@32"],
        ["behind", "packet-all-gather@32"],
        ["behind", "nccl"],
      ] as const,
      2,
    ),
  )(
    "tell all ranks at once that one captures a call %s another makes it, by %s",
    { timeout: 60_000 },
    async (when, use) => {
      const row = { fromBytes: 0, use, captured: "streaming-all-gather*2@32.unit1K" };
      const began = performance.now();
      const told = await launch({
        ...worldOf("process"),
        backendOptions: {
          choices: { ...plain, tables: [{ ...gathers, rows: [row] }] },
        },
        data: when,
        run: async (world, when) => {
          const group = (await world.comm.split(0)) as import("chorale/nccl").NcclCommunicator;
          const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
          await group.allGather(x, { output: y });
          const later = (world.rank === 0) === (when === "behind");
          if (later) await new Promise((resolve) => setTimeout(resolve, 300));
          try {
            if (world.rank === 0) group.capture((one) => void one.allGather(x, { output: y }));
            else await group.allGather(x, { output: y });
            return "done";
          } catch (error) {
            const { code, message } = error as Error & { code: string };
            return `${code}: ${message}`;
          }
        },
      });
      const apart = expect.stringMatching(
        /^MISMATCH: ranks of .* disagree: all of them capture a call, or none does\n {2}rank 0: all_gather in a capture\n {2}rank 1: all_gather\(i32\[100\]\), not captured$/,
      );
      expect(told).toEqual([apart, apart]);
      // Long before the deadline of either.
      expect(performance.now() - began).toBeLessThan(30_000);
    },
  );
});
