/**
 * Turns as a model: ranks in one thread, their steps in random order, also in the middle of each other's (before any
 * atomic exchange). A granted call blocks its rank until all that take part in it have entered it, as NCCL's do.
 */
import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import { drawnCalls, ModelRank } from "../../../test/support/turn-model.ts";
import { controlBytes } from "./control-layout.ts";
import { ControlSegment } from "./control-segment.ts";
import { RECLAIM } from "./turns.ts";

const RANKS = 4;

describe("turns", () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it("are granted to all members of a call or none, to one call of a rank at a time, and never for ever to none", () => {
    const subset = fc
      .subarray([0, 1, 2, 3], { minLength: 2 })
      .chain((list) => fc.shuffledSubarray(list, { minLength: list.length }));
    const world = fc.record({
      groups: fc.array(
        fc.record({
          ranks: subset,
          calls: fc.array(fc.option(fc.nat()), { minLength: 1, maxLength: 6 }),
          reclaim: fc.boolean(),
        }),
        { minLength: 1, maxLength: 5 },
      ),
      seed: fc.integer(),
    });
    fc.assert(
      fc.property(world, ({ groups, seed }) => {
        let state = seed | 1;
        const draw = (n: number) => {
          state = Math.imul(state, 1664525) + 1013904223;
          return (state >>> 8) % n;
        };
        const buffer = new SharedArrayBuffer(controlBytes(RANKS));
        const attendance = (rank: number) => new ControlSegment(buffer, RANKS).attendance(rank);
        const ranks = Array.from({ length: RANKS }, (_, rank) => new ModelRank(attendance(rank)));
        for (const [g, group] of groups.entries()) {
          const calls = drawnCalls(group.ranks.length, group.calls);
          if (group.reclaim) calls.push({ id: RECLAIM, ring: undefined, entered: 0 });
          for (const [member, rank] of group.ranks.entries()) {
            const control = new ControlSegment(buffer, RANKS).group(`g${g}`, group.ranks, 0, member);
            ranks[rank]?.join(control, group.ranks, calls);
          }
        }
        const step = (busy: ModelRank | undefined): ModelRank | undefined => {
          const rank = ranks[draw(RANKS)];
          if (rank === undefined || rank === busy || rank.members.length === 0) return undefined;
          if (draw(3) === 0) rank.leave();
          else {
            const member = rank.members[draw(rank.members.length)];
            if (member === undefined) return undefined;
            // Whoever has something better to do takes its offer back, unless it is granted.
            if (busy === undefined && draw(8) === 0 && rank.inside === undefined) rank.withdraw(member);
            else {
              acting = rank;
              rank.ask(member);
            }
          }
          return rank;
        };
        let acting: ModelRank | undefined;
        let nested = false;
        const exchange = Atomics.compareExchange;
        vi.spyOn(Atomics, "compareExchange").mockImplementation(((
          words: Int32Array,
          at: number,
          from: number,
          to: number,
        ) => {
          if (!nested && acting !== undefined && draw(3) === 0) {
            nested = true;
            const outer = acting;
            step(outer);
            acting = outer;
            nested = false;
          }
          return exchange(words, at, from, to);
        }) as typeof Atomics.compareExchange);
        for (let i = 0; i < 60_000 && !ranks.every(({ done }) => done); i++) {
          acting = undefined;
          step(undefined);
        }
        vi.restoreAllMocks();
        expect(ranks.map(({ done }) => done)).toEqual(ranks.map(() => true));
      }),
      { seed: 20261120, numRuns: 300, verbose: 1 },
    );
  });

  it("are for as many ranks as the world has: the words of 66 stand apart from who is here and from groups", () => {
    const buffer = new SharedArrayBuffer(controlBytes(66));
    const segments = [0, 1].map(() => new ControlSegment(buffer, 66));
    const ranks = [64, 65];
    const groups = segments.map((segment, member) => segment.group("last", ranks, 0, member));
    for (let rank = 0; rank < 66; rank++) expect(segments[0]?.presence.enter(rank, 700 + rank, rank)).toBeUndefined();
    for (const group of groups) group.turn(1, ranks);
    expect(groups.map((group) => group.turn(1, ranks))).toEqual([true, true]);
    for (let rank = 0; rank < 66; rank++) expect(segments[1]?.presence.of(700 + rank)).toEqual([rank]);
    for (const group of groups) group.endTurn(ranks);
    expect(segments[0]?.numGroups).toBe(1);
    for (const group of groups) group.leave();
    expect(segments[1]?.presence.of(765)).toEqual([65]);
    expect(segments[1]?.numGroups).toBe(0);
  });

  it("free a group once all its members attend, and not before", () => {
    const buffer = new SharedArrayBuffer(controlBytes(2));
    const segments = [0, 1].map(() => new ControlSegment(buffer, 2));
    const ranks = [0, 1];
    const attendances = segments.map((segment, rank) => segment.attendance(rank));
    const groups = segments.map((segment, member) => segment.group("pair", ranks, 0, member));
    const ask = () => [...groups].reverse().map((group) => group.turn(RECLAIM, ranks));
    expect(groups.map((group) => group.turn(RECLAIM, ranks))).toEqual([false, false]);
    expect(groups.map((group) => group.mayReclaim)).toEqual([true, true]);
    expect(ask()).toEqual([false, false]);
    expect(attendances[1]?.enter()).toBe(true);
    expect(attendances.map((one) => one.has(1))).toEqual([true, true]);
    // Rank 0 has offered, and its program is at work.
    expect(ask()).toEqual([false, false]);
    expect(attendances[1]?.leave()).toBe(true);
    for (const one of attendances) expect(one.enter()).toBe(true);
    expect(groups[0]?.withdraw()).toBe(true);
    expect(groups.map((group) => group.mayReclaim)).toEqual([false, false]);
    expect(ask()).toEqual([false, true]);
    expect(attendances.map((one) => one.leave())).toEqual([false, false]);
    for (const group of groups) group.endTurn(ranks);
    expect(attendances.map((one) => one.has(0))).toEqual([false, false]);
  });

  it("hold no other group up where a member is not there yet", () => {
    const buffer = new SharedArrayBuffer(controlBytes(3));
    const open = (name: string, ranks: readonly number[], member: number) =>
      new ControlSegment(buffer, 3).group(name, ranks, 0, member);
    const first = [0, 1];
    const second = [0, 2];
    const [e0, f0, f2] = [open("e", first, 0), open("f", second, 0), open("f", second, 1)];
    expect(e0.turn(1, first)).toBe(false);
    expect(f2.turn(1, second)).toBe(false);
    // Rank 1 waits for rank 2, which waits for this call of rank 0.
    expect(f0.turn(1, second)).toBe(true);
    expect(f2.turn(1, second)).toBe(true);
    const e1 = open("e", first, 1);
    expect(e1.turn(1, first)).toBe(false);
    expect(e0.turn(1, first)).toBe(false);
    expect(e0.withdraw()).toBe(true);
    expect(f0.withdraw()).toBe(false);
    f0.endTurn(second);
    f2.endTurn(second);
    expect(e0.turn(1, first)).toBe(true);
    expect(e1.turn(1, first)).toBe(true);
  });
});
