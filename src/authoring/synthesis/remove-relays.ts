/**
 * Removes relays by splitting off (Mader; Bang-Jensen, Frank, Jackson 1995): a pair u -> relay -> t becomes u -> t, by as
 * much as leaves every rank able to receive all that the source gives. Relays must be balanced: as much in as out.
 */
import { InvariantError } from "../../core/index.ts";
import type { Deadline } from "./deadline.ts";
import type { LogicalGraph } from "./logical-graph.ts";
import { FlowGraph } from "./max-flow.ts";

/** How many trees each root has, by node. */
export type Roots = ReadonlyMap<number, number>;

/** Asks what the roots together can send to each rank, over a graph whose capacities change one by one. */
class Reach {
  readonly #flow: FlowGraph;
  readonly #source: number;
  readonly #edges = new Map<number, number>();
  readonly #numNodes: number;
  readonly #ranks: number[];
  readonly #deadline: Deadline | undefined;
  readonly wanted: number;

  constructor(graph: LogicalGraph, numNodes: number, ranks: readonly number[], roots: Roots) {
    this.#numNodes = numNodes;
    this.#deadline = graph.deadline;
    this.#ranks = [...ranks];
    this.#flow = new FlowGraph(numNodes);
    this.#source = this.#flow.addNode();
    let wanted = 0;
    for (const [root, amount] of roots) {
      this.#flow.addEdge(this.#source, root, amount);
      wanted += amount;
    }
    this.wanted = wanted;
    for (const [from, to, capacity] of graph.edges()) this.change(from, to, capacity);
  }

  change(from: number, to: number, by: number): void {
    const key = from * this.#numNodes + to;
    const edge = this.#edges.get(key);
    if (edge === undefined) this.#edges.set(key, this.#flow.addEdge(from, to, by));
    else this.#flow.setCapacity(edge, this.#flow.capacityOf(edge) + by);
  }

  splitOff(from: number, via: number, to: number, amount: number): void {
    this.change(from, via, -amount);
    this.change(via, to, -amount);
    if (from !== to) this.change(from, to, amount);
  }

  /** How much the worst rank lacks; stops looking once it is `enough`. */
  deficit(enough: number): number {
    let worst = 0;
    for (let i = 0; i < this.#ranks.length; i++) {
      this.#deadline?.check();
      const rank = this.#ranks[i] as number;
      const lack = this.wanted - this.#flow.maxFlow(this.#source, rank, this.wanted);
      if (lack <= worst) continue;
      worst = lack;
      // Whoever lacked last is likely to lack next.
      this.#ranks.splice(i, 1);
      this.#ranks.unshift(rank);
      if (worst >= enough) break;
    }
    return worst;
  }
}

/** The parts that a graph falls into without one node. */
function componentsWithout(graph: LogicalGraph, numNodes: number, without: number): Int32Array {
  const component = new Int32Array(numNodes).fill(-1);
  const neighbours: number[][] = Array.from({ length: numNodes }, () => []);
  for (const [from, to] of graph.edges()) {
    neighbours[from]?.push(to);
    neighbours[to]?.push(from);
  }
  for (let start = 0, count = 0; start < numNodes; start++) {
    if (start === without || component[start] !== -1) continue;
    const stack = [start];
    component[start] = count;
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      for (const next of neighbours[node] as number[]) {
        if (next === without || component[next] !== -1) continue;
        component[next] = count;
        stack.push(next);
      }
    }
    count++;
  }
  return component;
}

/**
 * Spreads a star evenly: of equal spokes each leads to every other one, first to those that only this relay joins.
 * One test for the whole relay, where the general way needs one for each pair. Undoes itself when that loses anything.
 */
function spreadStar(graph: LogicalGraph, reach: Reach, relay: number, component: Int32Array): boolean {
  const spokes = graph.targets(relay);
  const capacity = graph.capacity(relay, spokes[0] as number);
  const isStar =
    spokes.length > 2 &&
    graph.sources(relay).length === spokes.length &&
    spokes.every((node) => graph.capacity(relay, node) === capacity && graph.capacity(node, relay) === capacity);
  if (!isStar) return false;
  const far = (from: number) => spokes.filter((to) => component[to] !== component[from]);
  const perSpoke = far(spokes[0] as number).length;
  const spread = perSpoke > 0 && spokes.every((node) => far(node).length === perSpoke);
  const splits: [number, number, number][] = [];
  const incoming = new Map<number, number>();
  for (const from of spokes) {
    // Begin with the next spoke, so that what is left over after an even division goes round.
    const at = spokes.indexOf(from);
    const order = [...spokes.slice(at + 1), ...spokes.slice(0, at)];
    const targets = spread ? order.filter((to) => component[to] !== component[from]) : order;
    const [each, left] = [Math.floor(capacity / targets.length), capacity % targets.length];
    for (const [i, to] of targets.entries()) {
      const amount = each + (i < left ? 1 : 0);
      if (amount === 0) continue;
      splits.push([from, to, amount]);
      incoming.set(to, (incoming.get(to) ?? 0) + amount);
    }
  }
  if (spokes.some((node) => incoming.get(node) !== capacity)) return false;
  for (const [from, to, amount] of splits) reach.splitOff(from, relay, to, amount);
  if (reach.deficit(1) > 0) {
    for (const [from, to, amount] of splits) reach.splitOff(from, relay, to, -amount);
    return false;
  }
  for (const [from, to, amount] of splits) graph.splitOff(from, relay, to, amount);
  return true;
}

/** Removes one relay, pair by pair: of each trial, as much as no rank would lack. */
function splitPairs(graph: LogicalGraph, reach: Reach, relay: number, component: Int32Array): void {
  for (const from of graph.sources(relay)) {
    // First those that only this relay joins, last the way back to where it came from.
    const distance = (to: number) => (to === from ? 2 : component[to] === component[from] ? 1 : 0);
    const targets = graph.targets(relay).sort((a, b) => distance(a) - distance(b));
    for (const to of targets) {
      const most = Math.min(graph.capacity(from, relay), graph.capacity(relay, to));
      if (most === 0) continue;
      reach.splitOff(from, relay, to, most);
      // A cut that breaks loses exactly `most`, so what is legal falls short by what the worst rank lacks.
      const lack = reach.deficit(most);
      if (lack > 0) reach.splitOff(from, relay, to, -Math.min(lack, most));
      const legal = most - Math.min(lack, most);
      if (legal > 0) graph.splitOff(from, relay, to, legal);
    }
    if (graph.capacity(from, relay) > 0) throw new InvariantError(`relay ${relay} is not balanced`);
  }
}

/** Removes every relay from the graph, in place. The roots can send everything to every rank before and after. */
export function removeRelays(
  graph: LogicalGraph,
  numNodes: number,
  relays: readonly number[],
  ranks: readonly number[],
  roots: Roots,
): void {
  const reach = new Reach(graph, numNodes, ranks, roots);
  // Relays with few neighbours first: a switch of one box before the fabric that joins boxes.
  const bySize = [...relays].sort((a, b) => graph.targets(a).length - graph.targets(b).length);
  for (const relay of bySize) {
    if (graph.targets(relay).length === 0) continue;
    const component = componentsWithout(graph, numNodes, relay);
    if (!spreadStar(graph, reach, relay, component)) splitPairs(graph, reach, relay, component);
  }
}
