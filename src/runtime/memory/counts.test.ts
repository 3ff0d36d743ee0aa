/** Numbers of calls beyond what a 32-bit word holds, signed or not: everything that counts calls goes on as before. */
import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import { controlBytes, MAIL_SLOTS } from "./control-layout.ts";
import { ControlSegment } from "./control-segment.ts";
import { isAbove, markOf, readCount, writeCount } from "./counts.ts";
import { LANE_RING, type Lane, ringOf } from "./lanes.ts";

/** Every number of calls at which a word, or half of a count, begins anew. */
const WRAPS = [2 ** 31, 2 ** 32, 3 * 2 ** 31, 2 ** 33, 2 ** 45];
const LANES: readonly Lane[] = [
  { kind: "collective" },
  { kind: "send", peer: 1 },
  { kind: "recv", peer: 1 },
  { kind: "give", peer: 1 },
  { kind: "take", peer: 1 },
];

function pair() {
  const buffer = new SharedArrayBuffer(controlBytes(2));
  const [a, b] = [0, 1].map((member) => new ControlSegment(buffer, 2).group("world", [0, 1], 0, member));
  if (a === undefined || b === undefined) throw new Error("no members");
  return [a, b] as const;
}

describe("counts of calls", () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it("are what was written, and leave the word between theirs alone", () => {
    const words = new Int32Array(8);
    words.fill(-7);
    words.fill(0, 2, 5);
    words[3] = -9;
    fc.assert(
      fc.property(fc.constantFrom(0, ...WRAPS), fc.nat(5000), (from, more) => {
        words[2] = 0;
        words[4] = 0;
        for (const count of [from + more, from + more + 1]) {
          writeCount(words, 2, count);
          expect(readCount(words, 2)).toBe(count);
          for (const apart of [0, 1, 2, 600, 2 ** 29]) {
            expect(isAbove(words, 2, count - 1 - apart)).toBe(true);
            expect(isAbove(words, 2, count + apart)).toBe(false);
          }
        }
        expect([...words]).toEqual([-7, -7, words[2], -9, words[4], -7, -7, -7]);
      }),
      { seed: 20261120, verbose: 1 },
    );
  });

  it.each(WRAPS)("is never read as more than it is by who reads it in the midst of its step to %i", (wrap) => {
    const words = new Int32Array(new SharedArrayBuffer(16));
    const { load, store } = Atomics;
    writeCount(words, 0, wrap - 1);
    const seen: number[] = [];
    // Reads before and after each word of the writer...
    vi.spyOn(Atomics, "store").mockImplementation(((array: Int32Array, at: number, value: number) => {
      seen.push(readCount(words, 0));
      const stored = store(array, at, value);
      seen.push(readCount(words, 0));
      return stored;
    }) as typeof Atomics.store);
    writeCount(words, 0, wrap);
    vi.restoreAllMocks();
    expect(seen).toHaveLength(4);
    expect(Math.max(...seen)).toBe(wrap);
    expect(seen.at(-1)).toBe(wrap);
    // ...and writes between the two words of the reader.
    writeCount(words, 0, wrap - 1);
    words[2] = Math.floor((wrap - 1) / 2 ** 31);
    let isFirst = true;
    vi.spyOn(Atomics, "load").mockImplementation(((array: Int32Array, at: number) => {
      const loaded = load(array, at);
      if (isFirst) writeCount(words, 0, wrap);
      isFirst = false;
      return loaded;
    }) as typeof Atomics.load);
    expect(readCount(words, 0)).toBeLessThanOrEqual(wrap);
    expect(readCount(words, 0)).toBe(wrap);
  });

  it("stand in a slot of a ring as no other call's that it can have, and never as nothing", () => {
    for (const ring of [MAIL_SLOTS, ...LANES.map(ringOf)]) {
      for (const wrap of WRAPS) {
        for (let seq = wrap - 2 * ring; seq < wrap + 2 * ring; seq++) {
          expect(markOf(seq)).not.toBe(0);
          expect(markOf(seq)).not.toBe(markOf(seq + ring));
          expect(Int32Array.of(markOf(seq))[0]).toBe(markOf(seq));
        }
      }
    }
  });
});

describe.each(WRAPS)("a group after %i calls", (wrap) => {
  it.each(LANES)("compares the calls of lane $kind", (lane) => {
    const [a, b] = pair();
    const ring = ringOf(lane);
    const first = wrap - ring - 3;
    for (let seq = first; seq < wrap + ring + 3; seq++) {
      const print = { call: 1, count: seq % 1000, hash: -1 - (seq % 77) };
      expect(b.read(0, lane, seq)).toBeUndefined();
      a.publish(lane, seq, print);
      expect(b.issued(0, lane)).toBe(seq + 1);
      expect([b.hasIssued(0, lane, seq), b.hasIssued(0, lane, seq + 1)]).toEqual([true, false]);
      expect(b.last(0, lane)).toEqual({ seq, print });
      if (seq - ring >= first) {
        expect(b.read(0, lane, seq - ring)).toBeUndefined();
        expect(b.read(0, lane, seq - ring + 1)).toMatchObject({ count: (seq - ring + 1) % 1000 });
      }
      if (lane.kind !== "collective") continue;
      expect(b.agrees(0, seq, print)).toBe(true);
      expect(b.agrees(0, seq, { ...print, count: -1 })).toBe(false);
      expect(b.agrees(0, seq + 1, { ...print, count: -1 })).toBe(true);
      expect([b.hasSame(0, seq, print), b.hasSame(0, seq, { ...print, hash: 5 })]).toEqual([true, false]);
      expect(b.hasSame(0, seq + 1, print)).toBeUndefined();
      if (seq - ring >= first) expect(b.hasSame(0, seq - ring, print)).toBe(true);
      b.publish(lane, seq, print);
      expect(a.collectiveLimit()).toBe(seq + ring);
    }
  });

  it("carries messages", () => {
    const [a, b] = pair();
    const first = wrap - 2 * MAIL_SLOTS;
    b.acknowledge(0, first - 1);
    for (let number = first; number < wrap + 2 * MAIL_SLOTS; number++) {
      expect(b.mail(0, number)).toBeUndefined();
      expect(a.post(1, number, [number % 1000])).toBe(true);
      // The one after next is taken late: several are under way at every wrap.
      const late = number - MAIL_SLOTS + 1;
      if (late < first) continue;
      expect(a.hasRoom(1, number + 1)).toBe(false);
      expect(b.mail(0, late)?.[0]).toBe(late % 1000);
      b.acknowledge(0, late);
      expect(a.acknowledged(1)).toBe(late + 1);
    }
  });

  it("notes what becomes of calls", () => {
    const [a, b] = pair();
    for (let seq = wrap - 3; seq < wrap + 3; seq++) {
      expect(b.notesOf(0).collectives.read(seq)).toBeUndefined();
      a.notesOf(0).collectives.issue(seq, 5);
      a.notesOf(0).collectives.end(seq, true, 6);
      expect(b.notesOf(0).collectives.read(seq)).toMatchObject({ stage: "done", issuedMs: 5, endedMs: 6 });
      expect(b.notesOf(0).collectives.read(seq - LANE_RING)).toBeUndefined();
    }
  });

  it("grants turns, of sends and receives too", () => {
    const [a, b] = pair();
    const ranks = [0, 1];
    for (let seq = wrap - 3; seq < wrap + 3; seq++) {
      expect(a.turn(seq, ranks)).toBe(false);
      expect(b.turn(seq - 1, ranks)).toBe(false);
      expect(a.turn(seq, ranks)).toBe(false);
      expect(b.turn(seq, ranks)).toBe(false);
      expect(a.turn(seq, ranks)).toBe(true);
      for (const member of [a, b]) member.endTurn(ranks);
      expect(a.turnOfPairs([{ lane: { kind: "send", peer: 1 }, seq }], ranks)).toBe(false);
      expect(b.turnOfPairs([{ lane: { kind: "recv", peer: 0 }, seq: seq - 1 }], ranks)).toBe(false);
      expect(a.turnOfPairs([{ lane: { kind: "send", peer: 1 }, seq }], ranks)).toBe(false);
      expect(b.withdraw()).toBe(true);
      expect(b.turnOfPairs([{ lane: { kind: "recv", peer: 0 }, seq }], ranks)).toBe(false);
      expect(a.turnOfPairs([{ lane: { kind: "send", peer: 1 }, seq }], ranks)).toBe(true);
      for (const member of [a, b]) member.endTurn(ranks);
    }
  });
});
