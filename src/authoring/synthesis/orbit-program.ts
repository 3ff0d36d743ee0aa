/**
 * The master program of column generation (Dantzig, Wolfe 1960): a forest that a group of symmetries maps to itself loads all
 * edges of an orbit alike, so trees are sought for one root of each orbit, with one constraint for each orbit of edges. The
 * program weighs the trees that it has; its prices are lengths of edges, and the cheapest spanning tree by those lengths is
 * the next one. Ways between ranks lead over relays, which only pass on, so no relay has to be removed.
 */
import { cheapestTree, depthsOf, flattenTree } from "./cheapest-tree.ts";
import type { Ratio } from "./cut-bounds.ts";
import type { RoutedTree } from "./forest.ts";
import { type LinearProgram, solveLinearProgram } from "./linear-program.ts";
import { lowTrees } from "./low-tree.ts";
import { RankWays } from "./rank-ways.ts";
import { gcd, type ScaledGraph } from "./scaled-graph.ts";
import { SharedRoutes } from "./shared-routes.ts";
import type { Symmetry } from "./symmetry.ts";
import { WorkClock } from "./work-clock.ts";

/** `spread`: each root has its weight. `mirrored`: trees carry data both ways, and the roots are free. */
export type OrbitMode = "spread" | "mirrored";

/** A tree of the representative of an orbit of roots. */
export interface Column {
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
export interface Mix {
  readonly columns: readonly Column[];
  readonly amounts: readonly number[];
}

const LONGEST_SECONDS = 20;
/** For one linear program. Like the limit above, of work and not of the wall's time (work-clock.ts). */
export const LP_SECONDS = 10;
/** Rounds of prices that differ a little, for more trees to choose from. */
const VARIATIONS = 20;

export class OrbitProgram {
  readonly clock: WorkClock;
  readonly graph: ScaledGraph;
  readonly symmetry: Symmetry;
  readonly #mode: OrbitMode;
  /** By root: the weight of its trees. */
  readonly weights: readonly number[];
  readonly #edgeOf: Map<number, number>;
  readonly capacities: Float64Array;
  /** Of all capacities: the unit of what solvers get, which take coefficients far from 1 for 0. */
  readonly #widest: number;
  readonly #back: Int32Array;
  readonly columns: Column[] = [];
  /** Of the last round. */
  #prices: Float64Array;
  readonly #seen = new Set<string>();
  readonly #ways: RankWays;
  readonly #routes: SharedRoutes;

  constructor(graph: ScaledGraph, symmetry: Symmetry, weights: readonly number[], mode: OrbitMode) {
    this.graph = graph;
    this.clock = new WorkClock(graph.deadline);
    this.symmetry = symmetry;
    this.#mode = mode;
    const rankOf = new Map(graph.ranks.map((node, rank) => [node, rank]));
    this.weights =
      mode === "mirrored" ? [1] : symmetry.roots.map(({ node }) => weights[rankOf.get(node) as number] as number);
    this.#edgeOf = new Map(graph.edges.map(({ from, to }, i) => [from * graph.numNodes + to, i]));
    this.capacities = new Float64Array(symmetry.edgeOrbitSizes.length);
    this.#back = new Int32Array(symmetry.edgeOrbitSizes.length).fill(-1);
    for (const [edge, { from, to, capacity }] of graph.edges.entries()) {
      const orbit = symmetry.edgeOrbit[edge] as number;
      this.capacities[orbit] = capacity;
      const back = this.#edgeOf.get(to * graph.numNodes + from);
      if (back !== undefined) this.#back[orbit] = symmetry.edgeOrbit[back] as number;
    }
    this.#widest = this.capacities.reduce((most, capacity) => Math.max(most, capacity), 0);
    this.#routes = new SharedRoutes(graph.numNodes);
    this.#prices = new Float64Array(this.capacities.length);
    this.#ways = new RankWays(graph, symmetry);
  }

  /** How many roots stand for one: those of its orbit; all of the group, where a tree is free to root anywhere. */
  multiplicity(root: number): number {
    return this.#mode === "mirrored" ? 1 : (this.symmetry.roots[root]?.size as number);
  }

  /** Adds the cheapest tree of each root by the prices of the orbits' loads, no higher than `most`. @returns how many are new */
  price(prices: Float64Array, most = Number.POSITIVE_INFINITY): number {
    const { edges, ranks, numNodes } = this.graph;
    const { edgeOrbit, edgeOrbitSizes, roots } = this.symmetry;
    // Where nothing is priced, wide edges are preferred.
    let scale = 0;
    for (const [orbit, price] of prices.entries()) scale = Math.max(scale, price / (edgeOrbitSizes[orbit] as number));
    let widest = 0;
    for (const capacity of this.capacities) widest = Math.max(widest, 1 / capacity);
    const ofOrbit = prices.map(
      (price, orbit) =>
        price / (edgeOrbitSizes[orbit] as number) / (scale || 1) + 1e-7 / (this.capacities[orbit] as number) / widest,
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
    for (const root of this.weights.keys()) {
      if (this.weights[root] === 0) continue;
      const start = ranks.indexOf(roots[root]?.node as number);
      const parent = cheapestTree(n, cost, start);
      if (most < n - 1) {
        for (const tree of lowTrees(cost, start, most, parent)) added += this.#add(root, start, tree, numNodes);
        continue;
      }
      for (const slack of [0, 1e-5]) {
        const flat = parent.slice();
        flattenTree(flat, cost, start, slack + 1e-12);
        added += this.#add(root, start, flat, numNodes);
      }
    }
    return added;
  }

  #add(root: number, start: number, parent: Int32Array, numNodes: number): number {
    const uses = new Float64Array(this.capacities.length);
    const routes = Array.from(parent, (from, to) => (from === -1 ? [] : this.#ways.between(from, to)));
    for (const route of routes) {
      for (let i = 1; i < route.length; i++) {
        const edge = this.#edgeOf.get((route[i - 1] as number) * numNodes + (route[i] as number)) as number;
        const orbit = this.symmetry.edgeOrbit[edge] as number;
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
  load({ root, uses }: Column, orbit: number): number {
    return ((uses[orbit] as number) * this.multiplicity(root)) / (this.symmetry.edgeOrbitSizes[orbit] as number);
  }

  /** Minimises the time of the best mix; or, for a given time, the height of trees that are no higher than allowed. */
  linearProgram(used: readonly Column[], time: number | undefined): LinearProgram {
    const last = used.length;
    const rows: { terms: Map<number, number>; relation: "<=" | "="; right: number }[] = [];
    for (const [root, weight] of this.weights.entries()) {
      if (weight === 0) continue;
      const terms = new Map<number, number>();
      for (const [i, column] of used.entries()) if (column.root === root) terms.set(i, 1);
      rows.push({ terms, relation: "=", right: weight });
    }
    for (const [orbit, capacity] of this.capacities.entries()) {
      const terms = new Map<number, number>();
      for (const [i, column] of used.entries()) {
        const load = (this.load(column, orbit) * this.#widest) / capacity;
        if (load > 0) terms.set(i, load);
      }
      if (time === undefined) terms.set(last, -1);
      if (terms.size > 0) rows.push({ terms, relation: "<=", right: (time ?? 0) * this.#widest });
      else rows.push({ terms: new Map([[0, 0]]), relation: "<=", right: 1 });
    }
    const objective =
      time === undefined
        ? new Map([[last, 1]])
        : new Map(used.map(({ height, uses }, i) => [i, height + uses.reduce((a, b) => a + b, 0) / 1e6]));
    return { numColumns: last + 1, objective, rows };
  }

  /**
   * Generates trees until the mix is as fast as the bound, or no tree makes it faster.
   * @param most trees are no higher
   * @returns the time of the best mix
   */
  async generate(
    target: number,
    most = Number.POSITIVE_INFINITY,
    seconds = LONGEST_SECONDS,
  ): Promise<number | undefined> {
    this.price(new Float64Array(this.capacities.length), most);
    const numRoots = this.weights.filter((weight) => weight > 0).length;
    let smooth: Float64Array | undefined;
    const deadline = this.clock.seconds + seconds;
    for (let reached: number | undefined; ; ) {
      this.graph.deadline?.check();
      const used = this.columns.filter(({ height }) => height <= most);
      const solution = await solveLinearProgram(
        this.linearProgram(used, undefined),
        this.clock.wallSeconds(LP_SECONDS),
      );
      if (solution === undefined) return reached;
      reached = solution.objective / this.#widest;
      if (reached <= target * (1 + 1e-9) || this.clock.seconds > deadline) return reached;
      const prices = Float64Array.from(
        this.capacities,
        (capacity, orbit) => Math.max(0, -(solution.prices[numRoots + orbit] as number)) / capacity,
      );
      this.#prices = prices;
      // Prices of one round jump; a mean with those before leads to good trees sooner.
      smooth = smooth === undefined ? prices : smooth.map((value, i) => (value + (prices[i] as number)) / 2);
      const added = this.price(smooth, most);
      if (added === 0 && this.price(prices, most) === 0) return reached;
    }
  }

  /** Adds trees that are nearly as cheap as those there are: integers are found where there is more to choose from. */
  varyColumns(most: number): void {
    let state = 1;
    const random = () => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return state / 2 ** 32;
    };
    for (let round = 0; round < VARIATIONS; round++) {
      this.graph.deadline?.check();
      this.price(
        this.#prices.map((price) => (price + 1e-3) * (0.5 + random())),
        most,
      );
    }
  }

  /** Whether weights do what is asked for, in integers. */
  holds(used: readonly Column[], amounts: readonly number[], q: number, { above, below }: Ratio): boolean {
    for (const [root, weight] of this.weights.entries()) {
      let sum = 0;
      for (const [i, column] of used.entries()) if (column.root === root) sum += amounts[i] as number;
      if (weight > 0 && sum !== weight * q) return false;
    }
    for (const [orbit, capacity] of this.capacities.entries()) {
      let load = 0n;
      for (const [i, column] of used.entries()) {
        const uses = (column.uses[orbit] as number) * this.multiplicity(column.root);
        load += BigInt(uses) * BigInt(amounts[i] as number);
      }
      const size = this.symmetry.edgeOrbitSizes[orbit] as number;
      if (load * BigInt(below) > BigInt(above) * BigInt(capacity) * BigInt(size) * BigInt(q)) return false;
    }
    return true;
  }

  /** How many trees a mix has for each unit of a root's weight. */
  treesOf({ columns, amounts }: Mix): number {
    const common = amounts.reduce(gcd, 0);
    const sums = this.weights.map(() => 0);
    for (const [i, { root }] of columns.entries())
      sums[root] = (sums[root] as number) + (amounts[i] as number) / common;
    return Math.max(...sums.map((sum, root) => sum / (this.weights[root] || 1)));
  }

  /** What the trees of a mix carry together, in units of their greatest common amount. */
  partsOf(mix: Mix): number {
    const { common, amountOf } = this.#amountsOf(mix);
    const sum = mix.columns.reduce((total, _, i) => total + amountOf(i) / common, 0);
    return sum * this.symmetry.elements.length;
  }

  #amountsOf({ columns, amounts }: Mix): { common: number; amountOf: (i: number) => number } {
    const amountOf = (i: number) => (amounts[i] as number) * this.multiplicity((columns[i] as Column).root);
    return { common: columns.reduce((common, _, i) => gcd(common, amountOf(i)), 0), amountOf };
  }

  /** The trees of all roots: the images of the columns by the group. */
  images(mix: Mix): RoutedTree[] {
    const { common, amountOf } = this.#amountsOf(mix);
    return mix.columns.flatMap((column, i) => this.imagesOf(column, amountOf(i) / common));
  }

  /** The images of a column; none where it carries nothing. */
  imagesOf({ root, parent, routes }: Column, amount: number): RoutedTree[] {
    if (amount === 0) return [];
    const start = this.symmetry.roots[root]?.node as number;
    const { order } = depthsOf(parent, this.graph.ranks.indexOf(start));
    return this.symmetry.elements.map((element) => ({
      root: element[start] as number,
      amount,
      routes: order
        .slice(1)
        .map((rank) => this.#routes.shared((routes[rank] as number[]).map((node) => element[node] as number))),
    }));
  }

  /** What a rank starts with; where the roots are free, there is no such thing. */
  weightOf(node: number): number {
    const first = this.symmetry.first[node];
    return this.weights[this.symmetry.roots.findIndex((root) => root.node === first)] as number;
  }

  edgesOf(route: readonly number[]): number[] {
    return route.slice(1).map((to, i) => this.#edgeOf.get((route[i] as number) * this.graph.numNodes + to) as number);
  }
}

export function heightOfMix({ columns, amounts }: Mix): number {
  return columns.reduce((most, { height }, i) => ((amounts[i] as number) > 0 ? Math.max(most, height) : most), 0);
}
