import { afterEach, expect, it, vi } from "vitest";
import { Lock } from "./lock.ts";
import { whileOthersFreeNothing } from "./resource-ledger.ts";

const HOLDER = 4711;
afterEach(() => vi.restoreAllMocks());

/** A lock that another rank holds; `look` is called at each look of this one, with its number, and gives the time. */
function heldLock(look: (count: number, words: Int32Array) => number): { lock: Lock; words: Int32Array } {
  const words = new Int32Array(new SharedArrayBuffer(4));
  words[0] = HOLDER;
  let count = 0;
  vi.spyOn(performance, "now").mockImplementation(() => look(++count, words));
  return { lock: new Lock(words, 0), words };
}

it("is not taken from a rank that was stopped together with the one that waits", () => {
  let held = 0;
  const { lock, words } = heldLock((count, words) => {
    if (count < 20) held += Number(words[0] === HOLDER);
    else words[0] = 0;
    // A minute in which nobody ran lies between the third look and the fourth.
    return count + (count > 3 ? 60_000 : 0);
  });
  expect(lock.run(() => words[0])).not.toBe(HOLDER);
  expect(held).toBe(19);
  expect(words[0]).toBe(0);
});

it("is taken from a rank that died inside", () => {
  let looks = 0;
  const { lock, words } = heldLock((count) => {
    looks = count;
    return 5 * count;
  });
  expect(lock.run(() => words[0])).not.toBe(HOLDER);
  expect(looks).toBeGreaterThan(190);
  expect(looks).toBeLessThan(220);
  expect(words[0]).toBe(0);
});

it("is left to a thread that frees what killed ranks held, which takes seconds", () => {
  const ledger = new SharedArrayBuffer(16);
  const words = new Int32Array(ledger);
  words.fill(HOLDER);
  let [count, held] = [0, 0];
  vi.spyOn(performance, "now").mockImplementation(() => {
    if (++count < 1000) held += Number(words.every((word) => word === HOLDER));
    else words.fill(0);
    return 5 * count;
  });
  whileOthersFreeNothing(ledger, () => {});
  expect(held).toBe(999);
});
