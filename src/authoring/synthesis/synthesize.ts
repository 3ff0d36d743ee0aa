/**
 * The optimum of a collective on a network: the bound with its witness, and a schedule that reaches it (or the gap).
 * What each collective is: all-gather, broadcast: trees by cuts; reduce-scatter, reduce: the same on the reversed network;
 * all-reduce: trees both ways by partitions; scatter, gather: one flow; all-to-all: a linear program.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import {
  type CertifiedCollective,
  type CheckedNetwork,
  checkNetwork,
  type Network,
  Rational,
  type Schedule,
  type ScheduleTree,
  type Witness,
} from "../certificate/index.ts";
import { allReduceUnits, isSymmetric } from "./all-reduce-forest.ts";
import { allToAll, type PathUse, pathWithFlow } from "./all-to-all.ts";
import { type CutBound, gatherBound, type Ratio, scatterBound } from "./cut-bounds.ts";
import { buildForest, exactUnits, type Forest, type RoutedTree, type TreeUnits, unitsForTrees } from "./forest.ts";
import { FlowGraph, LARGEST_EXACT } from "./max-flow.ts";
import { type PartitionBound, partitionBound } from "./partition-bound.ts";
import { commonIntegerWeights } from "./round.ts";
import { leaving, reversed, type ScaledGraph, scaleNetwork } from "./scaled-graph.ts";

export interface SynthesisOptions {
  /** Rank that a rooted collective starts from or ends at, by its place among the ranks; 0 by default. */
  readonly root?: number;
  /** What share of the data is each rank's, as fractions that sum to 1; equal by default. */
  readonly shares?: readonly string[];
  /** At most this many trees for each rank's share (or for the payload): coarser chunks, a little slower. */
  readonly treesPerRoot?: number;
}

export interface Synthesis {
  readonly collective: CertifiedCollective;
  readonly network: Network;
  readonly options: SynthesisOptions;
  /** No schedule takes less: seconds for 1 GB, bandwidth alone. */
  readonly bound: Rational;
  readonly witness: Witness;
  /** What the schedule takes. */
  readonly time: Rational;
  readonly schedule: Schedule;
  /** Steps between ranks on the longest way of any data. */
  readonly height: number;
  /** The schedule takes no longer than the bound. */
  readonly isOptimal: boolean;
}

interface Problem {
  readonly net: CheckedNetwork;
  readonly graph: ScaledGraph;
  readonly collective: CertifiedCollective;
  readonly root: number;
  /** Integers in the ratio of the shares, by rank. */
  readonly weights: readonly number[];
  readonly treesPerRoot: number | undefined;
}

type Outcome = Pick<Synthesis, "bound" | "witness" | "time" | "schedule" | "height">;

const ratio = ({ above, below }: Ratio): Rational => new Rational(BigInt(above), BigInt(below));
const integer = (value: number): Rational => new Rational(BigInt(value));
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

function idsOf(graph: ScaledGraph, nodes: Iterable<number>): string[] {
  return [...nodes].map((node) => graph.ids[node] as string);
}

function cutWitness(graph: ScaledGraph, inside: Uint8Array): Witness {
  return { kind: "cut", inside: nodesOf(graph, inside) };
}

/** Trees that spread from their roots; `time` in units of the graph for one unit of weight. */
interface Spread {
  readonly bound: CutBound;
  readonly time: Ratio;
  readonly forest: Forest;
}

function spread({ treesPerRoot }: Problem, graph: ScaledGraph, weights: readonly number[]): Spread {
  const bound = gatherBound(graph, weights);
  const exact = exactUnits(graph, weights, bound);
  const most = Math.max(...exact.roots.values());
  const units: TreeUnits & { time?: Ratio } =
    treesPerRoot !== undefined && treesPerRoot < most ? unitsForTrees(graph, weights, treesPerRoot, bound) : exact;
  return { bound, time: units.time ?? bound, forest: buildForest(graph, units) };
}

const turned = (routes: RoutedTree["routes"]): number[][] => routes.map((route) => [...route].reverse());

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

/** all-gather and broadcast; reduce-scatter and reduce on the reversed graph, where gathering is spreading. */
function byTrees(problem: Problem): Outcome {
  const { collective, graph } = problem;
  const gathers = collective === "reduce_scatter" || collective === "reduce";
  const weights =
    collective === "broadcast" || collective === "reduce"
      ? graph.ranks.map((node) => (node === problem.root ? 1 : 0))
      : problem.weights;
  const { bound, time, forest } = spread(problem, gathers ? reversed(graph) : graph, weights);
  const unit = graph.unit.times(integer(sum(weights)));
  return {
    bound: ratio(bound).over(unit),
    witness: cutWitness(graph, bound.inside),
    time: ratio(time).over(unit),
    height: forest.height,
    schedule: {
      kind: "trees",
      trees: forest.trees.map((tree) =>
        treeOf(graph, tree, forest.total, gathers ? { up: turned(tree.routes) } : { down: tree.routes }),
      ),
    },
  };
}

/** One flow from the root to everybody, cut into paths; to the root on the reversed graph. */
function byPaths(problem: Problem): Outcome {
  const gathers = problem.collective === "gather";
  const graph = gathers ? reversed(problem.graph) : problem.graph;
  const { root, weights } = problem;
  const { flow, links, ...bound } = scatterBound(graph, root, weights);
  const left = links.map((link) => flow.flowOf(link));
  const outgoing: number[][] = graph.ids.map(() => []);
  for (const [edge, { from }] of graph.edges.entries()) outgoing[from]?.push(edge);
  const paths: PathUse[] = [];
  for (const [rank, node] of graph.ranks.entries()) {
    if (node === root) continue;
    for (let due = (weights[rank] as number) * bound.below; due > 0; ) {
      const path = pathWithFlow(graph, outgoing, left, root, node) as number[];
      const amount = path.reduce((least, edge) => Math.min(least, left[edge] as number), due);
      for (const edge of path) left[edge] = (left[edge] as number) - amount;
      const nodes = [root, ...path.map((edge) => graph.edges[edge]?.to as number)];
      const share = new Rational(BigInt(amount), BigInt(bound.below) * BigInt(sum(weights)));
      paths.push({ amount: share, nodes: gathers ? nodes.reverse() : nodes });
      due -= amount;
    }
  }
  const time = ratio(bound).over(graph.unit.times(integer(sum(weights))));
  return { bound: time, time, witness: cutWitness(graph, bound.inside), ...pathSchedule(graph, paths) };
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

interface ReduceBound {
  readonly bound: Rational;
  readonly witness: Witness;
  /** The partition by what leaves its parts, which is the bound on symmetric networks. */
  readonly outward: PartitionBound;
}

const nodesOf = (graph: ScaledGraph, inside: Uint8Array): string[] =>
  idsOf(
    graph,
    [...graph.ids.keys()].filter((node) => inside[node]),
  );

/** What a partition proves: the lesser of what leaves its parts and what enters them counts. */
function partitionWitness(graph: ScaledGraph, { parts }: PartitionBound): { bound: Rational; witness: Witness } {
  const back = reversed(graph);
  let [out, into] = [0, 0];
  const sides = parts.map(({ ranks }) => {
    const members = new Set(ranks);
    const others = graph.ranks.filter((node) => !members.has(node));
    const [leave, enter] = [smallestCut(graph, ranks, others), smallestCut(back, ranks, others)];
    out += leaving(graph, leave);
    into += leaving(back, enter);
    return { out: nodesOf(graph, leave), in: nodesOf(graph, enter) };
  });
  const bound = integer(2 * (parts.length - 1)).over(integer(Math.min(out, into)));
  return { bound, witness: { kind: "partition", parts: sides } };
}

/** The best of: partitions by what leaves the parts, by what enters them, and single cuts. */
function allReduceBound(graph: ScaledGraph): ReduceBound {
  const outward = partitionBound(graph);
  let best = partitionWitness(graph, outward);
  if (!isSymmetric(graph)) {
    const inward = partitionWitness(graph, partitionBound(reversed(graph)));
    if (inward.bound.compare(best.bound) > 0) best = inward;
    // A cut is a bound by itself, and on one-way networks may be the better one: each rank must hear from every other.
    for (const root of graph.ranks) {
      const cut = gatherBound(
        graph,
        graph.ranks.map((node) => (node === root ? 1 : 0)),
      );
      if (ratio(cut).compare(best.bound) > 0) best = { bound: ratio(cut), witness: cutWitness(graph, cut.inside) };
    }
  }
  return { bound: best.bound.over(graph.unit), witness: best.witness, outward };
}

function smallestCut(graph: ScaledGraph, from: readonly number[], to: readonly number[]): Uint8Array {
  const flow = new FlowGraph(graph.numNodes);
  for (const edge of graph.edges) flow.addEdge(edge.from, edge.to, edge.capacity);
  const [source, sink] = [flow.addNode(), flow.addNode()];
  const endless = LARGEST_EXACT / 4096;
  for (const node of from) flow.addEdge(source, node, endless);
  for (const node of to) flow.addEdge(node, sink, endless);
  flow.maxFlow(source, sink);
  return flow.sourceSide(source).slice(0, graph.numNodes);
}

async function byTreesBothWays(problem: Problem): Promise<Outcome> {
  const { graph } = problem;
  const { bound, witness, outward } = allReduceBound(graph);
  const weights = graph.ranks.map(() => 1);
  const down = spread(problem, graph, weights);
  if (isSymmetric(graph)) {
    const twice = ratio(down.time)
      .times(integer(2))
      .over(graph.unit.times(integer(graph.ranks.length)));
    const free = problem.treesPerRoot === undefined && !twice.equals(bound);
    const units = free
      ? await allReduceUnits(
          graph,
          outward,
          outward.parts.map(({ inside }) => inside),
        )
      : undefined;
    const forest = units === undefined ? down.forest : buildForest(graph, units);
    const trees = forest.trees.map((tree) =>
      treeOf(graph, tree, forest.total, { down: tree.routes, up: turned(tree.routes) }),
    );
    const time = units === undefined ? twice : bound;
    return { bound, witness, time, height: 2 * forest.height, schedule: { kind: "trees", trees } };
  }
  // Shards are reduced along one forest and spread along another; trees of one root are cut to common amounts.
  const up = spread(problem, reversed(graph), weights);
  const unit = graph.unit.times(integer(graph.ranks.length));
  return {
    bound,
    witness,
    time: ratio(down.time).plus(ratio(up.time)).over(unit),
    height: down.forest.height + up.forest.height,
    schedule: { kind: "trees", trees: paired(graph, down.forest, up.forest) },
  };
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

async function betweenAll({ net, graph }: Problem): Promise<Outcome> {
  const result = await allToAll(net, graph);
  if (result === undefined) {
    throw new InvalidArgumentError(
      "network",
      `${graph.ranks.length} ranks and ${graph.edges.length} edges`,
      "a network whose all-to-all can be solved: ranks times edges at most 20,000",
    );
  }
  const unit = graph.unit.times(integer(graph.ranks.length));
  const lengths = graph.edges.flatMap(({ from, to }, edge) => {
    const length = result.lengths[edge] as Rational;
    return length.numerator === 0n
      ? []
      : [{ from: graph.ids[from] as string, to: graph.ids[to] as string, length: length.toString() }];
  });
  const share = new Rational(1n, BigInt(graph.ranks.length));
  const paths = result.paths.map(({ amount, nodes }) => ({ amount: amount.times(share), nodes }));
  return {
    bound: result.bound.over(unit),
    time: result.time.over(unit),
    witness: { kind: "lengths", lengths },
    ...pathSchedule(graph, paths),
  };
}

const BY: Readonly<Record<CertifiedCollective, (problem: Problem) => Outcome | Promise<Outcome>>> = {
  all_gather: byTrees,
  reduce_scatter: byTrees,
  broadcast: byTrees,
  reduce: byTrees,
  scatter: byPaths,
  gather: byPaths,
  all_reduce: byTreesBothWays,
  all_to_all: betweenAll,
};

function problemOf(network: Network, collective: CertifiedCollective, options: SynthesisOptions): Problem {
  const net = checkNetwork(network);
  const graph = scaleNetwork(net);
  const { root = 0, shares, treesPerRoot } = options;
  const rootNode = graph.ranks[root];
  if (rootNode === undefined)
    throw new InvalidArgumentError("root", root, `a rank from 0 to ${graph.ranks.length - 1}`);
  if (treesPerRoot !== undefined && !(Number.isInteger(treesPerRoot) && treesPerRoot >= 1)) {
    throw new InvalidArgumentError("treesPerRoot", treesPerRoot, "an integer, 1 or more");
  }
  const fractions = shares?.map((share) => Rational.parse(share));
  if (fractions !== undefined) {
    const total = fractions.reduce((a, b) => a.plus(b), Rational.ZERO);
    if (
      fractions.length !== graph.ranks.length ||
      !total.equals(Rational.ONE) ||
      fractions.some(({ numerator }) => numerator < 0n)
    ) {
      throw new InvalidArgumentError("shares", shares, `${graph.ranks.length} fractions of 0 or more that sum to 1`);
    }
  }
  const weights = fractions === undefined ? graph.ranks.map(() => 1) : commonIntegerWeights(fractions);
  return { net, graph, collective, root: rootNode, weights, treesPerRoot };
}

/**
 * Finds the optimum of a collective on a network and a schedule for it.
 * @returns exact fractions; `isOptimal` says whether the schedule reaches the bound
 * @throws FormatError for an invalid network; UnsupportedError when ranks are not connected; InvalidArgumentError for
 *   options out of range and for capacities or sizes beyond what is computed exactly
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
  const outcome = await BY[collective](problem);
  return { collective, network, options, ...outcome, isOptimal: outcome.time.equals(outcome.bound) };
}
