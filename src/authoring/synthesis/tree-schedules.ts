/**
 * Schedules of trees: all-gather and broadcast spread from their roots; reduce-scatter and reduce are the same on the
 * reversed network; all-reduce goes up each tree and down again.
 */
import { Rational, type ScheduleTree } from "../certificate/index.ts";
import { type AllReduceBound, allReduceBound } from "./all-reduce-bound.ts";
import { allReduceUnits, isSymmetric } from "./all-reduce-forest.ts";
import { breadthFirst } from "./breadth-first.ts";
import { gatherBound, type Ratio, rationalOf } from "./cut-bounds.ts";
import { buildForest, exactUnits, type Forest, type RoutedTree, unitsForTrees } from "./forest.ts";
import { LinkLoads } from "./link-loads.ts";
import type { Outcome } from "./outcome.ts";
import { type Problem, weightsOf } from "./problem.ts";
import { cutWitness, idsOf, reversed, type ScaledGraph } from "./scaled-graph.ts";

const integer = (value: number): Rational => new Rational(BigInt(value));
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
const turned = (routes: RoutedTree["routes"]): number[][] => routes.map((route) => [...route].reverse());

/** Trees that spread from their roots in the ratio of the weights. */
function forestFor(problem: Problem, graph: ScaledGraph, weights: readonly number[], bound: Ratio): Forest {
  const { treesPerRoot, fewestSteps } = problem;
  if (fewestSteps) return breadthFirst(graph, weights);
  const exact = exactUnits(graph, weights, bound);
  const most = Math.max(...exact.roots.values());
  const isCut = treesPerRoot !== undefined && treesPerRoot < most;
  return buildForest(graph, isCut ? unitsForTrees(graph, weights, treesPerRoot, bound) : exact);
}

/** How long the busiest edge needs for all the trees, s/GB of all their data. */
function timeOf(graph: ScaledGraph, trees: readonly ScheduleTree[]): Rational {
  const nodeOf = new Map(graph.ids.map((id, node) => [id, node]));
  const loads = new LinkLoads(graph);
  for (const { weight, up = [], down = [] } of trees) {
    const amount = Rational.parse(weight);
    for (const route of [...up, ...down])
      loads.add(
        route.map((id) => nodeOf.get(id) as number),
        amount,
      );
  }
  return loads.time();
}

function treeOf(
  graph: ScaledGraph,
  tree: RoutedTree,
  total: number,
  ways: { down?: RoutedTree["routes"]; up?: RoutedTree["routes"] },
): ScheduleTree {
  return {
    root: graph.ids[tree.root] as string,
    weight: new Rational(BigInt(tree.amount), BigInt(total)).toString(),
    ...(ways.down === undefined ? {} : { down: ways.down.map((route) => idsOf(graph, route)) }),
    ...(ways.up === undefined ? {} : { up: ways.up.map((route) => idsOf(graph, route)) }),
  };
}

const gathersIn = ({ collective }: Problem): boolean => collective === "reduce_scatter" || collective === "reduce";

/** The bound of all-gather and broadcast; of reduce-scatter and reduce on the reversed graph. */
export function treesBound(problem: Problem): Pick<Outcome, "bound" | "witness"> & { readonly cut: Ratio } {
  const { graph } = problem;
  const weights = weightsOf(problem);
  const cut = gatherBound(gathersIn(problem) ? reversed(graph) : graph, weights);
  const unit = graph.unit.times(integer(sum(weights)));
  return { bound: rationalOf(cut).over(unit), witness: cutWitness(graph, cut.inside), cut };
}

export function byTrees(problem: Problem): Outcome {
  const { graph } = problem;
  const gathers = gathersIn(problem);
  const { cut, ...bound } = treesBound(problem);
  const forest = forestFor(problem, gathers ? reversed(graph) : graph, weightsOf(problem), cut);
  const trees = forest.trees.map((tree) =>
    treeOf(graph, tree, forest.total, gathers ? { up: turned(tree.routes) } : { down: tree.routes }),
  );
  return { ...bound, time: timeOf(graph, trees), height: forest.height, schedule: { kind: "trees", trees } };
}

export function treesBothWaysBound({ graph }: Problem): AllReduceBound {
  return allReduceBound(graph);
}

export async function byTreesBothWays(problem: Problem): Promise<Outcome> {
  const { graph, fewestSteps, treesPerRoot } = problem;
  const { outward, ...bound } = treesBothWaysBound(problem);
  const weights = graph.ranks.map(() => 1);
  const down = forestFor(problem, graph, weights, gatherBound(graph, weights));
  if (isSymmetric(graph)) {
    const mirrored = ({ trees, total }: Forest) =>
      trees.map((tree) => treeOf(graph, tree, total, { down: tree.routes, up: turned(tree.routes) }));
    const outcome = (forest: Forest): Outcome => {
      const trees = mirrored(forest);
      return { ...bound, time: timeOf(graph, trees), height: 2 * forest.height, schedule: { kind: "trees", trees } };
    };
    const simple = outcome(down);
    if (fewestSteps || treesPerRoot !== undefined || simple.time.equals(bound.bound)) return simple;
    const units = await allReduceUnits(
      graph,
      outward,
      outward.parts.map(({ inside }) => inside),
    );
    return units === undefined ? simple : outcome(buildForest(graph, units));
  }
  // Shards are reduced along one forest and spread along another; trees of one root are cut to common amounts.
  const back = reversed(graph);
  const up = forestFor(problem, back, weights, gatherBound(back, weights));
  const trees = paired(graph, down, up);
  return { ...bound, time: timeOf(graph, trees), height: down.height + up.height, schedule: { kind: "trees", trees } };
}

function paired(graph: ScaledGraph, down: Forest, up: Forest): ScheduleTree[] {
  const trees: ScheduleTree[] = [];
  for (const root of graph.ranks) {
    const ofRoot = ({ trees: all, total }: Forest) =>
      all
        .filter((tree) => tree.root === root)
        .map((tree) => ({ tree, left: new Rational(BigInt(tree.amount), BigInt(total)) }));
    const [spreads, gathers] = [ofRoot(down), ofRoot(up)];
    for (let i = 0, j = 0; i < spreads.length && j < gathers.length; ) {
      const [a, b] = [spreads[i] as (typeof spreads)[number], gathers[j] as (typeof gathers)[number]];
      const weight = a.left.compare(b.left) < 0 ? a.left : b.left;
      const ways = { down: a.tree.routes, up: turned(b.tree.routes) };
      trees.push({ ...treeOf(graph, a.tree, 1, ways), weight: weight.toString() });
      a.left = a.left.minus(weight);
      b.left = b.left.minus(weight);
      if (a.left.numerator === 0n) i++;
      if (b.left.numerator === 0n) j++;
    }
  }
  return trees;
}
