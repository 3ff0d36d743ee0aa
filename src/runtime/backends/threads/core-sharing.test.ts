import { describe, expect, it } from "vitest";
import type { ThreadPlace } from "../../../foreign/native/internal.ts";
import { CoreSharing } from "./core-sharing.ts";

/** Ranks on a machine of `allowed` CPUs, each on the one that `on` says. */
function machine(on: number[], allowed: readonly number[]) {
  const words = new Int32Array(1 << 16);
  const moves: string[] = [];
  const placeOf = (rank: number): ThreadPlace => ({
    current: () => on[rank] as number,
    allowed: () => allowed,
    moveTo: (cpu) => {
      moves.push(`${rank}: ${on[rank]} -> ${cpu}`);
      on[rank] = cpu;
    },
  });
  const ranks = on.map((_, rank) => new CoreSharing(words, rank, on.length, () => placeOf(rank)));
  return { ranks, moves, words };
}

const noteAll = (ranks: readonly CoreSharing[], now: number) => {
  for (const rank of ranks) rank.note(now);
};

describe("ranks that share a core", () => {
  it("go apart, the first one staying", () => {
    const { ranks, moves } = machine([1, 1], [0, 1]);
    noteAll(ranks, 1000);
    noteAll(ranks, 1001);
    expect(moves).toEqual(["1: 1 -> 0"]);
  });

  it("go to CPUs of their own, of those that they may use", () => {
    const on = [5, 5, 5, 7];
    const { ranks } = machine(on, [4, 5, 6, 7]);
    for (let now = 0; now < 1000; now += 10) noteAll(ranks, now);
    expect([...on].sort()).toEqual([4, 5, 6, 7]);
    expect(on[0]).toBe(5);
    expect(on[3]).toBe(7);
  });

  it("stay where nobody has said the same CPU lately, or there is no other", () => {
    const apart = machine([0, 1], [0, 1]);
    noteAll(apart.ranks, 1000);
    const old = machine([1, 1], [0, 1]);
    old.ranks[0]?.note(1000);
    old.ranks[1]?.note(1051);
    const alone = machine([3, 3], [3]);
    noteAll(alone.ranks, 1000);
    expect([apart.moves, old.moves, alone.moves]).toEqual([[], [], []]);
  });

  it("go less and less often while that does not help, and at once after it did", () => {
    const on = [1, 1];
    const { ranks, moves } = machine(on, [0, 1]);
    const movedAt: number[] = [];
    for (let now = 0; now < 12_000; now++) {
      // The system puts them together again each time.
      on.fill(1);
      const before = moves.length;
      noteAll(ranks, now);
      if (moves.length > before) movedAt.push(now);
    }
    const pauses = movedAt.slice(1).map((at, i) => at - (movedAt[i] as number));
    expect(pauses).toEqual([40, 80, 160, 320, 640, 1280, 2000, 2000, 2000, 2000]);
    ranks[1]?.clear();
    noteAll(ranks, (movedAt.at(-1) as number) + 20);
    expect(moves.length).toBe(movedAt.length + 1);
  });

  it("knows times beyond 2^31 ms", () => {
    const { ranks, moves } = machine([0, 0], [0, 1]);
    ranks[0]?.note(2 ** 31 - 10);
    ranks[1]?.note(2 ** 31 + 10);
    expect(moves).toEqual(["1: 0 -> 1"]);
  });

  it("stay without a way to move", () => {
    const words = new Int32Array(1 << 16);
    let asked = 0;
    const none = new CoreSharing(words, 0, 2, () => {
      asked++;
      return undefined;
    });
    none.note(1);
    none.note(2);
    expect([asked, words.some((word) => word !== 0)]).toEqual([1, false]);
  });
});
