/** What is asked of a model of a collective library, and what it answers. */
import { busFactor } from "../../collectives/index.ts";
import type { CollectiveMachine } from "./collective-machine.ts";
import type { NcclProtocol } from "./nccl-constants.ts";

/** Operations that libraries time: the collectives, and the exchange of nccl-tests' `sendrecv`. */
export const TIMED_OPERATIONS = [
  "all_reduce",
  "all_gather",
  "reduce_scatter",
  "broadcast",
  "reduce",
  "all_to_all",
  "gather",
  "scatter",
  "sendrecv",
] as const;
export type TimedOperation = (typeof TIMED_OPERATIONS)[number];

export const LIBRARY_ALGORITHMS = ["ring", "tree", "nvls", "nvlstree", "pat", "p2p"] as const;
export type LibraryAlgorithm = (typeof LIBRARY_ALGORITHMS)[number];

export interface EstimateOptions {
  /** Ranks that one process launches one after the other: 1, or all of a host (`nccl-tests -g 8`). */
  readonly devicesPerProcess?: number;
  /** The host waits for every call before it makes the next (`nccl-tests -z 1`, torch with a synchronisation). */
  readonly blocking?: boolean;
  /** The fabric's switches reduce, and the library may use that. */
  readonly nvls?: boolean;
  readonly algorithm?: LibraryAlgorithm;
  readonly protocol?: NcclProtocol;
  /** `2.27.7`; the newest known behaviour without it. */
  readonly version?: string;
  /** Bus bandwidth of LL within a node, as fitted by `chorale tune --fit`. */
  readonly llGBps?: number;
}

export interface CollectiveEstimate {
  readonly timeUs: number;
  readonly library: "NCCL" | "RCCL" | "HCCL" | "Neuron" | "XLA";
  readonly algorithm: LibraryAlgorithm;
  readonly protocol: NcclProtocol;
  /** Channels (thread blocks of a device) that the library is taken to use. */
  readonly numChannels: number;
  /** The measured time is expected between timeUs / (1 + uncertainty) and timeUs * (1 + uncertainty), nine times in ten. */
  readonly uncertainty: number;
}

/** The factor from algorithm to bus bandwidth; of an exchange with one neighbour, 1. */
export function timedBusFactor(op: TimedOperation, n: number): number {
  return op === "sendrecv" ? 1 : busFactor(op, n);
}

/** Microseconds that `bytes` take at a rate. */
export const transferUs = (bytes: number, GBps: number) => bytes / (1e3 * GBps);

/** Ranks of one node. */
export const ranksPerNode = (machine: CollectiveMachine) => Math.ceil(machine.numRanks / machine.numNodes);
