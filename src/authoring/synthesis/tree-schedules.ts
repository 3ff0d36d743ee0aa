/**
 * Schedules of trees: all-gather and broadcast spread from their roots; reduce-scatter and reduce are the same on the
 * reversed network; all-reduce goes up each tree and down again.
 */
import type { NetworkRoute, ScheduleTree } from "../certificate/index.ts";
import { type AllReduceBound, allReduceBound } from "./all-reduce-bound.ts";
import { breadthFirst } from "./breadth-first.ts";
import { type CutBound, gatherBound, type Ratio, rationalOf } from "./cut-bounds.ts";
import { unlessLate } from "./deadline.ts";
import { buildForest, exactUnits, type Forest, type RoutedTree, type TreeUnits, unitsForTrees } from "./forest.ts";
import { leastHeight, leastHeightBothWays } from "./height-bound.ts";
import { LinkLoads, type Ways, waysTime } from "./link-loads.ts";
import { bestLinkUse, isBalanced, isSymmetric } from "./link-use.ts";
import { type OrbitForest, type OrbitForestOptions, orbitForest } from "./orbit-forest.ts";
import type { Bound, Outcome } from "./outcome.ts";
import { type Problem, weightsOf } from "./problem.ts";
import { Rational } from "./rational.ts";
import { cutWitness, idsOf, reversed, type ScaledGraph } from "./scaled-graph.ts";
import { MAX_CHUNKS } from "./schedule-layout.ts";
import { oncePerRoute } from "./shared-routes.ts";

const integer = (value: number): Rational => new Rational(BigInt(value));
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
/** Turns the routes of trees; equal ones stay one array. */
function turner(): (routes: RoutedTree["routes"]) => (readonly number[])[] {
  const turned = oncePerRoute((route) => [...route].reverse());
  return (routes) => routes.map(turned);
}

/** Up to so many ranks relays are split off and trees packed, for whatever network; beyond, symmetry is tried first. */
const MOST_BY_SPLITTING = 32;
/** Up to so many, splitting and packing still end in a minute where symmetry leaves a gap; more, where there are no relays. */
const mostWhereSymmetryFails = ({ ranks, numNodes }: ScaledGraph): number => (ranks.length === numNodes ? 128 : 64);

/**
 * Trees that spread from their roots in the ratio of the weights. Where relays have more capacity in than out, trees are
 * packed into the best balanced use of the links; where that cannot be had exactly, their weights are rounded.
 * @param cut the bound of the graph, where it is known
 */
async function forestFor(
  problem: Problem,
  graph: ScaledGraph,
  weights: readonly number[],
  cut?: CutBound,
): Promise<Forest> {
  const { treesPerRoot, fewestSteps } = problem;
  const usable = fewestSteps || isBalanced(graph) ? graph : await balanced(graph, weights);
  if (fewestSteps) return breadthFirst(graph, weights);
  if (usable === undefined) return roundedForest(graph, weights, treesPerRoot);
  const bound = usable === graph && cut !== undefined ? cut : gatherBound(usable, weights);
  const busy = new Set([...usable.ids.keys()].filter((node) => bound.inside[node]));
  const least = leastHeight(usable, weights, busy);
  const trees = treesPerRoot === undefined ? {} : { trees: treesPerRoot };
  if (usable.ranks.length > MOST_BY_SPLITTING) {
    const large = await orbitForest(usable, weights, bound, { ...trees, least });
    const isDone = large?.isExact || treesPerRoot !== undefined || usable.ranks.length > mostWhereSymmetryFails(usable);
    if (large !== undefined && isDone)
      return treesPerRoot === undefined
        ? unlessLate<Forest>(large, () => programmable(large, usable, weights, bound, least))
        : large;
  }
  const exact = exactUnits(usable, weights, bound);
  const most = Math.max(...exact.roots.values());
  const isCut = treesPerRoot !== undefined && treesPerRoot < most;
  if (isCut) {
    const { capacities, roots } = unitsForTrees(usable, weights, treesPerRoot, bound);
    const packed = buildForest(usable, { capacities, roots });
    const used = withCapacities(usable, capacities);
    return lowest(
      packed,
      used,
      weights,
      { above: 1, below: treesPerRoot },
      { ...trees, least, mostParts: packed.total },
    );
  }
  return lowest(buildForest(usable, exact), usable, weights, bound, { ...trees, least });
}

/** Trees that are sought by their ways over relays, in rounded weights; or those of the fewest steps, where they are faster. */
async function roundedForest(
  graph: ScaledGraph,
  weights: readonly number[],
  treesPerRoot: number | undefined,
): Promise<Forest> {
  const fewest = breadthFirst(graph, weights);
  const trees = treesPerRoot === undefined ? {} : { trees: treesPerRoot };
  const rounded = await unlessLate(undefined, () => orbitForest(graph, weights, gatherBound(graph, weights), trees));
  if (rounded === undefined) return fewest;
  const time = (forest: Forest) => scheduleOf(graph, forest, ({ routes }) => ({ down: routes })).time;
  return time(rounded).compare(time(fewest)) < 0 ? rounded : fewest;
}

/** The forest, or one of as many steps whose parts are few enough for a plan, where its own are too many and one is found. */
async function programmable(
  forest: OrbitForest,
  graph: ScaledGraph,
  weights: readonly number[],
  bound: Ratio,
  least: number,
): Promise<Forest> {
  if (forest.total <= MAX_CHUNKS || graph.ranks.length > MOST_IN_PARTS) return forest;
  const options = { least, mostParts: MAX_CHUNKS, seconds: SECONDS_FOR_HEIGHT };
  return (await orbitForest(graph, weights, bound, options)) ?? forest;
}

/** The packed forest, or one of lower trees that takes as long where column generation finds it. */
async function lowest(
  packed: Forest,
  graph: ScaledGraph,
  weights: readonly number[],
  bound: Ratio,
  options: OrbitForestOptions & { readonly least: number },
): Promise<Forest> {
  if (packed.height <= options.least) return packed;
  const other = await unlessLate(undefined, () =>
    orbitForest(graph, weights, bound, {
      mostParts: mostPartsBeside(packed),
      ...options,
      seconds: SECONDS_FOR_HEIGHT,
    }),
  );
  if (other === undefined || !other.isExact || other.height > packed.height) return packed;
  return other.height < packed.height || other.trees.length < packed.trees.length ? other : packed;
}

/** A plan of more ranks has too many hops to be of use: parts of theirs are not made fewer. */
const MOST_IN_PARTS = 128;
/** How long column generation may take where packing has found a forest already. */
const SECONDS_FOR_HEIGHT = 3;
/** Lower trees are not worth more parts: plans have at most four times as many chunks. */
const MOST_PARTS = MAX_CHUNKS / 4;
/** Where no exact forest can become a plan, their number says nothing. */
const mostPartsBeside = ({ total }: Forest): number => (total <= MAX_CHUNKS ? MOST_PARTS : Number.POSITIVE_INFINITY);

/** The graph with only what trees can use of its links. */
async function balanced(graph: ScaledGraph, weights: readonly number[]): Promise<ScaledGraph | undefined> {
  const use = await bestLinkUse(graph, "spread", { weights });
  if (use === undefined) return undefined;
  return withCapacities(graph, use.down);
}

function withCapacities(graph: ScaledGraph, capacities: readonly number[]): ScaledGraph {
  const edges = graph.edges.map(({ from, to }, i) => ({ from, to, capacity: capacities[i] as number }));
  return { ...graph, edges: edges.filter(({ capacity }) => capacity > 0) };
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

type Namer = (route: readonly number[]) => NetworkRoute;
const namerOf = (graph: ScaledGraph): Namer => oncePerRoute((route) => idsOf(graph, route));

function treeOf(graph: ScaledGraph, tree: RoutedTree, total: number, ways: Ways, named: Namer): ScheduleTree {
  return {
    root: graph.ids[tree.root] as string,
    weight: new Rational(BigInt(tree.amount), BigInt(total)).toString(),
    ...(ways.down === undefined ? {} : { down: ways.down.map(named) }),
    ...(ways.up === undefined ? {} : { up: ways.up.map(named) }),
  };
}

/** The schedule of a forest whose trees go these ways, and its time. */
function scheduleOf(graph: ScaledGraph, { trees, total }: Forest, ways: (tree: RoutedTree) => Ways) {
  const listed = trees.map((tree) => ({ tree, ways: ways(tree) }));
  const time = waysTime(
    graph,
    total,
    listed.map(({ tree: { amount }, ways }) => ({ amount, ...ways })),
  );
  const named = namerOf(graph);
  const schedule: Outcome["schedule"] = {
    kind: "trees",
    trees: listed.map(({ tree, ways }) => treeOf(graph, tree, total, ways, named)),
  };
  return { time, schedule };
}

const gathersIn = ({ collective }: Problem): boolean => collective === "reduce_scatter" || collective === "reduce";

/** The bound of all-gather and broadcast; of reduce-scatter and reduce on the reversed graph. */
export const treesBound = (problem: Problem): Bound => boundOf(problem, cutOf(problem));

const cuts = new WeakMap<ScaledGraph, CutBound>();

/** Sought once: a graph belongs to one problem. */
function cutOf(problem: Problem): CutBound {
  const { graph } = problem;
  const cut = cuts.get(graph) ?? gatherBound(gathersIn(problem) ? reversed(graph) : graph, weightsOf(problem));
  cuts.set(graph, cut);
  return cut;
}

function boundOf(problem: Problem, cut: CutBound): Bound {
  const { graph } = problem;
  const unit = graph.unit.times(integer(sum(weightsOf(problem))));
  return { bound: rationalOf(cut).over(unit), witness: cutWitness(graph, cut.inside) };
}

export async function byTrees(problem: Problem): Promise<Outcome> {
  const { graph } = problem;
  const gathers = gathersIn(problem);
  const cut = cutOf(problem);
  const bound = boundOf(problem, cut);
  const forest = await forestFor(problem, gathers ? reversed(graph) : graph, weightsOf(problem), cut);
  const turned = turner();
  const ways = ({ routes }: RoutedTree): Ways => (gathers ? { up: turned(routes) } : { down: routes });
  return { ...bound, ...scheduleOf(graph, forest, ways), height: forest.height };
}

const partitions = new WeakMap<ScaledGraph, AllReduceBound>();

export function treesBothWaysBound({ graph }: Problem): AllReduceBound {
  const bound = partitions.get(graph) ?? allReduceBound(graph);
  partitions.set(graph, bound);
  return bound;
}

export async function byTreesBothWays(problem: Problem): Promise<Outcome> {
  const { graph, fewestSteps, treesPerRoot } = problem;
  const { outward, ...bound } = treesBothWaysBound(problem);
  const outcome = (trees: ScheduleTree[], height: number): Outcome => ({
    ...bound,
    time: timeOf(graph, trees),
    height,
    schedule: { kind: "trees", trees },
  });
  const weights = graph.ranks.map(() => 1);
  const down = await forestFor(problem, graph, weights);
  const isFixed = fewestSteps || treesPerRoot !== undefined;
  if (isSymmetric(graph)) {
    const turned = turner();
    const mirrored = (forest: Forest): Outcome => ({
      ...bound,
      ...scheduleOf(graph, forest, ({ routes }) => ({ down: routes, up: turned(routes) })),
      height: 2 * forest.height,
    });
    const simple = mirrored(down);
    const least = leastHeightBothWays(graph);
    const isLowest = simple.height <= least && simple.time.equals(bound.bound);
    if (isFixed || isLowest) return simple;
    // A tree that carries data both ways may have any root: one in its middle.
    const isLarge = graph.ranks.length > MOST_BY_SPLITTING;
    const best = await unlessLate(simple, async () => {
      const free = await orbitForest(graph, weights, outward, {
        mode: "mirrored",
        least: least / 2,
        ...(isLarge ? {} : { mostParts: mostPartsBeside(down), seconds: SECONDS_FOR_HEIGHT }),
      });
      return free === undefined ? simple : fastest(simple, mirrored(free));
    });
    if (best.time.equals(bound.bound) || graph.ranks.length > mostWhereSymmetryFails(graph)) return best;
    return unlessLate(best, async () => {
      const use = await bestLinkUse(graph, "mirrored", { cuts: outward.parts.map(({ inside }) => inside) });
      return use === undefined
        ? best
        : fastest(best, mirrored(buildForest(graph, unitsOf(graph, use.down, use.shares))));
    });
  }
  // Shards are reduced along one forest and spread along another; trees of one root are cut to common amounts.
  const both = (spreads: Forest, gathers: Forest) =>
    outcome(paired(graph, spreads, gathers), spreads.height + gathers.height);
  const back = reversed(graph);
  const simple = both(down, await forestFor(problem, back, weights));
  if (isFixed || simple.time.equals(bound.bound)) return simple;
  return unlessLate(simple, async () => {
    const use = await bestLinkUse(graph, "apart");
    if (use?.up === undefined) return simple;
    const spreads = await forestOfUse(graph, use.down, use.shares);
    const gathers = await forestOfUse(back, use.up, use.shares);
    return fastest(simple, both(spreads, gathers));
  });
}

/** The forest that uses of each link what it was given, as low as is found. */
async function forestOfUse(graph: ScaledGraph, uses: readonly number[], shares: readonly number[]): Promise<Forest> {
  const packed = buildForest(graph, unitsOf(graph, uses, shares));
  const used = withCapacities(graph, uses);
  return lowest(packed, used, shares, { above: 1, below: 1 }, { least: leastHeight(used, shares) });
}

/** The faster outcome; of equally fast ones that of fewer steps. */
export function fastest(a: Outcome, b: Outcome): Outcome {
  const order = b.time.compare(a.time);
  return order < 0 || (order === 0 && b.height < a.height) ? b : a;
}

function unitsOf(graph: ScaledGraph, capacities: readonly number[], shares: readonly number[]): TreeUnits {
  return { capacities, roots: new Map(graph.ranks.map((node, rank) => [node, shares[rank] as number])) };
}

function paired(graph: ScaledGraph, down: Forest, up: Forest): ScheduleTree[] {
  const trees: ScheduleTree[] = [];
  const turned = turner();
  const named = namerOf(graph);
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
      trees.push({ ...treeOf(graph, a.tree, 1, ways, named), weight: weight.toString() });
      a.left = a.left.minus(weight);
      b.left = b.left.minus(weight);
      if (a.left.numerator === 0n) i++;
      if (b.left.numerator === 0n) j++;
    }
  }
  return trees;
}
