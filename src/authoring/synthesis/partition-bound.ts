/**
 * The partition bound of all-reduce: k parties need 2(k - 1) one-way messages an element, and a message that leaves part
 * C crosses C's smallest cut, so time >= 2(k - 1) / sum of cuts. The best partition is found by Newton's iteration over
 * greedy Dilworth truncation (Frank, Tardos 1988; Cunningham 1985): one smallest cut a rank and round.
 */
import { invariant } from "../../core/index.ts";
import { lowestTerms, type Ratio } from "./cut-bounds.ts";
import { FlowGraph } from "./max-flow.ts";
import { type ScaledGraph, totalCapacity } from "./scaled-graph.ts";

/** A part of the ranks and the smallest cut around it: what leaves the nodes inside. */
export interface Part {
  readonly ranks: readonly number[];
  readonly inside: Uint8Array;
  readonly cut: number;
}

export interface PartitionBound extends Ratio {
  readonly parts: readonly Part[];
}

/** The smallest cut around exactly these ranks, relays where they serve best. */
class CutAround {
  readonly #graph: ScaledGraph;
  readonly #flow: FlowGraph;
  readonly #source: number;
  readonly #sink: number;
  readonly #feeds: readonly number[];
  readonly #drains: readonly number[];
  readonly #endless: number;

  constructor(graph: ScaledGraph) {
    this.#graph = graph;
    this.#endless = totalCapacity(graph) + 1;
    this.#flow = new FlowGraph(graph.numNodes);
    for (const { from, to, capacity } of graph.edges) this.#flow.addEdge(from, to, capacity);
    this.#source = this.#flow.addNode();
    this.#sink = this.#flow.addNode();
    this.#feeds = graph.ranks.map((node) => this.#flow.addEdge(this.#source, node, 0));
    this.#drains = graph.ranks.map((node) => this.#flow.addEdge(node, this.#sink, 0));
  }

  of(members: ReadonlySet<number>): Part {
    this.#graph.deadline?.check();
    const ranks: number[] = [];
    for (const [rank, node] of this.#graph.ranks.entries()) {
      const isMember = members.has(rank);
      if (isMember) ranks.push(node);
      this.#flow.setCapacity(this.#feeds[rank]!, isMember ? this.#endless : 0);
      this.#flow.setCapacity(this.#drains[rank]!, isMember ? 0 : this.#endless);
    }
    const cut = this.#flow.maxFlow(this.#source, this.#sink);
    return { ranks, cut, inside: new Uint8Array(this.#flow.sourceSide(this.#source)).slice(0, this.#graph.numNodes) };
  }
}

/** The lowest of (cut of S) * q - p - y(S without v) over sets S of v and earlier ranks, and S as rank numbers. */
class Truncation {
  readonly #graph: ScaledGraph;
  readonly #flow: FlowGraph;
  readonly #links: readonly number[];
  readonly #source: number;
  readonly #sink: number;
  readonly #feeds: readonly number[];
  readonly #drains: readonly number[];
  #total = 0;

  constructor(graph: ScaledGraph) {
    this.#graph = graph;
    this.#flow = new FlowGraph(graph.numNodes);
    this.#source = this.#flow.addNode();
    this.#sink = this.#flow.addNode();
    this.#links = graph.edges.map(({ from, to }) => this.#flow.addEdge(from, to, 0));
    this.#feeds = graph.ranks.map((node) => this.#flow.addEdge(this.#source, node, 0));
    this.#drains = graph.ranks.map((node) => this.#flow.addEdge(node, this.#sink, 0));
  }

  scale(q: number): void {
    this.#total = totalCapacity(this.#graph) * q;
    for (const [i, link] of this.#links.entries())
      this.#flow.setCapacity(link, (this.#graph.edges[i]?.capacity as number) * q);
  }

  lowest(v: number, y: readonly number[], p: number): { value: number; members: number[] } {
    this.#graph.deadline?.check();
    let rewards = 0;
    // More than any cut of links, feeds and drains.
    const endless = y.reduce((sum, value) => sum + Math.abs(value), this.#total) + 1;
    for (const [rank] of this.#graph.ranks.entries()) {
      const value = y[rank] ?? 0;
      // Ranks that come later stay outside; an earlier one inside costs -y, so leaving out a positive y costs y.
      const feed = rank === v ? endless : rank < v ? Math.max(value, 0) : 0;
      const drain = rank > v ? endless : rank < v ? Math.max(-value, 0) : 0;
      if (rank < v) rewards += Math.max(value, 0);
      this.#flow.setCapacity(this.#feeds[rank]!, feed);
      this.#flow.setCapacity(this.#drains[rank]!, drain);
    }
    const cut = this.#flow.maxFlow(this.#source, this.#sink);
    const side = this.#flow.sourceSide(this.#source);
    const members = [...this.#graph.ranks.keys()].filter((rank) => side[this.#graph.ranks[rank]!] === 1);
    return { value: cut - rewards - p, members };
  }
}

/**
 * The largest partition bound by what leaves the parts: time for 1 unit of payload is `above / below`. On the reversed
 * graph it is the bound by what enters; on symmetric graphs both are one.
 */
export function partitionBound(graph: ScaledGraph): PartitionBound {
  const around = new CutAround(graph);
  let parts = [...graph.ranks.keys()].map((rank) => around.of(new Set([rank])));
  const truncation = new Truncation(graph);
  for (;;) {
    const total = parts.reduce((sum, { cut }) => sum + cut, 0);
    // cut(C) - rate summed over a partition is at least -rate at the optimum, where rate = total / (k - 1).
    const rate = lowestTerms({ above: total, below: parts.length - 1 });
    const better = truncated(graph, truncation, rate);
    if (better === undefined) {
      const { above, below } = lowestTerms({ above: 2 * (parts.length - 1), below: total });
      return { above, below, parts };
    }
    parts = better.map((members) => around.of(new Set(members)));
  }
}

/** A partition with sum of (cut - rate) below -rate, or undefined when there is none. */
function truncated(graph: ScaledGraph, truncation: Truncation, { above: p, below: q }: Ratio): number[][] | undefined {
  truncation.scale(q);
  const y: number[] = [];
  let blocks: number[][] = [];
  let sum = 0;
  for (const rank of graph.ranks.keys()) {
    const { value, members } = truncation.lowest(rank, y, p);
    y.push(value);
    sum += value;
    const own = new Set(members);
    const merged = blocks.filter((block) => block.some((member) => own.has(member)));
    blocks = [...blocks.filter((block) => !merged.includes(block)), [...new Set([...merged.flat(), ...members])]];
  }
  invariant(sum + p <= 0, "the whole set is a partition");
  return sum + p < 0 ? blocks : undefined;
}
