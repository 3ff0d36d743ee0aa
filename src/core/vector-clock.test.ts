import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { joinClocks, Listener, stepsKnown, type VectorClock, withSteps } from "./vector-clock.ts";

/** Lanes close together, far apart and at the edges of branches. */
const lanes = fc.oneof(
  fc.nat(40),
  fc.nat(5000),
  fc.nat(2 ** 27 - 1),
  fc.constantFrom(15, 16, 255, 256, 65_535, 65_536),
);
const entries = fc.array(fc.tuple(lanes, fc.integer({ min: 1, max: 9 })), { maxLength: 60 });

const clockOf = (list: readonly (readonly [number, number])[]): VectorClock =>
  list.reduce<VectorClock>((clock, [lane, steps]) => withSteps(clock, lane, steps), undefined);
const mapOf = (...lists: readonly (readonly [number, number])[][]) => {
  const map = new Map<number, number>();
  for (const [lane, steps] of lists.flat()) map.set(lane, Math.max(map.get(lane) ?? 0, steps));
  return map;
};
/** Asks of all lanes that were named anywhere, and of some more. */
const knows = (clock: VectorClock, map: ReadonlyMap<number, number>, others: Iterable<number>) => {
  for (const lane of [...map.keys(), ...others]) expect(stepsKnown(clock, lane)).toBe(map.get(lane) ?? 0);
};

describe("a vector clock", () => {
  it("knows of each lane the most that it was told", () => {
    fc.assert(fc.property(entries, fc.array(lanes), (list, others) => knows(clockOf(list), mapOf(list), others)));
  });

  it("joined with another holds the maximum of both, and leaves them as they were", () => {
    fc.assert(
      fc.property(entries, entries, entries, (common, first, second) => {
        const shared = clockOf(common);
        const grow = (list: readonly (readonly [number, number])[]) =>
          list.reduce((clock, [lane, steps]) => withSteps(clock, lane, steps), shared);
        const [a, b] = [grow(first), grow(second)];
        const all = mapOf(common, first, second);
        knows(joinClocks(a, b), all, []);
        knows(a, mapOf(common, first), all.keys());
        knows(b, mapOf(common, second), all.keys());
      }),
    );
  });

  it("is the clock that covers the other, where one does", () => {
    fc.assert(
      fc.property(entries, entries, (list, more) => {
        const a = clockOf(list);
        const b = more.reduce((clock, [lane, steps]) => withSteps(clock, lane, steps), a);
        expect(joinClocks(a, b)).toBe(b);
        expect(joinClocks(b, a)).toBe(b);
        for (const [lane, steps] of list) expect(withSteps(b, lane, steps)).toBe(b);
      }),
    );
  });

  it("takes a leaf for what it has heard, however many lanes there are", () => {
    const count = (clock: unknown): number =>
      typeof clock === "object" && clock !== null && "slots" in clock
        ? 1 + (clock.slots as unknown[]).reduce<number>((sum, slot) => sum + count(slot), 0)
        : 0;
    expect(count(withSteps(undefined, 1_000_000, 1))).toBe(1);
    expect(count(joinClocks(withSteps(undefined, 1_000_000, 1), withSteps(undefined, 3, 1)))).toBe(3);
  });
});

describe("a listener", () => {
  it("knows what joining says, whomever it hears of in which order", () => {
    const heard = fc.array(fc.record({ from: fc.nat(3), steps: fc.integer({ min: 1, max: 4 }), learns: entries }), {
      maxLength: 20,
    });
    fc.assert(
      fc.property(heard, (list) => {
        const listener = new Listener();
        // What each strand knows after so many steps: it never knows less.
        const knowledge = new Map<number, { base: VectorClock; steps: number }>();
        let clock: VectorClock;
        let joined: VectorClock;
        for (const { from, steps, learns } of list) {
          const before = knowledge.get(from) ?? { base: undefined, steps: 0 };
          const now = { base: joinClocks(before.base, clockOf(learns)), steps: before.steps + steps };
          knowledge.set(from, now);
          clock = listener.hear(clock, now.base, from, now.steps);
          joined = withSteps(joinClocks(joined, now.base), from, now.steps);
          for (const lane of [...list.flatMap((one) => one.learns.map(([l]) => l)), 0, 1, 2, 3])
            expect(stepsKnown(clock, lane)).toBe(stepsKnown(joined, lane));
        }
      }),
    );
  });

  it("compares where it has heard of something else in between", () => {
    const listener = new Listener();
    const first = listener.hear(undefined, clockOf([[7, 1]]), 0, 1);
    const other = withSteps(first, 9, 5);
    const second = listener.hear(other, clockOf([[7, 2]]), 0, 2);
    expect([7, 9, 0].map((lane) => stepsKnown(second, lane))).toEqual([2, 5, 2]);
  });
});
