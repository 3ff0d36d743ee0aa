/**
 * Plans that come in a document of choices, such as `chorale synth --choices` writes: they become algorithms by name on
 * every rank. A name ends in `-h` and the first eight digits of its plan's hash, so that one name is one plan everywhere.
 */
import { createRequire } from "node:module";
import { type ExecutionPlan, hashPlan } from "../../authoring/plan/index.ts";
import { PlanError } from "../../core/index.ts";
import { registerAlgorithm, registeredAlgorithm } from "./algorithm-names.ts";
import type { ChoiceDocument, StoredPlan } from "./choices.ts";
import type * as PlanFile from "./plan-file.ts";
import type { RegisteredAlgorithm } from "./served.ts";

/** Makes the plans of a document known on this rank. What is known already stays: its name says that it is the same. */
export function registerStoredPlans({ plans = {} }: ChoiceDocument): void {
  for (const [name, { collective, plan }] of Object.entries(plans)) {
    if (registeredAlgorithm(name) !== undefined) continue;
    registerAlgorithm({
      name,
      collective: collective as RegisteredAlgorithm["collective"],
      numRanks: plan.ranks.length,
      make: () => checkedPlan(name, plan),
    });
  }
}

/** @throws FormatError, PlanError for a plan that is not the one of the name. Whoever runs it proves it first. */
function checkedPlan(name: string, json: StoredPlan["plan"]): ExecutionPlan {
  const { planFromJson } = createRequire(import.meta.url)("./plan-file.js") as typeof PlanFile;
  const where = `plan ${name} in this machine's file of choices (chorale tune --show; --reset removes the file)`;
  const plan = planFromJson(json, where);
  const hash = hashPlan(plan);
  if (!name.endsWith(`-h${hash.slice(0, 8)}`)) {
    throw new PlanError(where, [], `its hash is ${hash.slice(0, 8)}…: the document was changed after it was written`);
  }
  return plan;
}
