/** A network in integers: capacities over their common denominator, which max-flow computes with exactly. */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { Witness } from "../certificate/index.ts";
import type { Deadline } from "./deadline.ts";
import { LARGEST_EXACT } from "./max-flow.ts";
import type { CheckedNetwork } from "./network.ts";
import { commonDenominator, greatestDivisor, Rational } from "./rational.ts";

export interface ScaledEdge {
  readonly from: number;
  readonly to: number;
  readonly capacity: number;
}

export interface ScaledGraph {
  readonly ids: readonly string[];
  readonly numNodes: number;
  /** Node numbers in rank order. */
  readonly ranks: readonly number[];
  readonly isRank: readonly boolean[];
  /** Edges of the network in its order; edges of capacity 0 do not occur. */
  readonly edges: readonly ScaledEdge[];
  /** GB/s of one unit of capacity. */
  readonly unit: Rational;
  /** When whatever is sought of the graph has to end. */
  readonly deadline?: Deadline;
}

/**
 * Flows are exact up to `LARGEST_EXACT`; they carry capacities times weights, and the searches for partitions and trees add
 * a few such sums.
 */
export const LARGEST_TOTAL = 2 ** Math.floor(Math.log2(LARGEST_EXACT / 8));

/** The greatest common divisor of two integers of 0 or more. */
export function gcd(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y !== 0) [x, y] = [y, x % y];
  return x;
}

/**
 * Scales a network to integers without a common divisor.
 * @throws InvalidArgumentError when capacities need numbers of more than 50 bits: give them with fewer digits
 */
export function scaleNetwork(net: CheckedNetwork, deadline?: Deadline): ScaledGraph {
  const denominator = commonDenominator(net.edges.map(({ capacity }) => capacity));
  const integers = net.edges.map(({ capacity }) => capacity.numerator * (denominator / capacity.denominator));
  const common = integers.reduce(greatestDivisor, 0n) || 1n;
  const capacities = integers.map((capacity) => Number(capacity / common));
  const graph: ScaledGraph = {
    ids: net.ids,
    numNodes: net.ids.length,
    ranks: net.ranks,
    isRank: net.isRank,
    edges: net.edges.map(({ from, to }, i) => ({ from, to, capacity: capacities[i] as number })),
    unit: new Rational(common, denominator),
    ...(deadline === undefined ? {} : { deadline }),
  };
  const total = totalCapacity(graph) * net.ranks.length;
  if (!(total <= LARGEST_TOTAL)) {
    throw new InvalidArgumentError(
      "capacities",
      described(`fractions over ${denominator}`),
      `numbers with fewer digits: in common units they sum to ${total.toExponential(1)} over the ranks, of at most ${LARGEST_TOTAL.toExponential(1)}`,
    );
  }
  return graph;
}

/** The sum of all capacities: no cut is larger, so one more is as good as endless. */
export function totalCapacity({ edges }: Pick<ScaledGraph, "edges">): number {
  return edges.reduce((sum, { capacity }) => sum + capacity, 0);
}

const turned = new WeakMap<ScaledGraph, ScaledGraph>();

/** The same graph with every edge turned round: what gathers there spreads here. One graph each, whoever asks. */
export function reversed(graph: ScaledGraph): ScaledGraph {
  let back = turned.get(graph);
  if (back === undefined) {
    back = { ...graph, edges: graph.edges.map(({ from, to, capacity }) => ({ from: to, to: from, capacity })) };
    turned.set(graph, back);
  }
  return back;
}

/** Capacity that leaves a set of nodes. */
export function leaving(graph: ScaledGraph, inside: ArrayLike<number | boolean>): number {
  let sum = 0;
  for (const { from, to, capacity } of graph.edges) if (inside[from] && !inside[to]) sum += capacity;
  return sum;
}

/** The least common multiple of two positive integers. */
export function leastCommonMultiple(a: number, b: number): number {
  return (a / gcd(a, b)) * b;
}

export function idsOf(graph: ScaledGraph, nodes: Iterable<number>): string[] {
  return [...nodes].map((node) => graph.ids[node] as string);
}

export const nodesOf = (graph: ScaledGraph, inside: Uint8Array): string[] =>
  idsOf(
    graph,
    [...graph.ids.keys()].filter((node) => inside[node]),
  );

export function cutWitness(graph: ScaledGraph, inside: Uint8Array): Witness {
  return { kind: "cut", inside: nodesOf(graph, inside) };
}

/** Numbers of the edges that leave each node. */
export function outgoingOf(graph: ScaledGraph): readonly (readonly number[])[] {
  const outgoing: number[][] = graph.ids.map(() => []);
  for (const [edge, { from }] of graph.edges.entries()) outgoing[from]?.push(edge);
  return outgoing;
}
