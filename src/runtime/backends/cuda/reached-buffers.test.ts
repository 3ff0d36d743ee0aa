/** Kernels of processes that reach each other's buffers, over the stand-in library. */
import { launch } from "chorale/world";
import { describe, expect, it } from "vitest";
import { available, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { spread } from "../../../../test/support/spread.ts";
import type { ChoiceDocument } from "../../executor/index.ts";

const USES = [
  ["all_reduce", "two-phase-all-reduce*2@32"],
  ["all_gather", "streaming-all-gather*2@32.unit1K"],
  ["reduce_scatter", "read-reduce-scatter*2@32"],
  ["all_to_all", "one-pass-all-to-all*2@32"],
  ["broadcast", "direct-broadcast*2@32"],
] as const;
const choices: ChoiceDocument = {
  schemaVersion: 1,
  source: "test",
  date: "2026-11-29",
  tables: USES.map(([collective, use]) => ({
    backend: "cuda",
    collective,
    ranks: [2, 4],
    rows: [{ fromBytes: 0, use }],
  })),
};
/** What all ranks find, where nothing is wrong. */
const SERVED = USES.map((use) => use.join(" ")).sort();

describe.skipIf(!available)(
  "kernels that reach buffers of other processes, over a stand-in library (needs g++)",
  () => {
    it.each(spread([2, 3], 2))(
      "are right, call by call, on their input and from graphs, with %s ranks",
      { timeout: 120_000 },
      async (ranks) => {
        const results = await launch({
          ...worldOf("process"),
          ranks,
          backendOptions: { choices },
          run: async (world) => {
            const comm = world.comm as import("chorale/nccl").NcclCommunicator;
            const { rank, size: n } = comm;
            const found: string[] = [];
            const check = (what: string, t: Parameters<typeof world.download>[0], want: (i: number) => number) => {
              const got = world.download(t) as Int32Array;
              const at = got.findIndex((value, i) => value !== want(i));
              if (at >= 0) found.push(`${what}: element ${at} is ${got[at]}, not ${want(at)}`);
            };
            const value = (of: number, i: number) => 1000 * of + i;
            const sum = (i: number) => 500 * n * (n - 1) + n * i;
            for (const [part, skip] of [
              [1, 3],
              [1000, 4],
              [5001, 3],
            ] as const) {
              // At an odd place within a tensor or at an even one, and other tensors each time.
              const [a, b, c, d] = [part, n * part, n * part, part].map((count) =>
                world.tensor("i32", [count + skip]).slice(skip),
              );
              if (a === undefined || b === undefined || c === undefined || d === undefined)
                throw new Error("no tensors");
              const fill = () => {
                for (const [t, count] of [
                  [a, part],
                  [c, n * part],
                ] as const) {
                  world.upload(
                    t,
                    Int32Array.from({ length: count }, (_, i) => value(rank, i)),
                  );
                }
                for (const [t, count] of [
                  [b, n * part],
                  [d, part],
                ] as const)
                  world.upload(t, new Int32Array(count).fill(-1));
              };
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
              if ([...(host.data as Int32Array)].some((x, i) => x !== value(Math.floor(i / part), i % part)))
                found.push("host");
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
  },
);
