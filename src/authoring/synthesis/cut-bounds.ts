/**
 * Exact optima whose witness is a cut: all-gather, broadcast and scatter (and, on the reversed graph, reduce-scatter,
 * reduce and gather). All-gather: time per unit of data = max over S missing a rank of share(S) / leaving(S), found by
 * discrete Newton on max-flows in integers (Dinkelbach 1967; the feasibility test is ForestColl's, arXiv 2402.06787).
 */
import { UnsupportedError } from "../../core/index.ts";
import { FlowGraph } from "./max-flow.ts";
import { Rational } from "./rational.ts";
import { gcd, leaving, outgoingOf, reversed, type ScaledGraph } from "./scaled-graph.ts";
import { symmetryOf } from "./symmetry.ts";

/** A ratio of integers; time for all the data is `above / below` in units of 1 / capacity unit. */
export interface Ratio {
  readonly above: number;
  readonly below: number;
}

export interface CutBound extends Ratio {
  /** By node: 1 for those inside the witness. */
  readonly inside: Uint8Array;
}

export const rationalOf = ({ above, below }: Ratio): Rational => new Rational(BigInt(above), BigInt(below));

const isLess = (a: Ratio, b: Ratio): boolean => BigInt(a.above) * BigInt(b.below) < BigInt(b.above) * BigInt(a.below);

export function lowestTerms({ above, below }: Ratio): Ratio {
  const common = gcd(above, below) || 1;
  return { above: above / common, below: below / common };
}

/** A cut whose data cannot leave: the ranks are not connected. */
function disconnected(graph: ScaledGraph, inside: Uint8Array): UnsupportedError {
  const side = graph.ranks.filter((node) => inside[node]);
  return new UnsupportedError(
    "a collective between ranks that are not connected",
    `nothing leads from ${side.slice(0, 4).map((node) => graph.ids[node])} ${side.length > 4 ? "… " : ""}to the other ranks`,
  );
}

function ratioOf(graph: ScaledGraph, inside: Uint8Array, weights: readonly number[]): CutBound {
  let above = 0;
  for (const [rank, node] of graph.ranks.entries()) if (inside[node]) above += weights[rank] as number;
  const below = leaving(graph, inside);
  if (below === 0 && above > 0) throw disconnected(graph, inside);
  return { above, below: Math.max(below, 1), inside };
}

/**
 * The flow test of all-gather: a super-source feeds every rank its weight times `ratio.below`; links carry
 * `ratio.above` times their capacity. The ratio is enough if every rank can then receive everything.
 */
export class GatherTest {
  readonly #graph: ScaledGraph;
  readonly #flow: FlowGraph;
  readonly #source: number;
  readonly #feeds: readonly number[];
  readonly #links: readonly number[];
  readonly #weights: readonly number[];

  constructor(graph: ScaledGraph, weights: readonly number[]) {
    this.#graph = graph;
    this.#weights = weights;
    this.#flow = new FlowGraph(graph.numNodes);
    this.#source = this.#flow.addNode();
    this.#links = graph.edges.map(({ from, to }) => this.#flow.addEdge(from, to, 0));
    this.#feeds = graph.ranks.map((node) => this.#flow.addEdge(this.#source, node, 0));
  }

  /** A cut that the ratio is too small for, the worst over the targets, or undefined when the ratio is enough. */
  violated(ratio: Ratio, targets: readonly number[] = this.#graph.ranks): CutBound | undefined {
    const { above, below } = ratio;
    for (const [i, link] of this.#links.entries()) {
      this.#flow.setCapacity(link, above * (this.#graph.edges[i]?.capacity as number));
    }
    let wanted = 0;
    for (const [rank, feed] of this.#feeds.entries()) {
      const weight = (this.#weights[rank] as number) * below;
      this.#flow.setCapacity(feed, weight);
      wanted += weight;
    }
    let worst: CutBound | undefined;
    for (const target of targets) {
      this.#graph.deadline?.check();
      if (this.#flow.maxFlow(this.#source, target, wanted) >= wanted) continue;
      const cut = ratioOf(this.#graph, this.#flow.sourceSide(this.#source), this.#weights);
      if (worst === undefined || isLess(worst, cut)) worst = cut;
    }
    return worst;
  }
}

/** Up to so many ranks each is tested: that is faster than looking for symmetries. */
const MOST_TESTED = 32;

/** One rank of each orbit, the first: those of an orbit have flows of the same size. */
function targetsOf(graph: ScaledGraph, weights: readonly number[]): readonly number[] {
  if (graph.ranks.length <= MOST_TESTED) return graph.ranks;
  const { first } = symmetryOf(graph, weights);
  const seen = new Set<number>();
  return graph.ranks.filter((node) => {
    const orbit = first[node] as number;
    const isFirst = !seen.has(orbit);
    seen.add(orbit);
    return isFirst;
  });
}

/**
 * The exact optimum of all-gather with integer weights by rank (their sum is all the data), and the cut that proves it.
 * @param targets the ranks to test: all, or one of each symmetry orbit
 * @throws UnsupportedError when some ranks cannot reach others
 */
export function gatherBound(
  graph: ScaledGraph,
  weights: readonly number[] = graph.ranks.map(() => 1),
  targets: readonly number[] = targetsOf(graph, weights),
): CutBound {
  // Start with the best of the cuts around everything but one rank.
  let best: CutBound | undefined;
  for (const node of graph.ranks) {
    const inside = new Uint8Array(graph.numNodes).fill(1);
    inside[node] = 0;
    const cut = ratioOf(graph, inside, weights);
    if (best === undefined || isLess(best, cut)) best = cut;
  }
  const test = new GatherTest(graph, weights);
  let bound = best as CutBound;
  for (;;) {
    const { above, below } = lowestTerms(bound);
    const worse = test.violated({ above, below }, targets);
    if (worse === undefined) return { above, below, inside: bound.inside };
    bound = worse;
  }
}

/**
 * Refuses ranks of which some cannot reach others, in words: the cuts of other bounds would be empty.
 * @throws UnsupportedError
 */
export function requireConnected(graph: ScaledGraph): void {
  // The cut that says so, of those that are not.
  if (!reachesRanks(graph) || !reachesRanks(reversed(graph))) gatherBound(graph, undefined, graph.ranks);
}

/** Whether links lead from the first rank to all others. */
function reachesRanks(graph: ScaledGraph): boolean {
  const outgoing = outgoingOf(graph);
  const reached = new Set(graph.ranks.slice(0, 1));
  for (const node of reached) for (const edge of outgoing[node] ?? []) reached.add(graph.edges[edge]?.to as number);
  return graph.ranks.every((node) => reached.has(node));
}

/** The optimum of a scatter with weights by rank: one flow into all ranks at once, by the same Newton iteration. */
export function scatterBound(
  graph: ScaledGraph,
  root: number,
  weights: readonly number[] = graph.ranks.map(() => 1),
): CutBound & { readonly flow: FlowGraph; readonly links: readonly number[] } {
  const flow = new FlowGraph(graph.numNodes);
  const sink = flow.addNode();
  const links = graph.edges.map(({ from, to }) => flow.addEdge(from, to, 0));
  const drains = graph.ranks.map((node) => flow.addEdge(node, sink, 0));
  const inside = new Uint8Array(graph.numNodes);
  inside[root] = 1;
  const around = (side: Uint8Array): CutBound => {
    let above = 0;
    for (const [rank, node] of graph.ranks.entries()) if (!side[node]) above += weights[rank] as number;
    const below = leaving(graph, side);
    if (below === 0 && above > 0) throw disconnected(graph, side);
    return { above, below: Math.max(below, 1), inside: side };
  };
  let bound = around(inside);
  for (;;) {
    graph.deadline?.check();
    const { above, below } = lowestTerms(bound);
    for (const [i, link] of links.entries()) flow.setCapacity(link, above * (graph.edges[i]?.capacity as number));
    let wanted = 0;
    for (const [rank, drain] of drains.entries()) {
      const weight = graph.ranks[rank] === root ? 0 : (weights[rank] as number) * below;
      flow.setCapacity(drain, weight);
      wanted += weight;
    }
    if (flow.maxFlow(root, sink, wanted) >= wanted) return { above, below, inside: bound.inside, flow, links };
    bound = around(new Uint8Array(flow.sourceSide(root)));
  }
}
