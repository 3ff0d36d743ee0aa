/** Collectives host by host, all ranks of all hosts in this thread: shared memory is real, messages are handed over. */
import { existsSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { Random } from "../../../test/oracle/random.ts";
import { AGREED, Members, PRINT, WORKS } from "../../../test/support/host-members.ts";
import { MessageExchange } from "../../../test/support/message-exchange.ts";
import { type CollectiveName, findWrong, referenceOutput } from "../../collectives/index.ts";
import { type ReduceOp, sizeOf, type TypedArray } from "../../core/index.ts";
import { HostAddresses } from "../memory/index.ts";
import { ColumnMessages } from "./column-messages.ts";
import { hostMark } from "./host-identity.ts";
import { type HostLayout, layoutOf, layoutText } from "./host-layout.ts";
import { type HostMemory, PIECE_BYTES, pieceBytesFor, type ReduceHelper } from "./host-memory.ts";
import { HostPlace } from "./host-place.ts";
import type { PieceCallParts } from "./piece-call.ts";
import { barrierPieces, broadcastPieces } from "./piece-moves.ts";
import { allReducePieces, reducePieces } from "./piece-reductions.ts";
import { PieceRun, type PieceWork } from "./piece-run.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
console.log(`hierarchy seed ${seed} (CHORALE_SEED=${seed} repeats it)`);

let members: Members | undefined;
afterEach(() => members?.close());

/** Ranks on so many hosts, every host with one at least. */
function marksOf(random: Random, size: number, hosts: number): string[] {
  const marks = Array.from({ length: size }, (_, rank) => `host ${rank < hosts ? rank : random.below(hosts)}`);
  return marks.sort(() => random.fraction() - 0.5);
}

/** Small integers, which every element type here has exactly, and sums and products of few of them too. */
function fill(random: Random, data: TypedArray) {
  for (let i = 0; i < data.length; i++) data[i] = random.below(3) as never;
  return data;
}

const bytesOf = ({ buffer, byteOffset, byteLength }: TypedArray) =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength);
const isSame = (a: TypedArray, b: TypedArray) => Buffer.compare(bytesOf(a), bytesOf(b)) === 0;

describe.skipIf(process.platform === "win32")("collectives of ranks that share hosts", () => {
  it("give what each means, on any layout, one call after the other", { timeout: 60_000 }, () => {
    const random = new Random(seed);
    const addresses = new HostAddresses();
    for (const [size, hosts] of [
      [2, 1],
      [3, 2],
      [4, 2],
      [5, 3],
      [8, 4],
    ] as const) {
      members = new Members(marksOf(random, size, hosts), random.pick([PIECE_BYTES.plain, PIECE_BYTES.large]));
      for (let round = 0; round < 6; round++) {
        const op = random.pick(Object.keys(WORKS)) as CollectiveName;
        const dtype = random.pick(["f32", "i32", "u8", "f64"] as const);
        const redop: ReduceOp = random.pick(["sum", "max", "avg", "prod"]);
        const pieces = random.pick([0, 0, 0, 0.2, size > 4 ? 0.2 : 0.6, 2.3]);
        const isParted = op === "all_gather" || op === "reduce_scatter";
        const partBytes = (pieces * PIECE_BYTES.plain) / (isParted && pieces > 1 ? size : 1);
        const count = 1 + random.below(40) + Math.floor(partBytes / sizeOf(dtype));
        const root = random.below(size);
        const [given, got] = [
          op === "reduce_scatter" ? size * count : count,
          op === "all_gather" ? size * count : count,
        ];
        const all = members;
        const allocate = (rank: number, elements: number) => all.array(rank, dtype, elements, random.chance(0.7));
        const inputs = members.places.map((_, rank) => fill(random, allocate(rank, given)));
        const before = inputs.map((input) => input.slice());
        const inPlace = random.chance(0.4) && given === got;
        const outputs = inputs.map((input, rank) => {
          const output = allocate(rank, got);
          if (inPlace) output.set(input as never);
          return output;
        });
        const [reads, writes] = [
          (r: number) => op !== "broadcast" || r === root,
          (r: number) => op !== "reduce" || r === root,
        ];
        const { layouts, places } = members;
        const ended = members.run((rank, messages) => {
          const place = places[rank] as HostPlace;
          const output = outputs[rank] as (typeof outputs)[number];
          const input = inPlace && reads(rank) ? output : (inputs[rank] as typeof output);
          const none = new Uint8Array(0);
          return (WORKS[op] as (parts: PieceCallParts) => PieceWork)({
            ...{ op, dtype, redop, root, size, rank, messages, memory: place.memory },
            layout: layouts[rank] as HostLayout,
            partBytes: count * sizeOf(dtype),
            input: addresses.span(reads(rank) ? input : none),
            output: addresses.span(writes(rank) ? output : none),
          });
        }, random);
        const what = `${op} ${redop} of ${dtype}[${count}], root ${root}, ${layoutText(layouts[0] as HostLayout)}, round ${round}`;
        expect(ended, what).toBe(size);
        expect(
          inputs.every((input, rank) => isSame(input, before[rank] as TypedArray)),
          what,
        ).toBe(true);
        for (const [rank, output] of outputs.entries()) {
          if (!writes(rank)) continue;
          const options = { numRanks: size, rank, count, root };
          for (const { at, expected } of referenceOutput(op, dtype, redop, inputs, options)) {
            expect(findWrong(expected, output, at), `${what}, rank ${rank}`).toBeUndefined();
          }
        }
      }
      members.close();
    }
  });

  it("give all ranks the same bits, whatever the sums round", () => {
    const random = new Random(seed + 1);
    const addresses = new HostAddresses();
    members = new Members(marksOf(random, 7, 3));
    const all = members;
    const { places } = members;
    for (const count of [150_003]) {
      const data = places.map((_, rank) => {
        const values = Float32Array.from({ length: count }, () => random.fraction() * 10 ** random.below(8));
        const one = all.array(rank, "f32", count, rank % 3 !== 0) as Float32Array;
        one.set(values);
        return one;
      });
      members.run((rank, messages) => {
        const { layout, memory } = places[rank] as HostPlace;
        const span = addresses.span(data[rank] as Float32Array);
        const call = { op: "all_reduce", dtype: "f32", redop: "sum", root: 0, size: 7, rank } as const;
        return allReducePieces({ ...call, partBytes: 4 * count, input: span, output: span, layout, memory, messages });
      }, random);
      for (const one of data) expect(isSame(one, data[0] as Float32Array)).toBe(true);
    }
  });

  it("reduce in pieces that fit a slot, however many ranks the hosts have", () => {
    const random = new Random(seed + 3);
    const addresses = new HostAddresses();
    // In a reduce each of a host's ranks could take as much of a piece as a slot has room for.
    members = new Members(["a", "a", "a", "a", "b", "b", "b", "b"]);
    const { places } = members;
    const count = 2 ** 21;
    const data = places.map((_, rank) => new Float32Array(count).fill(rank + 1));
    const ended = members.run((rank, messages) => {
      const { layout, memory } = places[rank] as HostPlace;
      const span = addresses.span(data[rank] as Float32Array);
      const call = { op: "reduce", dtype: "f32", redop: "sum", root: 5, size: 8, rank } as const;
      return reducePieces({ ...call, partBytes: 4 * count, input: span, output: span, layout, memory, messages });
    }, random);
    expect(ended).toBe(8);
    expect(data[5]?.findIndex((value) => value !== 36)).toBe(-1);
  });

  it("let nobody leave a barrier, a broadcast or a reduce that one rank has not come to", () => {
    const random = new Random(seed + 2);
    for (const absent of [4]) {
      members = new Members(["a", "b", "a", "c", "a", "b"]);
      expect(
        members.run(
          (rank, messages) => barrierPieces((members as Members).layouts[rank] as HostLayout, messages),
          random,
          absent,
        ),
      ).toBe(0);
      members.close();
      for (const make of [broadcastPieces, reducePieces]) {
        members = new Members(["a", "b", "a", "c", "a", "b"]);
        const { places, layouts } = members;
        const data = new Float32Array(5);
        const span = new HostAddresses().span(data);
        const ended = members.run(
          (rank, messages) =>
            make({
              ...{ op: "reduce", dtype: "f32", redop: "sum", root: 5, size: 6, rank, partBytes: 20, messages },
              ...{
                input: span,
                output: span,
                layout: layouts[rank] as HostLayout,
                memory: (places[rank] as HostPlace).memory,
              },
            }),
          random,
          absent,
        );
        expect(ended).toBe(0);
        members.close();
      }
    }
  });

  it("end for a rank whose tensors others read when all have done with them", () => {
    const random = new Random(seed + 2);
    const addresses = new HostAddresses();
    members = new Members(["a", "a"]);
    const all = members;
    const count = 100_000;
    for (const op of ["all_gather", "all_reduce", "reduce_scatter", "broadcast"] as const) {
      const exchange = new MessageExchange(random);
      const ended: number[] = [];
      const runs = all.places.map((place, rank) => {
        const input = all.array(rank, "f32", 2 * count, true);
        const output = all.array(rank, "f32", 4 * count, true);
        const { layout, memory } = place;
        const messages = new ColumnMessages(exchange.of(rank), layout);
        const spans = { input: addresses.span(input), output: addresses.span(output) };
        const call = { op, dtype: "f32", redop: "sum", root: 1, size: 2, rank, partBytes: 4 * count } as const;
        const work = (WORKS[op] as (parts: PieceCallParts) => PieceWork)({
          ...call,
          ...spans,
          layout,
          memory,
          messages,
        });
        return new PieceRun(place, work, { ...AGREED, done: () => void ended.push(rank) });
      });
      for (const run of runs) run.start();
      expect(ended, op).toEqual([]);
      runs[0]?.advance();
      runs[1]?.advance();
      runs[0]?.advance();
      expect(ended.toSorted(), op).toEqual([0, 1]);
    }
  });

  it.each([
    ["all_reduce", "another rank of its host", ["a", "a"]],
    ["all_reduce", "another host", ["a", "a", "b", "b"]],
    ["reduce", "another host", ["a", "a", "b", "b"]],
    ["reduce_scatter", "another host", ["a", "a", "b", "b"]],
    ["broadcast", "another host", ["a", "a", "b", "b"]],
  ] as const)("do not end %s on %s with what a rank has lent that failed meanwhile", (op, _, marks) => {
    const addresses = new HostAddresses();
    members = new Members(marks);
    const all = members;
    const size = marks.length;
    const exchange = new MessageExchange(new Random(seed + 4));
    const count = 100_000;
    const [given, root] = [op === "reduce_scatter" ? size * count : count, op === "reduce" ? size - 1 : 0];
    const data = marks.map((_, rank) => all.array(rank, "f32", given, rank === 0).fill(1 as never));
    const ended: number[] = [];
    const runs = all.places.map(({ layout, memory }, rank) => {
      const span = addresses.span(data[rank] as TypedArray);
      const output = addresses.span((data[rank] as TypedArray).subarray(0, count));
      const call = { op, dtype: "f32", redop: "sum", root, size, rank } as const;
      const messages = new ColumnMessages(exchange.of(rank), layout);
      const parts = { ...call, partBytes: 4 * count, input: span, output, layout, memory, messages };
      const work = (WORKS[op] as (parts: PieceCallParts) => PieceWork)(parts);
      const done = () => void ended.push(rank);
      return new PieceRun(all.places[rank] as HostPlace, work, { ...AGREED, done });
    });
    // The others have brought what they have when the first has done its share, and fails.
    for (const run of runs.toReversed()) run.start();
    runs[0]?.stop();
    data[0]?.fill(-1 as never);
    const goesOn = () => runs.slice(1).some((run) => run.advance());
    while (goesOn() || exchange.step());
    const right = op === "broadcast" ? 1 : size;
    const hasResult = (rank: number) => op !== "reduce" || rank === root;
    const isRight = (rank: number) => data[rank]?.subarray(0, count).every((one) => one === right) === true;
    expect(ended.filter((rank) => hasResult(rank) && !isRight(rank))).toEqual([]);
    // Another host may have heard all before; this one has not.
    expect(ended).not.toContain(1);
    // The program of the first has its memory for itself again.
    expect(data[0]?.every((value) => value === -1)).toBe(true);
    for (const run of runs) run.stop();
  });

  it.each([
    ["nowhere but at the end where all lend their tensors", true, 12],
    ["at every piece where one does not", false, 4],
  ] as const)("meet %s in an all-reduce", (_, areShared, numAlone) => {
    const addresses = new HostAddresses();
    members = new Members(["a", "a"]);
    const all = members;
    const count = (12 * PIECE_BYTES.plain) / 4;
    const data = [0, 1].map((rank) => all.array(rank, "i32", count, rank === 0 || areShared).fill((rank + 1) as never));
    const exchange = new MessageExchange(new Random(seed + 5));
    const worked = [0, 0];
    let ended = 0;
    const runs = all.places.map((place, rank) => {
      const { layout, memory } = place;
      const span = addresses.span(data[rank] as TypedArray);
      const call = { op: "all_reduce", dtype: "i32", redop: "sum", root: 0, size: 2, rank } as const;
      const messages = new ColumnMessages(exchange.of(rank), layout);
      const parts = { ...call, partBytes: 4 * count, input: span, output: span, layout, memory, messages };
      const pieces = allReducePieces(parts);
      const work: PieceWork = {
        ...pieces,
        work: (piece, slot, done) => {
          worked[rank]!++;
          pieces.work(piece, slot, done);
        },
      };
      return new PieceRun(place, work, { ...AGREED, done: () => ended++ });
    });
    for (const run of runs) run.start();
    // The second has what the first brought; the first hears of it, and goes as far as it can.
    runs[0]?.advance();
    expect(worked[0]).toBe(numAlone);
    while (runs.some((run) => run.advance()));
    expect(ended).toBe(2);
    expect(data.every((one) => (one as Int32Array).every((value) => value === 3))).toBe(true);
  });

  it("wake the others of a host for what they wait for, before each goes on by itself", () => {
    const addresses = new HostAddresses();
    members = new Members(["a", "a", "b", "b"]);
    const all = members;
    const exchange = new MessageExchange(new Random(seed + 6));
    const wakes = [0, 0];
    // The other host does nothing: neither of these ends.
    for (const rank of [0, 1]) {
      const { layout, memory } = all.places[rank] as HostPlace;
      const place = new HostPlace({ layout, memory, activities: new Set(), wake: () => wakes[rank]!++ });
      const span = addresses.span(all.array(rank, "i32", 2 * PIECE_BYTES.plain, true));
      const call = { op: "all_reduce", dtype: "i32", redop: "sum", root: 0, size: 4, rank } as const;
      const messages = new ColumnMessages(exchange.of(rank), layout);
      const partBytes = span.bytes.length;
      const work = allReducePieces({ ...call, partBytes, input: span, output: span, layout, memory, messages });
      new PieceRun(place, work, { ...AGREED, done: () => expect.unreachable("none ends") }).start();
    }
    expect(wakes).toEqual([1, 1]);
  });

  it("wait for who writes into what a rank has lent before that rank has it for itself, and keep it from who does not end", () => {
    members = new Members(["a", "a"]);
    const all = members;
    const [mine, theirs] = all.places.map(({ memory }) => memory) as [HostMemory, HostMemory];
    const lent = all.array(0, "i32", 100_000, true).fill(1 as never);
    const at = mine.whereAllFind(new HostAddresses().span(lent), lent.byteLength);
    const fill = (value: number) => theirs.bytes(at, lent.byteLength).fill(value);
    expect(theirs.write(() => fill(2))).toBe(true);
    expect(lent[99_999]).toBe(0x02020202);
    lent.fill(1 as never);
    // It leaves while the other writes, which goes on only afterwards.
    theirs.write(() => {
      mine.withdraw();
      fill(3);
    });
    expect(theirs.write(() => fill(4))).toBe(false);
    expect(lent.every((value) => value === 1)).toBe(true);
    expect(mine.keepsTensors).toBe(true);
    expect(mine.whereAllFind(new HostAddresses().span(lent), lent.byteLength)).toBe(0);
    expect(all.tensors[0]?.room?.allocate(2 ** 20)).toBeUndefined();
  });

  it("end their own threads' writes before they wait for those of others that fail as well", () => {
    members = new Members(["a", "a"]);
    const all = members;
    const calls: string[] = [];
    const made: ((isMade: boolean) => void)[] = [];
    const helper: ReduceHelper = {
      reduce(_memory, _job, _bytes, done) {
        made.push(done);
        return true;
      },
      finish: () => void calls.push("finish"),
      forget: () => {},
    };
    const [mine, theirs] = all.group(PIECE_BYTES.plain, helper).map(({ memory }) => memory) as [HostMemory, HostMemory];
    for (const memory of [mine, theirs]) {
      expect(memory.beginWrite()).toBe(true);
      memory.reduceBeside(
        () => expect.unreachable("the helper makes none ready"),
        2 ** 20,
        () => void calls.push("made"),
      );
    }
    mine.withdraw();
    theirs.withdraw();
    // The first one waited in vain for a rank that this thread was to run only then.
    expect(all.tensors.map(({ isKept }) => isKept)).toEqual([true, false]);
    for (const done of made) done(true);
    expect(calls).toEqual(["finish", "finish"]);
  });

  it.each(["all_reduce", "all_gather", "reduce", "broadcast"] as const)(
    "end %s at once where another group's failure takes a rank's tensors back from one that does not end its write",
    (op) => {
      const addresses = new HostAddresses();
      members = new Members(["a", "a"]);
      const all = members;
      const exchange = new MessageExchange(new Random(seed + 7));
      const told: string[] = [];
      const runs = all.group().map((place, rank) => {
        const { layout, memory } = place;
        const [input, output] = [100_000, 200_000].map((count) => addresses.span(all.array(rank, "i32", count, true)));
        const call = { op, dtype: "i32", redop: "max", root: 0, size: 2, rank, partBytes: 400_000 } as const;
        const messages = new ColumnMessages(exchange.of(rank), layout);
        const parts = { ...call, input, output, layout, memory, messages } as PieceCallParts;
        const work = (WORKS[op] as (parts: PieceCallParts) => PieceWork)(parts);
        const tell = (what: string) => () => void told.push(`${what} at ${rank}`);
        return new PieceRun(place, work, { ...AGREED, lost: tell("lost"), done: tell("done") });
      });
      runs[0]?.start();
      const [mine, theirs] = all.places.map(({ memory }) => memory) as [HostMemory, HostMemory];
      theirs.beginWrite();
      mine.withdraw();
      expect(told).toEqual([]);
      runs[0]?.advance();
      expect(told).toEqual(["lost at 0"]);
      // The other one waits to hear of it from that rank.
      runs[1]?.start();
      while (runs.some((run) => run.advance()));
      expect(told).toEqual(["lost at 0"]);
      for (const run of runs) run.stop();
    },
  );

  it("cut what crosses hosts into a piece for each slot, from 256 or 512 KiB on, and keep pieces of one host whole", () => {
    const numPieces = (
      marks: readonly string[],
      partBytes: number,
      rooms: readonly number[] = [],
      op: "all_reduce" | "reduce" = "all_reduce",
    ) => {
      const together = new Members(marks, pieceBytesFor(layoutOf(marks, 0), rooms));
      const { layout, memory } = together.places[0] as HostPlace;
      const messages = new ColumnMessages(new MessageExchange(new Random(seed)).of(0), layout);
      const span = new HostAddresses().span(together.array(0, "f32", partBytes / 4, false));
      const call = { op, dtype: "f32", redop: "sum", root: 0, size: marks.length, rank: 0 } as const;
      const make = op === "reduce" ? reducePieces : allReducePieces;
      const work = make({ ...call, partBytes, input: span, output: span, layout, memory, messages });
      together.close();
      return work.numPieces;
    };
    const sizes = [4096, 2 ** 17, 2 ** 18, 2 ** 19, 2 ** 20, 2 ** 22];
    expect(sizes.map((bytes) => numPieces(["a", "a", "b", "b"], bytes))).toEqual([1, 1, 1, 1, 2, 8]);
    expect(sizes.map((bytes) => numPieces(["a", "a", "b", "b"], bytes, [], "reduce"))).toEqual([1, 1, 1, 2, 4, 8]);
    expect(sizes.map((bytes) => numPieces(["a", "a"], bytes))).toEqual([1, 1, 1, 1, 2, 8]);
    // Of 256 MiB each, on hosts of two, the slots take a sixteenth.
    expect(sizes.map((bytes) => numPieces(["a", "a", "b", "b"], bytes, [8, 8, 8, 8]))).toEqual([1, 1, 1, 1, 2, 4]);
    expect(numPieces(["a", "a", "b", "b"], 2 ** 22, [8, 8, 8, 7])).toBe(8);
    expect(numPieces(["a", "a"], 2 ** 22, [20, 20])).toBe(8);
    // Over more hosts all-reduces have half as many, and larger ones where the slots take a sixteenth, and 64 MiB.
    const over = (members: number, hosts: number, room: number) => {
      const marks = Array.from({ length: hosts * members }, (_, rank) => String(rank % hosts));
      return pieceBytesFor(layoutOf(marks, 0), Array(marks.length).fill(room)) / 2 ** 20;
    };
    expect([over(2, 3, 10), over(2, 3, 9), over(2, 3, 8), over(2, 3, 7)]).toEqual([4, 2, 1, 0.5]);
    expect([over(4, 4, 20), over(8, 8, 20), over(2, 2, 20), over(2, 1, 20)]).toEqual([2, 1, 1, 0.5]);
    const three = ["a", "a", "b", "b", "c", "c"];
    expect([19, 20, 21, 22].map((bits) => numPieces(three, 2 ** bits, Array(6).fill(8)))).toEqual([1, 2, 2, 4]);
  });

  it("takes the file's name away when the last has mapped it, and says of another call whose it is", () => {
    members = new Members(["a", "a"]);
    expect(members.paths.filter((path) => existsSync(path))).toEqual([]);
    const found: unknown[] = [];
    const work: PieceWork = {
      numPieces: 1,
      shares: false,
      bring: () => {},
      work: (_p, _s, done) => done(),
      take: () => {},
    };
    const runs = members.places.map(
      (place, rank) =>
        new PieceRun(place, work, {
          ...AGREED,
          print: { ...PRINT, count: rank },
          disagree: (member, theirs) => void found.push([rank, member, theirs.count]),
          done: () => expect.unreachable("the calls differ"),
        }),
    );
    for (const run of runs) run.start();
    runs[0]?.advance();
    expect(found).toEqual([
      [1, 0, 0],
      [0, 1, 1],
    ]);
  });

  it("share a host where one launcher started them, one network holds them, or CHORALE_HOST_ID says so", () => {
    const mark = (folder: string | undefined, joined: boolean, id?: string) =>
      hostMark({ folder, joined }, id === undefined ? {} : { CHORALE_HOST_ID: id })?.toString("hex");
    expect(mark("/x/1", false)).toBe(mark("/x/1", false));
    expect(mark("/x/1", false)).not.toBe(mark("/x/2", false));
    expect(mark("/x/1", false, "h")).toBe(mark("/x/2", false, "h"));
    expect(mark("/x/1", false, "h")).not.toBe(mark("/x/1", false, "i"));
    expect(mark("/x/1", true)).toBe(mark("/x/2", true));
    expect(mark(undefined, false)).toBeUndefined();
  });
});
