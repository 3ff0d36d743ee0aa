/**
 * The shortest ways between ranks over relays, for lengths that edges of an orbit share: one search for each orbit of ranks,
 * mapped to the others by symmetry.
 */
import { outgoingOf, type ScaledGraph } from "./scaled-graph.ts";
import type { Symmetry } from "./symmetry.ts";

export class RankWays {
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
