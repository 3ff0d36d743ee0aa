/**
 * Maximum flow by Dinic's algorithm (1970) over integer capacities held in doubles, exact below 2^53. The graph may grow
 * between flows; a flow works on a copy of the capacities, so one graph serves many questions.
 */
import { invariant } from "../../core/index.ts";

/** Capacities that sum to more than this could round. */
export const LARGEST_EXACT = Number.MAX_SAFE_INTEGER;

export class FlowGraph {
  #numNodes: number;
  /** Edge e leads to heads[e]; its reverse is e ^ 1. */
  readonly #heads: number[] = [];
  readonly #capacities: number[] = [];
  readonly #edgesOf: number[][];
  #residual = new Float64Array(0);
  #level = new Int32Array(0);
  #next = new Int32Array(0);
  #queue = new Int32Array(0);

  constructor(numNodes: number) {
    this.#numNodes = numNodes;
    this.#edgesOf = Array.from({ length: numNodes }, () => []);
  }

  get numNodes(): number {
    return this.#numNodes;
  }

  addNode(): number {
    this.#edgesOf.push([]);
    return this.#numNodes++;
  }

  /** Adds an edge and gives its number, by which `setCapacity` finds it. */
  addEdge(from: number, to: number, capacity: number): number {
    const edge = this.#heads.length;
    this.#heads.push(to, from);
    this.#capacities.push(capacity, 0);
    this.#edgesOf[from]!.push(edge);
    this.#edgesOf[to]!.push(edge + 1);
    return edge;
  }

  capacityOf(edge: number): number {
    return this.#capacities[edge]!;
  }

  setCapacity(edge: number, capacity: number): void {
    this.#capacities[edge] = capacity;
  }

  /**
   * The largest flow from source to sink, or `limit` as soon as it is that much. Afterwards `flowOf` and `sourceSide`
   * speak of this flow.
   */
  maxFlow(source: number, sink: number, limit = Number.POSITIVE_INFINITY): number {
    this.#reset();
    let total = 0;
    while (total < limit && this.#layer(source, sink)) {
      this.#next.fill(0, 0, this.#numNodes);
      for (;;) {
        const pushed = this.#push(source, sink, limit - total);
        if (pushed === 0) break;
        total += pushed;
        if (total >= limit) break;
      }
    }
    invariant(total <= LARGEST_EXACT, "a flow is exact");
    return total;
  }

  /** What the last flow sends over an edge. */
  flowOf(edge: number): number {
    return this.#capacities[edge]! - this.#residual[edge]!;
  }

  /** The nodes that the source still reaches in the residual graph: the source side of a smallest cut. */
  sourceSide(source: number): Uint8Array {
    const side = new Uint8Array(this.#numNodes);
    const stack = [source];
    side[source] = 1;
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      for (const edge of this.#edgesOf[node]!) {
        const to = this.#heads[edge]!;
        if (side[to] === 0 && this.#residual[edge]! > 0) {
          side[to] = 1;
          stack.push(to);
        }
      }
    }
    return side;
  }

  #reset(): void {
    const numEdges = this.#capacities.length;
    if (this.#residual.length < numEdges) this.#residual = new Float64Array(numEdges * 2);
    if (this.#level.length < this.#numNodes) {
      this.#level = new Int32Array(this.#numNodes * 2);
      this.#next = new Int32Array(this.#numNodes * 2);
      this.#queue = new Int32Array(this.#numNodes * 2);
    }
    for (let e = 0; e < numEdges; e++) this.#residual[e] = this.#capacities[e]!;
  }

  #layer(source: number, sink: number): boolean {
    const level = this.#level.fill(-1, 0, this.#numNodes);
    const queue = this.#queue;
    level[source] = 0;
    queue[0] = source;
    for (let head = 0, tail = 1; head < tail; head++) {
      const node = queue[head]!;
      for (const edge of this.#edgesOf[node]!) {
        const to = this.#heads[edge]!;
        if (level[to] !== -1 || this.#residual[edge]! <= 0) continue;
        level[to] = level[node]! + 1;
        if (to === sink) return true;
        queue[tail++] = to;
      }
    }
    return false;
  }

  /** One augmenting path along the layers, found without recursion: networks may be deep. */
  #push(source: number, sink: number, limit: number): number {
    const path: number[] = [];
    let node = source;
    for (;;) {
      if (node === sink) {
        let amount = limit;
        for (const edge of path) amount = Math.min(amount, this.#residual[edge]!);
        for (const edge of path) {
          this.#residual[edge] = this.#residual[edge]! - amount;
          this.#residual[edge ^ 1] = this.#residual[edge ^ 1]! + amount;
        }
        return amount;
      }
      const edges = this.#edgesOf[node]!;
      let advanced = false;
      for (; this.#next[node]! < edges.length; this.#next[node]!++) {
        const edge = edges[this.#next[node]!]!;
        const to = this.#heads[edge]!;
        if (this.#residual[edge]! > 0 && this.#level[to] === this.#level[node]! + 1) {
          path.push(edge);
          node = to;
          advanced = true;
          break;
        }
      }
      if (advanced) continue;
      const back = path.pop();
      if (back === undefined) return 0;
      node = this.#heads[back ^ 1]!;
      this.#next[node]!++;
    }
  }
}
