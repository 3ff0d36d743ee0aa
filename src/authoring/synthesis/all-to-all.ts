/**
 * All-to-all: the largest concurrent flow between all pairs, with commodities grouped by source. The prices of the links
 * are lengths, and traffic times distance against capacity times length is the witness (linear-programming duality;
 * Shahrokhi, Matula 1990). The solver's numbers are rounded to exact ones and checked.
 */

import { gatherBound } from "./cut-bounds.ts";
import { distances } from "./distances.ts";
import { solveLinearProgram } from "./linear-program.ts";
import type { CheckedNetwork } from "./network.ts";
import { commonDenominator, Rational } from "./rational.ts";
import { commonIntegers } from "./round.ts";
import { outgoingOf, type ScaledGraph } from "./scaled-graph.ts";

/** Larger programs take minutes. */
const MAX_ALL_TO_ALL_COLUMNS = 20_000;
const LONGEST_SECONDS = 120;

export interface PathUse {
  readonly amount: Rational;
  readonly nodes: readonly number[];
}

export interface AllToAll {
  /** Lengths of the graph's edges, 0 for most. */
  readonly lengths: readonly Rational[];
  /** Time for one unit between each ordered pair, in units of 1 / capacity unit: what the lengths prove. */
  readonly bound: Rational;
  /** Paths for one unit between each pair. */
  readonly paths: readonly PathUse[];
  /** What the paths take; more than the bound where the solver's numbers could not be made exact. */
  readonly time: Rational;
}

/** The bound that given lengths prove. */
export function boundByLengths(net: CheckedNetwork, graph: ScaledGraph, lengths: readonly Rational[]): Rational {
  const common = commonDenominator(lengths);
  const integers = lengths.map(({ numerator, denominator }) => numerator * (common / denominator));
  let needed = 0n;
  for (const source of graph.ranks) {
    const reached = distances(net, integers, source);
    for (const target of graph.ranks) needed += reached[target] ?? 0n;
  }
  let offered = 0n;
  for (const [i, { capacity }] of graph.edges.entries()) offered += BigInt(capacity) * (integers[i] as bigint);
  return new Rational(needed, offered);
}

/** Solves the program; undefined when it is too large or was not solved in time. */
export async function allToAll(net: CheckedNetwork, graph: ScaledGraph): Promise<AllToAll | undefined> {
  const { edges, ranks } = graph;
  const numFlows = ranks.length * edges.length;
  if (numFlows > MAX_ALL_TO_ALL_COLUMNS) return undefined;
  const column = (source: number, edge: number) => source * edges.length + edge;
  // In units of the widest link: solvers take coefficients far from 1 for 0.
  const widest = edges.reduce((most, { capacity }) => Math.max(most, capacity), 0);
  const rows: { terms: Map<number, number>; relation: "<=" | "="; right: number }[] = edges.map(
    ({ capacity }, edge) => ({
      terms: new Map(
        [...ranks.keys()]
          .map((source) => [column(source, edge), 1] as [number, number])
          .concat([[numFlows, -capacity / widest]]),
      ),
      relation: "<=",
      right: 0,
    }),
  );
  for (const [source, from] of ranks.entries()) {
    for (const [node, isRank] of graph.isRank.entries()) {
      if (node === from) continue;
      const terms = new Map<number, number>();
      for (const [edge, { from: tail, to: head }] of edges.entries()) {
        if (head === node) terms.set(column(source, edge), 1);
        else if (tail === node) terms.set(column(source, edge), -1);
      }
      if (terms.size > 0) rows.push({ terms, relation: "=", right: isRank ? 1 : 0 });
    }
  }
  const solution = await solveLinearProgram(
    { numColumns: numFlows + 1, objective: new Map([[numFlows, 1]]), rows },
    Math.min(LONGEST_SECONDS, graph.deadline?.leftSeconds ?? LONGEST_SECONDS),
  );
  if (solution === undefined) graph.deadline?.check();
  if (solution === undefined) return undefined;
  const lengths = roundedLengths(solution.prices.subarray(0, edges.length));
  const bound = boundByLengths(net, graph, lengths);
  return { lengths, bound, ...pathsOf(graph, solution.columns.subarray(0, numFlows)) };
}

/** Prices of links as fractions: small ratios of the largest where there are such, else to nine digits. */
function roundedLengths(prices: Float64Array): Rational[] {
  const sizes = prices.map((price) => (Math.abs(price) < 1e-11 ? 0 : Math.abs(price)));
  const largest = sizes.reduce((a, b) => Math.max(a, b), 0);
  if (largest === 0) return Array.from(sizes, () => Rational.ONE);
  const ratios = sizes.map((size) => size / largest);
  const { q, integers } = commonIntegers(ratios) ?? {
    q: 1e9,
    integers: Array.from(ratios, (ratio) => Math.round(ratio * 1e9)),
  };
  return integers.map((value) => new Rational(BigInt(value), BigInt(q)));
}

/**
 * Lengths for networks whose program is too large: the same for all edges, by capacity, or 1 on the edges of the tightest
 * cut; whichever proves most. Any lengths prove a bound; these are tight on symmetric networks and where a cut binds.
 */
export function guessedLengths(net: CheckedNetwork, graph: ScaledGraph): readonly Rational[] {
  const { inside } = gatherBound(graph);
  const widest = graph.edges.reduce((most, { capacity }) => Math.max(most, capacity), 0);
  const guesses: ((edge: ScaledGraph["edges"][number]) => Rational)[] = [
    () => Rational.ONE,
    ({ capacity }) => new Rational(BigInt(widest), BigInt(capacity)),
    ({ from, to }) => (inside[from] && !inside[to] ? Rational.ONE : Rational.ZERO),
  ];
  const tried = guesses.map((guess) => {
    const lengths = graph.edges.map(guess);
    return { lengths, bound: boundByLengths(net, graph, lengths) };
  });
  return tried.reduce((best, one) => (one.bound.compare(best.bound) > 0 ? one : best)).lengths;
}

/** Flows are cut to this part of the whole where they have no small common denominator. */
const GRAIN = 1_000_000;

/** Cuts flows into paths that carry exactly one unit for each pair, and says how long the busiest edge takes. */
function pathsOf(graph: ScaledGraph, flows: Float64Array): { paths: PathUse[]; time: Rational } {
  const { q, integers } = commonIntegers(flows) ?? {
    q: GRAIN,
    integers: Array.from(flows, (x) => Math.round(x * GRAIN)),
  };
  const { edges } = graph;
  const loads = new Array<number>(edges.length).fill(0);
  const anyFlow = new Array<number>(edges.length).fill(q);
  const outgoing = outgoingOf(graph);
  const paths: PathUse[] = [];
  for (const [source, from] of graph.ranks.entries()) {
    const flow = integers.slice(source * edges.length, (source + 1) * edges.length);
    for (const to of graph.ranks) {
      if (to === from) continue;
      graph.deadline?.check();
      for (let due = q; due > 0; ) {
        // What rounding lost goes by a shortest path; exact flows never need it.
        const found = pathWithFlow(graph, outgoing, flow, from, to);
        const path = found ?? (pathWithFlow(graph, outgoing, anyFlow, from, to) as number[]);
        const amount =
          found === undefined ? due : path.reduce((least, edge) => Math.min(least, flow[edge] as number), due);
        for (const edge of path) {
          flow[edge] = (flow[edge] as number) - amount;
          loads[edge] = (loads[edge] as number) + amount;
        }
        const nodes = [from, ...path.map((edge) => edges[edge]?.to as number)];
        paths.push({ amount: new Rational(BigInt(amount), BigInt(q)), nodes });
        due -= amount;
      }
    }
  }
  let time = Rational.ZERO;
  for (const [edge, { capacity }] of edges.entries()) {
    const busy = new Rational(BigInt(loads[edge] as number), BigInt(q) * BigInt(capacity));
    if (busy.compare(time) > 0) time = busy;
  }
  return { paths, time };
}

/** The edges of a shortest path that has flow on every edge. */
export function pathWithFlow(
  graph: ScaledGraph,
  outgoing: readonly (readonly number[])[],
  flow: ArrayLike<number>,
  from: number,
  to: number,
): number[] | undefined {
  const via = new Int32Array(graph.numNodes).fill(-1);
  const queue = [from];
  for (const node of queue) {
    for (const edge of outgoing[node] as readonly number[]) {
      const next = graph.edges[edge]?.to as number;
      if ((flow[edge] as number) <= 0 || next === from || via[next] !== -1) continue;
      via[next] = edge;
      if (next === to) {
        const path: number[] = [];
        for (let at = to; at !== from; at = graph.edges[via[at] as number]?.from as number)
          path.unshift(via[at] as number);
        return path;
      }
      queue.push(next);
    }
  }
  return undefined;
}
