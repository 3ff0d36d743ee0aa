/**
 * Plans by the hundred on real threads, through `comm.run`. Short here; on a quiet machine
 *
 *   PLAN_CAMPAIGN=full npx vitest run test/campaigns/plans-on-threads.test.ts
 *
 * takes every algorithm at 2 to 8 ranks and one of each collective at 16, all of MSCCL++'s own programs that are right,
 * and 2,000 mutants (`PLAN_MUTANTS=N` for another number) that the verifier rejects as a deadlock or a race.
 */
import { existsSync, readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { ALGORITHMS, type AlgorithmEntry } from "../../src/authoring/algorithms/index.ts";
import { compile } from "../../src/authoring/compiler/index.ts";
import { countOps, type ExecutionPlan, shapeOf } from "../../src/authoring/plan/index.ts";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { DTYPE_NAMES, DTYPES, type DType, type ReduceOp } from "../../src/core/index.ts";
import { libraryBases, mscclppBases } from "../oracle/bases.ts";
import { BREAKING, mutate } from "../oracle/mutate.ts";
import { elementsOf, type PlanCase, type PlanJob, plansOnThreads, wrongOf } from "../support/threads-plans.ts";

const isFull = process.env["PLAN_CAMPAIGN"] === "full";
const seed = Number(process.env["CHORALE_SEED"] ?? 1);

/** Operators of a type that an all-reduce takes; those of the collectives that reduce nothing are one. */
function opsOf(dtype: DType, plan: ExecutionPlan): readonly ReduceOp[] {
  if (plan.collective.reduceOp === undefined) return ["sum"];
  const bits = ["band", "bor", "bxor"] as const;
  return ["sum", "prod", "min", "max", "avg", ...(DTYPES[dtype].isFloat ? [] : bits)];
}

/** Odd, tiny and none, some more than a granule; every type and operator has its turn, by the place of the plan. */
function casesOf(plan: ExecutionPlan, at: number, most: number): PlanCase[] {
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

describe("the library's algorithms on threads", () => {
  const first = new Map<string, AlgorithmEntry>();
  for (const entry of ALGORITHMS) if (!first.has(entry.collective)) first.set(entry.collective, entry);
  const worlds: readonly (readonly [number, readonly AlgorithmEntry[]])[] = isFull
    ? [
        ...[2, 3, 4, 5, 6, 7, 8].map((numRanks) => [numRanks, ALGORITHMS] as const),
        [16, [...first.values()].filter((entry) => entry.legal(16))],
      ]
    : [[3, ALGORITHMS]];

  it.each(worlds)(
    "on %i ranks: every type and operator, odd sizes and places, poisoned outputs",
    {
      timeout: 900_000,
    },
    async (numRanks, entries) => {
      const jobs: PlanJob[] = [];
      for (const entry of entries.filter((one) => one.legal(numRanks))) {
        for (const inPlace of entry.inPlace ? [false, true] : [false]) {
          const plan = compile(entry.make({ numRanks, inPlace, root: numRanks - 1 }), { verify: false });
          // The proofs of the largest plans are the verifier's tests' business.
          const cases = casesOf(plan, jobs.length, isFull ? 96 : 2);
          jobs.push(countOps(plan) > 1500 ? { plan, cases } : provedJob(plan, cases));
        }
      }
      expect(await wrongAmong(jobs), `seed ${seed}`).toEqual([]);
    },
  );
});

const programs = new URL("../../../shared/conformance/mscclpp/programs.jsonl.gz", import.meta.url);
describe.skipIf(!existsSync(programs))("MSCCL++'s programs on threads (needs ../shared)", () => {
  it("give what their collectives mean", { timeout: 900_000 }, async () => {
    const lines = gunzipSync(readFileSync(programs)).toString().trim().split("\n");
    const right = mscclppBases(lines, isFull ? 100_000 : 40, isFull ? "all" : "one");
    const bases = right.filter(({ plan }) => plan.ranks.length <= 8);
    const byRanks = new Map<number, typeof bases>();
    for (const base of bases) {
      const numRanks = base.plan.ranks.length;
      byRanks.set(numRanks, [...(byRanks.get(numRanks) ?? []), base]);
    }
    const wrong: string[] = [];
    let numRun = 0;
    for (const [numRanks, list] of byRanks) {
      const jobs = list.slice(0, isFull ? list.length : 4).map(({ plan, sendTo }, i) => {
        const known = sendTo === undefined ? plan : { ...plan, collective: { ...plan.collective, sendTo } };
        return provedJob(known, mscclppCases(plan, i));
      });
      numRun += jobs.length;
      wrong.push(...(await wrongAmong(jobs)), ...(numRanks > 8 ? ["too many ranks"] : []));
    }
    expect(wrong.join("\n"), `seed ${seed}, ${numRun} plans`).toBe("");
    if (isFull) console.log(`${numRun} of ${lines.length} programs ran`);
    expect(numRun).toBeGreaterThan(isFull ? 100 : 5);
  });
});

/** A size that the plan is for. */
function mscclppCases(plan: ExecutionPlan, at: number): PlanCase[] {
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

describe("plans that the verifier rejects as a deadlock or a race", () => {
  const CODES = new Set(["deadlock", "race", "unmatched-wait", "surplus-signal", "barrier-mismatch"]);
  /** Long enough for a right plan of this size on a busy machine. */
  const DEADLINE_MS = 150;
  const wanted = Number(process.env["PLAN_MUTANTS"] ?? (isFull ? 2000 : 24));

  it(`end by their deadline when forced, and leave the world usable (${wanted} mutants)`, {
    timeout: 3_600_000,
  }, async () => {
    const bases = libraryBases(120, isFull ? 1 : 7).filter(({ plan }) => plan.ranks.length <= 4);
    const jobs = new Map<number, PlanJob[]>();
    let made = 0;
    for (let i = seed * 1_000_000; made < wanted; i++) {
      const base = bases[i % bases.length]!;
      const mutant = mutate(base.plan, BREAKING, i);
      if (mutant === undefined) continue;
      const { ok, findings } = verifyPlan(mutant.plan, { lint: false });
      const errors = findings.filter(({ severity }) => severity === "error");
      if (ok || !errors.some(({ code }) => code === "deadlock" || code === "race")) continue;
      if (!errors.every(({ code }) => CODES.has(code))) continue;
      // Whole chunks, for some plans wait for the packets of whole ones, and refuse other sizes.
      const { exact, chunksPerPart } = shapeOf(mutant.plan);
      const count = exact ? 96 : 8 * Math.max(1, chunksPerPart);
      const cases = [{ dtype: "i32", op: "sum", count, seed: i, shift: 0 } as const];
      const plan = { ...mutant.plan, name: `${base.name}, seed ${i}: ${mutant.what}` };
      const list = jobs.get(plan.ranks.length) ?? [];
      jobs.set(plan.ranks.length, [...list, { plan, timeoutMs: DEADLINE_MS, cases }]);
      made++;
    }
    const problems: string[] = [];
    let numHung = 0;
    for (const [numRanks, list] of jobs) {
      const { outcomes, grownBytes } = await plansOnThreads(numRanks, list);
      const expected = (numRanks * (numRanks + 1)) / 2;
      outcomes.forEach((ranks, j) => {
        const name = list[j]?.plan.name;
        if (ranks.some(({ error }) => /strand \d+ at/.test(error?.message ?? ""))) numHung++;
        for (const { error, after, ms } of ranks) {
          if (after !== expected) problems.push(`${name}: the world sums to ${after} after it`);
          if (ms > 40 * DEADLINE_MS) problems.push(`${name}: took ${ms} ms`);
          if (error !== undefined && error.code !== "TIMEOUT") problems.push(`${name}: ${error.code} ${error.message}`);
          // On a busy machine a rank may begin when the deadline of the others is over: no strand of theirs had begun.
          else if (error !== undefined && !/strand \d+ at|missing: ranks \[\d/.test(error.message))
            problems.push(`${name}: ${error.message}`);
        }
      });
      if (grownBytes > 0) problems.push(`${numRanks} ranks: memory in use grew by ${grownBytes} bytes`);
    }
    expect(problems.join("\n"), `seed ${seed}`).toBe("");
    expect(numHung).toBeGreaterThan(0);
  });
});
