/** Agreement of two members of a group, far from its first call. */
import { describe, expect, it } from "vitest";
import { AbortedError, type ChoraleError, type MismatchError } from "../../core/index.ts";
import { mixedRegistrations } from "../backends/nccl/registrations.ts";
import { packCall } from "../comm/index.ts";
import { controlBytes } from "../memory/control-layout.ts";
import { ControlSegment } from "../memory/control-segment.ts";
import { COLLECTIVE, COLLECTIVE_RING, LANE_RING } from "../memory/lanes.ts";
import { Agreement } from "./agreement.ts";
import { inOwnWords } from "./call-disagreement.ts";
import { type Arrival, CallSequence } from "./call-sequence.ts";
import { QueueEntry } from "./queue-entry.ts";
import { QueuedWork, type WorkDriver } from "./queued-work.ts";

const ranks = [0, 1];

/** Both members have made `before` collectives and as many sends from 0 to 1. */
function members(before: number, registers: readonly number[] = []) {
  const buffer = new SharedArrayBuffer(controlBytes(2));
  const controls = ranks.map((member) => new ControlSegment(buffer, 2).group("world", ranks, 0, member));
  for (const [member, control] of controls.entries()) {
    const print = { call: 0, count: 0, hash: registers[member] ?? 0 };
    control.publish(COLLECTIVE, before - 1, print);
    control.publish({ kind: member === 0 ? "send" : "recv", peer: 1 - member }, before - 1, print);
  }
  const [a, b] = controls.map(
    (control) => new Agreement({ control, ranks, group: "world", generation: 1, joinedApart: mixedRegistrations }),
  );
  if (a === undefined || b === undefined) throw new Error("no members");
  return [a, b, controls] as const;
}

const collective = (seq: number, count: number): Arrival => {
  return { lane: COLLECTIVE, seq, print: { call: packCall("all_reduce", "f32", "sum", 0), count, hash: 1 } };
};
const send = (seq: number, count: number): Arrival => {
  return {
    lane: { kind: "send", peer: 1 },
    seq,
    print: { call: packCall("send", "f32", undefined, 1), count, hash: 1 },
  };
};
const recv = (seq: number, count: number): Arrival => {
  return {
    lane: { kind: "recv", peer: 0 },
    seq,
    print: { call: packCall("recv", "f32", undefined, 0), count, hash: 1 },
  };
};

describe.each([5, 2 ** 31, 2 ** 32])("agreement around call %i", (wrap) => {
  it("of calls that both make", () => {
    const [a, b] = members(wrap - 3);
    for (let seq = wrap - 3; seq < wrap + 3; seq++) {
      for (const [mine, theirs] of [
        [collective(seq, seq % 100), collective(seq, seq % 100)],
        [send(seq, seq % 100), recv(seq, seq % 100)],
      ] as const) {
        expect(a.mayAnnounce([mine])).toBe(true);
        expect(a.announce([mine])).toBeUndefined();
        expect([a.complete([mine]), b.complete([theirs])]).toEqual([false, mine.lane.kind !== "collective"]);
        expect(b.mayAnnounce([theirs])).toBe(true);
        expect(b.announce([theirs])).toBeUndefined();
        expect([a.complete([mine]), b.complete([theirs])]).toEqual([true, true]);
      }
    }
  });

  it("is missed by the later member, by the call's number", () => {
    for (const [mine, theirs, place] of [
      [collective(wrap, 4), collective(wrap, 5), wrap - 1],
      [send(wrap, 4), recv(wrap, 5), wrap],
    ] as const) {
      const [a, b] = members(wrap);
      expect(a.announce([mine])).toBeUndefined();
      expect(b.announce([theirs])?.message).toMatch(`operation #${place}\n`);
    }
  });

  it("holds back what the other has yet to compare, and no more", () => {
    const [a, b] = members(wrap - 3);
    let seq = wrap - 3;
    while (a.mayAnnounce([collective(seq, 4)])) a.announce([collective(seq++, 4)]);
    expect(seq).toBe(wrap - 3 + COLLECTIVE_RING - 1);
    let sent = wrap - 3;
    while (a.mayAnnounce([send(sent, 4)])) a.announce([send(sent++, 4)]);
    expect(sent).toBe(wrap - 3 + LANE_RING);
    b.announce([collective(wrap - 3, 4)]);
    b.announce([recv(wrap - 3, 4)]);
    expect([a.mayAnnounce([collective(seq, 4)]), a.mayAnnounce([collective(seq + 1, 4)])]).toEqual([true, false]);
    expect([a.mayAnnounce([send(sent, 4)]), a.mayAnnounce([send(sent + 1, 4)])]).toEqual([true, false]);
  });
});

describe("a member that has closed the group", () => {
  const work = new QueuedWork({} as WorkDriver, 4, "all_reduce", "world");
  const entry = new QueueEntry(work, { op: "all_reduce", arrivals: [collective(5, 4)] }, 1000);

  it("is not waited for", () => {
    const [a, , controls] = members(5);
    controls[1]?.announceClose();
    expect(() => a.refuseDeparted(entry)).toThrow(/^rank 1 failed \(generation 1\): it has left group world/);
  });

  it("is not blamed where it left because the group had failed", () => {
    const [a, , controls] = members(5);
    controls[1]?.fail({ code: "ABORTED", reason: "of this" });
    controls[1]?.announceClose();
    expect(() => a.refuseDeparted(entry)).not.toThrow();
  });
});

describe("whether an all-reduce is in place", () => {
  const redop = "sum" as const;
  const sides = (theirs: Parameters<CallSequence["of"]>, mine: Parameters<CallSequence["of"]>) => {
    const [a, b] = members(1);
    expect(a.announce([new CallSequence(2).of(...theirs)])).toBeUndefined();
    return b.announce([new CallSequence(2).of(...mine)])?.sides.map(({ call }) => call);
  };

  it("is told where only that differs", () => {
    expect(sides(["all_reduce", "f32", 4, { redop, inPlace: true }], ["all_reduce", "f32", 4, { redop }])).toEqual([
      "all_reduce(f32[4], sum) in place",
      "all_reduce(f32[4], sum) into another tensor",
    ]);
    expect(sides(["all_reduce", "f32", 4, { redop }], ["all_reduce", "f32", 4, { redop }])).toBeUndefined();
  });

  it("is not told of ranks that differ in whether they register buffers: that is", () => {
    const [a, b] = members(1, [1, 0]);
    const of = (inPlace: boolean) => [new CallSequence(2).of("all_reduce", "f32", 4, { redop, inPlace })];
    expect(a.announce(of(true))).toBeUndefined();
    expect(b.announce(of(false))?.sides).toEqual([
      { rank: 0, call: "registerBuffers: true" },
      { rank: 1, call: "registerBuffers: false" },
    ]);
  });

  it("is not told of other operations, nor where the lengths differ", () => {
    const marked = ["all_reduce", "f32", 4, { redop, inPlace: true }] as const;
    for (const other of [["broadcast", "f32", 4, {}] as const, ["all_reduce", "f32", 5, { redop }] as const]) {
      expect(sides([...marked], [...other])?.join()).toMatch(/^all_reduce\(f32\[4\], sum\),(?!.*(place|tensor))/);
    }
  });
});

describe("what is published as a hash alone", () => {
  const preMulSum = (scalar: number | bigint) => ({ redop: { kind: "preMulSum", scalar } as const });
  it.each([
    ["all_reduce", 4, preMulSum(2), preMulSum(1), /scalar 1 \(hash/, "another scalar"],
    ["all_gather_v", 4, { counts: [3, 1] }, { counts: [1, 3] }, /counts \[1, 3\] \(hash/, "other counts"],
    [
      "reduce_scatter_v",
      4,
      { counts: [3, 1], ...preMulSum(2n) },
      { counts: [3, 1], ...preMulSum(-2n) },
      /scalar -2n and counts \[3, 1\] \(hash/,
      "another scalar or other counts",
    ],
  ] as const)("shows two different sides of %s", (op, part, theirs, mine, known, other) => {
    const [a, b] = members(1);
    const arrivals = [theirs, mine].map((extras) => new CallSequence(2).of(op, "f32", part, extras));
    expect(a.announce(arrivals.slice(0, 1))).toBeUndefined();
    const [first, second] = b.announce(arrivals.slice(1))?.sides ?? [];
    expect(first?.call).toMatch(new RegExp(` with ${other} \\(hash [0-9a-f]{8}\\)$`));
    expect(second?.call).toMatch(known);
    expect(second?.call.split("hash")[1]).not.toBe(first?.call.split("hash")[1]);
  });

  it("is put into words by the member whose it is, when the other one tells of it", () => {
    const [a, b] = members(1);
    const arrivalOf = (extras: Parameters<CallSequence["of"]>[3]) =>
      new CallSequence(2).of("all_gather_v", "f32", 4, extras);
    const mine = arrivalOf({ counts: [1, 3] });
    const theirs = arrivalOf({ counts: [3, 1], algorithm: "nccl" });
    expect(a.announce([theirs])).toBeUndefined();
    const told = b.announce([mine]) as MismatchError;
    expect(told.sides[0]?.call).toMatch(/ with other counts \(hash [0-9a-f]{8}\)$/);
    const [first, second] = (inOwnWords(told, 0, [theirs]) as MismatchError).sides;
    expect(first?.call).toMatch(/\) with algorithm nccl and counts \[3, 1\] \(hash [0-9a-f]{8}\)$/);
    expect(second).toEqual(told.sides[1]);
    // Whoever has told it has its own words there.
    expect((inOwnWords(told, 1, [mine]) as MismatchError).sides).toEqual(told.sides);
    expect((inOwnWords(told, 0, [mine]) as MismatchError).message).toBe(told.message);
    const other = new AbortedError("no mismatch");
    expect(inOwnWords(other, 0, [theirs])).toBe(other);
  });

  it("tells of the step behind a call, also where the lengths differ", () => {
    const step = (agreed: string) => ({ redop: "sum", epilogue: { agreed } }) as const;
    type Call = readonly [number, Parameters<CallSequence["of"]>[3]];
    const both = (theirs: Call, mine: Call) => {
      const [a, b] = members(1);
      const arrivals = [theirs, mine].map(([part, extras]) =>
        new CallSequence(2).of("all_reduce", "f32", part, extras),
      );
      expect(a.announce(arrivals.slice(0, 1))).toBeUndefined();
      const told = b.announce(arrivals.slice(1)) as MismatchError;
      const callsOf = (error: ChoraleError) =>
        (error as MismatchError).sides.map(({ call }) => call.replace(/ \(hash [0-9a-f]{8}\)$/, ""));
      // To the member that told it, and to the other one.
      return [callsOf(told), callsOf(inOwnWords(told, 0, arrivals.slice(0, 1)))];
    };
    const norm = "with norm behind it";
    const longer = [`all_reduce(f32[5], sum) ${norm}`, `all_reduce(f32[4], sum) ${norm}`];
    expect(both([5, step("norm")], [4, step("norm")])).toEqual([longer, longer]);
    const [heard, own] = both([5, { redop: "sum" }], [4, step("norm")]);
    const other = "with another algorithm or another step or none behind it";
    expect(heard).toEqual([`all_reduce(f32[5], sum) ${other}`, `all_reduce(f32[4], sum) ${norm}`]);
    expect(own).toEqual(["all_reduce(f32[5], sum)", `all_reduce(f32[4], sum) ${norm}`]);
    expect(both([4, step("other")], [4, step("norm")])[1]).toEqual([
      "all_reduce(f32[4], sum) with other behind it",
      `all_reduce(f32[4], sum) ${norm}`,
    ]);
  });

  it("shows the lengths beyond 2^32 that differ", () => {
    const [a, b] = members(1);
    const arrivals = [4, 4 + 2 ** 32].map((part) => new CallSequence(2).of("all_reduce", "u8", part, { redop: "sum" }));
    expect(a.announce(arrivals.slice(0, 1))).toBeUndefined();
    const calls = b.announce(arrivals.slice(1))?.sides.map(({ call }) => call) ?? [];
    expect(new Set(calls).size).toBe(2);
    for (const call of calls) expect(call).toMatch(/^all_reduce\(.* \(hash [0-9a-f]{8}\)$/);
  });

  it("names the operation whose parts do not fit", () => {
    const [a, b] = members(1);
    const parts = [2, 3].map((count, member) =>
      new CallSequence(2).pairs("f32", member, [count, count], [count, count]),
    );
    expect(a.announce(parts[0] ?? [])).toBeUndefined();
    expect(b.announce(parts[1] ?? [])?.sides.map(({ call }) => call)).toEqual([
      expect.stringMatching(/^all_to_all_v: recv\(f32\[2\]/),
      expect.stringMatching(/^all_to_all_v: send\(f32\[3\]/),
    ]);
  });

  it("is not shown where the words differ", () => {
    const [a, b] = members(1);
    const arrivals = [4, 5].map((part) => new CallSequence(2).of("all_reduce", "f32", part, preMulSum(part)));
    expect(a.announce(arrivals.slice(0, 1))).toBeUndefined();
    expect(b.announce(arrivals.slice(1))?.message).not.toMatch(/hash|scalar/);
  });
});
