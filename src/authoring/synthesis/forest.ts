/**
 * From an optimum to trees: capacities in units of trees, relays removed, spanning trees packed, and every tree laid on
 * the physical routes of its edges. The result is exact: no link carries more than its capacity in units.
 */
import { GatherTest, type Ratio } from "./cut-bounds.ts";
import { LogicalGraph, type RoutePiece } from "./logical-graph.ts";
import { packTrees, type TreeClass } from "./pack-trees.ts";
import { type Roots, removeRelays } from "./remove-relays.ts";
import { gcd, type ScaledGraph } from "./scaled-graph.ts";

/** `amount` equal trees on the same routes; each route leads from parent to child and holds both. */
export interface RoutedTree {
  readonly root: number;
  readonly amount: number;
  readonly routes: readonly (readonly number[])[];
}

export interface Forest {
  readonly trees: readonly RoutedTree[];
  /** The sum of the amounts: a tree carries amount / total of all data. */
  readonly total: number;
  /** Edges between ranks on the longest way from a root to a rank. */
  readonly height: number;
}

/** Capacities and roots in units of trees, such that the roots can just send everything to every rank. */
export interface TreeUnits {
  /** By edge of the graph. */
  readonly capacities: readonly number[];
  readonly roots: Roots;
}

/** The smallest integers for a bound: links carry `above` times their capacity, ranks start `below` times their weight. */
export function exactUnits(graph: ScaledGraph, weights: readonly number[], { above, below }: Ratio): TreeUnits {
  let common = 0;
  for (const { capacity } of graph.edges) common = gcd(common, capacity * above);
  for (const weight of weights) common = gcd(common, weight * below);
  return {
    capacities: graph.edges.map(({ capacity }) => (capacity * above) / common),
    roots: new Map(graph.ranks.map((node, rank) => [node, ((weights[rank] as number) * below) / common])),
  };
}

/**
 * The fastest forest with `k` trees for each unit of weight: the least U such that links of floor(U * capacity) units
 * suffice. Only U = j / capacity matter, so it is searched among those.
 * @returns units, and the time: U / k for one unit of weight
 */
export function unitsForTrees(
  graph: ScaledGraph,
  weights: readonly number[],
  k: number,
  bound: Ratio,
): TreeUnits & { readonly time: Ratio } {
  const scaled = weights.map((weight) => weight * k);
  const distinct = [...new Set(graph.edges.map(({ capacity }) => capacity))];
  const feasible = ({ above, below }: Ratio): number[] | undefined => {
    const capacities = graph.edges.map(({ capacity }) => Math.floor((above * capacity) / below));
    const floored = { ...graph, edges: graph.edges.map((edge, i) => ({ ...edge, capacity: capacities[i] as number })) };
    return new GatherTest(floored, scaled).violated({ above: 1, below: 1 }) === undefined ? capacities : undefined;
  };
  // For each capacity the least j is found by halving; the answer is the least j / capacity over all of them.
  let best: { time: Ratio; capacities: number[] } | undefined;
  for (const capacity of distinct) {
    let low = Math.max(1, Math.ceil((k * bound.above * capacity) / bound.below)) - 1;
    let high = low + 1;
    const cap = best === undefined ? Number.POSITIVE_INFINITY : (best.time.above * capacity) / best.time.below;
    let found: number[] | undefined;
    for (let step = 1; high < cap; step *= 2) {
      found = feasible({ above: high, below: capacity });
      if (found !== undefined) break;
      low = high;
      high += step;
    }
    if (found === undefined) {
      if (!(cap < Number.POSITIVE_INFINITY)) continue;
      high = Math.ceil(cap);
    }
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      const capacities = middle < cap ? feasible({ above: middle, below: capacity }) : best?.capacities;
      if (capacities === undefined) low = middle;
      else {
        high = middle;
        if (middle < cap) found = capacities;
      }
    }
    if (found !== undefined && high < cap) best = { time: { above: high, below: capacity }, capacities: found };
  }
  const { time, capacities } = best as { time: Ratio; capacities: number[] };
  return {
    capacities,
    roots: new Map(graph.ranks.map((node, rank) => [node, scaled[rank] as number])),
    time: { above: time.above, below: time.below * k },
  };
}

/** The pieces of one edge of a tree, and how much of the current one is used. */
class PieceCursor {
  readonly #pieces: readonly RoutePiece[];
  #index = 0;
  #used = 0;
  constructor(pieces: readonly RoutePiece[]) {
    this.#pieces = pieces;
  }
  get #piece(): RoutePiece {
    return this.#pieces[this.#index] as RoutePiece;
  }
  get nodes(): readonly number[] {
    return this.#piece.nodes;
  }
  get left(): number {
    return this.#piece.amount - this.#used;
  }
  use(amount: number): void {
    this.#used += amount;
    if (this.left > 0) return;
    this.#index++;
    this.#used = 0;
  }
}

/** Cuts classes of trees where the units of an edge go by different routes. */
function layRoutes(logical: LogicalGraph, classes: readonly TreeClass[]): RoutedTree[] {
  const routed: RoutedTree[] = [];
  for (const { root, amount, edges } of classes) {
    const cursors = edges.map(([from, to]) => new PieceCursor(logical.take(from, to, amount)));
    for (let left = amount; left > 0; ) {
      const step = cursors.reduce((least, cursor) => Math.min(least, cursor.left), left);
      routed.push({ root, amount: step, routes: cursors.map(({ nodes }) => nodes) });
      for (const cursor of cursors) cursor.use(step);
      left -= step;
    }
  }
  return routed;
}

/** Edges of a tree between its root and its deepest rank. */
export function heightOf({ root, routes }: Pick<RoutedTree, "root" | "routes">): number {
  const depth = new Map([[root, 0]]);
  let height = 0;
  for (const route of routes) {
    const below = (depth.get(route[0] as number) ?? 0) + 1;
    depth.set(route[route.length - 1] as number, below);
    height = Math.max(height, below);
  }
  return height;
}

/** Builds the trees for given units. */
export function buildForest(graph: ScaledGraph, { capacities, roots }: TreeUnits): Forest {
  const logical = new LogicalGraph(graph.numNodes, graph.deadline);
  for (const [i, { from, to }] of graph.edges.entries()) {
    logical.add(from, to, [{ nodes: [from, to], amount: capacities[i] as number }]);
  }
  const relays = [...graph.isRank.keys()].filter((node) => !graph.isRank[node]);
  trimRelays(logical, relays);
  removeRelays(logical, graph.numNodes, relays, graph.ranks, roots);
  const classes = packTrees(logical, graph.numNodes, graph.ranks, roots);
  const trees = layRoutes(logical, classes);
  let [total, height] = [0, 0];
  for (const tree of trees) {
    total += tree.amount;
    height = Math.max(height, heightOf(tree));
  }
  return { trees, total, height };
}

/** Rounding down may leave a relay more in than out: what it cannot pass on is dropped from its widest edges. */
function trimRelays(logical: LogicalGraph, relays: readonly number[]): void {
  for (let changed = true; changed; ) {
    changed = false;
    for (const relay of relays) {
      const into = logical.sources(relay).map((node) => [node, relay] as const);
      const out = logical.targets(relay).map((node) => [relay, node] as const);
      const capacity = ([from, to]: readonly [number, number]) => logical.capacity(from, to);
      const total = (edges: typeof into) => edges.reduce((sum, edge) => sum + capacity(edge), 0);
      const excess = total(into) - total(out);
      for (let left = Math.abs(excess); left > 0; left--) {
        const side = excess > 0 ? into : out;
        const [from, to] = side.reduce((widest, edge) => (capacity(edge) > capacity(widest) ? edge : widest));
        logical.take(from, to, 1);
        changed = true;
      }
    }
  }
}
