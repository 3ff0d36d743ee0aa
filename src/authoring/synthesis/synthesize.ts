/**
 * The optimum of a collective on a network: the bound with its witness, and a schedule that reaches it (or the gap).
 * What each collective is: all-gather, broadcast: trees by cuts; reduce-scatter, reduce: the same on the reversed network;
 * all-reduce: trees both ways by partitions; scatter, gather: one flow; all-to-all: a linear program.
 */
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import { heightBound } from "./height-bound.ts";
import type { Bound, Outcome } from "./outcome.ts";
import { allToAllBound, betweenAll, byPaths, pathsBound } from "./path-schedules.ts";
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
}

interface Method {
  readonly bound: (problem: Problem) => Bound | Promise<Bound>;
  readonly solve: (problem: Problem) => Outcome | Promise<Outcome>;
}

const TREES: Method = { bound: treesBound, solve: byTrees };
const PATHS: Method = { bound: pathsBound, solve: byPaths };

const METHODS: Readonly<Record<CertifiedCollective, Method>> = {
  all_gather: TREES,
  reduce_scatter: TREES,
  broadcast: TREES,
  reduce: TREES,
  scatter: PATHS,
  gather: PATHS,
  all_reduce: { bound: treesBothWaysBound, solve: byTreesBothWays },
  all_to_all: { bound: allToAllBound, solve: betweenAll },
};

/**
 * Finds what no schedule of a collective on a network is faster than, and the witness that proves it. Much faster than
 * `synthesize`, which also finds the schedule.
 * @returns seconds for 1 GB, exact
 * @throws as `synthesize`
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
  const { bound, witness } = await METHODS[collective].bound(problemOf(network, collective, options));
  return { bound, witness };
}

/**
 * Finds the optimum of a collective on a network and a schedule for it.
 * @returns exact fractions; `isOptimal` says whether the schedule reaches the bound
 * @throws FormatError for an invalid network; UnsupportedError when ranks are not connected; InvalidArgumentError for
 *   options out of range, for more ranks than schedules are found for, and for capacities or sizes beyond what is computed exactly
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
  const { bound, witness, time, schedule, height } = await METHODS[collective].solve(problem);
  const isOptimal = time.equals(bound);
  const lowest = heightBound(problem, isOptimal ? { witness } : undefined);
  return { collective, network, options, bound, witness, time, schedule, height, isOptimal, heightBound: lowest };
}
