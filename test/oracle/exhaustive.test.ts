/**
 * All plans of a few operations from a small alphabet, the verifier against every interleaving. Of up to three operations all,
 * of four and five a sample here; `node test/campaigns/verifier.mjs --exhaustive 5` looks at all (7.7 million plans).
 */
import { describe, expect, it } from "vitest";
import { exploreAll } from "./exhaustive.ts";
import { compareAll, describeSmallPlan } from "./exhaustive-campaign.ts";
import { SHAPES, smallPlan } from "./small-alphabet.ts";

describe("every interleaving of small plans", () => {
  it.each(SHAPES)("of %s: nothing is passed that some run breaks", { timeout: 600_000 }, (shape) => {
    const strides = shape === "two ranks of two strands" ? { 3: 11, 4: 307, 5: 30_011 } : { 3: 5, 4: 149, 5: 10_007 };
    const counts = compareAll(shape, {
      mostOps: 5,
      strideOf: (numOps) => (strides as Record<number, number>)[numOps] ?? 1,
    });
    expect(counts.wrongPasses.map((ref) => describeSmallPlan(shape, ref))).toEqual([]);
    expect(counts.tooLarge).toBe(0);
    expect(counts.passed).toBeGreaterThan(counts.explored * 0.1);
    // Of right plans fewer than one in a hundred is refused.
    expect(counts.falseAlarms.length).toBeLessThanOrEqual(counts.right * 0.01);
  });

  it("would notice a verifier that passes everything", () => {
    const outcomes = Array.from({ length: 300 }, (_, index) => exploreAll(smallPlan("two ranks", 2, index)).kind);
    expect(outcomes.filter((kind) => kind === "wrong").length).toBeGreaterThan(100);
    expect(outcomes.filter((kind) => kind === "right").length).toBeGreaterThan(30);
  });
});
