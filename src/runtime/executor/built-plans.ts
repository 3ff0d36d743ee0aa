/**
 * Plans that were compiled and proved when the package was built: those that shipped tables name, for groups of up to eight
 * ranks. A rank that needs one reads a line of a file, where it would load the library, compile and prove: 150 ms of its
 * processor. The lines are library-plans.ts's; that they are what the library compiles now is tested. Where the files are
 * missing, as in a program that was bundled into one file, kernels serve.
 */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type ExecutionPlan, noteProof } from "../../authoring/plan/index.ts";
import type { CollectiveName } from "../../collectives/index.ts";
import { deepFreeze } from "../../core/index.ts";
import type { PlanRequest, ServingPlan } from "./serving-plan.ts";

/** Files of more ranks would be megabytes: plans of one pass grow with the square of the ranks. */
export const MOST_BUILT_RANKS = 8;

/** What a line holds, after its key. */
export interface BuiltPlan {
  readonly hash: string;
  readonly endsAlone: boolean;
  readonly relaunches: boolean;
  readonly worksInPlace: boolean;
  /** In chorale's JSON form, without lines of the program and tables for other formats. */
  readonly plan: unknown;
}

/** What tells the plans of a file apart, root and collective among it. */
export function builtPlanKey(collective: CollectiveName, label: string, root: number): string {
  return `${collective} ${label} ${root}`;
}

export function builtPlanFile(numRanks: number): string {
  return `built-plans-of-${numRanks}-ranks.txt`;
}

/** By number of ranks: the lines' texts by their keys. Empty where there is no file. */
const files = new Map<number, ReadonlyMap<string, string>>();

function linesOf(numRanks: number): ReadonlyMap<string, string> {
  const known = files.get(numRanks);
  if (known !== undefined) return known;
  const found = new Map<string, string>();
  files.set(numRanks, found);
  for (const line of builtPlanText(numRanks).split("\n")) {
    const end = line.indexOf("\t");
    if (end > 0) found.set(line.slice(0, end), line.slice(end + 1));
  }
  return found;
}

/** The file of so many ranks as text; empty where there is none. */
export function builtPlanText(numRanks: number): string {
  if (numRanks < 2 || numRanks > MOST_BUILT_RANKS) return "";
  try {
    return readFileSync(fileURLToPath(new URL(".", import.meta.url)) + builtPlanFile(numRanks), "utf8");
  } catch {
    return "";
  }
}

/** Whether plans for so many ranks came with the package. */
export function hasBuiltPlans(numRanks: number): boolean {
  return linesOf(numRanks).size > 0;
}

/** Whether a plan came with the package; of rooted collectives with every root. */
export function isBuilt(collective: CollectiveName, label: string, numRanks: number): boolean {
  return linesOf(numRanks).has(builtPlanKey(collective, label, 0));
}

/** The plan, if it came with the package, as it was proved then. */
export function builtPlan({ served, collective, numRanks, root }: PlanRequest): ServingPlan | undefined {
  const text = linesOf(numRanks).get(builtPlanKey(collective, served.label, root));
  if (text === undefined) return undefined;
  const { hash, endsAlone, relaunches, worksInPlace, plan: json } = JSON.parse(text) as BuiltPlan;
  const plan = deepFreeze(planOf(json));
  noteProof(plan, { ok: true, hash, endsAlone: () => endsAlone, relaunches: () => relaunches });
  return { plan, hash, endsAlone, worksInPlace: () => worksInPlace };
}

/** Numbers that may not fit a number of JSON are texts there. */
function planOf(json: unknown): ExecutionPlan {
  const plan = json as ExecutionPlan;
  const { minMessageSizeBytes: least, maxMessageSizeBytes: most } = plan.options;
  const options = { ...plan.options, minMessageSizeBytes: BigInt(least), maxMessageSizeBytes: BigInt(most) };
  return { ...plan, options };
}
