/**
 * All plans of a few operations from a small alphabet: on one rank of two strands, on two ranks of one strand, and on two
 * ranks of two strands. A plan is a number; plans that differ in the names of strands or ranks only are told apart by
 * `isFirstOfItsKind`, and those that cannot be right for a reason that is counted by `isUnbalanced`.
 */
import {
  DEFAULT_PLAN_OPTIONS,
  type ExecutionPlan,
  type Range,
  type SimpleOp,
} from "../../src/authoring/plan/execution-plan.ts";

const at = (buffer: Range["buffer"], index = 0): Range => ({ buffer, index, size: 1 });
const INPUT = at("input");
const OUTPUT = at("output");
const SCRATCH = at("scratch");
/** Where packets lie, and sometimes plain data by mistake. */
const PACKETS = at("scratch", 1);
const copy = (src: Range, dst: Range, format: "plain" | "pack" | "unpack" = "plain"): SimpleOp => ({
  kind: "copy",
  format,
  src,
  dst,
});
const put = (rank: number, src: Range, dst: Range, format: "plain" | "pack" = "plain"): SimpleOp => ({
  kind: "put",
  format,
  notify: "none",
  channelKind: "memory",
  channels: [0],
  src: [src],
  dst: [{ rank, ...dst }],
});
const channel = (kind: "signal" | "wait", relaxed: boolean): SimpleOp => ({
  kind,
  relaxed,
  channelKind: "memory",
  channels: [0],
});

/** What each line of operations (a strand) chooses from. */
export type Shape = "two strands" | "two ranks" | "two ranks of two strands";
export const SHAPES: readonly Shape[] = ["two strands", "two ranks", "two ranks of two strands"];

const LINES: Readonly<Record<Shape, number>> = { "two strands": 2, "two ranks": 2, "two ranks of two strands": 4 };
const STRANDS: Readonly<Record<Shape, number>> = { "two strands": 2, "two ranks": 1, "two ranks of two strands": 2 };
const rankOf = (shape: Shape, line: number) => Math.floor(line / STRANDS[shape]);

const nop: SimpleOp = { kind: "nop" };
const release: SimpleOp = { kind: "release", semaphores: [0] };
const acquire: SimpleOp = { kind: "acquire", semaphores: [0] };
const barrier: SimpleOp = { kind: "barrier", barrier: 0, numStrands: 2 };

const alphabets = new Map<string, readonly SimpleOp[]>();
function alphabet(shape: Shape, line: number): readonly SimpleOp[] {
  const rank = rankOf(shape, line);
  const key = `${shape} ${rank}`;
  let letters = alphabets.get(key);
  if (letters === undefined) {
    letters = lettersOf(shape, 1 - rank);
    alphabets.set(key, letters);
  }
  return letters;
}

function lettersOf(shape: Shape, peer: number): readonly SimpleOp[] {
  switch (shape) {
    case "two strands":
      return [
        copy(INPUT, OUTPUT),
        copy(INPUT, SCRATCH),
        copy(SCRATCH, OUTPUT),
        copy(OUTPUT, SCRATCH),
        copy(INPUT, PACKETS, "pack"),
        copy(PACKETS, OUTPUT, "unpack"),
        copy(INPUT, PACKETS),
        release,
        acquire,
        barrier,
      ];
    case "two ranks":
      return [
        put(peer, INPUT, OUTPUT),
        put(peer, INPUT, SCRATCH),
        copy(SCRATCH, OUTPUT),
        copy(INPUT, OUTPUT),
        put(peer, INPUT, PACKETS, "pack"),
        copy(PACKETS, OUTPUT, "unpack"),
        channel("signal", false),
        channel("wait", false),
        channel("signal", true),
        channel("wait", true),
        nop,
      ];
    case "two ranks of two strands":
      return [
        put(peer, INPUT, OUTPUT),
        put(peer, INPUT, SCRATCH),
        copy(SCRATCH, OUTPUT),
        put(peer, INPUT, PACKETS, "pack"),
        copy(PACKETS, OUTPUT, "unpack"),
        channel("signal", false),
        channel("wait", false),
        release,
        acquire,
        barrier,
      ];
  }
}

/** Every way to share out `numOps` operations over some lines. */
function sharings(numOps: number, lines: number): readonly (readonly number[])[] {
  if (lines === 1) return [[numOps]];
  return Array.from({ length: numOps + 1 }, (_, first) => first).flatMap((first) =>
    sharings(numOps - first, lines - 1).map((rest) => [first, ...rest]),
  );
}
const shared = new Map<string, readonly (readonly number[])[]>();
function sharingsOf(shape: Shape, numOps: number): readonly (readonly number[])[] {
  const key = `${shape} ${numOps}`;
  let list = shared.get(key);
  if (list === undefined) {
    list = sharings(numOps, LINES[shape]);
    shared.set(key, list);
  }
  return list;
}

/** How many plans there are with `numOps` operations in all. */
export function countPlans(shape: Shape, numOps: number): number {
  return sharingsOf(shape, numOps).length * alphabet(shape, 0).length ** numOps;
}

/** The letters of each line of plan number `index` of those with `numOps` operations. */
export function lettersOfPlan(shape: Shape, numOps: number, index: number): readonly (readonly number[])[] {
  const size = alphabet(shape, 0).length;
  const ways = sharingsOf(shape, numOps);
  let rest = Math.floor(index / ways.length);
  return ways[index % ways.length]!.map((length) =>
    Array.from({ length }, () => {
      const letter = rest % size;
      rest = Math.floor(rest / size);
      return letter;
    }),
  );
}

/** Whether no plan that differs only in the names of strands and ranks comes before it in the alphabet. */
export function isFirstOfItsKind(shape: Shape, lines: readonly (readonly number[])[]): boolean {
  const words = lines.map((line) => String.fromCharCode(...line.map((letter) => 97 + letter)));
  if (shape !== "two ranks of two strands") return words[0]! <= words[1]!;
  const [a, b, c, d] = words as [string, string, string, string];
  return a <= b && c <= d && (a < c || (a === c && b <= d));
}

/**
 * Whether a plan cannot be right because something does not add up: signals and waits, releases and acquires, who comes to a
 * barrier, a reader of packets that nobody sends. Nothing has to be run to know that.
 */
export function isUnbalanced(shape: Shape, lines: readonly (readonly number[])[]): boolean {
  const counts = new Map<string, number>();
  const add = (key: string, change: number) => counts.set(key, (counts.get(key) ?? 0) + change);
  const [readers, sent] = [new Set<number>(), new Set<number>()];
  const barriers = lines.map((line, index) => {
    const rank = rankOf(shape, index);
    let met = 0;
    for (const letter of line) {
      const op = alphabet(shape, index)[letter]!;
      if (op.kind === "signal") add(`to ${1 - rank}`, 1);
      else if (op.kind === "wait") add(`to ${rank}`, -1);
      else if (op.kind === "release") add(`semaphore ${rank}`, 1);
      else if (op.kind === "acquire") add(`semaphore ${rank}`, -1);
      else if (op.kind === "barrier") met++;
      else if (op.kind === "copy" && op.format === "unpack") readers.add(rank);
      else if (op.kind === "copy" && op.format === "pack") sent.add(rank);
      else if (op.kind === "put" && op.format === "pack") sent.add(1 - rank);
    }
    return met;
  });
  const strands = STRANDS[shape];
  return (
    [...counts.values()].some((count) => count !== 0) ||
    [...readers].some((rank) => !sent.has(rank)) ||
    (strands === 2 && barriers.some((count, index) => count !== barriers[index - (index % 2)]))
  );
}

/** The plan that says these letters. */
export function planOfLetters(shape: Shape, lines: readonly (readonly number[])[]): ExecutionPlan {
  const strands = STRANDS[shape];
  const numRanks = LINES[shape] / strands;
  return {
    schemaVersion: 1,
    name: "small",
    mode: "imported",
    collective: { operation: "test", numRanks, chunksPerPart: 1, inPlace: false },
    options: { ...DEFAULT_PLAN_OPTIONS, protocol: "LL" },
    ranks: Array.from({ length: numRanks }, (_, rank) => ({
      rank,
      input: { chunks: 1, segments: 1 },
      output: { chunks: 1, segments: 1 },
      scratch: { chunks: 2, segments: 1 },
      channels: { memory: numRanks === 2 ? [1 - rank] : [], port: [], switch: [] },
      semaphores: strands === 2 ? [{ initialValue: 0 }] : [],
      strands: Array.from({ length: strands }, (_, id) => {
        const line = rank * strands + id;
        return { id, ops: lines[line]!.map((letter) => alphabet(shape, line)[letter]!) };
      }),
    })),
    sources: [],
  };
}

/** Plan number `index` of those with `numOps` operations. */
export function smallPlan(shape: Shape, numOps: number, index: number): ExecutionPlan {
  return planOfLetters(shape, lettersOfPlan(shape, numOps, index));
}
