/** The exhaustive campaign: the verifier against every interleaving, over all plans of a shape or each n-th of them. */
import { printPlan } from "../../src/authoring/plan/index.ts";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { exploreAll } from "./exhaustive.ts";
import {
  countPlans,
  isFirstOfItsKind,
  isUnbalanced,
  lettersOfPlan,
  planOfLetters,
  type Shape,
  smallPlan,
} from "./small-alphabet.ts";

/** One in so many of the plans that cannot be right, because something does not add up, is verified all the same. */
const UNBALANCED_SAMPLE = 61;

export interface SmallPlanRef {
  readonly numOps: number;
  readonly index: number;
  readonly why: string;
}
/** A plan in words, with what is wrong about it. */
export const describeSmallPlan = (shape: Shape, { numOps, index, why }: SmallPlanRef): string =>
  `plan ${index} of ${numOps} operations: ${why}\n${printPlan(smallPlan(shape, numOps, index))}`;

export interface ExhaustiveCounts {
  /** Plans, those that differ only in the names of strands and ranks included. */
  plans: number;
  /** Of each kind one. */
  kinds: number;
  /** Of these, what cannot be right because something does not add up. */
  unbalanced: number;
  /** Verified, and every interleaving looked at. */
  explored: number;
  passed: number;
  right: number;
  undecided: number;
  tooLarge: number;
  wrongPasses: SmallPlanRef[];
  /** Right plans that were refused. */
  falseAlarms: SmallPlanRef[];
}

export interface ExhaustiveOptions {
  readonly mostOps: number;
  readonly leastOps?: number;
  /** Each how many-th plan of so many operations. */
  readonly strideOf: (numOps: number) => number;
  readonly first?: number;
  readonly onProgress?: (counts: ExhaustiveCounts) => void;
}

export function compareAll(shape: Shape, options: ExhaustiveOptions): ExhaustiveCounts {
  const { mostOps, leastOps = 0, strideOf, first = 0, onProgress } = options;
  const counts: ExhaustiveCounts = {
    plans: 0,
    kinds: 0,
    unbalanced: 0,
    explored: 0,
    passed: 0,
    right: 0,
    undecided: 0,
    tooLarge: 0,
    wrongPasses: [],
    falseAlarms: [],
  };
  for (let numOps = leastOps; numOps <= mostOps; numOps++) {
    const total = countPlans(shape, numOps);
    for (let index = first % strideOf(numOps); index < total; index += strideOf(numOps)) {
      counts.plans++;
      if (counts.plans % 500_000 === 0) onProgress?.(counts);
      const letters = lettersOfPlan(shape, numOps, index);
      if (!isFirstOfItsKind(shape, letters)) continue;
      counts.kinds++;
      const ref = (why: string): SmallPlanRef => ({ numOps, index, why });
      if (isUnbalanced(shape, letters)) {
        counts.unbalanced++;
        if (
          counts.unbalanced % UNBALANCED_SAMPLE === 0 &&
          verifyPlan(planOfLetters(shape, letters), { lint: false }).ok
        )
          counts.wrongPasses.push(ref("something does not add up"));
        continue;
      }
      const plan = planOfLetters(shape, letters);
      const { ok, findings } = verifyPlan(plan, { lint: false });
      const outcome = exploreAll(plan);
      counts.explored++;
      if (ok) counts.passed++;
      if (outcome.kind === "too-large") counts.tooLarge++;
      if (outcome.kind === "right") counts.right++;
      if (outcome.kind === "right" && !ok) counts.falseAlarms.push(ref(findings[0]?.message ?? ""));
      if (findings.some((finding) => finding.code === "undecided")) counts.undecided++;
      if (outcome.kind === "wrong" && ok) counts.wrongPasses.push(ref(outcome.why));
    }
  }
  return counts;
}
