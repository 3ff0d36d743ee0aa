/** Compares verifier and oracle on one plan. */
import type { ExecutionPlan } from "../../src/authoring/plan/execution-plan.ts";
import { type Finding, type Verdict, verifyPlan } from "../../src/authoring/verifier/index.ts";
import { runAndLook } from "./interpreter.ts";

export interface Judgement {
  readonly verdict: Verdict;
  /** The first run that failed, if one did: what went wrong, and its seed. */
  readonly failure: { readonly what: string; readonly seed: number } | undefined;
  readonly runs: number;
}

export interface JudgeOptions {
  readonly runs: number;
  readonly seed: number;
  /** Runs steered towards each side of each finding. 12 by default. */
  readonly steered?: number;
  /** Launches in a row; with more than one, the verifier is asked for that promise. 1 by default. */
  readonly launches?: number;
  /** Whom each rank sends to, for a send/recv whose file does not say: only the oracle is told. */
  readonly sendTo?: readonly (number | null)[] | undefined;
}

/**
 * Budget for orders in campaigns. What takes more nearly always stays undecided with any budget, and two plans of a thousand
 * would take most of the time.
 */
export const CAMPAIGN_ORDER_STEPS = 40_000;

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
export function judge(plan: ExecutionPlan, options: JudgeOptions): Judgement {
  const { runs, seed, steered = 12, launches = 1, sendTo } = options;
  const verdict = verifyPlan(plan, {
    lint: false,
    promises: { relaunch: launches > 1 },
    maxOrderSteps: CAMPAIGN_ORDER_STEPS,
  });
  if (isShapeless(verdict)) return { verdict, failure: undefined, runs: 0 };
  const told = sendTo === undefined ? plan : { ...plan, collective: { ...plan.collective, sendTo } };
  // Where the collective says nothing, a flagged plan has to end differently in two runs.
  const open = !verdict.ok && plan.collective.operation === "test";
  const contents = new Map<number, string>();
  let count = 0;
  const attempt = (s: number, holdBack: readonly string[]) => {
    count++;
    const unitsPerChunk = 1 + (s % 2);
    const fixed = open ? { contents: seed } : {};
    const run = runAndLook(told, { seed: s, unitsPerChunk, holdBack, launches, ...fixed });
    if (!open || run.outcome !== undefined) return run.outcome;
    const before = contents.get(unitsPerChunk);
    if (before !== undefined && before !== run.contents) return "what the buffers hold at the end depends on timing";
    contents.set(unitsPerChunk, run.contents);
    return undefined;
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

/** Whom each rank of a right send/recv sends to, as a run of it shows; undefined where no rank's input arrives whole. */
export function sendersOf(plan: ExecutionPlan): readonly (number | null)[] | undefined {
  const n = plan.ranks.length;
  const works = (sendTo: readonly number[]) =>
    runAndLook({ ...plan, collective: { ...plan.collective, sendTo } }, { seed: 1 }).outcome === undefined;
  const shifts = Array.from({ length: n }, (_, shift) =>
    Array.from({ length: n }, (_, rank) => (rank + 1 + shift) % n),
  );
  return shifts.find(works);
}
