/**
 * What serves the collectives of a group of threads: kernels that move shares of everybody's buffers, or a plan that a
 * table of choices or the call itself names. A call that a plan serves becomes the same work as `comm.run` makes.
 */
import {
  agreedCount,
  COLLECTIVE_NAMES,
  type CollectiveName,
  overlaps,
  reportedCount,
} from "../../../collectives/index.ts";
import { sizeOf } from "../../../core/index.ts";
import type { CpuTopology } from "../../../machine/cost/index.ts";
import { type CommStats, type Operand, type PlanCall, rolesOf, type TensorCall } from "../../comm/index.ts";
import {
  type Choice,
  type ChoiceDocument,
  Choices,
  type KernelNames,
  libraryPlans,
  logsSelection,
  registeredAlgorithm,
  registerStoredPlans,
  type ServingPlan,
  SHIPPED_CHOICES,
} from "../../executor/internal.ts";

/** The collectives by hand: see move.ts. */
export const KERNELS = Object.fromEntries(
  COLLECTIVE_NAMES.map((op) => [op, [op === "all_reduce" ? "two-shot-kernel" : "direct-kernel"]]),
) as unknown as KernelNames;

export interface GroupFacts {
  readonly backend: string;
  readonly name: string;
  readonly size: number;
  readonly me: number;
  readonly topology: CpuTopology;
  /** This machine's own document, as the launcher read it. */
  readonly machine: ChoiceDocument | undefined;
}

/** The choices of a group. One of its ranks tells of them where `CHORALE_LOG` asks for it. */
export function choicesOf({ backend, name, size, me, topology, machine }: GroupFacts): Choices {
  const documents = machine === undefined ? [SHIPPED_CHOICES] : [machine, SHIPPED_CHOICES];
  if (machine !== undefined) registerStoredPlans(machine);
  const tells = me === 0 && logsSelection();
  // What serves threads best serves processes with the same memory: one set of tables.
  const place = { backend, tablesOf: "threads", group: name, numRanks: size, topology, kernels: KERNELS };
  return new Choices(place, documents, tells ? (line) => process.stderr.write(`${line}\n`) : undefined);
}

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
  byRoot[root] ??= libraryPlans().servingPlan({ served, collective, numRanks, root }, registeredAlgorithm(served.name));
  return byRoot[root];
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

/** The same elements as an array that is no tensor of the world: results are copied there. */
function apart(target: Operand): Operand {
  return target.tensor === undefined ? target : { ...target, tensor: undefined, array: target.tensor.data };
}

/** How many calls each choice served. What no plan and no `algorithm:` was asked for, the first kernel served. */
export function countChoices(choices: Choices, operations: CommStats["operations"]): Record<string, number> {
  const counts = choices.counts();
  const others: Record<string, number> = {};
  for (const [key, calls] of Object.entries(counts)) {
    const op = key.slice(0, key.indexOf(" "));
    others[op] = (others[op] ?? 0) + calls;
  }
  for (const op of COLLECTIVE_NAMES) {
    const rest = (operations[op]?.calls ?? 0) - (others[op] ?? 0);
    const key = `${op} ${KERNELS[op][0]}`;
    if (rest > 0) counts[key] = (counts[key] ?? 0) + rest;
  }
  return counts;
}
