import { OutOfMemoryError } from "chorale";
import { describe, expect, it } from "vitest";
import { Arena, checkFreeMemory, groupBlocks, MAX_ARENA_BYTES } from "./memory.ts";

describe("groupBlocks", () => {
  it("fills arenas in order, scratch included", () => {
    expect(groupBlocks([400, 400, 400, 100], 100, 1000)).toEqual([2, 2]);
    expect(groupBlocks([400, 400, 100], 100, 1064)).toEqual([3]);
    expect(groupBlocks([836, 836], 100, 1000)).toEqual([1, 1]);
    const gib = 2 ** 30;
    expect(groupBlocks(new Array(16).fill(gib), 0)).toEqual([3, 3, 3, 3, 3, 1]);
  });

  it("refuses a block that no arena holds", () => {
    expect(() => groupBlocks([400, 837], 100, 1000)).toThrow(OutOfMemoryError);
    expect(() => groupBlocks([MAX_ARENA_BYTES], 0)).toThrow(/raise tp/);
  });
});

describe("checkFreeMemory", () => {
  const need = (host: string, bytes: number, freeBytes: number) => ({ host, bytes, freeBytes });
  it("adds up the ranks of each machine", () => {
    checkFreeMemory([need("a", 50, 100), need("a", 50, 110), need("b", 90, 90)]);
    expect(() => checkFreeMemory([need("a", 50, 99), need("a", 50, 110)])).toThrow(OutOfMemoryError);
    expect(() => checkFreeMemory([need("a", 1, 9), need("b", 10, 9)])).toThrow(/1 ranks on b/);
  });
});

describe("Arena", () => {
  it("gives disjoint, aligned, zeroed places and never address 0", () => {
    const arena = new Arena(300);
    const places = [arena.allocate(3), arena.allocate(17), arena.allocate(1)];
    expect(places).toEqual([64, 128, 256]);
    expect([...arena.view(128, 17)]).toEqual(new Array(17).fill(0));
  });
});
