/**
 * The mutation campaign: from every algorithm of the library, at several sizes, mutants that the verifier and the oracle
 * judge independently. What must not be: a mutant that the verifier passes and a run of the oracle breaks; an equivalent
 * change that the verifier flags. What is counted: flagged mutants with a failing run.
 */
import { ALGORITHMS } from "../../src/authoring/algorithms/index.ts";
import { compile } from "../../src/authoring/language/index.ts";
import { countOps, type ExecutionPlan } from "../../src/authoring/schedule/ir.ts";
import { renderFindings, verifyPlan } from "../../src/authoring/schedule/verify/index.ts";
import { isShapeless, judge } from "./judge.ts";
import { BREAKING, EQUIVALENT, mutate } from "./mutate.ts";

export interface CampaignOptions {
  readonly mutants: number;
  readonly seed: number;
  /** Random runs of each mutant. */
  readonly runs: number;
  /** Plans with more operations are left out: runs would take too long. */
  readonly maxOps: number;
  readonly onProgress?: (line: string) => void;
}

export interface CampaignResult {
  readonly bases: number;
  readonly mutants: number;
  readonly passed: number;
  readonly flagged: number;
  readonly confirmed: number;
  /** Mutants that do not hold together (an index out of range): flagged without running. */
  readonly shapeless: number;
  readonly runs: number;
  readonly missed: readonly string[];
  readonly equivalents: number;
  readonly falseAlarms: readonly string[];
  /** Flagged mutants without a failing run, by mutator and finding, with one example each. */
  readonly unconfirmed: ReadonlyMap<string, { count: number; readonly example: string }>;
}

/** Every algorithm at 2 to 5 ranks, in and out of place, with one and two instances, over memory and port channels. */
export function campaignBases(maxOps: number): { readonly name: string; readonly plan: ExecutionPlan }[] {
  const bases: { name: string; plan: ExecutionPlan }[] = [];
  for (const algorithm of ALGORITHMS) {
    for (const numRanks of [2, 3, 4, 5]) {
      if (!algorithm.legal(numRanks)) continue;
      for (const inPlace of algorithm.inPlace ? [false, true] : [false]) {
        for (const instances of numRanks <= 3 ? [1, 2] : [1]) {
          for (const channel of ["memory", "port"] as const) {
            if (channel === "port" && (numRanks > 3 || algorithm.needsSwitch)) continue;
            let plan: ExecutionPlan;
            try {
              plan = compile(algorithm.make({ numRanks, inPlace, instances, channel }));
            } catch {
              continue;
            }
            if (countOps(plan) > maxOps) continue;
            bases.push({
              name: `${algorithm.name} n=${numRanks}${inPlace ? " in place" : ""} x${instances} ${channel}`,
              plan,
            });
          }
        }
      }
    }
  }
  return bases;
}

export function campaign(options: CampaignOptions): CampaignResult {
  const bases = campaignBases(options.maxOps);
  const kinds = Object.keys(BREAKING);
  const missed: string[] = [];
  const falseAlarms: string[] = [];
  const unconfirmed = new Map<string, { count: number; example: string }>();
  let mutants = 0;
  let passed = 0;
  let flagged = 0;
  let confirmed = 0;
  let shapeless = 0;
  let equivalents = 0;
  let runs = 0;
  for (let i = 0; mutants < options.mutants && i < options.mutants * 20; i++) {
    const seed = options.seed + i;
    const base = bases[i % bases.length]!;
    const same = mutate(base.plan, EQUIVALENT, seed);
    if (same !== undefined) {
      equivalents++;
      const verdict = verifyPlan(same.plan, { lint: false });
      if (!verdict.ok) falseAlarms.push(`${base.name}: ${same.what}: ${verdict.findings[0]?.message}`);
    }
    // Every mutator gets its turn; those that find nothing to change are skipped.
    const mutant = mutate(base.plan, BREAKING, seed, kinds[Math.floor(i / bases.length) % kinds.length]);
    if (mutant === undefined) continue;
    mutants++;
    const { verdict, failure, runs: count } = judge(mutant.plan, options.runs, seed);
    runs += count;
    if (isShapeless(verdict)) shapeless++;
    else if (verdict.ok) {
      passed++;
      if (failure !== undefined) missed.push(`${base.name}: ${mutant.what}: ${failure.what} (seed ${failure.seed})`);
    } else {
      flagged++;
      if (failure !== undefined) confirmed++;
      else {
        const errors = verdict.findings.filter((finding) => finding.severity === "error");
        const key = `${mutant.kind}: ${[...new Set(errors.map((finding) => finding.code))].sort().join(" + ")}`;
        const known = unconfirmed.get(key);
        if (known !== undefined) known.count++;
        else
          unconfirmed.set(key, {
            count: 1,
            example: `${base.name} (seed ${seed}): ${mutant.what}\n${renderFindings(mutant.plan, errors.slice(0, 1))}`,
          });
      }
    }
    if (mutants % 1000 === 0) {
      options.onProgress?.(
        `${mutants} mutants: ${passed} passed, ${flagged} flagged, ${confirmed} confirmed, ${missed.length} missed`,
      );
    }
  }
  return {
    bases: bases.length,
    mutants,
    passed,
    flagged,
    confirmed,
    shapeless,
    runs,
    missed,
    equivalents,
    falseAlarms,
    unconfirmed,
  };
}
