/**
 * Symmetries of a network: permutations of its nodes that keep every edge and its capacity. Candidates come from how ranks are
 * numbered (blocks of ranks that change places, in cycles or mirrored); relays follow by colour refinement (Weisfeiler and
 * Leman 1968), and every permutation is verified on the list of edges before it is used. Not all symmetries are sought: enough
 * to find those of boxes, tori and hypercubes, in a group about as large as the number of ranks.
 */
import type { ScaledGraph } from "./scaled-graph.ts";

/** Where each node goes. */
export type Permutation = Int32Array;

export interface Symmetry {
  /** A group, the identity first. */
  readonly elements: readonly Permutation[];
  /** One node of each orbit of the ranks, and how many are in its orbit. */
  readonly roots: readonly { readonly node: number; readonly size: number }[];
  /** By node, the element that leads from its orbit's first node to it. */
  readonly from: readonly Permutation[];
  /** By node, the first node of its orbit. */
  readonly first: Int32Array;
  /** By edge, the number of its orbit; by orbit, how many edges it has. */
  readonly edgeOrbit: Int32Array;
  readonly edgeOrbitSizes: readonly number[];
}

/** Spreads the bits of two numbers over 32; equal colours of unequal nodes only cost time, edges are compared at the end. */
function mixed(a: number, b: number): number {
  let x = Math.imul(a ^ Math.imul(b, 0x9e3779b1), 0x85ebca6b);
  x ^= x >>> 15;
  x = Math.imul(x, 0xc2b2ae35);
  return (x ^ (x >>> 13)) | 0;
}

/** Colours of nodes, made finer by those of their neighbours until nothing changes. */
function refined(graph: ScaledGraph, start: Int32Array, capacityColours: Int32Array): Int32Array {
  let colours = start;
  for (let round = 0, classes = 0; round < graph.numNodes; round++) {
    const next = colours.map((colour) => mixed(colour, 17));
    for (const [i, { from, to }] of graph.edges.entries()) {
      const capacity = capacityColours[i] as number;
      next[from] = ((next[from] as number) + mixed((colours[to] as number) ^ 0x5bd1, capacity)) | 0;
      next[to] = ((next[to] as number) + mixed((colours[from] as number) ^ 0x1b87, capacity + 1)) | 0;
    }
    const count = new Set(next).size;
    colours = next;
    if (count === classes) break;
    classes = count;
  }
  return colours;
}

class SymmetryFinder {
  readonly #graph: ScaledGraph;
  readonly #capacities: Int32Array;
  readonly #edgeOf = new Map<number, number>();
  readonly #base: Int32Array;

  constructor(graph: ScaledGraph, weights: readonly number[]) {
    this.#graph = graph;
    this.#capacities = Int32Array.from(graph.edges, ({ capacity }) => mixed(capacity | 0, (capacity / 2 ** 31) | 0));
    for (const [i, { from, to }] of graph.edges.entries()) this.#edgeOf.set(from * graph.numNodes + to, i);
    const base = new Int32Array(graph.numNodes).fill(-1);
    for (const [rank, node] of graph.ranks.entries()) base[node] = mixed(weights[rank] as number, 3);
    this.#base = base;
  }

  /** Colours of the ranks, equal where they may be symmetric. */
  rankColours(): number[] {
    const colours = refined(this.#graph, this.#base, this.#capacities);
    return this.#graph.ranks.map((node) => colours[node] as number);
  }

  edgeFrom(from: number, to: number): number | undefined {
    return this.#edgeOf.get(from * this.#graph.numNodes + to);
  }

  /** The symmetry that moves rank i to rank `ranks[i]`, where there is one and the relays are told apart by it. */
  extended(ranks: readonly number[]): Permutation | undefined {
    const graph = this.#graph;
    const nodeOf = (rank: number) => graph.ranks[rank] as number;
    if (ranks.some((to, rank) => this.#base[nodeOf(rank)] !== this.#base[nodeOf(to)])) return undefined;
    // Both sides get colours by the ranks; nodes of equal colours correspond.
    let [here, there] = [new Int32Array(graph.numNodes).fill(-1), new Int32Array(graph.numNodes).fill(-1)];
    for (const [rank, to] of ranks.entries()) {
      here[nodeOf(rank)] = rank + 1;
      there[nodeOf(to)] = rank + 1;
    }
    for (let tie = 0; tie <= graph.numNodes; tie++) {
      here = refined(graph, here, this.#capacities) as Int32Array<ArrayBuffer>;
      there = refined(graph, there, this.#capacities) as Int32Array<ArrayBuffer>;
      const nodes = new Map<number, number[]>();
      for (const [node, colour] of there.entries()) {
        const known = nodes.get(colour);
        if (known === undefined) nodes.set(colour, [node]);
        else known.push(node);
      }
      const result = new Int32Array(graph.numNodes);
      let open: [number, number] | undefined;
      const counts = new Map<number, number>();
      for (const [node, colour] of here.entries()) {
        const candidates = nodes.get(colour);
        const used = counts.get(colour) ?? 0;
        const to = candidates?.[used];
        if (candidates === undefined || to === undefined) return undefined;
        counts.set(colour, used + 1);
        if (candidates.length > 1 && open === undefined) open = [node, to];
        result[node] = to;
      }
      if (this.#holds(result)) return result;
      if (open === undefined) return undefined;
      // Relays that nothing tells apart: any of them may go first.
      here[open[0]] = 0x7000_0000 + tie;
      there[open[1]] = 0x7000_0000 + tie;
    }
    return undefined;
  }

  /** Whether a permutation of nodes keeps every edge and its capacity, and ranks apart from relays. */
  #holds(permutation: Permutation): boolean {
    const { edges, isRank } = this.#graph;
    const reached = new Uint8Array(permutation.length);
    for (const [node, to] of permutation.entries()) {
      if (isRank[node] !== isRank[to] || reached[to] === 1) return false;
      reached[to] = 1;
    }
    return edges.every(({ from, to, capacity }) => {
      const image = this.edgeFrom(permutation[from] as number, permutation[to] as number);
      return image !== undefined && edges[image]?.capacity === capacity;
    });
  }
}

const divisors = (n: number): number[] => Array.from({ length: n }, (_, i) => n - i).filter((d) => n % d === 0);

/** Permutations of ranks that may be symmetries: blocks of equal colours change places, in a cycle or mirrored. */
function* candidates(colours: readonly number[], isMirrored: boolean): Generator<number[]> {
  const numRanks = colours.length;
  const sizes = divisors(numRanks);
  for (const outer of sizes) {
    for (const inner of divisors(outer)) {
      if (inner === outer) continue;
      // In every block of `outer` ranks: parts of `inner` ranks that look alike move to the next such part, or mirrored.
      const moved = new Array<number>(numRanks);
      for (let start = 0; start < numRanks; start += outer) {
        const alike = new Map<string, number[]>();
        for (let part = start; part < start + outer; part += inner) {
          const key = colours.slice(part, part + inner).join(" ");
          alike.set(key, [...(alike.get(key) ?? []), part]);
        }
        for (const parts of alike.values()) {
          for (const [i, part] of parts.entries()) {
            const to = parts[isMirrored ? parts.length - 1 - i : (i + 1) % parts.length] as number;
            for (let j = 0; j < inner; j++) moved[part + j] = to + j;
          }
        }
      }
      yield moved;
    }
  }
}

/** All permutations of up to this many ranks are tried for a block: by backtracking over links between its ranks. */
const MOST_SEARCHED = 16;
const MOST_STEPS = 20_000;

/** The largest block of which the network is made: ranks that are joined by links with no relay between. */
function* blockCandidates(graph: ScaledGraph, colours: readonly number[], finder: SymmetryFinder): Generator<number[]> {
  const numRanks = colours.length;
  for (const size of divisors(numRanks)) {
    if (size > MOST_SEARCHED || size < 3) continue;
    const node = (rank: number) => graph.ranks[rank] as number;
    const link = (a: number, b: number) => {
      const edge = finder.edgeFrom(node(a), node(b));
      return edge === undefined ? 0 : (graph.edges[edge]?.capacity as number);
    };
    let steps = 0;
    for (let image = 1; image < size; image++) {
      const chosen = [image];
      const fits = (to: number): boolean => {
        const at = chosen.length;
        return (
          !chosen.includes(to) &&
          colours[at] === colours[to] &&
          chosen.every((other, i) => link(i, at) === link(other, to) && link(at, i) === link(to, other))
        );
      };
      if (colours[0] !== colours[image]) continue;
      const search = function* (): Generator<number[]> {
        if (++steps > MOST_STEPS) return;
        if (chosen.length === size) {
          yield Array.from(colours, (_, rank) => rank - (rank % size) + (chosen[rank % size] as number));
          return;
        }
        for (let to = 0; to < size; to++) {
          if (!fits(to)) continue;
          chosen.push(to);
          yield* search();
          chosen.pop();
        }
      };
      let tried = 0;
      for (const found of search()) {
        yield found;
        if (++tried >= 8) break;
      }
    }
    return;
  }
}

function hashOf(permutation: Permutation): number {
  let hash = 0;
  for (let i = 0; i < permutation.length; i++) hash = mixed(hash, permutation[i] as number);
  return hash;
}

/** The group that generators make, or undefined when it has more than `most` elements. */
function closure(generators: readonly Permutation[], numNodes: number, most: number): Permutation[] | undefined {
  const identity = Int32Array.from({ length: numNodes }, (_, node) => node);
  const elements = [identity];
  const known = new Map([[hashOf(identity), [identity]]]);
  for (const element of elements) {
    for (const generator of generators) {
      const product = new Int32Array(numNodes);
      for (let i = 0; i < numNodes; i++) product[i] = generator[element[i] as number] as number;
      const hash = hashOf(product);
      const alike = known.get(hash);
      if (alike?.some((other) => other.every((node, i) => node === product[i]))) continue;
      if (elements.length === most) return undefined;
      if (alike === undefined) known.set(hash, [product]);
      else alike.push(product);
      elements.push(product);
    }
  }
  return elements;
}

function numOrbits(generators: readonly Permutation[], ranks: readonly number[]): number {
  const parent = new Map(ranks.map((node) => [node, node]));
  const find = (node: number): number => {
    let at = node;
    while (parent.get(at) !== at) at = parent.get(at) as number;
    return at;
  };
  let count = ranks.length;
  for (const generator of generators) {
    for (const node of ranks) {
      const [a, b] = [find(node), find(generator[node] as number)];
      if (a === b) continue;
      parent.set(a, b);
      count--;
    }
  }
  return count;
}

const found = new WeakMap<ScaledGraph, { readonly weights: readonly number[]; readonly symmetry: Symmetry }[]>();

/** Symmetries of a network that also keep the weights of its ranks; perhaps the identity alone. Sought once. */
export function symmetryOf(graph: ScaledGraph, weights: readonly number[]): Symmetry {
  const known = found.get(graph) ?? [];
  const before = known.find((one) => one.weights.every((weight, rank) => weight === weights[rank]));
  if (before !== undefined) return before.symmetry;
  const symmetry = soughtSymmetry(graph, weights);
  found.set(graph, [...known, { weights, symmetry }]);
  return symmetry;
}

function soughtSymmetry(graph: ScaledGraph, weights: readonly number[]): Symmetry {
  const finder = new SymmetryFinder(graph, weights);
  const colours = finder.rankColours();
  const fewest = new Set(colours).size;
  const generators: Permutation[] = [];
  let elements = closure([], graph.numNodes, 1) as Permutation[];
  let orbits = graph.ranks.length;
  const all = function* () {
    yield* candidates(colours, false);
    yield* candidates(colours, true);
    yield* blockCandidates(graph, colours, finder);
  };
  // A group of more elements than ranks maps a tree to several of the same root: only where nothing smaller does.
  for (const most of [graph.ranks.length, Math.max(2 * graph.ranks.length, 64)]) {
    for (const ranks of all()) {
      if (orbits === fewest) break;
      graph.deadline?.check();
      const permutation = finder.extended(ranks);
      if (permutation === undefined) continue;
      const fewer = numOrbits([...generators, permutation], graph.ranks);
      if (fewer === orbits) continue;
      const larger = closure([...generators, permutation], graph.numNodes, most);
      if (larger === undefined) continue;
      generators.push(permutation);
      elements = larger;
      orbits = fewer;
    }
  }
  return orbitsOf(graph, elements, finder);
}

/** The identity alone: every node and edge is an orbit by itself. */
export function noSymmetry(graph: ScaledGraph, weights: readonly number[]): Symmetry {
  return orbitsOf(
    graph,
    [Int32Array.from({ length: graph.numNodes }, (_, node) => node)],
    new SymmetryFinder(graph, weights),
  );
}

function orbitsOf(graph: ScaledGraph, elements: readonly Permutation[], finder: SymmetryFinder): Symmetry {
  const first = new Int32Array(graph.numNodes).fill(-1);
  const from: Permutation[] = new Array(graph.numNodes);
  const roots: { node: number; size: number }[] = [];
  for (let node = 0; node < graph.numNodes; node++) {
    if (first[node] !== -1) continue;
    let size = 0;
    for (const element of elements) {
      const image = element[node] as number;
      if (first[image] !== -1) continue;
      first[image] = node;
      from[image] = element;
      size++;
    }
    if (graph.isRank[node]) roots.push({ node, size });
  }
  const edgeOrbit = new Int32Array(graph.edges.length).fill(-1);
  const edgeOrbitSizes: number[] = [];
  for (const [edge, ends] of graph.edges.entries()) {
    if (edgeOrbit[edge] !== -1) continue;
    let size = 0;
    for (const element of elements) {
      const image = finder.edgeFrom(element[ends.from] as number, element[ends.to] as number) as number;
      if (edgeOrbit[image] !== -1) continue;
      edgeOrbit[image] = edgeOrbitSizes.length;
      size++;
    }
    edgeOrbitSizes.push(size);
  }
  return { elements, roots, from, first, edgeOrbit, edgeOrbitSizes };
}
