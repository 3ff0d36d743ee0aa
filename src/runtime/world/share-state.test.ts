import { afterAll, describe, expect, it } from "vitest";
import { RankFailedError } from "../../core/index.ts";
import { closeRankPool, runRanks } from "./run-ranks.ts";

afterAll(() => closeRankPool());
const module = new URL("../../../test/e2e/ranks/sharing.ts", import.meta.url);

describe("a world's state", () => {
  it("is that of the lowest rank that is furthest, in tensors and arrays", async () => {
    const got = await runRanks(4, { module }, { data: { progress: [3, 7, 7, 0], differs: false } });
    const shared = { progress: 7, from: 1, behind: [0, 3] };
    const [first] = got as unknown[][];
    expect(first).toEqual([shared, [], [2, 2, 2], [2, 2, 2, 2, 2]]);
    // Rank 2 was as far, and has the state of rank 1 all the same: all have the same bits.
    expect(got).toEqual(Array(4).fill(first));
  });

  it("must have the same parts everywhere: both sides are named", async () => {
    const running = runRanks(2, { module }, { data: { progress: [0, 1], differs: true } });
    const error = await running.catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(RankFailedError);
    expect(String((error as RankFailedError).cause)).toMatch(
      /the same names, dtypes and sizes\n {2}rank 0: moments bf16\[5\], weights Float64Array\[3\]\n {2}rank 1: moments bf16\[5\], weights Float64Array\[4\]/,
    );
  });
});
