/**
 * What a certificate says, as plain JSON data: on this network the collective takes `secondsPerGB`, here is a schedule
 * that takes no longer, and here is a witness that nothing takes less. All numbers are exact fractions as text.
 */

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

/**
 * The model of a machine that bounds and certificates speak of: a directed graph with exact capacities. Ranks copy and
 * reduce; relays (switches, NICs, host bridges, GPUs outside the group) only pass on.
 */
export interface Network {
  /** The i-th rank among the nodes is rank i of the collective. */
  readonly nodes: readonly NetworkNode[];
  readonly edges: readonly NetworkEdge[];
}

export const CERTIFICATE_SCHEMA_VERSION = 1;

export const CERTIFIED_COLLECTIVES = [
  "all_gather",
  "reduce_scatter",
  "broadcast",
  "reduce",
  "scatter",
  "gather",
  "all_reduce",
  "all_to_all",
] as const;
export type CertifiedCollective = (typeof CERTIFIED_COLLECTIVES)[number];

/** Nodes on one side of a cut: what crosses it has to use the edges that leave (or enter) the set. */
export interface CutWitness {
  readonly kind: "cut";
  readonly inside: readonly string[];
}

/**
 * Of an all-reduce: parts of the ranks, each with a cut around it for what it sends and one for what it receives.
 * k parties need 2(k - 1) messages for each element, and a message of a part crosses the part's cuts.
 */
export interface PartitionWitness {
  readonly kind: "partition";
  readonly parts: readonly { readonly out: readonly string[]; readonly in: readonly string[] }[];
}

/** Of an all-to-all: lengths of edges (0 where not listed). Traffic times distance cannot exceed capacity times length. */
export interface LengthWitness {
  readonly kind: "lengths";
  readonly lengths: readonly { readonly from: string; readonly to: string; readonly length: string }[];
}

export type Witness = CutWitness | PartitionWitness | LengthWitness;

/** A way from rank to rank, over relays or none: the ids of its nodes, both ends included. */
export type NetworkRoute = readonly string[];

/** A share of the data and the tree it spreads along. `weight` is in units of all the data. */
export interface ScheduleTree {
  readonly root: string;
  readonly weight: string;
  /** From parent to child. Absent where the collective only reduces. */
  readonly down?: readonly NetworkRoute[];
  /** From child to parent. Absent where the collective only spreads. */
  readonly up?: readonly NetworkRoute[];
}

/** A share of what one rank sends to another, and its way. */
export interface SchedulePath {
  readonly weight: string;
  readonly route: NetworkRoute;
}

/** Trees: all_gather, reduce_scatter, broadcast, reduce, all_reduce. Paths: scatter, gather, all_to_all. */
export type Schedule =
  | { readonly kind: "trees"; readonly trees: readonly ScheduleTree[] }
  | { readonly kind: "paths"; readonly paths: readonly SchedulePath[] };

export interface Certificate {
  readonly schemaVersion: typeof CERTIFICATE_SCHEMA_VERSION;
  readonly collective: CertifiedCollective;
  /** broadcast, reduce, scatter, gather. */
  readonly root?: string;
  /**
   * What share of the data belongs to each rank (all_gather, reduce_scatter, scatter, gather); they sum to 1. Equal when
   * absent. The root's own part counts too, and moves nowhere.
   */
  readonly shares?: readonly string[];
  readonly network: Network;
  /**
   * Seconds for 1 GB: of gathered output (all_gather), of one rank's input (reduce_scatter, all_to_all), of payload
   * (broadcast, reduce, all_reduce), of the root's buffer (scatter, gather). Bandwidth alone: no latency.
   */
  readonly secondsPerGB: string;
  readonly witness: Witness;
  readonly schedule: Schedule;
  /** Of the other fields, by `sealCertificate`. */
  readonly seal: string;
}

/** What a check says: every fault as a sentence. `bound` is what the witness proves, `time` what the schedule takes, s/GB. */
export interface CertificateCheck {
  readonly ok: boolean;
  readonly faults: readonly string[];
  readonly bound?: string;
  readonly time?: string;
}
