/**
 * Packs spanning trees that together fit into the capacities (Edmonds 1973, "Edge-disjoint branchings"; grown edge by
 * edge as by Tarjan and Lovász, with multiplicities as by Bérczi and Frank 2010). One max-flow for each edge tried.
 */
import { InvariantError } from "../../core/index.ts";
import type { LogicalGraph } from "./logical-graph.ts";
import { FlowGraph } from "./max-flow.ts";
import type { Roots } from "./remove-relays.ts";

/** `amount` equal trees: parents in the order in which their children were reached. */
export interface TreeClass {
  readonly root: number;
  readonly amount: number;
  readonly edges: readonly (readonly [parent: number, child: number])[];
}

/** Capacities left between nodes. */
interface Capacities {
  capacity(from: number, to: number): number;
  edges(): Iterable<readonly [from: number, to: number, capacity: number]>;
}

interface OpenClass {
  readonly root: number;
  amount: number;
  /** Ranks reached, in order, the root first. */
  readonly reached: number[];
  readonly edges: [number, number][];
}

/**
 * How much of an edge the current class may take, so that the other classes can still reach everybody: their trees come
 * from a common source, and what flows through `from` is this class's.
 */
class Room {
  readonly #residual: FlowGraph;
  readonly #edges = new Map<number, number>();
  readonly #numNodes: number;
  readonly #source: number;
  readonly #tap = new Map<number, number>();
  #others = 0;
  /** As much as all trees together. */
  readonly #endless: number;

  constructor(capacities: Capacities, numNodes: number, classes: readonly OpenClass[], numTrees: number) {
    this.#numNodes = numNodes;
    this.#endless = numTrees;
    this.#residual = new FlowGraph(numNodes);
    this.#source = this.#residual.addNode();
    for (const [from, to, capacity] of capacities.edges()) {
      this.#edges.set(from * numNodes + to, this.#residual.addEdge(from, to, capacity));
    }
    for (const open of classes) {
      let entry = open.reached[0] as number;
      if (open.reached.length > 1) {
        entry = this.#residual.addNode();
        for (const node of open.reached) this.#residual.addEdge(entry, node, this.#endless);
      }
      this.#residual.addEdge(this.#source, entry, open.amount);
      this.#others += open.amount;
    }
  }

  of(from: number, to: number, most: number): number {
    let tap = this.#tap.get(from);
    if (tap === undefined) {
      tap = this.#residual.addEdge(this.#source, from, 0);
      this.#tap.set(from, tap);
    }
    this.#residual.setCapacity(tap, this.#endless);
    const room = this.#residual.maxFlow(this.#source, to, this.#others + most) - this.#others;
    this.#residual.setCapacity(tap, 0);
    return Math.min(most, room);
  }

  use(from: number, to: number, amount: number): void {
    const edge = this.#edges.get(from * this.#numNodes + to) as number;
    this.#residual.setCapacity(edge, this.#residual.capacityOf(edge) - amount);
  }

  /** A class was cut in two: its rest waits among the others. */
  addOther(open: OpenClass): void {
    const entry = this.#residual.addNode();
    for (const node of open.reached) this.#residual.addEdge(entry, node, this.#endless);
    this.#residual.addEdge(this.#source, entry, open.amount);
    this.#others += open.amount;
  }
}

/**
 * Packs, for each root, its number of trees that span the ranks. The graph has no relays, and the roots together must be
 * able to send everything to every rank (Edmonds' condition).
 * @throws InvariantError when they cannot
 */
export function packTrees(graph: LogicalGraph, numNodes: number, ranks: readonly number[], roots: Roots): TreeClass[] {
  const waiting: OpenClass[] = [...roots]
    .filter(([, amount]) => amount > 0)
    .map(([root, amount]) => ({ root, amount, reached: [root], edges: [] }));
  const left = new Map<number, number>();
  for (const [from, to, capacity] of graph.edges()) left.set(from * numNodes + to, capacity);
  const residual: Capacities = {
    capacity: (from: number, to: number) => left.get(from * numNodes + to) ?? 0,
    *edges() {
      for (const [key, capacity] of left)
        if (capacity > 0) yield [Math.floor(key / numNodes), key % numNodes, capacity] as const;
    },
  };
  const numTrees = waiting.reduce((sum, { amount }) => sum + amount, 0);
  const done: TreeClass[] = [];
  for (let current = waiting.shift(); current !== undefined; current = waiting.shift()) {
    const room = new Room(residual, numNodes, waiting, numTrees);
    const seen = new Set(current.reached);
    // Breadth first, which keeps trees shallow. An edge that had no room never gets any: cuts only tighten.
    for (let at = 0; at < current.reached.length && seen.size < ranks.length; at++) {
      const from = current.reached[at] as number;
      for (const to of graph.targets(from)) {
        if (seen.has(to)) continue;
        graph.deadline?.check();
        const most = Math.min(current.amount, residual.capacity(from, to));
        const amount = most === 0 ? 0 : room.of(from, to, most);
        if (amount <= 0) continue;
        if (amount < current.amount) {
          const rest: OpenClass = {
            root: current.root,
            amount: current.amount - amount,
            reached: [...current.reached],
            edges: [...current.edges],
          };
          current.amount = amount;
          room.addOther(rest);
          waiting.unshift(rest);
        }
        current.reached.push(to);
        current.edges.push([from, to]);
        seen.add(to);
        left.set(from * numNodes + to, residual.capacity(from, to) - amount);
        room.use(from, to, amount);
      }
    }
    if (seen.size < ranks.length) throw new InvariantError("the trees do not fit: the roots cannot reach every rank");
    done.push({ root: current.root, amount: current.amount, edges: current.edges });
  }
  return done;
}
