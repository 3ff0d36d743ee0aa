/**
 * The optimum of a collective on a network: the bound with its witness, and a schedule that reaches it (or the gap).
 * What each collective is: all-gather, broadcast: trees by cuts; reduce-scatter, reduce: the same on the reversed network;
 * all-reduce: trees both ways by partitions; scatter, gather: one flow; all-to-all: a linear program.
 */
import { invariant, type TimeoutError } from "../../core/index.ts";
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import { unlessLate } from "./deadline.ts";
import { heightBound } from "./height-bound.ts";
import type { Bound, Outcome } from "./outcome.ts";
import { allToAllBound, betweenAll, betweenAllAtOnce, byPaths, pathsBound } from "./path-schedules.ts";
import { type Problem, problemOf, requireRanks, type SynthesisOptions } from "./problem.ts";
import { byTrees, byTreesBothWays, treesBothWaysBound, treesBound } from "./tree-schedules.ts";

export interface Synthesis extends Outcome {
  readonly collective: CertifiedCollective;
  readonly network: Network;
  readonly options: SynthesisOptions;
  /** The schedule takes no longer than the bound. */
  readonly isOptimal: boolean;
  /** A height that no schedule of trees or paths with this time is below; the least may lie between the two. */
  readonly heightBound: number;
  /** `timeLimit`: the search was given up at `timeLimitSeconds`, and the schedule is the best that was found by then. */
  readonly status: SynthesisStatus;
}

export type SynthesisStatus = "complete" | "timeLimit";

interface Method {
  readonly bound: (problem: Problem) => Bound | Promise<Bound>;
  readonly solve: (problem: Problem) => Outcome | Promise<Outcome>;
  /** A schedule that is found soon: the one to fall back on where time is limited. */
  readonly soon: (problem: Problem) => Outcome | Promise<Outcome>;
}

const inFewestSteps = (problem: Problem): Problem => ({ ...problem, fewestSteps: true });

const TREES: Method = { bound: treesBound, solve: byTrees, soon: (problem) => byTrees(inFewestSteps(problem)) };
const PATHS: Method = { bound: pathsBound, solve: byPaths, soon: byPaths };

const METHODS: Readonly<Record<CertifiedCollective, Method>> = {
  all_gather: TREES,
  reduce_scatter: TREES,
  broadcast: TREES,
  reduce: TREES,
  scatter: PATHS,
  gather: PATHS,
  all_reduce: {
    bound: treesBothWaysBound,
    solve: byTreesBothWays,
    soon: (problem) => byTreesBothWays(inFewestSteps(problem)),
  },
  all_to_all: { bound: allToAllBound, solve: betweenAll, soon: betweenAllAtOnce },
};

/**
 * Finds what no schedule of a collective on a network is faster than, and the witness that proves it. Much faster than
 * `synthesize`, which also finds the schedule.
 * @returns seconds for 1 GB, exact
 * @throws as `synthesize`; TimeoutError when it is not found by `timeLimitSeconds`
 * @example
 * import { lowerBound, networkOf } from "chorale/synthesis";
 * import { presetInventory } from "chorale/topology";
 * const { bound } = await lowerBound(networkOf(presetInventory("mi250x-8")), "all_reduce");
 * console.log(`${bound} s/GB`); // 3/500 s/GB
 */
export async function lowerBound(
  network: Network,
  collective: CertifiedCollective,
  options: SynthesisOptions = {},
): Promise<Bound> {
  const problem = problemOf(network, collective, options);
  const found = await unlessLate(undefined, () => METHODS[collective].bound(problem));
  if (found === undefined) throw tooLate(problem, `the search for the bound of ${collective}`);
  const { bound, witness } = found;
  return { bound, witness };
}

/** @throws InvariantError where time is not limited */
function tooLate({ graph: { deadline } }: Problem, what: string): TimeoutError {
  invariant(deadline !== undefined, "only searches of limited time are late");
  return deadline.timeout(what);
}

/** The best outcome that is found in time. @throws TimeoutError when none is */
async function inTime(problem: Problem): Promise<Outcome> {
  const { solve, soon } = METHODS[problem.collective];
  if (problem.graph.deadline === undefined) return solve(problem);
  // What is asked for in a form of its own has nothing to fall back on that has that form.
  const isFree = !problem.fewestSteps && problem.treesPerRoot === undefined;
  const first = isFree ? await unlessLate(undefined, () => soon(problem)) : undefined;
  const found = await unlessLate(first, () => solve(problem));
  if (found === undefined) throw tooLate(problem, `the search for a schedule of ${problem.collective}`);
  if (first === undefined || found.time.compare(first.time) <= 0) return found;
  const { time, schedule, height } = first;
  return { ...found, time, schedule, height };
}

/**
 * Finds the optimum of a collective on a network and a schedule for it.
 * @returns exact fractions; `isOptimal` says whether the schedule reaches the bound, `status` whether the search was cut short
 * @throws FormatError for an invalid network; UnsupportedError when ranks are not connected; InvalidArgumentError for
 *   options out of range, for more ranks than schedules are found for, and for capacities or sizes beyond what is computed exactly;
 *   TimeoutError when no schedule is found by `timeLimitSeconds`
 * @example
 * import { networkOf, synthesize } from "chorale/synthesis";
 * import { presetInventory } from "chorale/topology";
 * const { bound, isOptimal } = await synthesize(networkOf(presetInventory("mi250x-8")), "all_gather");
 * console.log(1 / bound.toNumber(), "GB/s", isOptimal); // 333.33… GB/s true
 */
export async function synthesize(
  network: Network,
  collective: CertifiedCollective,
  options: SynthesisOptions = {},
): Promise<Synthesis> {
  const problem = problemOf(network, collective, options);
  requireRanks(problem.graph.ranks.length, collective);
  const { bound, witness, time, schedule, height } = await inTime(problem);
  const isOptimal = time.equals(bound);
  const lowest = heightBound(problem, isOptimal ? { witness } : undefined);
  const status = problem.graph.deadline?.hasCutShort === true ? "timeLimit" : "complete";
  return {
    collective,
    network,
    options,
    bound,
    witness,
    time,
    schedule,
    height,
    isOptimal,
    heightBound: lowest,
    status,
  };
}
