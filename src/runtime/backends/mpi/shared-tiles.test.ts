import { expect, it } from "vitest";
import { SharedTiles } from "./shared-tiles.ts";

it("gives each tile once, to whoever asks first, and lets nobody write to what is closed", () => {
  const words = new Int32Array(new SharedArrayBuffer(256));
  const [own, other] = [0, 1].map(() => new SharedTiles(words)) as [SharedTiles, SharedTiles];
  expect([own.take(8), other.take(8), own.take(8)]).toEqual([0, 1, 2]);
  own.close(8, 0);
  expect(other.enter(8)).toBe(false);
  other.leave(8);
  own.reset(8);
  expect([other.take(8), other.enter(8)]).toEqual([0, true]);
});
