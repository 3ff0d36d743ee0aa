/**
 * Changes to plans, for testing the verifier: breaking ones (a mutant may still be right by luck; the oracle knows), and
 * ones that change nothing by construction. Plans are data, so a mutant is a deep copy with one place changed.
 */
import type { ExecutionPlan } from "../../src/authoring/plan/execution-plan.ts";
import { PLAIN_BREAKING } from "./breaking.ts";
import { FINE_BREAKING } from "./breaking-fine.ts";
import { EQUIVALENT } from "./equivalent.ts";
import type { MPlan, Mutator } from "./plan-edit.ts";
import { Random } from "./random.ts";

export { EQUIVALENT };

/** Mutators that may break a plan, by name. */
export const BREAKING: Readonly<Record<string, Mutator>> = { ...PLAIN_BREAKING, ...FINE_BREAKING };

export interface Mutant {
  readonly plan: ExecutionPlan;
  readonly what: string;
  readonly kind: string;
}

/** A copy of plain data; much faster than structuredClone. */
function deepCopy<T>(data: T): T {
  if (typeof data !== "object" || data === null) return data;
  if (Array.isArray(data)) return data.map(deepCopy) as T;
  const copy: Record<string, unknown> = {};
  for (const key of Object.keys(data)) copy[key] = deepCopy((data as Record<string, unknown>)[key]);
  return copy as T;
}

/** Makes one mutant, or undefined when this mutator finds nothing to change. */
export function mutate(
  plan: ExecutionPlan,
  mutators: Readonly<Record<string, Mutator>>,
  seed: number,
  only?: string,
): Mutant | undefined {
  const random = new Random(seed);
  const names = Object.keys(mutators);
  const kind = only ?? random.pick(names);
  const copy = deepCopy(plan) as unknown as MPlan;
  const what = mutators[kind]!(copy, random);
  return what === undefined ? undefined : { plan: copy as unknown as ExecutionPlan, what, kind };
}
