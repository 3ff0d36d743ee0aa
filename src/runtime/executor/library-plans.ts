/**
 * Algorithms by name as proved plans, for whoever runs them. It loads the library, and with it the language, the compiler
 * and the verifier: ranks load this file when they first need a plan (`algorithm-names.ts`).
 */
import { ALGORITHMS, type AlgorithmEntry } from "../../authoring/algorithms/index.ts";
import { compile, type Program } from "../../authoring/compiler/index.ts";
import { type ExecutionPlan, hashPlan, proofOf } from "../../authoring/plan/index.ts";
import { provePlan, provePlanOnce } from "../../authoring/verifier/index.ts";
import type { CollectiveName } from "../../collectives/index.ts";
import { InvalidArgumentError, PlanError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { type BuiltPlan, builtPlanKey } from "./built-plans.ts";
import { isServed, parseServed, type RegisteredAlgorithm } from "./served.ts";
import type { PlanRequest, ServingPlan } from "./serving-plan.ts";

/** The library's algorithm of a name, if it has one that can serve calls. */
export function libraryEntry(name: string): AlgorithmEntry | undefined {
  return ALGORITHMS.find((entry) => entry.name === name && isServed(entry.collective));
}

/** Names of the library's algorithms that can serve a collective of so many ranks. */
export function libraryNames(collective: CollectiveName, numRanks: number): readonly string[] {
  return ALGORITHMS.filter(
    (entry) =>
      isServed(entry.collective) && entry.collective === collective && entry.legal(numRanks) && !entry.needsSwitch,
  ).map(({ name }) => name);
}

const plans = new Map<string, ServingPlan>();
/** All that a library has for some numbers of ranks; a program that makes groups of ever other sizes starts anew. */
const MAX_PLANS = 512;

/**
 * The plan of an algorithm, compiled and proved when it is first asked for.
 * @param own the program's own algorithm of that name, where there is one
 * @throws PlanError for an algorithm of the program's own that is wrong
 */
export function servingPlan(request: PlanRequest, own: RegisteredAlgorithm | undefined): ServingPlan {
  const { served, collective, numRanks, root } = request;
  const key = `${collective} ${served.label} ${numRanks} ${root}`;
  const known = plans.get(key);
  if (known !== undefined) return known;
  if (plans.size >= MAX_PLANS) plans.clear();
  const made = own === undefined ? ofLibrary(request) : ofProgram(request, own);
  plans.set(key, made);
  return made;
}

function ofLibrary({ served, numRanks, root, collective }: PlanRequest): ServingPlan {
  const entry = libraryEntry(served.name) as AlgorithmEntry;
  const args = {
    numRanks,
    root,
    ...(served.instances === 1 ? {} : { instances: served.instances }),
    ...(served.chunks === undefined ? {} : { chunks: served.chunks }),
    ...(served.shape?.unitBytes === undefined ? {} : { unitBytes: served.shape.unitBytes }),
  };
  const made = proved(entry.make({ ...args, inPlace: false }).plan());
  let known = isHarmless(collective) ? true : undefined;
  const worksInPlace = () => {
    known ??= isSameInPlace(made.plan, entry, args);
    return known;
  };
  return { ...made, worksInPlace };
}

function ofProgram({ served, numRanks, root, collective }: PlanRequest, own: RegisteredAlgorithm): ServingPlan {
  const { instances, chunks } = served;
  const made: unknown = own.make({ numRanks, root, instances, ...(chunks === undefined ? {} : { chunks }) });
  const program = Object(made) as Partial<Program>;
  const plan = typeof program.plan === "function" ? program.plan() : (program as unknown as ExecutionPlan);
  if (!Array.isArray(plan.ranks)) {
    const accepted = "a program, or a plan that compile() made";
    throw new InvalidArgumentError(
      `what ${own.name} makes`,
      made instanceof Promise ? described("a promise") : made,
      accepted,
    );
  }
  const found = plan.collective;
  if (found.operation !== collective || plan.ranks.length !== numRanks || found.inPlace || (found.root ?? 0) !== root) {
    const what = `${found.operation} of ${plan.ranks.length} ranks${found.inPlace ? ", in place" : ""}, root ${found.root ?? 0}`;
    throw new InvalidArgumentError(
      `what ${own.name} makes`,
      described(what),
      `${collective} of ${numRanks} ranks, out of place, root ${root}`,
    );
  }
  if (proofOf(plan) === undefined && own.numRanks !== undefined) provePlan(plan);
  return { ...proved(plan), worksInPlace: () => isHarmless(collective) };
}

function proved(plan: ExecutionPlan): Omit<ServingPlan, "worksInPlace"> {
  const proof = proofOf(plan);
  if (proof?.ok !== true) {
    const why = proof === undefined ? "it was not verified: compile() or provePlan() does" : proof.opinion;
    throw new PlanError(plan.name ?? "the plan", [], why);
  }
  return { plan, hash: hashPlan(plan), endsAlone: proof.endsAlone() };
}

/** The result, where it lies on top of the input, is the input: writing it changes nothing. */
function isHarmless(collective: CollectiveName): boolean {
  return collective !== "all_reduce" && collective !== "reduce" && collective !== "reduce_scatter";
}

/** Whether the algorithm's in-place form does exactly the same, and is right. */
function isSameInPlace(
  plan: ExecutionPlan,
  entry: AlgorithmEntry,
  args: Parameters<AlgorithmEntry["make"]>[0],
): boolean {
  if (!entry.inPlace) return false;
  const inPlace = compile(entry.make({ ...args, inPlace: true }), { verify: false });
  const text = (one: ExecutionPlan) =>
    JSON.stringify(
      one.ranks.map(({ strands, channels, scratch }) => [strands, channels, scratch]),
      (key, value: unknown) => (key === "source" ? undefined : value),
    );
  return text(plan) === text(inPlace) && (provePlanOnce(inPlace)?.ok ?? true);
}

/** Collectives that have a plan for each root. */
const ROOTED: readonly CollectiveName[] = ["broadcast", "reduce", "gather", "scatter"];

/**
 * What scripts/built-plans.mjs writes for groups of so many ranks: a line for each plan, of rooted collectives for each root.
 * @param uses see `builtUses`
 */
export function builtPlansText(numRanks: number, uses: readonly (readonly [CollectiveName, string])[]): string {
  const lines = uses.flatMap(([collective, use]) => {
    const roots = ROOTED.includes(collective) ? Array.from({ length: numRanks }, (_, root) => root) : [0];
    return roots.map((root) => builtLine({ served: parseServed(use, []), collective, numRanks, root }));
  });
  return lines.map((line) => `${line}\n`).join("");
}

function builtLine(request: PlanRequest): string {
  const { plan, hash, endsAlone, worksInPlace } = servingPlan(request, undefined);
  const proof = proofOf(plan);
  const built: BuiltPlan = {
    hash,
    endsAlone,
    relaunches: proof?.ok === true && proof.relaunches(),
    worksInPlace: worksInPlace(),
    plan: { ...plan, sources: [] },
  };
  const text = JSON.stringify(built, (key, value: unknown) =>
    key === "source" || key === "tables" ? undefined : typeof value === "bigint" ? value.toString() : value,
  );
  return `${builtPlanKey(request.collective, request.served.label, request.root)}\t${text}`;
}
