/** The campaign of meaningless plans: what the verifier passes must end, and end alike, in every run of the oracle. */
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { searchForBreak } from "./adversary.ts";
import { runAndLook } from "./interpreter.ts";
import { CAMPAIGN_ORDER_STEPS, isShapeless } from "./judge.ts";
import { randomPlan } from "./random-plans.ts";
import { wildPlan } from "./wild-plans.ts";

export interface MeaninglessOptions {
  readonly plans: number;
  readonly seed: number;
  /** Search for schedules that break what was passed, instead of random ones. */
  readonly search: boolean;
  /** Runs of each plan that was passed. 24 by default; 60 in a search. */
  readonly runs?: number;
  readonly onProgress?: (counts: object) => void;
}
export interface MeaninglessResult {
  plans: number;
  passed: number;
  undecided: number;
  launchedAgain: number;
  runs: number;
  broken: string[];
}

/** Units to the chunk: a unit may be larger than a chunk, and need not divide it. */
const UNITS = [1, 2, 0.5, 3, 1.5, 5] as const;

export function meaninglessPlans(options: MeaninglessOptions): MeaninglessResult {
  const { search, runs = search ? 60 : 24, onProgress } = options;
  const result: MeaninglessResult = { plans: 0, passed: 0, undecided: 0, launchedAgain: 0, runs: 0, broken: [] };
  for (let i = 0; i < options.plans; i++) {
    const seed = options.seed * 1_000_003 + i;
    const wild = i % 4 !== 0;
    const launches = i % 5 === 2 ? 3 : 1;
    const plan = (wild ? wildPlan : randomPlan)(seed);
    const name = `${wild ? "wild" : "random"} plan ${seed}, ${launches} launches`;
    const verdict = verifyPlan(plan, {
      lint: false,
      promises: { relaunch: launches > 1 },
      maxOrderSteps: CAMPAIGN_ORDER_STEPS,
    });
    if (isShapeless(verdict)) throw new Error(`${name}: ${verdict.findings[0]?.message}`);
    result.plans++;
    if (verdict.findings.some(({ code }) => code === "undecided")) result.undecided++;
    if (result.plans % 5000 === 0) onProgress?.({ ...result, broken: result.broken.length });
    if (!verdict.ok) continue;
    result.passed++;
    if (launches > 1) result.launchedAgain++;
    result.runs += runs;
    const loops = plan.ranks.some(({ strands }) => strands.some(({ ops }) => ops.some((op) => op.kind === "pipeline")));
    const sizes = loops ? UNITS : [1];
    const problem = search ? searched(plan, seed, sizes, launches, runs) : drawn(plan, seed, sizes, launches, runs);
    if (problem !== undefined) result.broken.push(`${name}: ${problem}`);
  }
  return result;
}

function searched(
  plan: Parameters<typeof searchForBreak>[0],
  seed: number,
  sizes: readonly number[],
  launches: number,
  tries: number,
): string | undefined {
  for (const unitsPerChunk of sizes) {
    const share = Math.max(8, Math.ceil(tries / sizes.length));
    const problem = searchForBreak(plan, {
      seed,
      unitsPerChunk,
      launches,
      tries: share,
      starts: Math.ceil(share / 15),
    });
    if (problem !== undefined) return `${unitsPerChunk} units to the chunk: ${problem}`;
  }
  return undefined;
}

function drawn(
  plan: Parameters<typeof searchForBreak>[0],
  seed: number,
  sizes: readonly number[],
  launches: number,
  runs: number,
): string | undefined {
  const contents = new Map<number, string>();
  for (let i = 0; i < runs; i++) {
    const unitsPerChunk = sizes[i % sizes.length]!;
    const run = runAndLook(plan, { seed: seed + i * 7919, unitsPerChunk, launches, contents: seed });
    if (run.outcome !== undefined) return `${unitsPerChunk} units to the chunk, run ${i}: ${run.outcome}`;
    const before = contents.get(unitsPerChunk) ?? run.contents;
    contents.set(unitsPerChunk, before);
    if (before !== run.contents)
      return `${unitsPerChunk} units to the chunk, run ${i}: what it leaves depends on timing`;
  }
  return undefined;
}
