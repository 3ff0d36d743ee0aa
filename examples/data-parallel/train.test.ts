import { RankFailedError } from "chorale";
import { closeRankPool, runRanks } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import { spread } from "../../test/support/spread.ts";
import { type TrainOptions, type TrainResult, train } from "./train.ts";

/** Eight ranks on two busy cores take their time. */
const PATIENT = { timeout: 120_000 };

const module = new URL("./train.ts", import.meta.url);
const onRanks = (ranks: number, data: TrainOptions) => runRanks<TrainResult, TrainOptions>(ranks, { module }, { data });
afterAll(closeRankPool);

/**
 * Stated tolerance on a loss of about 1: ranks add up f32 gradients in another order than one rank does, and 100 steps
 * carry each rounding (6e-8) on.
 */
const TOLERANCE = 1e-4;

describe("training on several ranks", PATIENT, () => {
  it.each([2, ...spread([1, 3, 4, 8], 2)])("has the losses of one rank: %i ranks", async (ranks) => {
    const options = { steps: 100 };
    const alone = await train(undefined, options);
    const results = await onRanks(ranks, options);
    expect(alone.losses[0]! - alone.losses[99]!).toBeGreaterThan(0.5);
    for (const { losses, parameters, accuracy } of results) {
      expect(Math.max(...losses.map((loss, i) => Math.abs(loss - alone.losses[i]!)))).toBeLessThan(TOLERANCE);
      // Replicas never drift apart: the same bits everywhere.
      expect(parameters).toEqual(results[0]!.parameters);
      expect(accuracy).toBe(results[0]!.accuracy);
    }
  });

  it("coalesces gradients, and any bucket size gives the same losses", async () => {
    // 2-32-32-3 has 1251 parameters in three layers; the loss is one element more.
    for (const [bucketFloats, numBuckets] of [
      [1, 3],
      [512, 2],
      [1e6, 1],
    ] as const) {
      const [result] = await onRanks(2, { steps: 5, bucketFloats });
      expect(result?.numBuckets).toBe(numBuckets);
      const alone = await train(undefined, { steps: 5 });
      for (const [i, loss] of alone.losses.entries()) expect(result?.losses[i]).toBeCloseTo(loss, 5);
    }
  });

  it("refuses a batch with no sample for some rank", async () => {
    const failure = await onRanks(3, { batch: 2 }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RankFailedError);
    expect(String((failure as Error).message)).toMatch(
      /batch is 2; expected an integer from the number of ranks \(3\)/,
    );
  });
});
