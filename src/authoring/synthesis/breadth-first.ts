/**
 * Schedules of the fewest steps: every share reaches a rank by a shortest way, in as many steps as the two are apart (BFB;
 * Zhao, Pal et al., arXiv 2202.03356). For each rank and step the shares that arrive are spread over the links they may
 * come by, so that the busiest is free as soon as possible: a min-max bipartite flow. Where links are direct, that is the
 * fastest of all schedules that move every share as early as it can move. Ranks that only relays part are one step apart;
 * links that several such routes have in common are then not spread.
 */
import { lowestTerms, type Ratio } from "./cut-bounds.ts";
import { type Forest, heightOf, type RoutedTree } from "./forest.ts";
import { FlowGraph } from "./max-flow.ts";
import { gcd, leastCommonMultiple, outgoingOf, type ScaledGraph } from "./scaled-graph.ts";

/** Into how many slots a share is cut at most; shares that would need more are spread as well as so many allow. */
const MOST_SLOTS = 120;
const SLOTS_OF_OTHERS = 24;

export interface BreadthFirst extends Forest {
  /** How long each step keeps its busiest link busy, for one unit of weight: in units of 1 / capacity unit. */
  readonly steps: readonly Ratio[];
}

/** A way from a rank to the next one, over relays or none. */
interface Hop {
  readonly from: number;
  readonly route: readonly number[];
  /** Of its narrowest edge. */
  readonly capacity: number;
}

/** The shortest ways from one rank to those that only relays part from it; equal ones in turn. */
function hopsFrom(graph: ScaledGraph, outgoing: readonly (readonly number[])[], from: number): Map<number, Hop> {
  const depth = new Map([[from, 0]]);
  const into = new Map<number, number[]>();
  const queue = [from];
  for (const node of queue) {
    if (node !== from && graph.isRank[node]) continue;
    const next = (depth.get(node) as number) + 1;
    for (const edge of outgoing[node] as readonly number[]) {
      const to = graph.edges[edge]?.to as number;
      const known = depth.get(to);
      if (known === undefined) {
        depth.set(to, next);
        queue.push(to);
      }
      if (known === undefined || known === next) into.set(to, [...(into.get(to) ?? []), edge]);
    }
  }
  const hops = new Map<number, Hop>();
  for (const to of queue) {
    if (to === from || !graph.isRank[to]) continue;
    const route = [to];
    let capacity = Number.POSITIVE_INFINITY;
    for (let at = to; at !== from; ) {
      const edges = into.get(at) as number[];
      const edge = graph.edges[edges[(from + to) % edges.length] as number] as ScaledGraph["edges"][number];
      capacity = Math.min(capacity, edge.capacity);
      at = edge.from;
      route.unshift(at);
    }
    hops.set(to, { from, route, capacity });
  }
  return hops;
}

/** Shares that reach one rank in one step, and the hops that each may take. */
class Arrival {
  readonly shares: readonly number[];
  readonly hops: readonly Hop[];
  readonly #weights: readonly number[];
  readonly #flow: FlowGraph;
  readonly #source: number;
  readonly #sink: number;
  readonly #feeds: number[] = [];
  readonly #drains: number[] = [];
  readonly #middles: { share: number; hop: number; edge: number }[] = [];

  /** @param mayCome by share, which of the hops it may take */
  constructor(
    shares: readonly number[],
    weights: readonly number[],
    hops: readonly Hop[],
    mayCome: readonly (readonly number[])[],
  ) {
    this.shares = shares;
    this.hops = hops;
    this.#weights = weights;
    this.#flow = new FlowGraph(shares.length + hops.length);
    this.#source = this.#flow.addNode();
    this.#sink = this.#flow.addNode();
    for (const i of shares.keys()) {
      this.#feeds.push(this.#flow.addEdge(this.#source, i, 0));
      for (const j of mayCome[i] ?? [])
        this.#middles.push({ share: i, hop: j, edge: this.#flow.addEdge(i, shares.length + j, 0) });
    }
    for (const j of hops.keys()) this.#drains.push(this.#flow.addEdge(shares.length + j, this.#sink, 0));
  }

  /** Whether shares of `units` each fit through hops of given capacity. */
  #fits(units: number, capacityOf: (hop: Hop) => number): boolean {
    let wanted = 0;
    for (const [i, feed] of this.#feeds.entries()) {
      const amount = (this.#weights[i] as number) * units;
      this.#flow.setCapacity(feed, amount);
      wanted += amount;
    }
    for (const { edge, share } of this.#middles) this.#flow.setCapacity(edge, (this.#weights[share] as number) * units);
    for (const [j, drain] of this.#drains.entries()) this.#flow.setCapacity(drain, capacityOf(this.hops[j] as Hop));
    return this.#flow.maxFlow(this.#source, this.#sink, wanted) >= wanted;
  }

  /** The least time in which all arrive: Newton's iteration from all hops together down to the set that is too narrow. */
  least(): Ratio {
    let above = this.#weights.reduce((sum, weight) => sum + weight, 0);
    let below = this.hops.reduce((sum, { capacity }) => sum + capacity, 0);
    for (;;) {
      const ratio = lowestTerms({ above, below });
      if (this.#fits(ratio.below, ({ capacity }) => capacity * ratio.above)) return ratio;
      const side = this.#flow.sourceSide(this.#source);
      [above, below] = [0, 0];
      for (const i of this.shares.keys()) if (side[i]) above += this.#weights[i] as number;
      for (const [j, hop] of this.hops.entries()) if (side[this.shares.length + j]) below += hop.capacity;
    }
  }

  /** By which hop each unit of each share comes, `slots` units of a weight of 1. */
  spread(slots: number, { above, below }: Ratio): Hop[][] {
    this.#fits(slots, ({ capacity }) => Math.ceil((capacity * above * slots) / below));
    const ways: Hop[][] = this.shares.map(() => []);
    for (const { share, hop, edge } of this.#middles) {
      for (let left = this.#flow.flowOf(edge); left > 0; left--) ways[share]?.push(this.hops[hop] as Hop);
    }
    return ways;
  }
}

/** Steps between every two ranks, from the first by the second, by node; -1 where nothing leads. */
function stepsApart(graph: ScaledGraph, hops: ReadonlyMap<number, ReadonlyMap<number, Hop>>): Map<number, Int32Array> {
  return new Map(
    graph.ranks.map((root) => {
      const steps = new Int32Array(graph.numNodes).fill(-1);
      steps[root] = 0;
      const queue = [root];
      for (const node of queue) {
        for (const to of (hops.get(node) as ReadonlyMap<number, Hop>).keys()) {
          if (steps[to] !== -1) continue;
          steps[to] = (steps[node] as number) + 1;
          queue.push(to);
        }
      }
      return [root, steps];
    }),
  );
}

/** The ranks at each distance, in rank order. */
function byDistance(graph: ScaledGraph, steps: Int32Array): number[][] {
  const at: number[][] = [];
  for (const node of graph.ranks) {
    const distance = steps[node] as number;
    if (distance < 0) continue;
    while (at.length <= distance) at.push([]);
    at[distance]?.push(node);
  }
  return at;
}

/**
 * Trees of the fewest steps for shares in the ratio of `weights`, by rank; ranks of weight 0 have none.
 * The network is connected: who asks has found its bound before.
 */
export function breadthFirst(graph: ScaledGraph, weights: readonly number[]): BreadthFirst {
  const outgoing = outgoingOf(graph);
  const hops = new Map(graph.ranks.map((rank) => [rank, hopsFrom(graph, outgoing, rank)] as const));
  const apart = stepsApart(graph, hops);
  const stepsOf = (root: number, to: number) => apart.get(root)?.[to] as number;
  const roots = graph.ranks.filter((_, rank) => (weights[rank] as number) > 0);
  const weightOf = new Map(graph.ranks.map((node, rank) => [node, weights[rank] as number]));
  const most = roots.reduce(
    (steps, root) => graph.ranks.reduce((a, rank) => Math.max(a, stepsOf(root, rank)), steps),
    0,
  );
  const arrivals: { to: number; step: number; arrival: Arrival; least: Ratio }[] = [];
  const placeOf = new Map(graph.ranks.map((node, rank) => [node, rank]));
  const inRankOrder = (a: number, b: number) => (placeOf.get(a) as number) - (placeOf.get(b) as number);
  const atSteps = new Map(roots.map((root) => [root, byDistance(graph, apart.get(root) as Int32Array)]));
  for (const to of graph.ranks) {
    graph.deadline?.check();
    for (let step = 1; step <= most; step++) {
      const shares = roots.filter((root) => stepsOf(root, to) === step);
      if (shares.length === 0) continue;
      // Each comes from the ranks that it has reached a step before, where a hop leads on from there.
      const near = shares.map((root) =>
        (atSteps.get(root)?.[step - 1] ?? []).filter((from) => hops.get(from)?.has(to)),
      );
      const from = [...new Set(near.flat())].sort(inRankOrder);
      const numberOf = new Map(from.map((node, hop) => [node, hop]));
      const arrival = new Arrival(
        shares,
        shares.map((root) => weightOf.get(root) as number),
        from.map((node) => hops.get(node)?.get(to) as Hop),
        near.map((nodes) => nodes.map((node) => numberOf.get(node) as number)),
      );
      arrivals.push({ to, step, arrival, least: arrival.least() });
    }
  }
  const slots = slotsFor(arrivals);
  const parents = new Map(roots.map((root) => [root, [] as { step: number; ways: Hop[] }[]]));
  for (const { step, arrival, least } of arrivals) {
    for (const [i, ways] of arrival.spread(slots, least).entries())
      parents.get(arrival.shares[i] as number)?.push({ step, ways });
  }
  const trees = roots.flatMap((root) => treesOf(root, (weightOf.get(root) as number) * slots, parents.get(root) ?? []));
  const steps = Array.from({ length: most }, (_, i) =>
    arrivals
      .filter(({ step }) => step === i + 1)
      .reduce((worst, { least }) => (isLess(worst, least) ? least : worst), { above: 0, below: 1 }),
  );
  return {
    trees,
    steps,
    total: trees.reduce((sum, { amount }) => sum + amount, 0),
    height: trees.reduce((height, tree) => Math.max(height, heightOf(tree)), 0),
  };
}

const isLess = (a: Ratio, b: Ratio): boolean => a.above * b.below < b.above * a.below;

/** The least number of slots by which every link's exact use is whole, if there is a small one. */
function slotsFor(arrivals: readonly { readonly arrival: Arrival; readonly least: Ratio }[]): number {
  let slots = 1;
  for (const { arrival, least } of arrivals) {
    for (const { capacity } of arrival.hops) {
      slots = leastCommonMultiple(slots, least.below / gcd(least.below, least.above * capacity));
      if (slots > MOST_SLOTS) return SLOTS_OF_OTHERS;
    }
  }
  return slots;
}

/** Slot by slot the tree of its hops; slots that come the same ways are one tree. */
function treesOf(
  root: number,
  slots: number,
  arrivals: readonly { readonly step: number; readonly ways: readonly Hop[] }[],
): RoutedTree[] {
  const inOrder = [...arrivals].sort((a, b) => a.step - b.step);
  const numbers = new Map<Hop, number>();
  const numberOf = (hop: Hop) => {
    const number = numbers.get(hop) ?? numbers.size;
    numbers.set(hop, number);
    return number;
  };
  const trees = new Map<string, { root: number; amount: number; routes: (readonly number[])[] }>();
  for (let slot = 0; slot < slots; slot++) {
    const hops = inOrder.map(({ ways }) => ways[slot] as Hop);
    const key = hops.map(numberOf).join();
    const known = trees.get(key);
    if (known === undefined) trees.set(key, { root, amount: 1, routes: hops.map(({ route }) => route) });
    else known.amount++;
  }
  return [...trees.values()];
}
