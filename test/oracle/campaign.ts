/**
 * The mutation campaign: from every algorithm of the library, at several sizes, and from other plans that are given,
 * mutants that the verifier and the oracle judge independently. What must not be: a mutant that the verifier passes and
 * a run of the oracle breaks; an equivalent change that the verifier flags. What is counted: flagged mutants with a
 * failing run.
 */
import { renderFindings, verifyPlan } from "../../src/authoring/verifier/index.ts";
import { type Base, libraryBases } from "./bases.ts";
import { isShapeless, type Judgement, judge } from "./judge.ts";
import { BREAKING, EQUIVALENT, mutate } from "./mutate.ts";
import { Random } from "./random.ts";

export interface CampaignOptions {
  readonly mutants: number;
  readonly seed: number;
  /** Random runs of each mutant. */
  readonly runs: number;
  /** Plans with more operations are left out: runs would take too long. */
  readonly maxOps: number;
  /** Only each n-th of the library's plans. All by default. */
  readonly every?: number;
  /** Plans besides the library's. */
  readonly more?: readonly Base[];
  /** Only plans and mutants whose names contain these. */
  readonly only?: { readonly base?: string | undefined; readonly kind?: string | undefined };
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
  /** Mutants that were launched three times in a row. */
  readonly relaunched: number;
  readonly perKind: ReadonlyMap<string, number>;
  readonly missed: readonly string[];
  readonly equivalents: number;
  readonly falseAlarms: readonly string[];
  /** Flagged mutants without a failing run, by mutator and finding, with one example each. */
  readonly unconfirmed: ReadonlyMap<string, { count: number; readonly example: string }>;
}

export function campaign(options: CampaignOptions): CampaignResult {
  const { only } = options;
  const bases = [...libraryBases(options.maxOps, options.every), ...(options.more ?? [])].filter(({ name }) =>
    name.includes(only?.base ?? ""),
  );
  const kinds = Object.keys(BREAKING).filter((kind) => kind.includes(only?.kind ?? ""));
  const perKind = new Map<string, number>();
  let relaunched = 0;
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
  for (let i = 0; mutants < options.mutants && i < options.mutants * 40; i++) {
    const seed = options.seed + i;
    const base = bases[i % bases.length]!;
    const random = new Random(seed);
    const same = mutate(base.plan, EQUIVALENT, seed);
    if (same !== undefined) {
      equivalents++;
      const verdict = verifyPlan(same.plan, { lint: false });
      if (!verdict.ok) falseAlarms.push(`${base.name}: ${same.what}: ${verdict.findings[0]?.message}`);
    }
    // Every mutator gets its turn; those that find nothing to change are skipped.
    const mutant = mutate(base.plan, BREAKING, seed, kinds[(i + Math.floor(i / bases.length)) % kinds.length]);
    if (mutant === undefined) continue;
    mutants++;
    perKind.set(mutant.kind, (perKind.get(mutant.kind) ?? 0) + 1);
    // Every other plan that may be launched again at once is.
    const launches = base.relaunches && random.chance(0.5) ? 3 : 1;
    if (launches > 1) relaunched++;
    let judgement: Judgement;
    try {
      judgement = judge(mutant.plan, { runs: options.runs, seed, launches, sendTo: base.sendTo });
    } catch (cause) {
      throw new Error(`${base.name} (seed ${seed}, ${launches} launches): ${mutant.what}`, { cause });
    }
    const { verdict, failure, runs: count } = judgement;
    runs += count;
    if (isShapeless(verdict)) shapeless++;
    else if (verdict.ok) {
      passed++;
      if (failure !== undefined)
        missed.push(
          `${base.name}: ${mutant.what}: ${failure.what} (mutant seed ${seed}, run seed ${failure.seed}, ${launches} launches)`,
        );
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
            example: `${base.name} (seed ${seed}, ${launches} launches): ${mutant.what}\n${renderFindings(mutant.plan, errors.slice(0, 1))}`,
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
    relaunched,
    perKind,
    missed,
    equivalents,
    falseAlarms,
    unconfirmed,
  };
}
