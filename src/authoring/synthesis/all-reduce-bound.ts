/** What no all-reduce is faster than, with its witness: partitions of the ranks, and cuts. */
import type { Witness } from "../certificate/index.ts";
import { gatherBound, rationalOf, requireConnected } from "./cut-bounds.ts";
import { isSymmetric } from "./link-use.ts";
import { FlowGraph } from "./max-flow.ts";
import { type PartitionBound, partitionBound } from "./partition-bound.ts";
import { Rational } from "./rational.ts";
import { cutWitness, leaving, nodesOf, reversed, type ScaledGraph, totalCapacity } from "./scaled-graph.ts";

const integer = (value: number): Rational => new Rational(BigInt(value));

export interface AllReduceBound {
  readonly bound: Rational;
  readonly witness: Witness;
  /** The partition by what leaves its parts, which is the bound on symmetric networks. */
  readonly outward: PartitionBound;
}

/** What a partition proves: the lesser of what leaves its parts and what enters them counts. */
function partitionWitness(graph: ScaledGraph, { parts }: PartitionBound): { bound: Rational; witness: Witness } {
  const back = reversed(graph);
  let [out, into] = [0, 0];
  const sides = parts.map(({ ranks }) => {
    const members = new Set(ranks);
    const others = graph.ranks.filter((node) => !members.has(node));
    const [leave, enter] = [smallestCut(graph, ranks, others), smallestCut(back, ranks, others)];
    out += leaving(graph, leave);
    into += leaving(back, enter);
    return { out: nodesOf(graph, leave), in: nodesOf(graph, enter) };
  });
  const bound = integer(2 * (parts.length - 1)).over(integer(Math.min(out, into)));
  return { bound, witness: { kind: "partition", parts: sides } };
}

/** The best of: partitions by what leaves the parts, by what enters them, and single cuts. */
export function allReduceBound(graph: ScaledGraph): AllReduceBound {
  requireConnected(graph);
  const outward = partitionBound(graph);
  let best = partitionWitness(graph, outward);
  if (!isSymmetric(graph)) {
    const inward = partitionWitness(graph, partitionBound(reversed(graph)));
    if (inward.bound.compare(best.bound) > 0) best = inward;
    // A cut is a bound by itself, and on one-way networks may be the better one: each rank must hear from every other.
    for (const root of graph.ranks) {
      const cut = gatherBound(
        graph,
        graph.ranks.map((node) => (node === root ? 1 : 0)),
      );
      if (rationalOf(cut).compare(best.bound) > 0)
        best = { bound: rationalOf(cut), witness: cutWitness(graph, cut.inside) };
    }
  }
  return { bound: best.bound.over(graph.unit), witness: best.witness, outward };
}

function smallestCut(graph: ScaledGraph, from: readonly number[], to: readonly number[]): Uint8Array {
  const flow = new FlowGraph(graph.numNodes);
  for (const edge of graph.edges) flow.addEdge(edge.from, edge.to, edge.capacity);
  const [source, sink] = [flow.addNode(), flow.addNode()];
  const endless = totalCapacity(graph) + 1;
  for (const node of from) flow.addEdge(source, node, endless);
  for (const node of to) flow.addEdge(node, sink, endless);
  flow.maxFlow(source, sink);
  return flow.sourceSide(source).slice(0, graph.numNodes);
}
