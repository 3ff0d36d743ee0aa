/**
 * From a collective to the plan that was chosen for it, by a table of choices or by the call itself: a call that a plan serves
 * becomes the same run as `comm.run` makes.
 */
import { proofOf, shapeOf } from "../../authoring/plan/index.ts";
import {
  agreedCount,
  COLLECTIVE_NAMES,
  type CollectiveName,
  overlaps,
  reportedCount,
} from "../../collectives/index.ts";
import { sizeOf } from "../../core/index.ts";
import { type Operand, type PlanCall, rolesOf, type TensorCall } from "../comm/index.ts";
import { libraryPlans, registeredAlgorithm } from "./algorithm-names.ts";
import { builtPlan } from "./built-plans.ts";
import type { Choice, Choices } from "./choices.ts";
import { isServed } from "./served.ts";
import type { PlanRequest, ServingPlan } from "./serving-plan.ts";

/** What serves a call, and has to be counted when it is done. @throws InvalidArgumentError for a wrong `algorithm:` */
export function choiceFor(choices: Choices, { call, algorithm }: TensorCall): Choice | undefined {
  const op = call.op as CollectiveName;
  if (!COLLECTIVE_NAMES.includes(op)) return undefined;
  const bytes = reportedCount(op, call.numRanks, agreedCount(call)) * sizeOf(call.dtype);
  return algorithm === undefined
    ? choices.choose(op, call.dtype, bytes)
    : choices.named(op, call.dtype, bytes, algorithm);
}

/** By choice, which one group makes for one collective: the plans that served its calls, by root. */
const serving = new WeakMap<Choice, ServingPlan[]>();

function servingPlanOf(choice: Choice, collective: CollectiveName, numRanks: number, root: number): ServingPlan {
  const byRoot = serving.get(choice) ?? [];
  if (byRoot.length === 0) serving.set(choice, byRoot);
  const { served } = choice;
  byRoot[root] ??= planFor({ served, collective, numRanks, root });
  return byRoot[root];
}

function planFor(request: PlanRequest): ServingPlan {
  const own = registeredAlgorithm(request.served.name);
  const built = own === undefined ? builtPlan(request) : undefined;
  return built ?? libraryPlans().servingPlan(request, own);
}

/** The plan that served a choice's calls with this root before, if one did. */
export function knownPlanOf(choice: Choice, root: number): ServingPlan | undefined {
  return serving.get(choice)?.[root];
}

/** What the library's and the program's own algorithms are, in reports: nothing else serves a collective. */
export const SERVED_OPINION = "which is proved";

/** A call as a run of the plan that was chosen for it. @throws PlanError for an algorithm of the program's own that is wrong */
export function planCallOf({ call, input, output, outputCount, timeoutMs }: TensorCall, choice: Choice): PlanCall {
  const { op, dtype, numRanks, root = 0, redop = "sum" } = call;
  const { plan, hash, endsAlone, worksInPlace } = servingPlanOf(choice, op as CollectiveName, numRanks, root);
  const { reads, writes, inPlace } = rolesOf(call);
  const target = writes ? (output ?? (inPlace ? input : undefined)) : undefined;
  const lies = reads && target !== undefined && overlaps(input.region, target.region);
  return {
    kind: "plan",
    plan,
    hash,
    dtype,
    op: redop,
    partBytes: agreedCount(call) * sizeOf(dtype),
    input: reads ? input : undefined,
    // The plan is the same on all ranks, and out of place: a rank that is not gets its result by way of another buffer.
    output: lies && !worksInPlace() ? apart(target) : target,
    inputCount: reads ? input.count : 0,
    outputCount,
    shared: undefined,
    endsAlone,
    opinion: SERVED_OPINION,
    timeoutMs,
  };
}

/** A run of a program, with what serves it. */
export interface TunedRun {
  readonly call: PlanCall;
  /** Absent where this machine's tables say nothing about the program. */
  readonly choice: Choice | undefined;
}

/**
 * A run as this machine's tables have it: by the variant of the program that was the fastest at its size. All ranks of a group
 * get the same. @throws PlanError for a stored variant that is not what it was
 */
export function tunedRun(choices: Choices | undefined, asked: PlanCall): TunedRun {
  const { plan, hash, dtype, partBytes } = asked;
  const collective = plan.collective.operation;
  if (choices === undefined || !isServed(collective) || proofOf(plan)?.ok !== true) {
    return { call: asked, choice: undefined };
  }
  const op = collective as CollectiveName;
  const choice = choices.variantOf(hash, op, dtype, partBytes * shapeOf(plan).mostParts);
  if (choice?.served.kind !== "plan") return { call: asked, choice };
  const variant = servingPlanOf(choice, op, plan.ranks.length, plan.collective.root ?? 0);
  return { call: { ...asked, plan: variant.plan, hash: variant.hash, endsAlone: variant.endsAlone }, choice };
}

/** The same elements as an array that is no tensor of the world: results are copied there. */
function apart(target: Operand): Operand {
  return target.tensor === undefined ? target : { ...target, tensor: undefined, array: target.tensor.data };
}
