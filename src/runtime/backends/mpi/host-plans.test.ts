/** Plans between ranks of one host, without MPI: two ends in one process, each with a WebAssembly memory of its own. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newArray } from "../../../core/index.ts";
import { type ChoiceDocument, loadLibraryPlans, SHIPPED_CHOICES } from "../../executor/internal.ts";
import { removeSharedArena, type SharedArena } from "../../memory/index.ts";
import { HostAddresses } from "./host-addresses.ts";
import { createHostArena, HostArena, PIECE_BYTES } from "./host-arena.ts";
import { choicesOf, namesPlans } from "./host-choices.ts";
import { HostGroup } from "./host-plans.ts";
import type { Activity } from "./mpi-entry.ts";
import type { HostCall } from "./plan-call.ts";

const hasMmap = process.platform === "linux" || process.platform === "darwin";
const USES = {
  all_reduce: "two-shot-fused-read-all-reduce",
  all_gather: "one-pass-all-gather",
  reduce_scatter: "one-pass-reduce-scatter",
  all_to_all: "one-pass-all-to-all",
} as const;
const plans: ChoiceDocument = {
  schemaVersion: 1,
  source: "test",
  date: "2026-01-01",
  tables: Object.entries(USES).map(([collective, use]) => ({
    backend: "mpi",
    collective: collective as keyof typeof USES,
    ranks: [2, 16],
    rows: [{ fromBytes: 0, use }],
  })),
};
const RANKS = 3;
const addresses = new HostAddresses();
const never = (): Activity => {
  throw new Error("MPI was asked");
};

describe.skipIf(!hasMmap)("plans inside a host", () => {
  let shared: SharedArena;
  let groups: HostGroup[];
  beforeAll(async () => {
    await loadLibraryPlans();
    shared = createHostArena(RANKS);
    const ranks = Array.from({ length: RANKS }, (_, rank) => rank);
    groups = ranks.map((me) => {
      const host = { arena: new HostArena(shared, RANKS), documents: [plans, SHIPPED_CHOICES], topology: "own-cores" };
      return new HostGroup(host, "world", ranks, me, 0);
    });
  });
  afterAll(() => removeSharedArena(shared));

  /** Runs a call on all ranks, in turn. @returns each rank's result */
  function run(op: keyof typeof USES, dtype: "f32" | "bf16" | "i8", count: number, inPlace = false) {
    const [numIn, numOut] = [
      op === "reduce_scatter" || op === "all_to_all" ? RANKS : 1,
      op === "all_gather" || op === "all_to_all" ? RANKS : 1,
    ];
    const inputs = groups.map((_, rank) => {
      const array = newArray(dtype, count * numIn);
      for (let i = 0; i < array.length; i++) array[i] = dtype === "bf16" ? 0x3f80 : (i + rank) % 7;
      return array;
    });
    const outputs = inputs.map((input) => (inPlace ? input : newArray(dtype, count * numOut)));
    const given = inputs.map((input) => input.slice());
    const calls = groups.map((group, rank) => {
      const call: HostCall = {
        op,
        dtype,
        count,
        root: 0,
        rank,
        size: RANKS,
        counts: undefined,
        sendCounts: [],
        recvCounts: [],
        send: addresses.span(inputs[rank] as Float32Array),
        recv: addresses.span(outputs[rank] as Float32Array),
        ...(op === "all_reduce" || op === "reduce_scatter" ? { redop: "sum" as const } : {}),
      };
      const activity = group.activity(call, never);
      activity.begin(undefined as never);
      return activity;
    });
    for (let rounds = 0; !calls.map((call) => call.advance()).every(Boolean); rounds++)
      expect(rounds).toBeLessThan(1e6);
    return { given, outputs };
  }

  const large = PIECE_BYTES / 4 + 1001;
  it.each([1, 5, 1024, large, 3 * large])("sums %i elements", (count) => {
    for (const inPlace of [false, true]) {
      const { given, outputs } = run("all_reduce", "f32", count, inPlace);
      const sums = Float32Array.from(given[0] as Float32Array, (_, i) =>
        given.reduce((sum, input) => sum + Number(input[i]), 0),
      );
      for (const output of outputs) expect(Buffer.compare(bytes(output), bytes(sums))).toBe(0);
    }
  });

  it("rounds sums of small floats once, and goes through many calls of several kinds", () => {
    for (let i = 0; i < 40; i++) {
      expect(run("all_reduce", "bf16", 7 + i).outputs.map(([first]) => first)).toEqual([0x4040, 0x4040, 0x4040]);
      const { given, outputs } = run("all_reduce", "i8", 33);
      expect(outputs[1]?.[4]).toBe(given.reduce((sum, input) => sum + Number(input[4]), 0));
    }
  });

  it.each([3, 1000, large])("gathers, scatters sums of, and exchanges parts of %i elements", (count) => {
    const all = run("all_gather", "f32", count);
    const joined = Buffer.concat(all.given.map(bytes));
    for (const output of all.outputs) expect(Buffer.compare(bytes(output), joined)).toBe(0);
    const parts = run("reduce_scatter", "f32", count);
    for (const [rank, output] of parts.outputs.entries()) {
      const sum = (i: number) => parts.given.reduce((total, input) => total + Number(input[rank * count + i]), 0);
      expect([output[0], output[count - 1]]).toEqual([sum(0), sum(count - 1)]);
    }
    const exchanged = run("all_to_all", "f32", count);
    for (const [rank, output] of exchanged.outputs.entries()) {
      const expected = Buffer.concat(
        exchanged.given.map((input) => bytes(input.subarray(rank * count, (rank + 1) * count))),
      );
      expect(Buffer.compare(bytes(output), expected)).toBe(0);
    }
  });

  it("leaves to MPI what cannot be cut into pieces", () => {
    let asked = 0;
    const call = { op: "broadcast", dtype: "f32", count: 4, size: RANKS } as unknown as HostCall;
    groups[0]?.activity(call, () => {
      asked++;
      return undefined as never;
    });
    expect(asked).toBe(1);
  });
});

describe("the tables of an mpi world", () => {
  it("are those for mpi alone, and say whether ranks need memory for plans", () => {
    const others = { ...plans, tables: plans.tables.map((table) => ({ ...table, backend: "threads" })) };
    expect(choicesOf({ ...plans, tables: [...plans.tables, ...others.tables] })?.tables).toEqual(plans.tables);
    expect(choicesOf(others)).toBeUndefined();
    expect([plans, choicesOf("plans"), choicesOf("mpi"), choicesOf("shipped")].map(namesPlans)).toEqual([
      true,
      true,
      false,
      false,
    ]);
  });
});

function bytes(array: ArrayBufferView): Buffer {
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength);
}
