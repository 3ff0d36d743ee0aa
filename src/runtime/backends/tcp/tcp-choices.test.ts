/** Tables of choices on tcp: every way that they can name, what they refuse, and ranks whose tables differ. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { scratchFolder } from "../../../../test/helpers/scratch.ts";
import { spread } from "../../../../test/support/spread.ts";
import { refusalsOf } from "../../../../test/support/tcp-meetings.ts";
import type { CollectiveName } from "../../../collectives/index.ts";
import { FormatError, InvalidArgumentError } from "../../../core/index.ts";
import { writeMachineSection } from "../../../machine/cost/index.ts";
import { type ChoiceDocument, loadLibraryPlans } from "../../executor/internal.ts";
import { closeRankPool, launch, runRanks, type World } from "../../world/index.ts";
import { SOCKET_KERNELS } from "./socket-ways.ts";
import { digestOf, isTcpChoices, worldChoices } from "./tcp-choices.ts";

beforeAll(loadLibraryPlans);
afterAll(closeRankPool);

const TCP = { backend: "tcp", isolation: "thread" } as const;
const BASE = { backend: "tcp", collective: "all_reduce", ranks: [2, 8] } as const;

/** Tables of one row each, by collective. */
const tables = (uses: Readonly<Record<string, string>>): ChoiceDocument => ({
  schemaVersion: 1,
  source: "test",
  date: "2026-11-29",
  tables: Object.entries(uses).map(([collective, use]) => ({
    ...BASE,
    collective: collective as CollectiveName,
    rows: [{ fromBytes: 0, use }],
  })),
});

/** What each rank calls: every collective that can be served, with one piece and with many, by what `data` names, if anything. */
async function callAll({ comm, rank, size: n }: World, data: Readonly<Record<string, string>>) {
  const wrong: string[] = [];
  const value = (r: number, i: number) => ((r * 31 + i * 7) % 100) + 1;
  const sum = (i: number) => Array.from({ length: n }, (_, r) => value(r, i)).reduce((a, b) => a + b, 0);
  const by = (op: string) => (data[op] === undefined ? {} : { algorithm: data[op] });
  // Afterwards the group knows how it lies on its hosts.
  await comm.barrier();
  for (const count of [3, 70_001]) {
    const check = (what: string, found: ArrayLike<unknown>, expected: (i: number) => number) => {
      for (let i = 0; i < found.length; i++) {
        if (found[i] === expected(i)) continue;
        wrong.push(`${what} of ${count}: element ${i} is ${found[i]}, not ${expected(i)}`);
        return;
      }
    };
    const own = () => Int32Array.from({ length: count }, (_, i) => value(rank, i));
    const wide = () => Int32Array.from({ length: n * count }, (_, i) => value(rank, i));
    const ofRank = (i: number) => value(Math.floor(i / count), i % count);
    const x = own();
    await comm.allReduce(x, by("all_reduce"));
    check("all_reduce", x, sum);
    const b = own();
    await comm.broadcast(b, { root: 1, ...by("broadcast") });
    check("broadcast", b, (i) => value(1, i));
    const r = own();
    await comm.reduce(r, { root: 1, ...by("reduce") });
    if (rank === 1) check("reduce", r, sum);
    check("all_gather", (await comm.allGather(own(), by("all_gather"))).data, ofRank);
    const scattered = await comm.reduceScatter(wide(), by("reduce_scatter"));
    check("reduce_scatter", scattered.data, (i) => sum(rank * count + i));
    const exchanged = await comm.allToAll(wide(), by("all_to_all"));
    check("all_to_all", exchanged.data, (i) => value(Math.floor(i / count), rank * count + (i % count)));
    const gathered = await comm.gather(own(), { root: 1, ...by("gather") });
    if (rank === 1) check("gather", gathered.data, ofRank);
    const part = await comm.scatter(rank === 1 ? wide() : own(), { root: 1, ...by("scatter") });
    check("scatter", part.data, (i) => value(1, rank * count + i));
  }
  const choices = Object.keys(comm.stats().choices ?? {}).sort();
  return { wrong, choices, topology: comm.capabilities().features["topology"] };
}

const OPERATIONS = [
  "all_reduce",
  "broadcast",
  "reduce",
  "all_gather",
  "reduce_scatter",
  "all_to_all",
  "gather",
  "scatter",
];
/** What each collective is served by, by turns: all that tcp has by itself, and plans. */
const WAYS: readonly Readonly<Record<string, string>>[] = [
  Object.fromEntries(OPERATIONS.map((op) => [op, "flat@unit64K"])),
  {
    ...{ all_reduce: "bruck", broadcast: "binomial", reduce: "linear", all_gather: "hierarchical@unit128K" },
    ...{ reduce_scatter: "hierarchical", all_to_all: "pairwise-all-to-all", gather: "direct-gather", scatter: "flat" },
  },
  {
    ...{ all_reduce: "reduce-scatter-all-gather", broadcast: "scatter-all-gather", reduce: "reduce-scatter-gather" },
    ...{ all_gather: "ring-all-gather*2", reduce_scatter: "ring-reduce-scatter", scatter: "direct-scatter" },
  },
  { all_reduce: "hierarchical@unit256K", broadcast: "chain-broadcast/4", reduce: "hierarchical", gather: "flat" },
];
/** Where a schedule by size serves, the count has the schedule's name. */
const counted = (op: string, use: string) => (use.startsWith("flat") ? `${op} ` : `${op} ${use}`);

describe.skipIf(process.platform === "win32")("tables of choices on tcp", () => {
  it("know each way of each collective", () => {
    expect(SOCKET_KERNELS.all_reduce).toEqual([
      ...["socket-kernel", "flat", "flat@unit64K", "flat@unit128K", "flat@unit256K", "flat@unit512K", "flat@unit1M"],
      ...["hierarchical", "hierarchical@unit128K", "hierarchical@unit256K", "hierarchical@unit512K"],
      ...["bruck", "reduce-scatter-all-gather"],
    ]);
    expect(SOCKET_KERNELS.barrier).toEqual(["socket-kernel", "flat", "hierarchical"]);
  });

  it("serve calls as they say, with right results, and so does what a call names", { timeout: 120_000 }, async () => {
    const turns = WAYS.flatMap((uses) => [
      { how: "tabled", uses, data: {}, choices: tables(uses) },
      { how: "named", uses, data: uses, choices: "shipped" },
    ]);
    for (const { how, uses, data, choices: given } of spread(turns, 4)) {
      const options = { ...TCP, backendOptions: { choices: given }, data };
      for (const { wrong, choices, topology } of await runRanks(3, callAll, options as never)) {
        expect(wrong, `${how}, ${JSON.stringify(uses)}`).toEqual([]);
        expect(topology).toBe("one host");
        for (const [op, use] of Object.entries(uses)) {
          const found = choices.filter((key: string) => key.startsWith(counted(op, use)));
          expect(found, `${how} ${op} ${use}: ${choices.join(", ")}`).not.toEqual([]);
          if (use.includes("@unit")) expect(found.every((key: string) => key.endsWith(use.slice(-8)))).toBe(true);
        }
      }
    }
  });

  it("are for their sizes, ranks and hosts alone, and switched off by name", { timeout: 60_000 }, async () => {
    const one = (changes: object, rows = [{ fromBytes: 0, use: "bruck" }]) => ({
      ...tables({}),
      tables: [{ ...BASE, rows, ...changes }],
    });
    const rows = [
      { fromBytes: 0, use: "flat" },
      { fromBytes: 100_000, use: "ring-all-reduce" },
    ];
    const serving = async (choices: unknown) => {
      const [first] = await runRanks(
        2,
        async ({ comm }) => {
          await comm.allReduce(new Int32Array(5));
          await comm.allReduce(new Int32Array(50_000));
          return comm.stats().choices;
        },
        { ...TCP, backendOptions: { choices } } as never,
      );
      return first;
    };
    const shipped = { "all_reduce hierarchical": 2 };
    expect(await serving("shipped")).toEqual(shipped);
    expect(await serving(one({ ranks: [3, 8] }))).toEqual(shipped);
    expect(await serving(one({ topology: "2 hosts of 1" }))).toEqual(shipped);
    expect(await serving(one({ dtypes: ["f32"] }))).toEqual(shipped);
    expect(await serving(one({ topology: "one host" }))).toEqual({ "all_reduce bruck": 2 });
    expect(await serving(one({}, rows))).toEqual({ "all_reduce bruck": 1, "all_reduce ring-all-reduce": 1 });
  });

  it("are refused before anything starts where they name what tcp does not have, with what is accepted", async () => {
    const file = join(scratchFolder("choices"), "machine.json");
    const refusalOf = async (uses: Readonly<Record<string, string>>) => {
      const choices = tables(uses);
      const error = await launch({ ranks: 2, backend: "tcp", backendOptions: { choices }, run: () => 0 }).catch(
        (e) => e,
      );
      expect(error).toBeInstanceOf(InvalidArgumentError);
      // The same in this machine's file.
      writeMachineSection(file, "choices", { chorale: "0.1.0", date: "2026-11-29", data: choices });
      vi.stubEnv("CHORALE_CHOICES", file);
      expect(() => worldChoices(undefined)).toThrow(FormatError);
      vi.unstubAllEnvs();
      return (error as Error).message;
    };
    const ring = await refusalOf({ all_reduce: "ring-al-reduce" });
    expect(ring).toMatch(
      /names ring-al-reduce for all_reduce, which tcp does not have; expected one of socket-kernel, flat, /,
    );
    expect(ring).toMatch(/choices\.tables\[0\]\.rows\[0\]\.use.* bruck, .*ring-all-reduce/s);
    expect(await refusalOf({ all_reduce: "flat@unit3K" })).toMatch(/flat@unit64K/);
    expect(await refusalOf({ all_reduce: "ring-all-gather" })).toMatch(/names ring-all-gather for all_reduce/);
    expect(await refusalOf({ all_gather: "bruck" })).toMatch(/names bruck for all_gather/);
    expect(await refusalOf({ all_reduce: "ring-all-reduce@512" })).toMatch(/names ring-all-reduce@512/);
    expect(await refusalOf({ barrier: "dissemination-barrier" })).toMatch(/one of socket-kernel, flat, hierarchical/);
    // Tables of other backends are none of its business.
    const other = { ...tables({}), tables: [{ ...BASE, backend: "cuda", rows: [{ fromBytes: 0, use: "nccl" }] }] };
    expect([isTcpChoices(other, 2), worldChoices(other)]).toEqual([undefined, undefined]);
  });

  it("have calls host by host refused by name where that is off, the first like the next", async () => {
    const [said] = await launch({
      ranks: 2,
      backend: "tcp",
      backendOptions: { hierarchy: "off" },
      run: async ({ comm }) => {
        const said: string[] = [];
        for (let i = 0; i < 2; i++) {
          try {
            await comm.allReduce(new Float32Array(8), { algorithm: "hierarchical" });
            said.push("made");
          } catch (error) {
            said.push((error as Error).message);
          }
          await comm.allReduce(new Float32Array(8));
        }
        return said;
      },
    });
    expect(said).toEqual(Array(2).fill("algorithm hierarchical is not supported; the world's hierarchy option is off"));
  });

  it("that differ between ranks are refused when these meet", async () => {
    const digests = [tables({ all_reduce: "bruck" }), undefined].map(digestOf);
    expect(digests).toEqual([expect.stringMatching(/^[0-9a-f]{16}$/), "none"]);
    const [listener, caller] = await refusalsOf([{ choices: tables({ all_reduce: "bruck" }) }, {}]);
    const why = new RegExp(
      `the tables of choices are "${digests[0]}" on rank 0 and "none" on rank 1 .*: give all ranks the same \\(option choices`,
    );
    expect([String(listener?.cause), caller?.message]).toEqual([
      expect.stringMatching(why),
      expect.stringMatching(why),
    ]);
  });
});
