import { describe, expect, it } from "vitest";
import { FreeList } from "./free-list.ts";

describe("stretches of free memory", () => {
  it("are used from the first that is long enough, in whole cache lines", () => {
    const list = new FreeList(1024, 4096);
    expect([list.take(1), list.take(129), list.take(0)]).toEqual([1024, 1152, 1408]);
    list.give(1152);
    expect([list.take(300), list.take(256), list.mostBytes]).toEqual([1536, 1152, 2176]);
    expect(list.take(2177)).toBeUndefined();
  });

  it("join their neighbours when they are given back, in any order", () => {
    for (const order of [
      [0, 1, 2, 3],
      [3, 2, 1, 0],
      [0, 2, 1, 3],
      [1, 3, 0, 2],
    ]) {
      const list = new FreeList(0, 1024);
      const taken = [256, 128, 512, 128].map((bytes) => list.take(bytes) as number);
      expect([list.take(1), list.mostBytes]).toEqual([undefined, 0]);
      for (const i of order) list.give(taken[i] ?? -1);
      // Twice is once.
      list.give(taken[0] ?? -1);
      expect([list.mostBytes, list.take(1024)]).toEqual([1024, 0]);
    }
  });
});
