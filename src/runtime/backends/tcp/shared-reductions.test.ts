/** Reductions that threads make together, by this thread alone: which blocks are taken, in which order, and what follows them. */
import { describe, expect, it } from "vitest";
import { ArenaReducer, newSharedMemory, PAGE_BYTES, type WasmFunction } from "../../executor/internal.ts";
import { MAX_REDUCTIONS, makeBlock, SharedReductions } from "./shared-reductions.ts";

const JOB = { kernel: 1, inTable: 2, numInputs: 3, outTable: 4, numOutputs: 1, context: 6 } as const;
const KIB = 1024;

/** Another thread, which notes its ranges. */
function otherThread(shared: SharedReductions) {
  const ranges: (readonly [start: number, end: number])[] = [];
  const kernels: WasmFunction = (...[, , , , , start = 0, end = 0]) => ranges.push([start, end]);
  return { ranges, make: () => makeBlock(shared.words, () => kernels) };
}

describe("reductions that threads share", () => {
  it("are made block by block, the oldest first, and each range once", () => {
    const shared = new SharedReductions();
    const { ranges, make } = otherThread(shared);
    const ended: string[] = [];
    const give = (what: string, bytes: number, numOutputs = 1) =>
      shared.give(
        0,
        () => ({ ...JOB, numOutputs }),
        bytes,
        (isMade) => void ended.push(`${what} ${isMade}`),
      );
    expect(make()).toBe("none");
    // More than there are places, a few at a time.
    for (let round = 0; round < 2 * MAX_REDUCTIONS; round++) {
      ranges.length = ended.length = 0;
      give("first", 130 * KIB);
      give("second", 64 * KIB);
      expect([make(), make(), make()]).toEqual(["one", "one", "last"]);
      shared.settle();
      expect([ended, shared.isEmpty, shared.hasBlocks]).toEqual([["first true"], false, true]);
      expect(make()).toBe("last");
      shared.settle();
      expect([ended, shared.isEmpty, shared.hasBlocks]).toEqual([["first true", "second true"], true, false]);
      expect(ranges).toEqual([
        [0, 64 * KIB],
        [64 * KIB, 128 * KIB],
        [128 * KIB, 130 * KIB],
        [0, 64 * KIB],
      ]);
    }
    // To several outputs in shorter ranges of whole vectors.
    ranges.length = 0;
    give("third", 65 * KIB, 2);
    expect([make(), make(), make()]).toEqual(["one", "last", "none"]);
    expect(ranges.map(([start]) => start)).toEqual([0, ...ranges.map(([, end]) => end).slice(0, -1)]);
    expect(ranges.every(([start, end]) => start % 16 === 0 && end - start < 8 * KIB)).toBe(true);
    expect(ranges.at(-1)?.[1]).toBe(65 * KIB);
  });

  it("are refused where all places are taken", () => {
    const shared = new SharedReductions();
    const places: number[] = [];
    const give = () => {
      const job = (place: number) => {
        places.push(place);
        return JOB;
      };
      return shared.give(0, job, KIB, () => {});
    };
    expect(Array.from({ length: MAX_REDUCTIONS + 1 }, give)).toEqual([...Array(MAX_REDUCTIONS).fill(true), false]);
    expect(places).toEqual([...Array(MAX_REDUCTIONS).keys()]);
    expect(otherThread(shared).make()).toBe("last");
    shared.settle();
    expect([give(), give()]).toEqual([true, false]);
  });

  it("are settled together, also where what follows the first of them gives another", () => {
    const shared = new SharedReductions();
    const { make } = otherThread(shared);
    const ended: string[] = [];
    const give = (what: string, then?: () => void) =>
      shared.give(
        0,
        () => JOB,
        KIB,
        () => {
          ended.push(what);
          then?.();
        },
      );
    give("first", () => give("third"));
    give("second");
    expect([make(), make()]).toEqual(["last", "last"]);
    shared.settle();
    expect([ended, shared.hasBlocks]).toEqual([["first", "second"], true]);
    expect(make()).toBe("last");
    shared.settle();
    expect([ended.at(-1), shared.isEmpty]).toEqual(["third", true]);
  });

  it("are said not to be made where a thread has gone with a block of them", () => {
    const shared = new SharedReductions();
    const memory = newSharedMemory(32, 32);
    let free = 64;
    const reducer = new ArenaReducer(memory, 2, (bytes) => {
      const at = free;
      free += Math.ceil(bytes / 64) * 64;
      return at;
    });
    const at = [8, 16, 24].map((page) => page * PAGE_BYTES) as [number, number, number];
    const [first, second, sum] = at.map((from) => new Float32Array(memory.buffer, from, 2 ** 15)) as [
      Float32Array,
      Float32Array,
      Float32Array,
    ];
    first.fill(1);
    second.fill(2);
    const ended: boolean[] = [];
    const number = shared.learn(memory);
    const give = () =>
      shared.give(
        number,
        (place) => reducer.prepareBeside(place, "f32", "sum", at.slice(0, 2), at.slice(2), 2),
        sum.byteLength,
        (isMade) => void ended.push(isMade),
      );
    give();
    const gone = () => {
      throw new Error("the thread ends");
    };
    expect(() => makeBlock(shared.words, gone)).toThrow("the thread ends");
    shared.finish(() => true);
    shared.settle();
    expect(ended).toEqual([]);
    shared.settle(true);
    expect([ended, shared.isEmpty]).toEqual([[false], true]);
    // This thread made the other half, and makes all of the next.
    expect([sum[0], sum.at(-1)]).toEqual([0, 3]);
    give();
    expect([shared.help(), shared.help(), shared.help()]).toEqual([true, true, false]);
    shared.settle();
    expect(ended).toEqual([false, true]);
    expect(sum.every((value) => value === 3)).toBe(true);
    expect([shared.forget(memory), shared.forget(memory)]).toEqual([number, undefined]);
  });
});
