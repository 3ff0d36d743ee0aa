import { afterEach, expect, it, vi } from "vitest";
import { GRANTED, HELD, withdrawOffer } from "./grant.ts";

const OFFER = 7;
afterEach(() => vi.restoreAllMocks());

/** Takes an offer back that another rank holds. @param look at each look, with its number: gives the time */
function withdrawHeld(look: (count: number, words: Int32Array) => number): { withdrawn: boolean; word: number } {
  const words = new Int32Array(new SharedArrayBuffer(4));
  words[0] = OFFER | HELD;
  let count = 0;
  vi.spyOn(performance, "now").mockImplementation(() => look(++count, words));
  return { withdrawn: withdrawOffer(words, 0, () => false), word: Atomics.load(words, 0) };
}

it("waits for a rank that was stopped together with this one as it granted the offer", () => {
  // A minute in which nobody ran lies between the third look and the fourth.
  const found = withdrawHeld((count, words) => {
    if (count === 20) words[0] = GRANTED;
    return count + (count > 3 ? 60_000 : 0);
  });
  expect(found).toEqual({ withdrawn: false, word: GRANTED });
});

it("takes a rank for dead that holds the offer for a second", () => {
  let looks = 0;
  const found = withdrawHeld((count) => {
    looks = count;
    return 5 * count;
  });
  expect(found).toEqual({ withdrawn: true, word: OFFER | HELD });
  expect(looks).toBeGreaterThan(190);
  expect(looks).toBeLessThan(220);
});
