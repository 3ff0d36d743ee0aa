import { describe, expect, it } from "vitest";
import { PRESENCE_WORDS, Presence } from "./presence.ts";

describe("Presence", () => {
  it("says which ranks are threads of a process, and which of them have ended", () => {
    const words = new Int32Array(7 + 4 * PRESENCE_WORDS);
    const [a, b] = [new Presence(words, 7, 4), new Presence(words, 7, 4)];
    expect(a.enter(2, 700, 0)).toBeUndefined();
    expect(b.enter(0, 700, 5)).toBeUndefined();
    expect(a.enter(1, 701, 0)).toBeUndefined();
    expect(b.enter(2, 700, 9)).toBe(2);
    expect(b.enter(3, 700, 5)).toBe(0);
    expect(a.of(700)).toEqual([0, 2]);
    expect(a.of(701)).toEqual([1]);
    b.end(2);
    expect(a.of(700)).toEqual([0]);
    a.bury(0);
    a.bury(2);
    expect([0, 1, 2, 3].map((rank) => b.isGone(rank))).toEqual([true, false, false, false]);
    expect(b.of(700)).toEqual([0]);
    b.withdraw(0);
    expect(a.of(700)).toEqual([]);
    expect(a.enter(0, 700, 5)).toBeUndefined();
  });
});
