import { Worker } from "node:worker_threads";
import { expect, it } from "vitest";
import { MEETING } from "./host-arena.ts";
import { SharedTiles } from "./shared-tiles.ts";

it("gives each tile once, to whoever asks first, and lets nobody write to what is closed", () => {
  const words = new Int32Array(new SharedArrayBuffer(256));
  const [own, other] = [0, 1].map(() => new SharedTiles(words)) as [SharedTiles, SharedTiles];
  expect([own.take(8), other.take(8), own.take(8)]).toEqual([0, 1, 2]);
  own.reset(8);
  expect([other.take(8), other.enter(8)]).toEqual([0, true]);
  other.leave(8);
  own.close(8);
  own.close(8);
  expect(other.enter(8)).toBe(false);
  other.leave(8);
  own.close(8);
  own.reset(8);
  expect(other.enter(8)).toBe(true);
});

it("waits, as it closes, for another rank that writes", { timeout: 60_000 }, async () => {
  const words = new Int32Array(new SharedArrayBuffer(256));
  const tiles = new SharedTiles(words);
  tiles.enter(0);
  // It leaves once nobody else may enter.
  const text = `const { workerData: { words, writers, left } } = require("node:worker_threads");
    while (Atomics.load(words, writers) < 2);
    Atomics.store(words, left, 1);
    Atomics.sub(words, writers, 1);`;
  const left = 40;
  const worker = new Worker(text, { eval: true, workerData: { words, writers: MEETING.writers, left } });
  await new Promise((resolve) => worker.once("online", resolve));
  tiles.close(0, 30_000);
  expect(Atomics.load(words, left)).toBe(1);
  await worker.terminate();
});
