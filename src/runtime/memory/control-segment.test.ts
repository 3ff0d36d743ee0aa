import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { OutOfMemoryError } from "../../core/index.ts";
import { controlBytes, MAIL_SLOTS, MAIL_WORDS, MAX_GROUPS, NOTICES } from "./control-layout.ts";
import { ControlSegment } from "./control-segment.ts";
import { LANE_RING, ringOf } from "./lanes.ts";

const collective = { kind: "collective" } as const;

function ranks(n: number): ControlSegment[] {
  const buffer = new SharedArrayBuffer(controlBytes(n));
  return Array.from({ length: n }, () => new ControlSegment(buffer, n));
}

describe("ControlSegment", () => {
  it("gives all members of a group the same place, and other groups others", () => {
    const [a, b] = ranks(2);
    const ga = a?.group("tp", [0, 1], 0, 0);
    const gb = b?.group("tp", [0, 1], 0, 1);
    const other = b?.group("tp", [0, 1], 1, 1);
    ga?.publish(collective, 0, { call: 1, count: 2, hash: 3 });
    expect(gb?.read(0, collective, 0)).toEqual({ call: 1, count: 2, hash: 3 });
    expect(gb?.issued(0, collective)).toBe(1);
    expect(gb?.issued(1, collective)).toBe(0);
    expect(other?.read(0, collective, 0)).toBeUndefined();
  });

  it("says which members may still settle calls of a group, and whether kernels were cut short", () => {
    const [a, b] = ranks(2).map((segment, member) => segment.group("tp", [0, 1], 0, member));
    if (a === undefined || b === undefined) throw new Error("no group");
    const states: boolean[] = [];
    const note = () => states.push(a.isSettling(1));
    b.join(0, { call: 0, count: 0, hash: 0 });
    note();
    for (const [seq, isWell] of [true, false].entries()) {
      b.publish(collective, seq + 1, { call: 1, count: 2, hash: 3 });
      note();
      b.notesOf(1).collectives.issue(seq + 1, 0);
      note();
      b.notesOf(1).collectives.end(seq + 1, isWell, 0);
      note();
    }
    b.publish(collective, 3, { call: 1, count: 2, hash: 3 });
    a.finish();
    note();
    b.finish();
    note();
    expect(states).toEqual([false, true, true, false, true, true, false, true, false]);
    expect([a.isCutShort, b.isSettling(0)]).toEqual([false, false]);
    b.cutShort();
    expect(a.isCutShort).toBe(true);
  });

  it("keeps lanes apart and forgets what is older than the ring", () => {
    const [a] = ranks(3);
    const g = a?.group("world", [0, 1, 2], 0, 2);
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1000 }), fc.integer({ min: 0, max: 2 }), (seq, peer) => {
        for (const [i, kind] of (["send", "give", "take"] as const).entries()) {
          g?.publish({ kind, peer }, seq + i, { call: seq, count: peer, hash: -seq });
        }
        for (const [i, kind] of (["send", "give", "take"] as const).entries()) {
          const lane = { kind, peer };
          expect(g?.last(2, lane)).toEqual({ seq: seq + i, print: { call: seq, count: peer, hash: -seq | 0 } });
          expect(g?.read(2, lane, seq + i + ringOf(lane))).toBeUndefined();
        }
        expect(g?.issued(2, { kind: "recv", peer })).toBe(0);
      }),
      { seed: 20261120, verbose: 1 },
    );
  });

  it("tells a thread that does nothing that the world has failed, and not one that ended its watch", async () => {
    const [a, b] = ranks(2);
    const ended = vi.fn();
    a?.onFailure(ended)();
    const told = new Promise<void>((resolve) => {
      a?.onFailure(resolve);
    });
    b?.fail({ code: "ABORTED", reason: "over" });
    // A pending asynchronous wait does not keep the event loop alive.
    const alive = setInterval(() => {}, 1000);
    await told;
    clearInterval(alive);
    expect(ended).not.toHaveBeenCalled();
    await new Promise<void>((resolve) => {
      b?.onFailure(resolve);
    });
  });

  it("keeps the first failure, of a group and of the world", () => {
    const [a, b] = ranks(2);
    const ga = a?.group("dp", [0, 1], 0, 0);
    const gb = b?.group("dp", [0, 1], 0, 1);
    const other = b?.group("pp", [1], 0, 0);
    expect(gb?.failed).toBe(false);
    ga?.fail({ code: "ABORTED", reason: "first" });
    gb?.fail({ code: "ABORTED", reason: "second" });
    expect(gb?.failure).toEqual({ code: "ABORTED", reason: "first" });
    expect(other?.failed).toBe(false);
    expect(a?.fail({ code: "RANK_FAILED", rank: 1, generation: 3, cause: "x".repeat(9000) })).toBe(true);
    expect(b?.fail({ code: "ABORTED", reason: "late" })).toBe(false);
    expect(other?.failure).toMatchObject({ code: "RANK_FAILED", rank: 1, generation: 3 });
  });

  it("keeps the failure that comes after one whose rank died while it wrote it", () => {
    const [a, b] = ranks(2);
    vi.spyOn(Uint8Array.prototype, "set").mockImplementationOnce(() => {
      throw new Error("dies");
    });
    try {
      expect(() => a?.fail({ code: "ABORTED", reason: "never written" })).toThrow("dies");
    } finally {
      vi.restoreAllMocks();
    }
    expect([a?.failed, b?.failed]).toEqual([false, false]);
    expect(b?.fail({ code: "RANK_FAILED", rank: 0, generation: 1, cause: "its thread is gone" })).toBe(true);
    expect(a?.failure).toMatchObject({ code: "RANK_FAILED", rank: 0, cause: "its thread is gone" });
  });

  it("tells all members what each has to tell, and forgets nothing that one has yet to read", () => {
    const bulletins = ranks(2).map((segment, member) => segment.group("world", [0, 1], 0, member).bulletin);
    const [a, b] = bulletins;
    if (a === undefined || b === undefined) throw new Error("no members");
    for (let number = 0; number < 3 * NOTICES; number++) {
      expect(a.tell(number, () => [number, 7])).toBe(true);
      expect(a.tell(number, () => [-1])).toBe(true);
      expect(a.read(number)).toBeUndefined();
      expect(b.tell(number, () => [-number])).toBe(true);
      for (const one of bulletins) {
        expect(one.read(number)?.map(([first, second]) => [first, second])).toEqual([
          [number, 7],
          [number === 0 ? 0 : -number, 0],
        ]);
      }
    }
    // One that reads while the other has told more: the ring is full then.
    const from = 3 * NOTICES;
    for (let number = from; number < from + NOTICES; number++) {
      b.tell(number, () => [number]);
      if (number === from) expect(a.tell(number, () => [number])).toBe(true);
    }
    expect(b.tell(from + NOTICES, () => [0])).toBe(false);
    expect(a.read(from)?.map(([first]) => first)).toEqual([from, from]);
    expect(b.tell(from + NOTICES, () => [0])).toBe(false);
    expect(b.read(from)).toBeDefined();
    expect(b.tell(from + NOTICES, () => [0])).toBe(true);
  });

  it("carries messages between two members, in order, with a bounded number under way", () => {
    const [a, b] = ranks(2);
    const from = a?.group("world", [0, 1], 0, 0);
    const to = b?.group("world", [0, 1], 0, 1);
    for (let i = 0; i < MAIL_SLOTS; i++) expect(from?.post(1, i, [i, -i])).toBe(true);
    expect(from?.post(1, MAIL_SLOTS, [99])).toBe(false);
    expect(to?.mail(0, MAIL_SLOTS)).toBeUndefined();
    expect([...(to?.mail(0, 3)?.subarray(0, 2) ?? [])]).toEqual([3, -3]);
    expect(from?.mail(1, 0)).toBeUndefined();
    to?.acknowledge(0, 0);
    expect(from?.acknowledged(1)).toBe(1);
    expect(from?.post(1, MAIL_SLOTS, [99])).toBe(true);
    expect(to?.mail(0, MAIL_SLOTS)?.[0]).toBe(99);
    expect(to?.mail(0, 0)).toBeUndefined();
  });

  it("keeps turns apart from mail, lanes and notes, however full these are", () => {
    const members = ranks(3).map((segment, member) => segment.group("world", [0, 1, 2], 0, member));
    for (const group of members) group.turn(5, [0, 1, 2]);
    for (const [member, group] of members.entries()) {
      for (let seq = 0; seq < LANE_RING; seq++) {
        const print = { call: -1, count: -1, hash: -1 };
        group.publish(collective, seq, print);
        for (const peer of [0, 1, 2]) {
          group.publish({ kind: "send", peer }, seq, print);
          group.publish({ kind: "recv", peer }, seq, print);
          if (peer !== member && seq < MAIL_SLOTS) group.post(peer, seq, Array(MAIL_WORDS - 1).fill(-1));
        }
        group.notesOf(member).collectives.issue(seq, 1e300);
        group.notesOf(member).collectives.time(seq, 1e300, 1e300);
      }
    }
    expect(members.map((group) => group.granted)).toEqual([false, false, false]);
    expect(members.map((group) => group.turn(5, [0, 1, 2]))).toEqual([true, true, true]);
    for (const group of members) group.endTurn([0, 1, 2]);
    for (const [member, group] of members.entries()) {
      expect(group.notesOf(member).collectives.read(LANE_RING - 1)?.durationUs).toBe(1e300);
      expect(group.mail((member + 1) % 3, MAIL_SLOTS - 1)?.every((word) => word === -1)).toBe(true);
    }
  });

  it("takes the lock from a rank that died with it, and lets nobody who lost it give up another's", () => {
    const buffer = new SharedArrayBuffer(controlBytes(2));
    const segment = new ControlSegment(buffer, 2);
    const lock = new Int32Array(buffer, 4, 1);
    lock[0] = 12_345;
    let nowMs = 0;
    vi.spyOn(performance, "now").mockImplementation(() => (nowMs += 10));
    try {
      segment.group("world", [0, 1], 0, 0);
      // Whoever waits gives a dead rank a second.
      expect(nowMs).toBeGreaterThan(1000);
      expect(lock[0]).toBe(0);
      vi.spyOn(TextEncoder.prototype, "encode").mockImplementationOnce(() => {
        lock[0] = 777;
        return new Uint8Array(2);
      });
      segment.group("slow", [0, 1], 0, 0);
      expect(lock[0]).toBe(777);
    } finally {
      vi.restoreAllMocks();
    }
  });

  it("reuses the slots of groups that every member left", () => {
    const [a, b] = ranks(2);
    for (let i = 0; i < 3 * MAX_GROUPS; i++) {
      const ga = a?.group("g", [0, 1], i, 0);
      const gb = b?.group("g", [0, 1], i, 1);
      expect(gb?.blob).toBeUndefined();
      ga?.setBlob(Uint8Array.of(i & 255, 7));
      expect([...(gb?.blob ?? [])]).toEqual([i & 255, 7]);
      ga?.leave();
      gb?.leave();
    }
    for (let i = 0; i < MAX_GROUPS; i++) a?.group("held", [0], i, 0);
    expect(() => a?.group("one too many", [0], 0, 0)).toThrow(OutOfMemoryError);
  });
});
