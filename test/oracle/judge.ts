/** Compares verifier and oracle on one plan. */
import type { ExecutionPlan } from "../../src/authoring/schedule/ir.ts";
import { type Finding, type Verdict, verifyPlan } from "../../src/authoring/schedule/verify/index.ts";
import { runOnce } from "./interpreter.ts";

export interface Judgement {
  readonly verdict: Verdict;
  /** The first run that failed, if one did: what went wrong, and its seed. */
  readonly failure: { readonly what: string; readonly seed: number } | undefined;
  readonly runs: number;
}

/** Operations that a finding names: to be held back by the oracle's scheduler, one side or the other. */
function sides(findings: readonly Finding[]): string[][] {
  const result: string[][] = [];
  for (const finding of findings.slice(0, 4)) {
    const own = `${finding.rank}:${finding.strand}:${finding.op}`;
    result.push([own], ...(finding.related ?? []).slice(0, 2).map((ref) => [`${ref.rank}:${ref.strand}:${ref.op}`]));
  }
  return result;
}

/** Errors that say the plan does not hold together: the oracle cannot run it. */
export const isShapeless = (verdict: Verdict): boolean =>
  verdict.findings.some(
    (f) =>
      f.code === "malformed" ||
      f.code === "wrong-peer" ||
      (f.code === "packet-mix" && f.severity === "error" && f.chunk === undefined),
  );

/** Verifies, then runs until a run fails: `runs` random ones, and for findings some that are steered towards them. */
export function judge(plan: ExecutionPlan, runs: number, seed: number, steered = 12): Judgement {
  const verdict = verifyPlan(plan, { lint: false });
  if (isShapeless(verdict)) return { verdict, failure: undefined, runs: 0 };
  let count = 0;
  const attempt = (s: number, holdBack: readonly string[]) => {
    count++;
    return runOnce(plan, { seed: s, unitsPerChunk: 1 + (s % 2), holdBack });
  };
  for (let i = 0; i < runs; i++) {
    const what = attempt(seed + i, []);
    if (what !== undefined) return { verdict, failure: { what, seed: seed + i }, runs: count };
  }
  if (!verdict.ok) {
    for (const hold of sides(verdict.findings.filter((f) => f.severity === "error"))) {
      for (let i = 0; i < steered; i++) {
        const what = attempt(seed + 1000 + i, hold);
        if (what !== undefined) return { verdict, failure: { what, seed: seed + 1000 + i }, runs: count };
      }
    }
  }
  return { verdict, failure: undefined, runs: count };
}
