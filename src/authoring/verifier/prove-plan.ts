/** Proves a plan once for those who run it: what they ask (`proofOf`) is whether, and whether the ranks must meet at its end. */
import { deepFreeze } from "../../core/index.ts";
import { type ExecutionPlan, noteProof, proofOf } from "../plan/index.ts";
import { renderFindings } from "./render-findings.ts";
import { type Verdict, verifyPlan } from "./verify-plan.ts";

/** Findings that a noted opinion tells in full. */
const MAX_TOLD = 3;

/**
 * Verifies a plan and notes the result, by which communicators run it or refuse it. Freezes the plan: the proof is of what
 * it is now.
 * @example
 * import { allGather, compile, program } from "chorale/language";
 * import { provePlan } from "chorale/verifier";
 *
 * const direct = program({ name: "direct", collective: allGather(2), autoSync: "full" }, (p) => {
 *   for (const from of p.ranks) for (const to of p.ranks) p.copy(to.output.at(from.id), from.input.at(0));
 * });
 * provePlan(compile(direct, { verify: false })).ok // true
 */
export function provePlan(plan: ExecutionPlan): Verdict {
  const verdict = verifyPlan(plan, { lint: false });
  deepFreeze(plan);
  if (proofOf(plan) !== undefined) return verdict;
  if (verdict.ok) {
    let alone: boolean | undefined;
    const endsAlone = () => {
      alone ??= verifyPlan(plan, { lint: false, promises: { outputAtRankEnd: true, reuseAtRankEnd: true } }).ok;
      return alone;
    };
    let again: boolean | undefined;
    const relaunches = () => {
      again ??= verifyPlan(plan, { lint: false, promises: { relaunch: true } }).ok;
      return again;
    };
    noteProof(plan, { ok: true, endsAlone, relaunches });
  } else {
    const errors = verdict.findings.filter(({ severity }) => severity === "error");
    noteProof(plan, { ok: false, opinion: renderFindings(plan, errors, MAX_TOLD) });
  }
  return verdict;
}
