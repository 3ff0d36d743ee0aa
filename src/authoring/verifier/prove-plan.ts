/** Proves a plan once for those who run it: what they ask (`proofOf`) is whether, and whether the ranks must meet at its end. */
import { deepFreeze } from "../../core/index.ts";
import { askOnce, type ExecutionPlan, hashPlan, noteProof, proofOf } from "../plan/index.ts";
import { renderFindings } from "./render-findings.ts";
import { type Verdict, type VerifyOptions, verifyPlan } from "./verify-plan.ts";

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
    noteRight(plan, hashPlan(plan));
  } else {
    const errors = verdict.findings.filter(({ severity }) => severity === "error");
    noteProof(plan, { ok: false, opinion: renderFindings(plan, errors, MAX_TOLD) });
  }
  return verdict;
}

/** Notes that a plan is right. What else is asked of it is found out when it is asked, by one rank of a world. */
function noteRight(plan: ExecutionPlan, hash: string): void {
  const lazily = (name: string, promises: NonNullable<VerifyOptions["promises"]>) => {
    let known: boolean | undefined;
    return () => {
      known ??= askOnce(`${hash} ${name}`, () => verifyPlan(plan, { lint: false, promises }).ok);
      return known;
    };
  };
  noteProof(plan, {
    ok: true,
    hash,
    endsAlone: lazily("ends alone", { outputAtRankEnd: true, reuseAtRankEnd: true }),
    relaunches: lazily("relaunches", { relaunch: true }),
  });
}

/**
 * As `provePlan`, but where the ranks of a world all compile the same plan, one of them proves it.
 * @returns `undefined` when a peer has proved it
 */
export function provePlanOnce(plan: ExecutionPlan): Verdict | undefined {
  let verdict: Verdict | undefined;
  const hash = hashPlan(plan);
  const isRight = askOnce(hash, () => {
    verdict = provePlan(plan);
    return verdict.ok;
  });
  // What is wrong, a peer's no does not say.
  if (verdict !== undefined || !isRight) return verdict ?? provePlan(plan);
  deepFreeze(plan);
  if (proofOf(plan) === undefined) noteRight(plan, hash);
  return undefined;
}
