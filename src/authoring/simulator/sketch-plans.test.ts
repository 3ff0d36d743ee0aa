/**
 * Sketches say a second time what the library's programs say, so that thousands of ranks can be timed. Here both are
 * taken apart into messages and compared on 2 to 16 ranks: who sends how much to whom, in which order, after how many
 * messages before it, and how much each rank reduces.
 */
import { describe, expect, it } from "vitest";
import {
  directAllGather,
  doubleBinaryTreeAllReduce,
  hierarchicalAllReduce,
  ringAllGather,
  ringAllReduce,
  ringReduceScatter,
  twoShotAllReduce,
} from "../algorithms/index.ts";
import { compile, type Program } from "../compiler/index.ts";
import { type BufferKind, channelOrdinal } from "../plan/index.ts";
import type { Sketch } from "./sketch.ts";
import {
  directSketch,
  doubleTreeSketch,
  hierarchicalSketch,
  ringAllReduceSketch,
  ringHalfSketch,
  twoShotSketch,
} from "./sketches.ts";

/** Messages between each pair of ranks, in order, as `bytes` or `bytes after d`, and what each rank reduces. */
interface Messages {
  readonly pairs: ReadonlyMap<string, readonly string[]>;
  readonly reducedBytes: readonly number[];
}

class Collected implements Messages {
  readonly pairs = new Map<string, string[]>();
  readonly reducedBytes: number[];
  constructor(numRanks: number) {
    this.reducedBytes = new Array<number>(numRanks).fill(0);
  }
  add(from: number, to: number, bytes: number, depth: number | undefined): void {
    const key = `${from} -> ${to}`;
    const list = this.pairs.get(key) ?? [];
    list.push(depth === undefined ? `${bytes}` : `${bytes} after ${depth}`);
    this.pairs.set(key, list);
  }
}

/** @param depths whether messages carry how many messages, one after the other, had to come before they were sent */
function messagesOfPlan(program: Program, sizeBytes: number, depths: boolean): Messages {
  const plan = compile({ ...program, fusion: false }, { verify: false });
  const chunks = Math.max(...plan.ranks.map((rank) => Math.max(rank.input.chunks, rank.output.chunks)));
  const chunkBytes = sizeBytes / chunks;
  const collected = new Collected(plan.ranks.length);
  // How many messages the content of a chunk has behind it.
  const depthAt = new Map<string, number>();
  const chunkKey = (rank: number, buffer: BufferKind, index: number) => `${rank} ${buffer} ${index}`;
  const get = (rank: number, r: { buffer: BufferKind; index: number; size: number }) =>
    Math.max(...Array.from({ length: r.size }, (_, i) => depthAt.get(chunkKey(rank, r.buffer, r.index + i)) ?? 0));
  const set = (rank: number, r: { buffer: BufferKind; index: number; size: number }, depth: number) => {
    for (let i = 0; i < r.size; i++) depthAt.set(chunkKey(rank, r.buffer, r.index + i), depth);
  };
  const counters = new Map<string, number>();
  const lanes = plan.ranks.flatMap((rank) => rank.strands.map((strand) => ({ rank, strand, next: 0 })));
  const step = ({ rank, strand, next }: (typeof lanes)[number]): boolean => {
    const op = strand.ops[next];
    if (op === undefined) return false;
    const me = rank.rank;
    switch (op.kind) {
      case "nop":
        return true;
      case "copy":
        set(me, op.dst, get(me, op.src));
        return true;
      case "put":
        op.dst.forEach((dst, i) => {
          const src = op.src[i]!;
          const depth = get(me, src);
          collected.add(me, dst.rank, src.size * chunkBytes, depths ? depth : undefined);
          set(dst.rank, dst, depth + 1);
        });
        return true;
      case "reduce":
        collected.reducedBytes[me]! += (op.src.length - 1) * op.dst.size * chunkBytes;
        set(me, op.dst, Math.max(...op.src.map((src) => get(me, src))));
        return true;
      case "signal":
        for (const id of op.channels) {
          const peers = rank.channels[op.channelKind];
          const key = `${me} ${peers[id]} ${channelOrdinal(peers, id)}`;
          counters.set(key, (counters.get(key) ?? 0) + 1);
        }
        return true;
      case "wait": {
        const peers = rank.channels[op.channelKind];
        const keys = op.channels.map((id) => `${peers[id]} ${me} ${channelOrdinal(peers, id)}`);
        if (keys.some((key) => (counters.get(key) ?? 0) === 0)) return false;
        for (const key of keys) counters.set(key, counters.get(key)! - 1);
        return true;
      }
      case "acquire": {
        const keys = op.semaphores.map((id) => `semaphore ${me} ${id}`);
        if (keys.some((key) => (counters.get(key) ?? 0) === 0)) return false;
        for (const key of keys) counters.set(key, counters.get(key)! - 1);
        return true;
      }
      case "release":
        for (const id of op.semaphores)
          counters.set(`semaphore ${me} ${id}`, (counters.get(`semaphore ${me} ${id}`) ?? 0) + 1);
        return true;
      default:
        throw new Error(`no sketch has a plan with ${op.kind}`);
    }
  };
  for (let moved = true; moved; ) {
    moved = false;
    for (const lane of lanes)
      while (step(lane)) {
        lane.next++;
        moved = true;
      }
  }
  expect(lanes.every(({ strand, next }) => next === strand.ops.length)).toBe(true);
  return collected;
}

/** The same of a sketch: what a lane sends has behind it what any lane of the rank's, or another's for it, received. */
function messagesOfSketch(sketch: Sketch, depths: boolean): Messages {
  const collected = new Collected(sketch.numRanks);
  const arrived = new Map<string, number[]>();
  const lanes = Array.from({ length: sketch.numRanks * sketch.numLanes }, (_, i) => ({
    rank: Math.floor(i / sketch.numLanes),
    lane: i % sketch.numLanes,
    next: 0,
    sent: false,
    depth: 0,
  }));
  for (let moved = true; moved; ) {
    moved = false;
    for (const at of lanes) {
      while (at.next < sketch.numSteps(at.rank, at.lane)) {
        const {
          sendTo,
          bytes = 0,
          toLane = at.lane,
          receiveFrom,
          reduceBytes,
        } = sketch.step(at.rank, at.lane, at.next);
        if (sendTo !== undefined && !at.sent) {
          at.sent = true;
          collected.add(at.rank, sendTo, bytes, depths ? at.depth : undefined);
          const key = `${at.rank} ${sendTo} ${toLane}`;
          arrived.set(key, [...(arrived.get(key) ?? []), at.depth + 1]);
        }
        if (receiveFrom !== undefined) {
          const depth = arrived.get(`${receiveFrom} ${at.rank} ${at.lane}`)?.shift();
          if (depth === undefined) break;
          at.depth = Math.max(at.depth, depth);
        }
        collected.reducedBytes[at.rank]! += reduceBytes ?? 0;
        at.next++;
        at.sent = false;
        moved = true;
      }
    }
  }
  expect(lanes.every((at) => at.next === sketch.numSteps(at.rank, at.lane))).toBe(true);
  return collected;
}

function expectEqual(program: Program, sketch: Sketch, sizeBytes: number, depths = true): void {
  const [ours, theirs] = [messagesOfPlan(program, sizeBytes, depths), messagesOfSketch(sketch, depths)];
  const sorted = ({ pairs }: Messages) => [...pairs].sort(([a], [b]) => (a < b ? -1 : 1));
  expect(sorted(theirs), sketch.name).toEqual(sorted(ours));
  expect(theirs.reducedBytes, sketch.name).toEqual(ours.reducedBytes);
}

const COUNTS = Array.from({ length: 15 }, (_, i) => i + 2);
/** Divides by every number of ranks here, and twice more. */
const SIZE = 4 * 720_720;

describe("sketches send what the library's programs send, on 2 to 16 ranks", () => {
  it.each([
    ["ring all-reduce", (n: number) => [ringAllReduce({ numRanks: n }), ringAllReduceSketch(n, SIZE)]],
    ["ring all-gather", (n: number) => [ringAllGather({ numRanks: n }), ringHalfSketch(n, SIZE, false)]],
    ["ring reduce-scatter", (n: number) => [ringReduceScatter({ numRanks: n }), ringHalfSketch(n, SIZE, true)]],
    ["direct all-gather", (n: number) => [directAllGather({ numRanks: n }), directSketch("direct", n, SIZE, false)]],
    ["two-shot all-reduce", (n: number) => [twoShotAllReduce({ numRanks: n }), twoShotSketch(n, SIZE)]],
    [
      "double binary tree, one chunk each",
      (n: number) => [doubleBinaryTreeAllReduce({ numRanks: n, chunks: 2 }), doubleTreeSketch(n, SIZE, 1, 1)],
    ],
  ] as const satisfies readonly (readonly [string, (n: number) => readonly [Program, Sketch]])[])("%s", (_, make) => {
    for (const n of COUNTS) {
      const [program, sketch] = make(n);
      expectEqual(program, sketch, SIZE);
    }
  });

  it("double binary tree, in chunks: the order between a pair", () => {
    for (const n of COUNTS)
      expectEqual(doubleBinaryTreeAllReduce({ numRanks: n, chunks: 8 }), doubleTreeSketch(n, SIZE, 1, 4), SIZE, false);
  });

  it("hierarchical all-reduce: the order between a pair, though a sketch receives between its sends", () => {
    for (const n of COUNTS) {
      for (let ranksPerNode = 1; ranksPerNode <= n; ranksPerNode++) {
        if (n % ranksPerNode !== 0) continue;
        expectEqual(
          hierarchicalAllReduce({ numRanks: n, ranksPerNode }),
          hierarchicalSketch(n, SIZE, ranksPerNode),
          SIZE,
          false,
        );
      }
    }
  });

  it("would notice another size, another peer and another amount to reduce", () => {
    const program = ringAllReduce({ numRanks: 4 });
    const sketch = ringAllReduceSketch(4, SIZE);
    const other = (change: (step: ReturnType<Sketch["step"]>) => object): Sketch => ({
      ...sketch,
      step: (rank, lane, index) => ({ ...sketch.step(rank, lane, index), ...change(sketch.step(rank, lane, index)) }),
    });
    expect(() =>
      expectEqual(
        program,
        other(({ bytes = 0 }) => ({ bytes: bytes + 1 })),
        SIZE,
      ),
    ).toThrow();
    expect(() =>
      expectEqual(
        program,
        other(() => ({ reduceBytes: 1 })),
        SIZE,
      ),
    ).toThrow();
    expect(() => expectEqual(program, ringAllReduceSketch(5, SIZE), SIZE)).toThrow();
  });
});
