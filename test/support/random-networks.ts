/** Random networks for the synthesis campaign, and their optima by trying every set of nodes. */
import type { Network } from "../../src/authoring/certificate/index.ts";
import { Random } from "../oracle/random.ts";

/** The same numbers from 0 to 1 for a seed everywhere. */
export function randomNumbers(seed: number): () => number {
  const random = new Random(seed);
  return () => random.fraction();
}

export interface RandomNetwork {
  readonly network: Network;
  readonly numRanks: number;
  readonly numNodes: number;
  readonly edges: readonly { readonly from: number; readonly to: number; readonly capacity: number }[];
  readonly isSymmetric: boolean;
  /** As much capacity into each relay as out of it. */
  readonly isBalanced: boolean;
}

/** A connected network of 3 to 12 ranks and up to 6 relays; every second one has links that differ by direction. */
export function randomNetwork(random: () => number, mostRanks = 12, mostRelays = 6): RandomNetwork {
  const upTo = (most: number) => Math.floor(random() * (most + 1));
  const numRanks = 3 + upTo(mostRanks - 3);
  const numRelays = upTo(mostRelays);
  const numNodes = numRanks + numRelays;
  const isSymmetric = random() < 0.5;
  const capacities = new Map<number, number>();
  const add = (from: number, to: number, capacity: number) => {
    if (from === to || capacity === 0) return;
    capacities.set(from * numNodes + to, (capacities.get(from * numNodes + to) ?? 0) + capacity);
  };
  const link = (a: number, b: number, leastBack: number) => {
    const there = 1 + upTo(11);
    add(a, b, there);
    add(b, a, isSymmetric ? there : leastBack + upTo(12 - leastBack));
  };
  // A tree over all nodes in a random order first, then chance.
  const order = [...Array(numNodes).keys()].sort(() => random() - 0.5);
  for (let i = 1; i < numNodes; i++) link(order[upTo(i - 1)] as number, order[i] as number, 1);
  for (let i = upTo(2 * numNodes); i > 0; i--) link(upTo(numNodes - 1), upTo(numNodes - 1), 0);
  const edges = [...capacities].map(([key, capacity]) => ({
    from: Math.floor(key / numNodes),
    to: key % numNodes,
    capacity,
  }));
  const balance = (node: number) =>
    edges.reduce(
      (sum, { from, to, capacity }) => sum + (to === node ? capacity : 0) - (from === node ? capacity : 0),
      0,
    );
  const relays = [...Array(numRelays).keys()].map((i) => numRanks + i);
  return {
    numRanks,
    numNodes,
    edges,
    isSymmetric: edges.every(({ from, to, capacity }) => capacities.get(to * numNodes + from) === capacity),
    isBalanced: relays.every((node) => balance(node) === 0),
    network: {
      nodes: [...Array(numNodes).keys()].map((i) => ({ id: `n${i}`, kind: i < numRanks ? "rank" : "relay" })),
      edges: edges.map(({ from, to, capacity }) => ({ from: `n${from}`, to: `n${to}`, capacity: String(capacity) })),
    },
  };
}

export interface Fraction {
  readonly above: number;
  readonly below: number;
}

/** What leaves (or enters) every set of nodes, by Gray code: one node changes sides at a time. */
export function forEachCut(
  { numNodes, edges }: RandomNetwork,
  visit: (nodes: number, leaving: number, entering: number) => void,
): void {
  const inSet = new Uint8Array(numNodes);
  const out: [number, number][][] = Array.from({ length: numNodes }, () => []);
  const into: [number, number][][] = Array.from({ length: numNodes }, () => []);
  for (const { from, to, capacity } of edges) {
    out[from]?.push([to, capacity]);
    into[to]?.push([from, capacity]);
  }
  let [set, leaving, entering] = [0, 0, 0];
  for (let step = 1; step < 2 ** numNodes; step++) {
    const node = 31 - Math.clz32(step & -step);
    const sign = inSet[node] ? -1 : 1;
    // Links to the outside count when the node comes in; links to the inside counted before it came.
    for (const [to, capacity] of out[node] ?? []) {
      if (inSet[to]) entering -= sign * capacity;
      else leaving += sign * capacity;
    }
    for (const [from, capacity] of into[node] ?? []) {
      if (inSet[from]) leaving -= sign * capacity;
      else entering += sign * capacity;
    }
    inSet[node] = inSet[node] ? 0 : 1;
    set ^= 1 << node;
    visit(set, leaving, entering);
  }
}

const isMore = (a: Fraction, b: Fraction): boolean => a.above * b.below > b.above * a.below;

/** Optima of the collectives whose witness is a cut, in seconds for a payload of 1 GB, root 0. */
export function bruteForce(random: RandomNetwork): {
  readonly cuts: Readonly<
    Record<"all_gather" | "reduce_scatter" | "broadcast" | "reduce" | "scatter" | "gather", Fraction>
  >;
  /** By set of ranks, the smallest cut around it: what leaves, what enters. */
  readonly leaving: Float64Array;
  readonly entering: Float64Array;
} {
  const { numRanks } = random;
  const all = 2 ** numRanks - 1;
  const leaving = new Float64Array(all + 1).fill(Number.POSITIVE_INFINITY);
  const entering = new Float64Array(all + 1).fill(Number.POSITIVE_INFINITY);
  forEachCut(random, (nodes, out, into) => {
    const ranks = nodes & all;
    leaving[ranks] = Math.min(leaving[ranks] as number, out);
    entering[ranks] = Math.min(entering[ranks] as number, into);
  });
  const none: Fraction = { above: 0, below: 1 };
  const cuts = { all_gather: none, reduce_scatter: none, broadcast: none, reduce: none, scatter: none, gather: none };
  const raise = (name: keyof typeof cuts, above: number, below: number) => {
    if (above > 0 && isMore({ above, below }, cuts[name])) cuts[name] = { above, below };
  };
  for (let set = 1; set < all; set++) {
    const inside = set.toString(2).replaceAll("0", "").length;
    const [out, into] = [leaving[set] as number, entering[set] as number];
    raise("all_gather", inside, out * numRanks);
    raise("reduce_scatter", inside, into * numRanks);
    if ((set & 1) === 0) continue;
    raise("broadcast", 1, out);
    raise("reduce", 1, into);
    raise("scatter", numRanks - inside, out * numRanks);
    raise("gather", numRanks - inside, into * numRanks);
  }
  return { cuts, leaving, entering };
}

/** Whether some partition of the ranks proves more than `time`: 2(k - 1) / sum of cuts > time. */
export function somePartitionProvesMore(cuts: Float64Array, numRanks: number, time: Fraction): boolean {
  const all = 2 ** numRanks - 1;
  // The least of sum(cut * above - 2 * below) over partitions of a set into parts; better means below -2 * below in all.
  const least = new Float64Array(all + 1);
  for (let set = 1; set <= all; set++) {
    const lowest = set & -set;
    let best = Number.POSITIVE_INFINITY;
    for (let part = set; part > 0; part = (part - 1) & set) {
      if ((part & lowest) === 0 || part === all) continue;
      best = Math.min(best, (cuts[part] as number) * time.above - 2 * time.below + (least[set ^ part] as number));
    }
    least[set] = best;
  }
  return (least[all] as number) < -2 * time.below;
}
