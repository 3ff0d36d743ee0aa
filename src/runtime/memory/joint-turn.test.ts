/** Joint turns as a model: ranks in one thread, their steps in random order. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { controlBytes } from "./control-layout.ts";
import { ControlSegment } from "./control-segment.ts";

const RANKS = 5;

describe("joint turns", () => {
  it("begin for all that need each other or for none, and end for none before all are done", () => {
    const needs = fc.array(fc.subarray([0, 1, 2, 3, 4], { minLength: 0 }), { minLength: RANKS, maxLength: RANKS });
    const steps = fc.array(fc.tuple(fc.nat(RANKS - 1), fc.boolean(), fc.nat(3)), { maxLength: 150 });
    fc.assert(
      fc.property(needs, steps, (wanted, order) => {
        const buffer = new SharedArrayBuffer(controlBytes(RANKS));
        const segments = Array.from({ length: RANKS }, () => new ControlSegment(buffer, RANKS));
        const turns = segments.map((segment, rank) => segment.jointTurn(rank));
        const attendances = segments.map((segment, rank) => segment.attendance(rank));
        const attends = (rank: number) => attendances[0]?.has(rank) === true;
        // Who needs somebody needs itself, until it has had its turn.
        const open = wanted.map((ranks, rank) => (ranks.length === 0 ? [] : [...new Set([rank, ...ranks])]));
        const closure = (rank: number) => {
          const found = [rank];
          for (const one of found) for (const other of open[one] ?? []) if (!found.includes(other)) found.push(other);
          return found.sort();
        };
        const inside = new Map<number, readonly number[]>();
        const acted = new Set<number>();
        const step = (rank: number, leaves: boolean) => {
          const turn = turns[rank];
          if (turn === undefined) return;
          if (!turn.granted) {
            const attended = [...turns.keys()].filter(attends);
            if (leaves) turn.withdraw();
            else if (turn.offer(open[rank] ?? [])) expect((open[rank] ?? []).length).toBeGreaterThan(0);
            const granted = [...turns.keys()].filter((other) => turns[other]?.granted && !inside.has(other));
            if (granted.length === 0) return;
            expect(granted).toEqual(closure(rank));
            expect(attended).toEqual(expect.arrayContaining(granted));
            for (const other of granted) inside.set(other, granted);
            return;
          }
          expect(turn.withdraw()).toBe(false);
          const all = inside.get(rank) ?? [];
          const said = turn.advance();
          if (said === "act") {
            expect(acted.has(rank)).toBe(false);
            acted.add(rank);
            open[rank] = [];
            turn.done();
          } else if (said === "over") {
            for (const other of all) if (inside.get(other) === all) expect(acted.has(other)).toBe(true);
            expect(turn.granted).toBe(false);
            inside.delete(rank);
            acted.delete(rank);
          }
        };
        const come = (rank: number, comes: boolean) => {
          const isFree = comes ? attendances[rank]?.enter() : attendances[rank]?.leave();
          expect(isFree).toBe(turns[rank]?.granted === false);
          expect(attends(rank)).toBe(comes && isFree);
        };
        for (const [rank, leaves, comes] of order) {
          if (comes > 0) come(rank, comes > 1);
          step(rank, leaves);
        }
        // Whoever needs others has its turn once they all offer themselves and attend.
        for (let i = 0; i < 10 * RANKS; i++) {
          for (let rank = 0; rank < RANKS; rank++) {
            come(rank, true);
            step(rank, false);
          }
        }
        expect(open.flat()).toEqual([]);
        expect(turns.some((turn) => turn.granted)).toBe(false);
      }),
      { numRuns: 100 },
    );
  });

  it("take no rank that has a turn of a group, nor the other way round", () => {
    const buffer = new SharedArrayBuffer(controlBytes(2));
    const segments = [0, 1].map(() => new ControlSegment(buffer, 2));
    const ranks = [0, 1];
    const groups = segments.map((segment, rank) => segment.group("pair", ranks, 0, rank));
    const turns = segments.map((segment, rank) => segment.jointTurn(rank));
    groups[1]?.turn(3, ranks);
    expect(groups[0]?.turn(3, ranks)).toBe(true);
    turns[1]?.offer([]);
    const attendances = segments.map((segment, rank) => segment.attendance(rank));
    expect(attendances.map((one) => one.enter())).toEqual([false, false]);
    expect(turns[0]?.offer([0, 1])).toBe(false);
    for (const group of groups) group.endTurn(ranks);
    expect(turns[0]?.offer([0, 1])).toBe(false);
    expect(turns.map((turn) => turn.together)).toEqual([ranks, ranks]);
    expect(attendances[1]?.enter()).toBe(true);
    expect(turns[0]?.offer([0, 1])).toBe(false);
    expect(attendances[0]?.enter()).toBe(true);
    expect(turns[0]?.offer([0, 1])).toBe(true);
    expect(attendances.map((one) => one.leave())).toEqual([false, false]);
    groups[1]?.turn(4, ranks);
    expect(groups[0]?.turn(4, ranks)).toBe(false);
    expect(turns.map((turn) => turn.advance())).toEqual(["wait", "act"]);
    expect(turns[0]?.advance()).toBe("act");
    for (const turn of turns) turn.done();
    expect(turns.map((turn) => turn.advance())).toEqual(["over", "over"]);
    expect(groups[0]?.turn(4, ranks)).toBe(true);
  });
});
