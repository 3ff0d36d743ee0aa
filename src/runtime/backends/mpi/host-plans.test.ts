/** Plans and the exchange between ranks of one host, without MPI: all in one process, each with a WebAssembly memory of its own. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newArray, viewAs } from "../../../core/index.ts";
import { openLibrary } from "../../../foreign/native/index.ts";
import { type ChoiceDocument, type ChoiceTable, loadLibraryPlans, SHIPPED_CHOICES } from "../../executor/internal.ts";
import { type GrowingArena, HostAddresses, removeGrowingArena } from "../../memory/index.ts";
import { CallSequence } from "../../progress/index.ts";
import { createHostArena, HostArena, MEETING, PIECE_BYTES } from "./host-arena.ts";
import type { HostCall } from "./host-call.ts";
import { choicesOf, choicesOfEnvironment, namesPlans } from "./host-choices.ts";
import { HostGroup } from "./host-plans.ts";
import type { Activity, CallTarget } from "./mpi-entry.ts";
import { OneRoundReduction, shortWords } from "./one-round-reduction.ts";

const hasMmap = process.platform === "linux" || process.platform === "darwin";
const USES = {
  all_reduce: "two-shot-fused-read-all-reduce",
  all_gather: "one-pass-all-gather",
  reduce_scatter: "one-pass-reduce-scatter",
  all_to_all: "one-pass-all-to-all",
} as const;
const documentOf = (rowsOf: (plan: string) => ChoiceTable["rows"]): ChoiceDocument => ({
  schemaVersion: 1,
  source: "test",
  date: "2026-01-01",
  tables: Object.entries(USES).map(([collective, use]) => ({
    backend: "mpi",
    collective: collective as keyof typeof USES,
    ranks: [2, 16],
    rows: rowsOf(use),
  })),
});
const plans = documentOf((use) => [{ fromBytes: 0, use }]);
const DOCUMENTS = {
  plans,
  "the exchange": documentOf(() => [{ fromBytes: 0, use: "exchange" }]),
  "both, by size": documentOf((use) => [
    { fromBytes: 0, use },
    { fromBytes: 2048, use: "exchange" },
    { fromBytes: 600_000, use },
  ]),
};
const RANKS = 3;
/** More than a piece. */
const large = PIECE_BYTES / 4 + 1001;
const addresses = new HostAddresses();
const never = (): Activity => {
  throw new Error("MPI was asked");
};
let copiedBytes = 0;
/** What a call inside the host uses of MPI's process. */
function withoutMpi(): CallTarget {
  const libc = openLibrary({ name: "C", files: ["libc.so.6", "libSystem.B.dylib"], howToGetIt: "" });
  if (!libc.available) throw new Error(libc.why);
  const memcpy = libc.bind("memcpy", "intptr_t", ["intptr_t", "intptr_t", "size_t"]);
  const copy = (to: number, from: number, length: number) => {
    copiedBytes += length;
    memcpy(to, from, length);
  };
  return { mpi: { library: { copy }, addresses } } as unknown as CallTarget;
}

/** Has all go on in turn until they are done. */
function finish(calls: readonly Activity[]): void {
  for (let rounds = 0; !calls.map((one) => one.advance()).every(Boolean); rounds++) expect(rounds).toBeLessThan(1e6);
}

describe.skipIf(!hasMmap).each(Object.entries(DOCUMENTS))("calls inside a host by %s", (_, document) => {
  let shared: GrowingArena;
  let groups: HostGroup[];
  let arenas: HostArena[];
  let target: CallTarget;
  beforeAll(async () => {
    await loadLibraryPlans();
    target = withoutMpi();
    shared = createHostArena(RANKS);
    const ranks = Array.from({ length: RANKS }, (_, rank) => rank);
    arenas = ranks.map(() => new HostArena(shared, RANKS));
    groups = ranks.map((me) => {
      const arena = arenas[me] as HostArena;
      const host = { arena, documents: [document, SHIPPED_CHOICES], topology: "own-cores", measures: false };
      return new HostGroup(host, "world", ranks, me, 0);
    });
  });
  afterAll(() => {
    for (const arena of arenas) arena.close();
    removeGrowingArena(shared);
  });

  /** Makes a call on all ranks. @param inRoom which ranks' tensors the others can read: none, by default */
  function make(
    op: keyof typeof USES,
    dtype: "f32" | "bf16" | "i8",
    count: number,
    inPlace = false,
    inRoom: (rank: number) => boolean = () => false,
  ) {
    const arrayOf = (rank: number, length: number) => {
      const array = newArray(dtype, length);
      const block = inRoom(rank) ? arenas[rank]?.room.allocate(array.byteLength) : undefined;
      return block === undefined ? array : viewAs(dtype, block.buffer, 0, length);
    };
    const [numIn, numOut] = [
      op === "reduce_scatter" || op === "all_to_all" ? RANKS : 1,
      op === "all_gather" || op === "all_to_all" ? RANKS : 1,
    ];
    const inputs = groups.map((_, rank) => {
      const array = arrayOf(rank, count * numIn);
      for (let i = 0; i < array.length; i++) array[i] = dtype === "bf16" ? 0x3f80 : (i + rank) % 7;
      return array;
    });
    const outputs = inputs.map((input, rank) => (inPlace ? input : arrayOf(rank, count * numOut)));
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
      return group.activity(call, never);
    });
    // Inputs too: in the product, a call's entry holds its tensors.
    return { inputs, given, outputs, calls };
  }

  /** Runs a call on all ranks, in turn. @returns each rank's result */
  function run(...call: Parameters<typeof make>) {
    const { given, outputs, calls } = make(...call);
    for (const one of calls) one.begin(target);
    finish(calls);
    return { given, outputs };
  }

  /** A group that failed makes no more calls; these go on where the first of them has come to. */
  function startAnew(): void {
    for (const group of groups) group.numTold = Math.max(...groups.map(({ numTold }) => numTold));
  }

  it("has ranks that run ahead of others wait where they must", () => {
    const counts = [5, 400, 3000, 20_000, large, 3 * large];
    const random = seeded(20);
    const arrivals = new CallSequence(RANKS);
    const arrival = arrivals.plain("all_reduce", "f32", 5, "sum", 0);
    const all = Array.from({ length: 16 }, () => {
      const op = (["all_reduce", "all_gather", "reduce_scatter", "all_to_all"] as const)[random(4)] ?? "all_reduce";
      const inPlace = op === "all_reduce" && random(2) === 0;
      const numInRoom = random(RANKS + 2);
      return { op, ...make(op, "f32", counts[random(counts.length)] ?? 5, inPlace, (rank) => rank < numInRoom) };
    });
    const at = groups.map(() => 0);
    const begun = groups.map(() => -1);
    const brought = groups.map(() => -1);
    // Each goes on with its own next call as soon as the one before is done, for as long as chance has it.
    for (let steps = 0; at.some((place) => place < all.length); steps++) {
      expect(steps).toBeLessThan(1e6);
      const rank = random(RANKS);
      for (let i = random(20); i >= 0; i--) {
        const place = at[rank] ?? 0;
        const call = all[place]?.calls[rank];
        if (call === undefined) break;
        if (begun[rank] !== place) {
          // As the short way does when it is issued; its turn comes later.
          if (call.bring !== undefined && brought[rank] !== place && random(2) === 0) {
            call.bring?.(arrivals.again(arrival), target.mpi);
            brought[rank] = place;
            break;
          }
          call.begin(target);
        }
        begun[rank] = place;
        if (call.advance()) at[rank] = place + 1;
      }
    }
    for (const { op, given, outputs } of all) {
      const expected = resultsOf(op, given.map(floats));
      expect(
        outputs.map((output, rank) => Buffer.compare(bytes(output), bytes(expected[rank] as Float32Array))),
      ).toEqual([0, 0, 0]);
    }
  });

  it.runIf(document === DOCUMENTS["the exchange"])(
    "ends no call of inputs that a rank lent which failed meanwhile",
    () => {
      const ops = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"] as const;
      for (const [op, count] of ops.flatMap((op) => [20_000, 3 * large].map((count) => [op, count] as const))) {
        const { inputs, calls } = make(op, "f32", count, false, () => true);
        const advance = (rank: number) => {
          for (let looks = 0; looks < 100; looks++) expect(calls[rank]?.advance()).toBe(false);
        };
        for (const one of calls) one.begin(target);
        // The first has done its share, and waits for the second.
        advance(0);
        advance(2);
        calls[0]?.stop?.();
        inputs[0]?.fill(-1);
        advance(1);
        advance(2);
        for (const one of calls) one.stop?.();
        startAnew();
      }
    },
  );

  it.runIf(document === DOCUMENTS["the exchange"])(
    "has a rank that is ahead copy what others have yet to take, but nothing to one that failed",
    () => {
      for (const op of ["all_gather", "all_to_all"] as const) {
        const whole = make(op, "f32", 3 * large, false, () => true);
        for (const one of whole.calls) one.begin(target);
        // The first alone goes on, until it has to wait for the others to say that they are done.
        for (let looks = 0; looks < 100; looks++) expect(whole.calls[0]?.advance()).toBe(false);
        const expected = resultsOf(op, whole.given.map(floats));
        for (const [rank, output] of whole.outputs.entries())
          expect(Buffer.compare(bytes(output), bytes(expected[rank] as Float32Array))).toBe(0);
        finish(whole.calls);
        // A batch that fails stops all of its calls: the place of one that is over has the input of a later one.
        const at = groups[0]?.rounds.halves[((groups[0].numPieces - 1) & 1) as 0 | 1].meetings[0] ?? 0;
        const words = (arenas[0] as HostArena).words().subarray(at + MEETING.inputAt / 4);
        words.fill(17, 0, 2);
        whole.calls[0]?.stop?.();
        expect([...words.subarray(0, 2)]).toEqual([17, 17]);
        const failed = make(op, "f32", 3 * large, false, () => true);
        for (const one of failed.calls) one.begin(target);
        failed.calls[1]?.stop?.();
        failed.outputs[1]?.fill(-1);
        for (let looks = 0; looks < 100; looks++) expect(failed.calls[2]?.advance()).toBe(false);
        expect(failed.outputs[1]?.every((value) => value === -1)).toBe(true);
        for (const one of failed.calls) one.stop?.();
        startAnew();
      }
    },
  );

  it("has short sums meet where all ranks have brought the same call, and its words copied", () => {
    const sequences = groups.map(() => new CallSequence(RANKS));
    const meet = (count: number, differs?: "count" | "number" | "way") => {
      const arrays = groups.map((_, rank) => new Int32Array(count).fill(rank + 1));
      const calls = groups.map((group, rank) => {
        const input = arrays[rank] ?? new Int32Array(0);
        const { address } = addresses.span(input);
        const sizeBytes = input.byteLength;
        const words = shortWords(input.buffer, 0, sizeBytes);
        const place = { send: address, recv: address, ...(words && { words: { send: words, recv: words } }) };
        return new OneRoundReduction(group, { dtype: "i32", redop: "sum", sizeBytes, ...place });
      });
      const met: boolean[][] = [];
      for (const [rank, one] of calls.entries()) {
        const isOther = rank === 1 ? differs : undefined;
        const sequence = sequences[rank] as CallSequence;
        const arrival = sequence.plain("all_reduce", "i32", isOther === "count" ? count + 1 : count, "sum", 0);
        const said = { ...arrival, seq: arrival.seq + (isOther === "number" ? 1 : 0) };
        one.bring(isOther === "way" ? undefined : said, target.mpi);
        met.push(calls.map((each) => each.hasMet()));
      }
      for (const one of calls) one.begin(target);
      expect(calls.map((one) => one.advance())).toEqual([true, true, true]);
      expect(arrays.map((array) => [array[0], array.at(-1)])).toEqual([0, 1, 2].map(() => [6, 6]));
      return met.map((each) => each.filter(Boolean).length);
    };
    // Short ones in their meeting place, longer ones apart; and the two halves in turn.
    for (const count of [1, 2, 24, 25, 300, 24, 1]) expect(meet(count)).toEqual([0, 0, 3]);
    for (const differs of ["count", "number", "way"] as const) expect(meet(3, differs)).toEqual([0, 0, 0]);
    expect(meet(3)).toEqual([0, 0, 3]);
  });

  it("has larger calls meet in one look where all ranks have brought the same", () => {
    const sequences = groups.map(() => new CallSequence(RANKS));
    const meet = (op: keyof typeof USES, count: number, differs = false) => {
      const { given, outputs, calls } = make(op, "f32", count, false, () => true);
      const met = calls.map((one, rank) => {
        const arrival = (sequences[rank] as CallSequence).plain(op, "f32", count, undefined, 0);
        one.bring?.({ ...arrival, seq: arrival.seq + (differs && rank === 1 ? 1 : 0) }, target.mpi);
        return calls.filter((each) => each.hasMet?.()).length;
      });
      for (const one of calls) one.begin(target);
      finish(calls);
      const expected = resultsOf(op, given.map(floats));
      for (const [rank, output] of outputs.entries())
        expect(Buffer.compare(bytes(output), bytes(expected[rank] as Float32Array))).toBe(0);
      // Plans have no such place: they meet as they are compared.
      if (document === DOCUMENTS["the exchange"]) expect(calls.every((one) => one.bring !== undefined)).toBe(true);
      return calls[0]?.bring === undefined ? "plan" : met;
    };
    for (const op of ["all_gather", "all_to_all", "reduce_scatter", "all_reduce"] as const) {
      // The first by the exchange, and the second straight from the tensors.
      for (const count of [400, large]) {
        expect([[0, 0, RANKS], "plan"]).toContainEqual(meet(op, count));
        expect([[0, 0, 0], "plan"]).toContainEqual(meet(op, count, true));
        expect([[0, 0, RANKS], "plan"]).toContainEqual(meet(op, count));
      }
    }
  });

  it.each([1, 5, 1024, large, 3 * large])("sums %i elements", (count) => {
    for (const inPlace of [false, true]) {
      const { given, outputs } = run("all_reduce", "f32", count, inPlace);
      const [sums] = resultsOf("all_reduce", given.map(floats));
      for (const output of outputs) expect(Buffer.compare(bytes(output), bytes(sums as Float32Array))).toBe(0);
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
    for (const op of ["all_gather", "reduce_scatter", "all_to_all"] as const) {
      const { given, outputs } = run(op, "f32", count);
      const expected = resultsOf(op, given.map(floats));
      for (const [rank, output] of outputs.entries())
        expect(Buffer.compare(bytes(output), bytes(expected[rank] as Float32Array))).toBe(0);
    }
  });

  it("moves and reduces straight from tensors that all ranks can read, and only from those", () => {
    const copiedBy = (inRoom: (rank: number) => boolean, op: keyof typeof USES, inPlace = false, count = large) => {
      const before = copiedBytes;
      const { given, outputs } = run(op, "f32", count, inPlace, inRoom);
      const expected = resultsOf(op, given.map(floats));
      for (const [rank, output] of outputs.entries())
        expect(Buffer.compare(bytes(output), bytes(expected[rank] as Float32Array))).toBe(0);
      return (copiedBytes - before) / (4 * count);
    };
    const [all, most] = [() => true, (rank: number) => rank > 0];
    // The exchange serves it in some of the tables only, and plans copy all in and out.
    if (document === DOCUMENTS["the exchange"]) {
      expect(copiedBy(all, "all_gather")).toBe(RANKS * RANKS);
      expect(copiedBy(all, "all_to_all")).toBe(RANKS * RANKS);
      expect(copiedBy(all, "reduce_scatter")).toBe(0);
      for (const inPlace of [false, true]) {
        // Shares are left in the arena as long as they fit; those of larger sums are where they belong on the rank that made them.
        expect(copiedBy(all, "all_reduce", inPlace)).toBeCloseTo(RANKS, 3);
        expect(copiedBy(all, "all_reduce", inPlace, 3 * large)).toBeCloseTo(RANKS - 1, 3);
        // With one rank's array all copy their inputs in.
        expect(copiedBy(most, "all_reduce", inPlace, 20_000)).toBeCloseTo(2 * RANKS, 3);
      }
    }
    for (const op of ["all_gather", "all_to_all", "reduce_scatter", "all_reduce"] as const)
      expect(copiedBy(most, op)).toBeGreaterThan(op === "reduce_scatter" ? RANKS : RANKS + 1);
  });

  it("takes a result into the input only where no other rank reads it", () => {
    const [part, size] = [large, RANKS];
    const made = groups.map((_, rank) => {
      const { buffer } = arenas[rank]?.room.allocate(4 * part * (size + 1)) ?? { buffer: new ArrayBuffer(0) };
      const array = new Float32Array(buffer);
      for (let i = 0; i < array.length; i++) array[i] = (i + 3 * rank) % 11;
      return array;
    });
    // By half a part: each result begins in the middle of what another rank reads.
    for (const shift of [0, part / 2 - 0.5]) {
      const given = made.map((array) => array.slice(0, part * size));
      const calls = groups.map((group, rank) => {
        const send = addresses.span((made[rank] as Float32Array).subarray(0, part * size));
        const recv = addresses.span((made[rank] as Float32Array).subarray(shift, shift + part * size));
        const parts = { root: 0, counts: undefined, sendCounts: [], recvCounts: [] };
        return group.activity({ op: "all_to_all", dtype: "f32", count: part, rank, size, ...parts, send, recv }, never);
      });
      for (const one of calls) one.begin(target);
      finish(calls);
      const expected = resultsOf("all_to_all", given);
      for (const [rank, array] of made.entries()) {
        const got = array.subarray(shift, shift + part * size);
        expect(Buffer.compare(bytes(got), bytes(expected[rank] as Float32Array))).toBe(0);
      }
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

  it.runIf(document === DOCUMENTS["the exchange"])(
    "keeps the tensors of a rank that failed from one that was stopped while it wrote to them",
    { timeout: 60_000 },
    () => {
      // The last: its tensors are not shared any more.
      const { outputs, calls } = make("all_gather", "f32", 3 * large, false, () => true);
      for (const one of calls) one.begin(target);
      const [mine, theirs] = arenas as unknown as [HostArena, HostArena];
      const [group] = groups as unknown as [HostGroup];
      const at = group.rounds.halves[((group.numPieces - 1) & 1) as 0 | 1].meetings[0] ?? 0;
      const output = outputs[0] as Float32Array;
      const from = mine.offsetOf(addresses.span(output));
      // The other is in the midst of a tile, and goes on when the first has its memory for itself again.
      Atomics.add(mine.words(), at + MEETING.writers, 1);
      calls[0]?.stop?.();
      output.fill(-1);
      theirs.bytes.fill(7, from, from + output.byteLength);
      expect(output.every((value) => value === -1)).toBe(true);
      expect(mine.offsetOf(addresses.span(output))).toBe(0);
      for (const one of calls) one.stop?.();
    },
  );
});

it.skipIf(!hasMmap)("a host's memory has its reduction kernels before any call", () => {
  const shared = createHostArena(2, 1);
  const arena = new HostArena(shared, 2, 1);
  // What TypeScript knows of it is its types.
  const { WebAssembly: api } = globalThis as unknown as { WebAssembly: { Instance: unknown } };
  const { Instance } = api;
  const at = arena.allocate(256);
  new Float32Array(arena.bytes.buffer, at, 32).fill(3);
  try {
    api.Instance = () => {
      throw new Error("instantiated in a call");
    };
    arena.reducer.run("f32", "sum", [at, at], at + 128, 128);
  } finally {
    api.Instance = Instance;
    removeGrowingArena(shared);
  }
  expect(new Float32Array(arena.bytes.buffer, at + 128, 32)[31]).toBe(6);
});

describe("the tables of an mpi world", () => {
  it("are those for mpi alone, and say whether ranks need memory for plans", () => {
    const others = { ...plans, tables: plans.tables.map((table) => ({ ...table, backend: "threads" })) };
    expect(choicesOf({ ...plans, tables: [...plans.tables, ...others.tables] })?.tables).toEqual(plans.tables);
    expect(choicesOf(others)).toBeUndefined();
    expect(
      [plans, choicesOf("exchange"), choicesOf("plans"), choicesOf("mpi"), choicesOf("shipped")].map(namesPlans),
    ).toEqual([true, true, true, false, false]);
  });

  it("may be named by the environment, in a word that is known", () => {
    const said = ["exchange", "", undefined].map((CHORALE_MPI_CHOICES) =>
      choicesOfEnvironment({ CHORALE_MPI_CHOICES }),
    );
    expect(said).toEqual(["exchange", undefined, undefined]);
    const wrong = () => choicesOfEnvironment({ CHORALE_MPI_CHOICES: "fast" });
    expect(wrong).toThrow(/CHORALE_MPI_CHOICES.*fast.*one of measured, shipped, mpi, exchange, plans/s);
  });
});

const floats = (array: ArrayBufferView) => array as Float32Array;

/** What each rank is to have: sums of small integers, which floats hold, or the parts that it is given. */
function resultsOf(op: keyof typeof USES, given: readonly Float32Array[]): readonly Float32Array[] {
  const sums = new Float32Array(given[0]?.length ?? 0);
  for (const input of given) for (let i = 0; i < input.length; i++) sums[i] = (sums[i] ?? 0) + (input[i] ?? 0);
  const isWhole = op === "all_reduce" || op === "all_gather";
  return given.map((_, rank) => {
    const own = (input: Float32Array) => {
      const part = input.length / RANKS;
      return isWhole ? input : input.subarray(rank * part, (rank + 1) * part);
    };
    if (op === "all_reduce" || op === "reduce_scatter") return own(sums);
    const parts = given.map(own);
    const joined = new Float32Array(parts.reduce((length, part) => length + part.length, 0));
    for (const [i, part] of parts.entries()) joined.set(part, i * part.length);
    return joined;
  });
}

/** Numbers below a bound, the same each time. */
function seeded(seed: number): (bound: number) => number {
  let state = seed;
  return (bound) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % bound;
  };
}

function bytes(array: ArrayBufferView): Buffer {
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength);
}
