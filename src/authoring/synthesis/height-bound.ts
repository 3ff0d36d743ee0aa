/** How few steps between ranks a schedule can have: what the network's width allows, and what its optimal time allows. */
import type { Bound } from "./outcome.ts";
import { type Problem, weightsOf } from "./problem.ts";
import { outgoingOf, reversed, type ScaledGraph } from "./scaled-graph.ts";

const FAR = Number.POSITIVE_INFINITY;
const most = (values: readonly number[]): number => values.reduce((a, b) => Math.max(a, b), 0);
const least = (values: readonly number[]): number => values.reduce((a, b) => Math.min(a, b), FAR);

/** By rank, the fewest steps from one rank to each, over nodes for which `isOpen` holds. Relays are passed within a step. */
function stepsFrom(
  graph: ScaledGraph,
  next: readonly (readonly number[])[],
  source: number,
  isOpen: (node: number) => boolean = () => true,
): number[] {
  const reached = new Array<number>(graph.numNodes).fill(FAR);
  reached[source] = 0;
  let frontier = [source];
  for (let step = 1; frontier.length > 0; step++) {
    const further: number[] = [];
    // Relays join the list that is being walked: they are passed in the same step.
    for (let i = 0; i < frontier.length; i++) {
      for (const to of next[frontier[i] as number] as readonly number[]) {
        if ((reached[to] as number) < FAR || !isOpen(to)) continue;
        reached[to] = step;
        (graph.isRank[to] ? further : frontier).push(to);
      }
    }
    frontier = further;
  }
  return graph.ranks.map((node) => reached[node] as number);
}

/** By node, the nodes that edges lead to. */
const nextOf = (graph: ScaledGraph): readonly (readonly number[])[] =>
  outgoingOf(graph).map((edges) => edges.map((edge) => graph.edges[edge]?.to as number));

const stepsOf = new WeakMap<ScaledGraph, readonly (readonly number[])[]>();

/** By rank, the fewest steps from it to each rank. */
function stepsBetween(graph: ScaledGraph): readonly (readonly number[])[] {
  let steps = stepsOf.get(graph);
  if (steps === undefined) {
    const next = nextOf(graph);
    steps = graph.ranks.map((node) => stepsFrom(graph, next, node));
    stepsOf.set(graph, steps);
  }
  return steps;
}

/**
 * The fewest steps past a cut that is busy all the time. What starts inside crosses out exactly once (a second crossing
 * would take longer than the optimum), so each tree of a rank inside has one first rank outside, and reaches all other
 * ranks outside from there without coming back in: it could not leave again.
 */
function stepsPastCut(
  graph: ScaledGraph,
  weights: readonly number[],
  steps: readonly (readonly number[])[],
  inside: ReadonlySet<number>,
): number {
  const next = nextOf(graph);
  const isOutside = (node: number) => !inside.has(node);
  const outside = [...graph.ranks.keys()].filter((rank) => isOutside(graph.ranks[rank] as number));
  const beyond = outside.map((first) => {
    const within = stepsFrom(graph, next, graph.ranks[first] as number, isOutside);
    return most(outside.map((rank) => within[rank] as number));
  });
  const ofRoot = (root: number) => least(outside.map((first, i) => (steps[root]?.[first] ?? FAR) + (beyond[i] ?? FAR)));
  const roots = graph.ranks.flatMap((node, rank) => (inside.has(node) && (weights[rank] as number) > 0 ? [rank] : []));
  return most(roots.map(ofRoot));
}

/**
 * A height that no trees which spread from weighted roots are below: the distance to the farthest rank, and for trees that
 * keep a cut busy with nothing but what has to cross it, the steps that this forces.
 */
export function leastHeight(graph: ScaledGraph, weights: readonly number[], busy?: ReadonlySet<number>): number {
  const steps = stepsBetween(graph);
  const apart = most(steps.filter((_, rank) => (weights[rank] as number) > 0).map(most));
  return busy === undefined ? apart : Math.max(apart, stepsPastCut(graph, weights, steps, busy));
}

/** The same for trees that lead up to their roots and down again, with the best root: both ways together. */
export function leastHeightBothWays(graph: ScaledGraph): number {
  const steps = stepsBetween(graph);
  return least(steps.map((from, rank) => most(from) + most(steps.map((to) => to[rank] as number))));
}

/**
 * A height that no schedule of trees or paths is below: the fewest steps between the ranks that are farthest apart of
 * those between which data moves (for all-reduce up to a root of a tree and down again, from the best root). An optimal
 * schedule also keeps the cut of the witness busy with nothing but what has to cross it, which may force more steps. In
 * general the least height is above it: what capacities force elsewhere is not counted.
 * @param optimal the witness of a schedule that reaches its bound; without it only distances count
 */
export function heightBound(problem: Problem, optimal?: Pick<Bound, "witness">): number {
  const { collective, root } = problem;
  const gathers = collective === "reduce_scatter" || collective === "reduce" || collective === "gather";
  const graph = gathers ? reversed(problem.graph) : problem.graph;
  if (collective === "all_reduce") return leastHeightBothWays(graph);
  const weights = weightsOf(problem);
  if (collective === "scatter" || collective === "gather") {
    const from = stepsFrom(graph, nextOf(graph), root);
    return most(from.filter((_, rank) => (weights[rank] as number) > 0));
  }
  if (collective === "all_to_all" || optimal?.witness.kind !== "cut") return leastHeight(graph, weights);
  const names = new Set(optimal.witness.inside);
  return leastHeight(
    graph,
    weights,
    new Set([...graph.ids.keys()].filter((node) => names.has(graph.ids[node] as string))),
  );
}
