/**
 * The model of a machine that bounds and certificates speak of: a directed graph with exact capacities. Ranks copy and
 * reduce; relays (switches, NICs, host bridges, GPUs outside the group) only pass on.
 */
import { FormatError } from "../../core/index.ts";
import { Rational } from "./rational.ts";

export interface NetworkNode {
  readonly id: string;
  readonly kind: "rank" | "relay";
}

/** One direction of a link. Parallel links are one edge with the sum of their capacities. */
export interface NetworkEdge {
  readonly from: string;
  readonly to: string;
  /** GB/s (1e9 bytes), exact: `"25"`, `"63/2"`, `"31.5"`. */
  readonly capacity: string;
  /** Of one message over this edge; 0 when absent. */
  readonly latencyUs?: number;
}

export interface Network {
  /** The i-th rank among the nodes is rank i of the collective. */
  readonly nodes: readonly NetworkNode[];
  readonly edges: readonly NetworkEdge[];
}

/** Limits of what is read: far above any machine, and small enough that a hostile file ends at once. */
export const MAX_NETWORK_NODES = 65_536;
export const MAX_NETWORK_EDGES = 1_048_576;

/** A network whose text was checked: capacities as fractions, nodes by number. */
export interface CheckedNetwork {
  readonly ids: readonly string[];
  readonly indexOf: ReadonlyMap<string, number>;
  /** Node numbers of the ranks, in rank order. */
  readonly ranks: readonly number[];
  readonly isRank: readonly boolean[];
  readonly edges: readonly {
    readonly from: number;
    readonly to: number;
    readonly capacity: Rational;
    readonly latencyUs: number;
  }[];
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function refuse(where: string, what: string): never {
  throw new FormatError("network", what, { field: where });
}

/**
 * Checks a network that came from anywhere.
 * @throws FormatError naming the place: unknown or repeated nodes, edges from a node to itself, repeated edges,
 *   capacities that are not positive fractions, fewer than 2 ranks
 */
export function checkNetwork(value: unknown): CheckedNetwork {
  if (!isRecord(value)) refuse("network", "expected an object with nodes and edges");
  const { nodes, edges } = value;
  if (!Array.isArray(nodes) || nodes.length > MAX_NETWORK_NODES) {
    refuse("nodes", `expected an array of at most ${MAX_NETWORK_NODES} nodes`);
  }
  if (!Array.isArray(edges) || edges.length > MAX_NETWORK_EDGES) {
    refuse("edges", `expected an array of at most ${MAX_NETWORK_EDGES} edges`);
  }
  const indexOf = new Map<string, number>();
  const isRank: boolean[] = [];
  for (const [i, node] of nodes.entries()) {
    const { id, kind } = isRecord(node) ? node : {};
    if (typeof id !== "string" || id === "" || indexOf.has(id)) refuse(`nodes[${i}].id`, "expected a name of its own");
    if (kind !== "rank" && kind !== "relay") refuse(`nodes[${i}].kind`, 'expected "rank" or "relay"');
    indexOf.set(id, i);
    isRank.push(kind === "rank");
  }
  const ranks = [...isRank.keys()].filter((i) => isRank[i]);
  if (ranks.length < 2) refuse("nodes", `expected at least 2 ranks, got ${ranks.length}`);
  const seen = new Set<number>();
  const checked = edges.map((edge: unknown, i) => {
    if (!isRecord(edge)) refuse(`edges[${i}]`, "expected an object with from, to and capacity");
    const from = indexOf.get(edge.from as string);
    const to = indexOf.get(edge.to as string);
    if (from === undefined) refuse(`edges[${i}].from`, "expected the id of a node");
    if (to === undefined) refuse(`edges[${i}].to`, "expected the id of a node");
    if (from === to) refuse(`edges[${i}]`, "an edge leads from a node to another one");
    const key = from * nodes.length + to;
    if (seen.has(key)) refuse(`edges[${i}]`, "there is such an edge already: give the sum of parallel links");
    seen.add(key);
    const { latencyUs = 0 } = edge;
    if (typeof latencyUs !== "number" || !(latencyUs >= 0 && latencyUs < 1e12)) {
      refuse(`edges[${i}].latencyUs`, "expected a time in microseconds, 0 or more");
    }
    return { from, to, capacity: capacityOf(edge.capacity, `edges[${i}].capacity`), latencyUs };
  });
  return { ids: [...indexOf.keys()], indexOf, ranks, isRank, edges: checked };
}

function capacityOf(value: unknown, where: string): Rational {
  const what = 'expected GB/s above 0 as text, such as "25" or "63/2"';
  if (typeof value !== "string" || value.length > 64) refuse(where, what);
  let capacity: Rational;
  try {
    capacity = Rational.parse(value);
  } catch {
    return refuse(where, what);
  }
  return capacity.numerator > 0n ? capacity : refuse(where, what);
}
