/**
 * Plans by the hundred on real threads, for tests and for `test/campaigns/plans.mjs`: the library's algorithms, MSCCL++'s own
 * programs, and mutants that the verifier rejects. Each gives what went wrong, in words.
 */
import { ALGORITHMS, type AlgorithmEntry } from "../../src/authoring/algorithms/index.ts";
import { compile } from "../../src/authoring/compiler/index.ts";
import { countOps, type ExecutionPlan, shapeOf } from "../../src/authoring/plan/index.ts";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { DTYPE_NAMES, DTYPES, type DType, type ReduceOp } from "../../src/core/index.ts";
import { libraryBases, mscclppBases } from "../oracle/bases.ts";
import { BREAKING, mutate } from "../oracle/mutate.ts";

export { randomPlansOnCpu } from "./random-plans-on-cpu.ts";

import { elementsOf, type PlanCase, type PlanJob, plansOnThreads, wrongOf } from "./threads-plans.ts";

/** Operators of a type that an all-reduce takes; those of the collectives that reduce nothing are one. */
function opsOf(dtype: DType, plan: ExecutionPlan): readonly ReduceOp[] {
  if (plan.collective.reduceOp === undefined) return ["sum"];
  const bits = ["band", "bor", "bxor"] as const;
  return ["sum", "prod", "min", "max", "avg", ...(DTYPES[dtype].isFloat ? [] : bits)];
}

/** Odd, tiny and none, some more than a granule; every type and operator has its turn, by the place of the plan. */
function casesOf(plan: ExecutionPlan, at: number, most: number, seed: number): PlanCase[] {
  const counts = [37, 1, 0, 4096 + 5, 64];
  const all = DTYPE_NAMES.flatMap((dtype) => opsOf(dtype, plan).map((op) => ({ dtype, op })));
  return Array.from({ length: Math.min(most, all.length) }, (_, i) => {
    const { dtype, op } = all[(at * most + i) % all.length] as (typeof all)[number];
    return { dtype, op, count: counts[(at + i) % counts.length] as number, seed: seed + i, shift: (at + i) % 4 };
  });
}

/** A job for a plan that is right, and may run as such. */
function provedJob(plan: ExecutionPlan, cases: readonly PlanCase[]): PlanJob {
  const promises = { outputAtRankEnd: true, reuseAtRankEnd: true };
  return { plan, proof: { endsAlone: verifyPlan(plan, { lint: false, promises }).ok }, cases };
}

async function wrongAmong(jobs: readonly PlanJob[]): Promise<string[]> {
  const numRanks = jobs[0]?.plan.ranks.length ?? 0;
  const { outcomes } = await plansOnThreads(numRanks, jobs, numRanks % 2 === 0 ? "wait" : "await");
  return jobs.flatMap((job, i) => wrongOf(job, outcomes[i] ?? []) ?? []);
}

/** The first algorithm of each collective. */
export function oneOfEach(): readonly AlgorithmEntry[] {
  const first = new Map<string, AlgorithmEntry>();
  for (const entry of ALGORITHMS) if (!first.has(entry.collective)) first.set(entry.collective, entry);
  return [...first.values()];
}

/** Runs the library's algorithms, in and out of place, at most `most` cases of each: types, operators, odd sizes and places. */
export async function libraryOnThreads(
  numRanks: number,
  { entries = ALGORITHMS, most, seed }: { entries?: readonly AlgorithmEntry[]; most: number; seed: number },
): Promise<{ readonly wrong: readonly string[]; readonly numRun: number }> {
  const jobs: PlanJob[] = [];
  for (const entry of entries.filter((one) => one.legal(numRanks))) {
    for (const inPlace of entry.inPlace ? [false, true] : [false]) {
      const plan = compile(entry.make({ numRanks, inPlace, root: numRanks - 1 }), { verify: false });
      // The proofs of the largest plans are the verifier's tests' business.
      const cases = casesOf(plan, jobs.length, most, seed);
      jobs.push(countOps(plan) > 1500 ? { plan, cases } : provedJob(plan, cases));
    }
  }
  return { wrong: await wrongAmong(jobs), numRun: jobs.length };
}

/**
 * Runs those of MSCCL++'s programs that are right, of at most 8 ranks.
 * @param lines of programs.jsonl
 * @param isFull all of them, not a few of each number of ranks
 */
export async function programsOnThreads(
  lines: readonly string[],
  { isFull, seed }: { isFull: boolean; seed: number },
): Promise<{ readonly wrong: readonly string[]; readonly numRun: number }> {
  const right = mscclppBases(lines, isFull ? 100_000 : 40, isFull ? "all" : "one");
  const bases = right.filter(({ plan }) => plan.ranks.length <= 8);
  const byRanks = new Map<number, typeof bases>();
  for (const base of bases) {
    const numRanks = base.plan.ranks.length;
    byRanks.set(numRanks, [...(byRanks.get(numRanks) ?? []), base]);
  }
  const wrong: string[] = [];
  let numRun = 0;
  for (const list of byRanks.values()) {
    const jobs = list.slice(0, isFull ? list.length : 4).map(({ plan, sendTo }, i) => {
      const known = sendTo === undefined ? plan : { ...plan, collective: { ...plan.collective, sendTo } };
      return provedJob(known, mscclppCases(plan, i, seed));
    });
    numRun += jobs.length;
    wrong.push(...(await wrongAmong(jobs)));
  }
  return { wrong, numRun };
}

/** A size that the plan is for. */
function mscclppCases(plan: ExecutionPlan, at: number, seed: number): PlanCase[] {
  const { minMessageSizeBytes: least, maxMessageSizeBytes: most } = plan.options;
  const isFitting = (count: number) =>
    plan.ranks.every(({ rank }) => {
      const { input, output } = elementsOf(plan, rank, count);
      const bytes = 4 * Math.max(input, output);
      return bytes === 0 || (bytes >= least && bytes <= most);
    });
  const count = [96 * (1 + (at % 3)), 3072, 16, 4, 1 << 16, 1 << 20].find(isFitting) ?? 4;
  return [{ dtype: "i32", op: plan.collective.reduceOp ?? "sum", count, seed, shift: 0 }];
}

const CODES = new Set(["deadlock", "race", "unmatched-wait", "surplus-signal", "barrier-mismatch"]);
/** Long enough for a right plan of this size on a busy machine. */
const DEADLINE_MS = 150;

/**
 * Runs mutants that the verifier rejects as a deadlock or a race, with `force`: they end by their deadline, and leave the world
 * usable.
 * @param every only each n-th of the plans that mutants are made of
 */
export async function mutantsOnThreads(
  wanted: number,
  { every, seed }: { every: number; seed: number },
): Promise<{ readonly wrong: readonly string[]; readonly numHung: number }> {
  const bases = libraryBases(120, every).filter(({ plan }) => plan.ranks.length <= 4);
  const jobs = new Map<number, PlanJob[]>();
  let made = 0;
  let hasDeadlock = false;
  for (let i = seed * 1_000_000; made < wanted; i++) {
    const base = bases[i % bases.length]!;
    const mutant = mutate(base.plan, BREAKING, i);
    if (mutant === undefined) continue;
    const { ok, findings } = verifyPlan(mutant.plan, { lint: false });
    const errors = findings.filter(({ severity }) => severity === "error");
    if (ok || !errors.some(({ code }) => code === "deadlock" || code === "race")) continue;
    if (!errors.every(({ code }) => CODES.has(code))) continue;
    // Races may end: one of a few is to hang.
    const isDeadlock = errors.some(({ code }) => code === "deadlock");
    if (made === wanted - 1 && !hasDeadlock && !isDeadlock) continue;
    hasDeadlock ||= isDeadlock;
    // Whole chunks, for some plans wait for the packets of whole ones, and refuse other sizes.
    const { exact, chunksPerPart } = shapeOf(mutant.plan);
    const count = exact ? 96 : 8 * Math.max(1, chunksPerPart);
    const cases = [{ dtype: "i32", op: "sum", count, seed: i, shift: 0 } as const];
    const plan = { ...mutant.plan, name: `${base.name}, seed ${i}: ${mutant.what}` };
    const list = jobs.get(plan.ranks.length) ?? [];
    jobs.set(plan.ranks.length, [...list, { plan, timeoutMs: DEADLINE_MS, cases }]);
    made++;
  }
  const wrong: string[] = [];
  let numHung = 0;
  for (const [numRanks, list] of jobs) {
    const { outcomes, grownBytes } = await plansOnThreads(numRanks, list);
    const expected = (numRanks * (numRanks + 1)) / 2;
    outcomes.forEach((ranks, j) => {
      const name = list[j]?.plan.name;
      if (ranks.some(({ error }) => /strand \d+ at/.test(error?.message ?? ""))) numHung++;
      for (const { error, after, ms } of ranks) {
        if (after !== expected) wrong.push(`${name}: the world sums to ${after} after it`);
        if (ms > 40 * DEADLINE_MS) wrong.push(`${name}: took ${ms} ms`);
        if (error !== undefined && error.code !== "TIMEOUT") wrong.push(`${name}: ${error.code} ${error.message}`);
        // On a busy machine a rank may begin when the deadline of the others is over: no strand of theirs had begun.
        else if (error !== undefined && !/strand \d+ at|missing: ranks \[\d/.test(error.message))
          wrong.push(`${name}: ${error.message}`);
      }
    });
    if (grownBytes > 0) wrong.push(`${numRanks} ranks: memory in use grew by ${grownBytes} bytes`);
  }
  return { wrong, numHung };
}
