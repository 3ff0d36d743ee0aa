import { Worker } from "node:worker_threads";
import { describe, expect, it } from "vitest";
import { Writers } from "./writers.ts";

const OFFSET = 3;

describe("who writes to what a rank lends", () => {
  it("is let in until the rank closes it, and again once that is lent anew", () => {
    const words = new Int32Array(new SharedArrayBuffer(256));
    const [own, other] = [0, 1].map(() => new Writers(words, OFFSET)) as [Writers, Writers];
    expect([other.enter(8), other.isClosed(8)]).toEqual([true, false]);
    expect(own.close(8, 0)).toBe(false);
    expect(other.isClosed(8)).toBe(true);
    other.leave(8);
    expect([own.close(8, 0), other.enter(8)]).toEqual([true, false]);
    other.leave(8);
    expect([own.close(8, 0), other.isClosed(0)]).toEqual([true, false]);
    own.reset(8);
    expect(other.enter(8)).toBe(true);
  });

  it("has ended when the rank has closed it", { timeout: 60_000 }, async () => {
    const words = new Int32Array(new SharedArrayBuffer(256));
    const writers = new Writers(words, OFFSET);
    writers.enter(0);
    // It leaves once nobody else may enter.
    const text = `const { workerData: { words, writers, left } } = require("node:worker_threads");
      while (Atomics.load(words, writers) < 2);
      Atomics.store(words, left, 1);
      Atomics.sub(words, writers, 1);`;
    const left = 40;
    const worker = new Worker(text, { eval: true, workerData: { words, writers: OFFSET, left } });
    await new Promise((resolve) => worker.once("online", resolve));
    expect(writers.close(0, 30_000)).toBe(true);
    expect(Atomics.load(words, left)).toBe(1);
    await worker.terminate();
  });
});
