import { Worker } from "node:worker_threads";
import { expect, it } from "vitest";
import { MEETING } from "./host-arena.ts";
import { SharedTiles } from "./shared-tiles.ts";

it("gives each tile once, to whoever asks first, and none when it is closed", () => {
  const words = new Int32Array(new SharedArrayBuffer(256));
  const [own, other] = [0, 1].map(() => new SharedTiles(words, 8, 3)) as [SharedTiles, SharedTiles];
  expect([own.take(), other.take(), own.take(), other.take(), own.take()]).toEqual([0, 1, 2, undefined, undefined]);
  own.reset();
  expect(other.take()).toBe(0);
  other.copied();
  own.close();
  expect([other.take(), own.take()]).toEqual([undefined, undefined]);
  own.close();
});

it("waits, as it closes, for the tile that another rank copies", { timeout: 60_000 }, async () => {
  const words = new Int32Array(new SharedArrayBuffer(256));
  const tiles = new SharedTiles(words, 0, 3);
  tiles.take();
  // It copies the tile once no more are given away.
  const text = `const { workerData: { words, taken, copied } } = require("node:worker_threads");
    while (Atomics.load(words, taken) < 3);
    Atomics.add(words, copied, 1);`;
  const workerData = { words, taken: MEETING.tilesTaken, copied: MEETING.tilesCopied };
  const worker = new Worker(text, { eval: true, workerData });
  await new Promise((resolve) => worker.once("online", resolve));
  tiles.close(30_000);
  expect(Atomics.load(words, MEETING.tilesCopied)).toBe(1);
  await worker.terminate();
});
