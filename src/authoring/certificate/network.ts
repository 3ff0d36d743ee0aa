/** A network by numbers: what a file says by names, once every name is known to be right. */
import { FormatError } from "../../core/index.ts";
import { overOneDenominator } from "./exact-numbers.ts";
import { networkSchema, readAs } from "./schema.ts";

export interface NumberedNetwork {
  /** Names of the nodes, by number. */
  readonly ids: readonly string[];
  readonly numberOf: ReadonlyMap<string, number>;
  readonly isRank: readonly boolean[];
  /** Node numbers of the ranks, in rank order. */
  readonly ranks: readonly number[];
  /** In the order of the file; `capacity` in units of 1 / `below` GB/s. */
  readonly edges: readonly { readonly from: number; readonly to: number; readonly capacity: bigint }[];
  readonly below: bigint;
  readonly edgeFrom: (from: number, to: number) => number | undefined;
}

/**
 * Reads a network that came from anywhere.
 * @throws FormatError naming the place: unknown or repeated nodes, edges from a node to itself, repeated edges,
 *   capacities that are not positive fractions, fewer than 2 ranks
 */
export function readNetwork(value: unknown): NumberedNetwork {
  const refuse = (field: string, what: string): never => {
    throw new FormatError("network", what, { field });
  };
  const { nodes, edges: named } = readAs(networkSchema, value, "network");
  const numberOf = new Map(nodes.map(({ id }, i) => [id, i]));
  const twice = nodes.findIndex(({ id }, i) => numberOf.get(id) !== i);
  if (twice >= 0) refuse(`nodes[${twice}].id`, "expected a name of its own");
  const isRank = nodes.map(({ kind }) => kind === "rank");
  const ranks = [...isRank.keys()].filter((i) => isRank[i]);
  if (ranks.length < 2) refuse("nodes", `expected at least 2 ranks, got ${ranks.length}`);
  const { values, below } = overOneDenominator(named.map(({ capacity }) => capacity));
  const byEnds = new Map<number, number>();
  const edges = named.map((edge, i) => {
    const from = numberOf.get(edge.from) ?? refuse(`edges[${i}].from`, "expected the id of a node");
    const to = numberOf.get(edge.to) ?? refuse(`edges[${i}].to`, "expected the id of a node");
    const ends = from * nodes.length + to;
    if (from === to) refuse(`edges[${i}]`, "an edge leads from a node to another one");
    if (byEnds.has(ends)) refuse(`edges[${i}]`, "there is such an edge already: give the sum of parallel links");
    byEnds.set(ends, i);
    return { from, to, capacity: values[i] as bigint };
  });
  const edgeFrom = (from: number, to: number) => byEnds.get(from * nodes.length + to);
  return { ids: nodes.map(({ id }) => id), numberOf, isRank, ranks, edges, below, edgeFrom };
}
