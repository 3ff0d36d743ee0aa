import { describe, expect, it } from "vitest";
import { napUntil, pauseUntil } from "./nap.ts";

describe("napUntil", () => {
  const lookedFor = (numLooks: number, limitMs: number) => {
    let looks = 0;
    const isDone = napUntil(() => ++looks === numLooks, limitMs, { spinMs: 0.1 });
    return { isDone, looks };
  };

  it("looks until it hears yes", () => {
    expect(lookedFor(1, 0)).toEqual({ isDone: true, looks: 1 });
    expect(lookedFor(5, 60_000)).toEqual({ isDone: true, looks: 5 });
  });

  it("gives up at the limit, after one look at least", () => {
    expect(lookedFor(2, 0)).toEqual({ isDone: false, looks: 1 });
    const began = performance.now();
    expect(lookedFor(Number.POSITIVE_INFINITY, 2).isDone).toBe(false);
    expect(performance.now() - began).toBeGreaterThanOrEqual(2);
  });
});

describe("pauseUntil", () => {
  it("lets the event loop run until it hears yes, and gives up at the limit", async () => {
    let isDone = false;
    setImmediate(() => {
      isDone = true;
    });
    expect(await pauseUntil(() => isDone, 60_000)).toBe(true);
    let looks = 0;
    expect(await pauseUntil(() => ++looks === 2, 0)).toBe(false);
    expect(looks).toBe(1);
  });
});
