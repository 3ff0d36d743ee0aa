import { describe, expect, it } from "vitest";
import { type EngineSends, type LaunchSends, turnOf } from "./engine-sends.ts";

/** Rank 0 sends four chunks to each of two peers, which are told of each by counters one after the other. */
const sends: EngineSends = {
  unitBytes: 100,
  sends: [[0, 1, 2, 3].flatMap((chunk) => [1, 2].map((peer) => ({ segment: 0, chunk, peer, toChunk: chunk }))), [], []],
  signals: [[0, 1, 2, 3].flatMap((counter) => [1, 2].map((peer) => ({ peer, counter }))), [], []],
};
const launch: LaunchSends = {
  input: 1_000_000,
  partBytes: 1000,
  chunkBytes: 256,
  scratch: 512,
  counters: 0,
  counterStride: 32,
  windows: [10_000, 20_000, 30_000],
  flags: 5000,
};

describe("a turn of copy engines", () => {
  it("is one copy to each peer of what is alike in all chunks, and one of the numbers", () => {
    const { data, flags } = turnOf(sends, 0, 1, launch);
    expect(data).toEqual(
      [20_000, 30_000].map((window) => ({
        to: window + 512 + 100,
        from: 1_000_100,
        bytes: 100,
        rows: 4,
        toPitch: 256,
        fromPitch: 256,
      })),
    );
    // Numbers of the second turn: eight for each, of which every other one is a peer's.
    expect(flags).toEqual(
      [0, 1].map((i) => ({
        to: 20_000 + 10_000 * i,
        from: 5000 + 32 + 4 * i,
        bytes: 4,
        rows: 4,
        toPitch: 32,
        fromPitch: 8,
      })),
    );
  });

  it("sends a short chunk by itself, and nothing of an empty one", () => {
    const [last] = turnOf(sends, 0, 2, launch).data.slice(1);
    // Of the fourth chunk 232 bytes are there: 32 in its third unit, where others have 56.
    expect(last).toMatchObject({ from: 1_000_000 + 3 * 256 + 200, bytes: 32, rows: 1 });
    const { data } = turnOf(sends, 0, 0, { ...launch, partBytes: 300 });
    expect(data.map(({ from, bytes, rows }) => [from, bytes, rows])).toEqual([
      [1_000_000, 100, 1],
      [1_000_256, 44, 1],
      [1_000_000, 100, 1],
      [1_000_256, 44, 1],
    ]);
    expect(turnOf(sends, 1, 0, launch)).toEqual({ data: [], flags: [] });
  });

  it("is one stretch where whole chunks are sent", () => {
    const { data } = turnOf({ ...sends, unitBytes: 1024 }, 0, 0, { ...launch, partBytes: 1024 });
    expect(data.map(({ bytes, rows }) => [bytes, rows])).toEqual([
      [1024, 1],
      [1024, 1],
    ]);
  });
});
