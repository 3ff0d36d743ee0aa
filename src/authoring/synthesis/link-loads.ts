/** How busy a schedule keeps the links: exact fractions, and the longest of them is its time. */
import { Rational } from "./rational.ts";
import type { ScaledGraph } from "./scaled-graph.ts";

/** The routes of a tree: away from its root, towards it, or both. */
export interface Ways {
  readonly down?: readonly (readonly number[])[];
  readonly up?: readonly (readonly number[])[];
}

/** Seconds for 1 GB of data of which each tree carries amount / total. */
export function waysTime(
  graph: ScaledGraph,
  total: number,
  trees: readonly (Ways & { readonly amount: number })[],
): Rational {
  const edgeOf = new Map(graph.edges.map(({ from, to }, i) => [from * graph.numNodes + to, i]));
  // Integers: an edge carries each tree at most twice for every rank, which stays exact but for huge weights.
  const isExact = total * 2 * graph.ranks.length <= Number.MAX_SAFE_INTEGER;
  if (!isExact) {
    const loads = new LinkLoads(graph);
    for (const { amount, down = [], up = [] } of trees)
      for (const route of [...down, ...up]) loads.add(route, new Rational(BigInt(amount), BigInt(total)));
    return loads.time();
  }
  const loads = new Float64Array(graph.edges.length);
  for (const { amount, down = [], up = [] } of trees) {
    for (const routes of [down, up]) {
      for (const route of routes) {
        for (let i = 1; i < route.length; i++) {
          const edge = edgeOf.get((route[i - 1] as number) * graph.numNodes + (route[i] as number)) as number;
          loads[edge] = (loads[edge] as number) + amount;
        }
      }
    }
  }
  let longest = Rational.ZERO;
  for (const [edge, { capacity }] of graph.edges.entries()) {
    const busy = new Rational(BigInt(loads[edge] as number), BigInt(capacity));
    if (busy.compare(longest) > 0) longest = busy;
  }
  return longest.over(graph.unit.times(new Rational(BigInt(total))));
}

export class LinkLoads {
  readonly #graph: ScaledGraph;
  readonly #edgeOf: ReadonlyMap<number, number>;
  /** By edge, sums by denominator: weights of a schedule have few. */
  readonly #loads: readonly Map<bigint, bigint>[];

  constructor(graph: ScaledGraph) {
    this.#graph = graph;
    this.#edgeOf = new Map(graph.edges.map(({ from, to }, i) => [from * graph.numNodes + to, i]));
    this.#loads = graph.edges.map(() => new Map<bigint, bigint>());
  }

  add(route: readonly number[], { numerator, denominator }: Rational): void {
    for (let i = 1; i < route.length; i++) {
      const edge = this.#edgeOf.get((route[i - 1] as number) * this.#graph.numNodes + (route[i] as number));
      const load = this.#loads[edge as number] as Map<bigint, bigint>;
      load.set(denominator, (load.get(denominator) ?? 0n) + numerator);
    }
  }

  /** Seconds for all the data that weights of 1 stand for, 1 GB. */
  time(): Rational {
    let longest = Rational.ZERO;
    for (const [edge, load] of this.#loads.entries()) {
      let sum = Rational.ZERO;
      for (const [below, above] of load) sum = sum.plus(new Rational(above, below));
      const busy = sum.over(new Rational(BigInt(this.#graph.edges[edge]?.capacity as number)));
      if (busy.compare(longest) > 0) longest = busy;
    }
    return longest.over(this.#graph.unit);
  }
}
