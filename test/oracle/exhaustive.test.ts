/**
 * All plans of a few operations from a small alphabet, the verifier against every interleaving. Of up to two operations all,
 * of three and four a sample here; EXHAUSTIVE_OPS=5 EXHAUSTIVE_STRIDE=1 for all of up to five (1.3 million plans, hours).
 */
import { describe, expect, it } from "vitest";
import { printPlan } from "../../src/authoring/plan/index.ts";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { exploreAll } from "./exhaustive.ts";
import { countPlans, SHAPES, type Shape, smallPlan } from "./small-alphabet.ts";

const MOST_OPS = Number(process.env["EXHAUSTIVE_OPS"] ?? 4);
/** Each how many-th plan of three and more operations; odd to the alphabet's size, so that all letters come. */
const STRIDE = Number(process.env["EXHAUSTIVE_STRIDE"] ?? 0);
const FIRST = Number(process.env["EXHAUSTIVE_FIRST"] ?? 0);
const strideOf = (numOps: number) => (STRIDE > 0 ? STRIDE : ({ 3: 17, 4: 499 }[numOps] ?? (numOps > 4 ? 100_003 : 1)));

interface Counts {
  plans: number;
  passed: number;
  right: number;
  undecided: number;
  falseAlarms: number;
  tooLarge: number;
  wrongPasses: string[];
}

function compare(shape: Shape, counts: Counts): void {
  for (let numOps = 0; numOps <= MOST_OPS; numOps++) {
    const stride = numOps < 3 ? 1 : strideOf(numOps);
    for (let index = numOps < 3 ? 0 : FIRST; index < countPlans(shape, numOps); index += stride) {
      const plan = smallPlan(shape, numOps, index);
      const { ok, findings } = verifyPlan(plan, { lint: false });
      const outcome = exploreAll(plan);
      counts.plans++;
      if (ok) counts.passed++;
      if (outcome.kind === "too-large") counts.tooLarge++;
      if (outcome.kind === "right") counts.right++;
      if (outcome.kind === "right" && !ok) counts.falseAlarms++;
      if (findings.some((finding) => finding.code === "undecided")) counts.undecided++;
      if (outcome.kind === "wrong" && ok)
        counts.wrongPasses.push(`plan ${index} of ${numOps} operations: ${outcome.why}\n${printPlan(plan)}`);
    }
  }
}

describe("every interleaving of small plans", () => {
  it.each(SHAPES)("of %s: nothing is passed that some run breaks", { timeout: 24 * 3_600_000 }, (shape) => {
    const counts: Counts = {
      plans: 0,
      passed: 0,
      right: 0,
      undecided: 0,
      falseAlarms: 0,
      tooLarge: 0,
      wrongPasses: [],
    };
    compare(shape, counts);
    if (STRIDE > 0) console.log(shape, { ...counts, wrongPasses: counts.wrongPasses.length });
    expect(counts.wrongPasses).toEqual([]);
    expect(counts.tooLarge).toBe(0);
    expect(counts.passed).toBeGreaterThan(counts.plans * 0.1);
    // Of right plans fewer than one in a hundred is refused.
    expect(counts.falseAlarms).toBeLessThanOrEqual(counts.right * 0.01);
  });

  it("would notice a verifier that passes everything", () => {
    const outcomes = Array.from({ length: 300 }, (_, index) => exploreAll(smallPlan("two ranks", 2, index)).kind);
    expect(outcomes.filter((kind) => kind === "wrong").length).toBeGreaterThan(100);
    expect(outcomes.filter((kind) => kind === "right").length).toBeGreaterThan(30);
  });
});
