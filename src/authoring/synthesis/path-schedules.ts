/** Schedules of paths: scatter and gather cut one flow into paths, all-to-all the flows of a linear program. */
import { type AllToAll, allToAll, boundByLengths, guessedLengths, type PathUse, pathWithFlow } from "./all-to-all.ts";
import { breadthFirst } from "./breadth-first.ts";
import { rationalOf, requireConnected, scatterBound } from "./cut-bounds.ts";
import { LinkLoads } from "./link-loads.ts";
import type { Bound, Outcome } from "./outcome.ts";
import type { Problem } from "./problem.ts";
import { Rational } from "./rational.ts";
import { cutWitness, idsOf, outgoingOf, reversed, type ScaledGraph } from "./scaled-graph.ts";

const integer = (value: number): Rational => new Rational(BigInt(value));
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/** The bound of scatter; of gather on the reversed graph. */
export function pathsBound(problem: Problem): Bound & { readonly cut: ReturnType<typeof scatterBound> } {
  const graph = problem.collective === "gather" ? reversed(problem.graph) : problem.graph;
  const cut = scatterBound(graph, problem.root, problem.weights);
  const bound = rationalOf(cut).over(graph.unit.times(integer(sum(problem.weights))));
  return { bound, witness: cutWitness(graph, cut.inside), cut };
}

/** One flow from the root to everybody, cut into paths; to the root on the reversed graph. */
export function byPaths(problem: Problem): Outcome {
  const { cut, ...bound } = pathsBound(problem);
  const gathers = problem.collective === "gather";
  const graph = gathers ? reversed(problem.graph) : problem.graph;
  const { root, weights } = problem;
  const paths = problem.fewestSteps ? shortestPaths(graph, [root], weights) : flowPaths(graph, root, weights, cut);
  const inOrder = gathers ? paths.map(({ amount, nodes }) => ({ amount, nodes: [...nodes].reverse() })) : paths;
  return { ...bound, time: timeOfPaths(problem.graph, inOrder), ...pathSchedule(graph, inOrder) };
}

function flowPaths(
  graph: ScaledGraph,
  root: number,
  weights: readonly number[],
  { flow, links, below }: ReturnType<typeof scatterBound>,
): PathUse[] {
  const left = links.map((link) => flow.flowOf(link));
  const outgoing = outgoingOf(graph);
  const paths: PathUse[] = [];
  for (const [rank, node] of graph.ranks.entries()) {
    if (node === root) continue;
    for (let due = (weights[rank] as number) * below; due > 0; ) {
      const path = pathWithFlow(graph, outgoing, left, root, node) as number[];
      const amount = path.reduce((least, edge) => Math.min(least, left[edge] as number), due);
      for (const edge of path) left[edge] = (left[edge] as number) - amount;
      const nodes = [root, ...path.map((edge) => graph.edges[edge]?.to as number)];
      paths.push({ amount: new Rational(BigInt(amount), BigInt(below) * BigInt(sum(weights))), nodes });
      due -= amount;
    }
  }
  return paths;
}

/**
 * Paths of the fewest steps from each of the roots to every rank; what a rank gets is its weight (or, from several
 * roots, an equal share of all).
 */
function shortestPaths(graph: ScaledGraph, roots: readonly number[], weights: readonly number[]): PathUse[] {
  const rankOf = new Map(graph.ranks.map((node, rank) => [node, rank]));
  const { trees } = breadthFirst(
    graph,
    graph.ranks.map((node) => (roots.includes(node) ? 1 : 0)),
  );
  const slots = new Map<number, number>();
  for (const { root, amount } of trees) slots.set(root, (slots.get(root) ?? 0) + amount);
  const uses = new Map<string, PathUse>();
  for (const { root, amount, routes } of trees) {
    const ways = new Map([[root, [root]]]);
    for (const route of routes) {
      const nodes = [...(ways.get(route[0] as number) as number[]), ...route.slice(1)];
      const to = route[route.length - 1] as number;
      ways.set(to, nodes);
      const weight = new Rational(BigInt(weights[rankOf.get(to) as number] as number), BigInt(sum(weights)));
      const part = new Rational(BigInt(amount), BigInt(slots.get(root) as number)).times(weight);
      if (part.numerator === 0n) continue;
      const key = nodes.join(" ");
      uses.set(key, { nodes, amount: part.plus(uses.get(key)?.amount ?? Rational.ZERO) });
    }
  }
  return [...uses.values()];
}

function pathSchedule(graph: ScaledGraph, paths: readonly PathUse[]): Pick<Outcome, "schedule" | "height"> {
  const stops = paths.map(({ nodes }) => nodes.filter((node) => graph.isRank[node]).length - 1);
  return {
    height: stops.reduce((a, b) => Math.max(a, b), 0),
    schedule: {
      kind: "paths",
      paths: paths.map(({ amount, nodes }) => ({ weight: amount.toString(), route: idsOf(graph, nodes) })),
    },
  };
}

/** The bound of all-to-all by the linear program, or by the best of some lengths where that is too large to be solved. */
async function solved(problem: Problem): Promise<AllToAllBound> {
  const { net, graph } = problem;
  requireConnected(graph);
  return boundOf(problem, await allToAll(net, graph));
}

type AllToAllBound = Bound & { readonly solution: AllToAll | undefined };

function boundOf({ net, graph }: Problem, solution: AllToAll | undefined): AllToAllBound {
  const lengths = solution?.lengths ?? guessedLengths(net, graph);
  const bound = solution?.bound ?? boundByLengths(net, graph, lengths);
  const listed = graph.edges.flatMap(({ from, to }, edge) => {
    const length = lengths[edge] as Rational;
    return length.numerator === 0n
      ? []
      : [{ from: graph.ids[from] as string, to: graph.ids[to] as string, length: length.toString() }];
  });
  return {
    bound: bound.over(graph.unit.times(integer(graph.ranks.length))),
    witness: { kind: "lengths", lengths: listed },
    solution,
  };
}

export async function allToAllBound(problem: Problem): Promise<Bound> {
  const { bound, witness } = await solved(problem);
  return { bound, witness };
}

export async function betweenAll(problem: Problem): Promise<Outcome> {
  return betweenAllBy(problem, await solved(problem));
}

/** By the shortest ways, beside the bound of simple lengths: what there is before the program is solved. */
export function betweenAllAtOnce(problem: Problem): Outcome {
  requireConnected(problem.graph);
  return betweenAllBy(problem, boundOf(problem, undefined));
}

function betweenAllBy({ graph, fewestSteps }: Problem, { solution, ...bound }: AllToAllBound): Outcome {
  const share = new Rational(1n, BigInt(graph.ranks.length));
  const equal = graph.ranks.map(() => 1);
  const paths =
    solution === undefined || fewestSteps
      ? shortestPaths(graph, graph.ranks, equal)
      : solution.paths.map(({ amount, nodes }) => ({ amount: amount.times(share), nodes }));
  return { ...bound, time: timeOfPaths(graph, paths), ...pathSchedule(graph, paths) };
}

function timeOfPaths(graph: ScaledGraph, paths: readonly PathUse[]): Rational {
  const loads = new LinkLoads(graph);
  for (const { amount, nodes } of paths) loads.add(nodes, amount);
  return loads.time();
}
