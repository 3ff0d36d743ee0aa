/**
 * Trees for large networks, by symmetry and column generation (Dantzig, Wolfe 1960): a forest that a group of symmetries maps
 * to itself loads all edges of an orbit alike, so trees are sought for one root of each orbit, with one constraint for each
 * orbit of edges. The master program weighs the trees it has; its prices are lengths of edges, and the cheapest spanning
 * tree by those lengths is the next one. Ways between ranks lead over relays, which only pass on, so no relay has to be
 * removed. The result is exact: weights are rounded to fractions, and the load of every orbit is checked in integers.
 */
import { cheapestTree, depthsOf, flattenTree } from "./cheapest-tree.ts";
import type { Ratio } from "./cut-bounds.ts";
import { solveExactly } from "./exact-solution.ts";
import type { Forest, RoutedTree } from "./forest.ts";
import { type LinearProgram, solveLinearProgram } from "./linear-program.ts";
import { commonDenominator, Rational } from "./rational.ts";
import { commonIntegers, commonIntegerWeights } from "./round.ts";
import { gcd, outgoingOf, type ScaledGraph } from "./scaled-graph.ts";
import { SharedRoutes } from "./shared-routes.ts";
import { type Symmetry, symmetryOf } from "./symmetry.ts";

/** `spread`: each root has its weight. `mirrored`: trees carry data both ways, and the roots are free. */
export type OrbitMode = "spread" | "mirrored";

/** A tree of the representative of an orbit of roots. */
interface Column {
  /** Which of the symmetry's roots. */
  readonly root: number;
  readonly parent: Int32Array;
  readonly height: number;
  /** By orbit of edges, how many edges of it the tree uses. */
  readonly uses: Float64Array;
  /** By rank: the way from its parent. */
  readonly routes: readonly (readonly number[])[];
}

/** Trees and how much each carries, as integers. */
interface Mix {
  readonly columns: readonly Column[];
  readonly amounts: readonly number[];
}

/** Into how many trees a root's weight is cut where the exact fractions have too many digits. */
const MOST_ROUNDED = 240;
const FINE = [720, 5040, 20_160];
const LONGEST_SECONDS = 20;
/** Equations of more unknowns take seconds in fractions. */
const MOST_UNKNOWNS = 48;
/** Heights that are tried for the lowest exact forest, from the least. */
const MOST_HEIGHTS = 8;
const LP_SECONDS = 10;

/** The lengths of all ways between ranks over relays, and the ways themselves, by the lengths of the edges' orbits. */
class Ways {
  readonly #graph: ScaledGraph;
  readonly #symmetry: Symmetry;
  readonly #outgoing: readonly (readonly number[])[];
  readonly #rankOf: Int32Array;
  /** By first node of an orbit of ranks: the edge by which each node is reached. */
  readonly #into = new Map<number, Int32Array>();
  readonly cost: Float64Array;

  constructor(graph: ScaledGraph, symmetry: Symmetry) {
    this.#graph = graph;
    this.#symmetry = symmetry;
    this.#outgoing = outgoingOf(graph);
    this.#rankOf = new Int32Array(graph.numNodes).fill(-1);
    for (const [rank, node] of graph.ranks.entries()) this.#rankOf[node] = rank;
    this.cost = new Float64Array(graph.ranks.length ** 2);
  }

  /** One search for each orbit; the ways of other ranks are its images. */
  update(lengths: Float64Array): void {
    const { ranks } = this.#graph;
    const n = ranks.length;
    for (const { node } of this.#symmetry.roots) {
      const distance = this.#search(node, lengths);
      for (const [from, start] of ranks.entries()) {
        if (this.#symmetry.first[start] !== node) continue;
        const element = this.#symmetry.from[start] as Int32Array;
        for (const end of ranks)
          this.cost[from * n + (this.#rankOf[element[end] as number] as number)] = distance[end] as number;
      }
    }
  }

  #search(start: number, lengths: Float64Array): Float64Array {
    const { numNodes, edges, isRank } = this.#graph;
    const distance = new Float64Array(numNodes).fill(Number.POSITIVE_INFINITY);
    const into = new Int32Array(numNodes).fill(-1);
    distance[start] = 0;
    // Label correcting from a queue: relays are few steps deep.
    const queue = [start];
    const queued = new Uint8Array(numNodes);
    for (let head = 0; head < queue.length; head++) {
      const node = queue[head] as number;
      queued[node] = 0;
      for (const edge of this.#outgoing[node] as readonly number[]) {
        const to = (edges[edge] as ScaledGraph["edges"][number]).to;
        const length = (distance[node] as number) + (lengths[edge] as number);
        if (!(length < (distance[to] as number) * (1 - 1e-12))) continue;
        distance[to] = length;
        into[to] = edge;
        if (isRank[to] || queued[to] === 1) continue;
        queued[to] = 1;
        queue.push(to);
      }
    }
    this.#into.set(start, into);
    return distance;
  }

  /** The nodes on the way between two ranks, by the lengths of the last update. */
  between(from: number, to: number): number[] {
    const { ranks, edges } = this.#graph;
    const start = ranks[from] as number;
    const first = this.#symmetry.first[start] as number;
    const element = this.#symmetry.from[start] as Int32Array;
    const into = this.#into.get(first) as Int32Array;
    const route: number[] = [];
    for (let at = element.indexOf(ranks[to] as number); ; at = edges[into[at] as number]?.from as number) {
      route.push(element[at] as number);
      if (at === first) return route.reverse();
    }
  }
}

class OrbitProgram {
  readonly #graph: ScaledGraph;
  readonly #symmetry: Symmetry;
  readonly #mode: OrbitMode;
  /** By root: the weight of its trees. */
  readonly #weights: readonly number[];
  readonly #edgeOf: Map<number, number>;
  readonly #capacities: Float64Array;
  readonly #back: Int32Array;
  readonly columns: Column[] = [];
  readonly #seen = new Set<string>();
  readonly #ways: Ways;

  constructor(graph: ScaledGraph, symmetry: Symmetry, weights: readonly number[], mode: OrbitMode) {
    this.#graph = graph;
    this.#symmetry = symmetry;
    this.#mode = mode;
    const rankOf = new Map(graph.ranks.map((node, rank) => [node, rank]));
    this.#weights =
      mode === "mirrored" ? [1] : symmetry.roots.map(({ node }) => weights[rankOf.get(node) as number] as number);
    this.#edgeOf = new Map(graph.edges.map(({ from, to }, i) => [from * graph.numNodes + to, i]));
    this.#capacities = new Float64Array(symmetry.edgeOrbitSizes.length);
    this.#back = new Int32Array(symmetry.edgeOrbitSizes.length).fill(-1);
    for (const [edge, { from, to, capacity }] of graph.edges.entries()) {
      const orbit = symmetry.edgeOrbit[edge] as number;
      this.#capacities[orbit] = capacity;
      const back = this.#edgeOf.get(to * graph.numNodes + from);
      if (back !== undefined) this.#back[orbit] = symmetry.edgeOrbit[back] as number;
    }
    this.#ways = new Ways(graph, symmetry);
  }

  /** How many roots stand for one: those of its orbit; all of the group, where a tree is free to root anywhere. */
  #multiplicity(root: number): number {
    return this.#mode === "mirrored" ? 1 : (this.#symmetry.roots[root]?.size as number);
  }

  /** Adds the cheapest tree of each root by the prices of the orbits' loads. @returns how many are new */
  price(prices: Float64Array): number {
    const { edges, ranks, numNodes } = this.#graph;
    const { edgeOrbit, edgeOrbitSizes, roots } = this.#symmetry;
    // Where nothing is priced, wide edges are preferred.
    let scale = 0;
    for (const [orbit, price] of prices.entries()) scale = Math.max(scale, price / (edgeOrbitSizes[orbit] as number));
    let widest = 0;
    for (const capacity of this.#capacities) widest = Math.max(widest, 1 / capacity);
    const ofOrbit = prices.map(
      (price, orbit) =>
        price / (edgeOrbitSizes[orbit] as number) / (scale || 1) + 1e-7 / (this.#capacities[orbit] as number) / widest,
    );
    const lengths = Float64Array.from(edges, (_, edge) => {
      const orbit = edgeOrbit[edge] as number;
      const back = this.#mode === "mirrored" ? (ofOrbit[this.#back[orbit] as number] as number) : 0;
      return (ofOrbit[orbit] as number) + back;
    });
    this.#ways.update(lengths);
    const { cost } = this.#ways;
    const n = ranks.length;
    let added = 0;
    for (const root of this.#weights.keys()) {
      if (this.#weights[root] === 0) continue;
      const start = ranks.indexOf(roots[root]?.node as number);
      const parent = cheapestTree(n, cost, start);
      for (const slack of [0, 1e-5]) {
        const flat = parent.slice();
        flattenTree(flat, cost, start, slack + 1e-12);
        added += this.#add(root, start, flat, numNodes);
      }
    }
    return added;
  }

  #add(root: number, start: number, parent: Int32Array, numNodes: number): number {
    const uses = new Float64Array(this.#capacities.length);
    const routes = Array.from(parent, (from, to) => (from === -1 ? [] : this.#ways.between(from, to)));
    for (const route of routes) {
      for (let i = 1; i < route.length; i++) {
        const edge = this.#edgeOf.get((route[i - 1] as number) * numNodes + (route[i] as number)) as number;
        const orbit = this.#symmetry.edgeOrbit[edge] as number;
        uses[orbit] = (uses[orbit] as number) + 1;
        if (this.#mode !== "mirrored") continue;
        const back = this.#back[orbit] as number;
        uses[back] = (uses[back] as number) + 1;
      }
    }
    const { depth } = depthsOf(parent, start);
    const height = depth.reduce((a, b) => Math.max(a, b), 0);
    const key = `${root} ${height} ${uses.join()}`;
    if (this.#seen.has(key)) return 0;
    this.#seen.add(key);
    this.columns.push({ root, parent, height, uses, routes });
    return 1;
  }

  /** The part of an orbit's capacity that one unit of a column's weight takes. */
  #load({ root, uses }: Column, orbit: number): number {
    return ((uses[orbit] as number) * this.#multiplicity(root)) / (this.#symmetry.edgeOrbitSizes[orbit] as number);
  }

  /** Minimises the time of the best mix; or, for a given time, the height of trees that are no higher than allowed. */
  #program(used: readonly Column[], time: number | undefined): LinearProgram {
    const last = used.length;
    const rows: { terms: Map<number, number>; relation: "<=" | "="; right: number }[] = [];
    for (const [root, weight] of this.#weights.entries()) {
      if (weight === 0) continue;
      const terms = new Map<number, number>();
      for (const [i, column] of used.entries()) if (column.root === root) terms.set(i, 1);
      rows.push({ terms, relation: "=", right: weight });
    }
    for (const [orbit, capacity] of this.#capacities.entries()) {
      const terms = new Map<number, number>();
      for (const [i, column] of used.entries()) {
        const load = this.#load(column, orbit) / capacity;
        if (load > 0) terms.set(i, load);
      }
      if (time === undefined) terms.set(last, -1);
      if (terms.size > 0) rows.push({ terms, relation: "<=", right: time ?? 0 });
      else rows.push({ terms: new Map([[0, 0]]), relation: "<=", right: 1 });
    }
    const objective =
      time === undefined
        ? new Map([[last, 1]])
        : new Map(used.map(({ height, uses }, i) => [i, height + uses.reduce((a, b) => a + b, 0) / 1e6]));
    return { numColumns: last + 1, objective, rows };
  }

  /** Generates trees until the mix is as fast as the bound, or no tree makes it faster. @returns the time of the best mix */
  async generate(target: number): Promise<number | undefined> {
    this.price(new Float64Array(this.#capacities.length));
    const numRoots = this.#weights.filter((weight) => weight > 0).length;
    let smooth: Float64Array | undefined;
    const deadline = performance.now() + LONGEST_SECONDS * 1000;
    for (let reached: number | undefined; ; ) {
      const solution = await solveLinearProgram(this.#program(this.columns, undefined), LP_SECONDS);
      if (solution === undefined) return reached;
      reached = solution.objective;
      if (reached <= target * (1 + 1e-9) || performance.now() > deadline) return reached;
      const prices = Float64Array.from(
        this.#capacities,
        (capacity, orbit) => Math.max(0, -(solution.prices[numRoots + orbit] as number)) / capacity,
      );
      // Prices of one round jump; a mean with those before leads to good trees sooner.
      smooth = smooth === undefined ? prices : smooth.map((value, i) => (value + (prices[i] as number)) / 2);
      const added = this.price(smooth);
      if (added === 0 && this.price(prices) === 0) return reached;
    }
  }

  /** Weights of columns that take exactly `time`, of the least height that the columns allow: integers of `q` a unit. */
  async exact({ above, below }: Ratio): Promise<Mix | undefined> {
    const heights = [...new Set(this.columns.map(({ height }) => height))].sort((a, b) => a - b);
    const step = Math.max(1, Math.ceil(heights.length / MOST_HEIGHTS));
    for (const most of heights.filter((_, i) => (heights.length - 1 - i) % step === 0)) {
      const used = this.columns.filter(({ height }) => height <= most);
      const present = new Set(used.map(({ root }) => root));
      if (this.#weights.some((weight, root) => weight > 0 && !present.has(root))) continue;
      const time = (above / below) * (1 + 1e-10);
      const solution = await solveLinearProgram(this.#program(used, time), LP_SECONDS);
      if (solution === undefined) continue;
      const weights = solution.columns.subarray(0, used.length);
      const rounded = commonIntegers(weights);
      if (rounded !== undefined && this.#holds(used, rounded.integers, rounded.q, { above, below })) {
        return { columns: used, amounts: rounded.integers };
      }
      const solved = this.#vertex(used, weights, { above, below });
      if (solved !== undefined) return solved;
    }
    return undefined;
  }

  /** The weights as the solution of the constraints that bind, where they need denominators of many digits. */
  #vertex(all: readonly Column[], weights: Float64Array, { above, below }: Ratio): Mix | undefined {
    const used = all.filter((_, i) => (weights[i] as number) > 1e-9);
    if (used.length > MOST_UNKNOWNS) return undefined;
    const values = weights.filter((weight) => weight > 1e-9);
    const integer = (value: number) => new Rational(BigInt(value));
    const rows: Rational[][] = [];
    for (const [root, weight] of this.#weights.entries()) {
      if (weight > 0) rows.push([...used.map((column) => integer(column.root === root ? 1 : 0)), integer(weight)]);
    }
    for (const [orbit, capacity] of this.#capacities.entries()) {
      const busy = used.reduce((sum, column, i) => sum + this.#load(column, orbit) * (values[i] as number), 0);
      if (busy < (above / below) * capacity * (1 - 1e-7)) continue;
      const most = integer(above).times(integer(capacity)).over(integer(below));
      const size = integer(this.#symmetry.edgeOrbitSizes[orbit] as number);
      rows.push([
        ...used.map(({ root, uses }) => integer((uses[orbit] as number) * this.#multiplicity(root))),
        most.times(size),
      ]);
    }
    const exact = solveExactly(rows, used.length);
    if (exact === undefined || exact.some(({ numerator }) => numerator < 0n)) return undefined;
    const q = Number(commonDenominator(exact));
    const amounts = commonIntegerWeights(exact);
    if (!amounts.every(Number.isSafeInteger)) return undefined;
    return this.#holds(used, amounts, q, { above, below }) ? { columns: used, amounts } : undefined;
  }

  /** Whether weights do what is asked for, in integers. */
  #holds(used: readonly Column[], amounts: readonly number[], q: number, { above, below }: Ratio): boolean {
    for (const [root, weight] of this.#weights.entries()) {
      let sum = 0;
      for (const [i, column] of used.entries()) if (column.root === root) sum += amounts[i] as number;
      if (weight > 0 && sum !== weight * q) return false;
    }
    for (const [orbit, capacity] of this.#capacities.entries()) {
      let load = 0n;
      for (const [i, column] of used.entries()) {
        const uses = (column.uses[orbit] as number) * this.#multiplicity(column.root);
        load += BigInt(uses) * BigInt(amounts[i] as number);
      }
      const size = this.#symmetry.edgeOrbitSizes[orbit] as number;
      if (load * BigInt(below) > BigInt(above) * BigInt(capacity) * BigInt(size) * BigInt(q)) return false;
    }
    return true;
  }

  /** How many trees a mix has for each unit of a root's weight. */
  treesOf({ columns, amounts }: Mix): number {
    const common = amounts.reduce(gcd, 0);
    const sums = this.#weights.map(() => 0);
    for (const [i, { root }] of columns.entries())
      sums[root] = (sums[root] as number) + (amounts[i] as number) / common;
    return Math.max(...sums.map((sum, root) => sum / (this.#weights[root] || 1)));
  }

  /** The fastest mix of at most `most` trees for each unit of weight, by rounding the fastest one. */
  async rounded(reached: number, most: number): Promise<Mix | undefined> {
    const solution = await solveLinearProgram(this.#program(this.columns, reached * (1 + 1e-9)), LP_SECONDS);
    if (solution === undefined) return undefined;
    let best: { amounts: number[]; time: number } | undefined;
    for (const k of [...Array(MOST_ROUNDED).keys()].map((i) => i + 1).concat(FINE)) {
      if (k > most) break;
      const amounts = this.columns.map((_, i) => Math.floor((solution.columns[i] as number) * k + 1e-9));
      for (const [root, weight] of this.#weights.entries()) {
        const own = [...this.columns.keys()].filter((i) => this.columns[i]?.root === root);
        // What rounding down left out goes to those that lost most.
        const order = own.sort((a, b) => lost(b) - lost(a));
        let left = weight * k - order.reduce((sum, i) => sum + (amounts[i] as number), 0);
        for (const i of order) {
          if (left-- <= 0) break;
          amounts[i] = (amounts[i] as number) + 1;
        }
      }
      function lost(i: number): number {
        return (solution?.columns[i] as number) * k - (amounts[i] as number);
      }
      const busiest = this.#capacities.reduce((longest, capacity, orbit) => {
        const load = this.columns.reduce(
          (sum, column, i) => sum + this.#load(column, orbit) * (amounts[i] as number),
          0,
        );
        return Math.max(longest, load / capacity / k);
      }, 0);
      if (best === undefined || busiest < best.time * (1 - 1e-9)) best = { amounts, time: busiest };
    }
    return best === undefined ? undefined : { columns: this.columns, amounts: best.amounts };
  }

  /** The trees of all roots: the images of the columns by the group. */
  images(columns: readonly Column[], amounts: readonly number[]): RoutedTree[] {
    const { elements, roots } = this.#symmetry;
    const routesSoFar = new SharedRoutes(this.#graph.numNodes);
    const trees: RoutedTree[] = [];
    let common = 0;
    const amountOf = (i: number) => (amounts[i] as number) * this.#multiplicity((columns[i] as Column).root);
    for (const i of columns.keys()) common = gcd(common, amountOf(i));
    for (const [i, column] of columns.entries()) {
      if (amountOf(i) === 0) continue;
      const root = roots[column.root]?.node as number;
      const { order } = depthsOf(column.parent, this.#graph.ranks.indexOf(root));
      for (const element of elements) {
        const routes = order
          .slice(1)
          .map((rank) => routesSoFar.shared((column.routes[rank] as number[]).map((node) => element[node] as number)));
        trees.push({ root: element[root] as number, amount: amountOf(i) / common, routes });
      }
    }
    return trees;
  }
}

export interface OrbitForestOptions {
  readonly mode?: OrbitMode;
  /** At most so many trees for each unit of weight; the forest may then take longer than the bound. */
  readonly trees?: number;
}

export interface OrbitForest extends Forest {
  /** It takes no longer than the bound that was asked for. */
  readonly isExact: boolean;
}

/**
 * The forest that takes exactly `bound` for a unit of weight, mapped from trees of one root of each orbit. Where weights of
 * few digits do not reach it, the forest takes a little longer.
 * @returns undefined when the trees that were tried do not come near the bound
 */
export async function orbitForest(
  graph: ScaledGraph,
  weights: readonly number[],
  bound: Ratio,
  { mode = "spread", trees: most = Number.POSITIVE_INFINITY }: OrbitForestOptions = {},
): Promise<OrbitForest | undefined> {
  const symmetry = symmetryOf(graph, weights);
  const program = new OrbitProgram(graph, symmetry, weights, mode);
  const reached = await program.generate(bound.above / bound.below);
  if (reached === undefined) return undefined;
  const isReached = reached <= (bound.above / bound.below) * (1 + 1e-9);
  const exact = isReached ? await program.exact(bound) : undefined;
  const isCut = exact === undefined || program.treesOf(exact) > most;
  const found = isCut ? await program.rounded(reached, most) : exact;
  if (found === undefined) return undefined;
  const trees = program.images(found.columns, found.amounts);
  const height = found.columns.reduce(
    (most, column, i) => ((found.amounts[i] as number) > 0 ? Math.max(most, column.height) : most),
    0,
  );
  return { trees, total: trees.reduce((sum, { amount }) => sum + amount, 0), height, isExact: found === exact };
}
