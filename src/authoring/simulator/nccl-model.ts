/**
 * NCCL's own model of itself, as a reference curve: time = latency + bytes / bandwidth for every algorithm and protocol,
 * and the least of them. Constants from NVIDIA/nccl `src/graph/tuning.cc` and `src/graph/topo.h` (2.30.7); rates of the
 * links as NCCL counts them (20.6 GB/s a link on Hopper). Only what a single NVLink domain or a cluster of them needs:
 * ring and tree with LL, LL128 and Simple, and NVLS where it is asked for. One constant can be replaced by what was
 * measured: what LL reaches, which NCCL takes from a table that is too low for 4x H200.
 */

import type { OperationName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";

const PROTOCOLS = ["LL", "LL128", "Simple"] as const;
export type NcclProtocol = (typeof PROTOCOLS)[number];
const NCCL_ALGORITHMS = ["ring", "tree", "nvls"] as const;
export type NcclAlgorithm = (typeof NCCL_ALGORITHMS)[number];

export interface NcclMachine {
  readonly numRanks: number;
  readonly numNodes: number;
  /** Bandwidth of a rank's ring in one direction within a node, GB/s, as NCCL counts it. */
  readonly intraGBps: number;
  /** Of a rank's share of the network between nodes. */
  readonly interGBps: number;
  /** What LL reaches at most on this generation. */
  readonly llMaxGBps: number;
  /** Bus bandwidth of LL as measured, in place of NCCL's min(llMaxGBps, half of the ring's). */
  readonly llGBps?: number;
  /** Intra-node hops run over NVLink (else PCIe). */
  readonly nvlink: boolean;
  readonly nvls: boolean;
}

/** NCCL's rate of one NVLink, GB/s, and LL's ceiling, by generation. */
export const NCCL_GENERATIONS = {
  volta: { linkGBps: 20, llMaxGBps: 39 },
  ampere: { linkGBps: 20, llMaxGBps: 87.7 },
  hopper: { linkGBps: 20.6, llMaxGBps: 141 },
  blackwell: { linkGBps: 40.1, llMaxGBps: 282 },
} as const;

const BASE_US: Readonly<Record<"ring" | "tree", Readonly<Record<NcclProtocol, number>>>> = {
  tree: { LL: 6.8, LL128: 14, Simple: 8.4 },
  ring: { LL: 6.6, LL128: 14, Simple: 8.4 },
};
const HOP_US = {
  nvlink: { tree: { LL: 0.6, LL128: 1.25, Simple: 4 }, ring: { LL: 0.6, LL128: 1.9, Simple: 3.4 } },
  pcie: { tree: { LL: 1, LL128: 1.9, Simple: 4 }, ring: { LL: 1, LL128: 2.5, Simple: 5.7 } },
  net: { tree: { LL: 5, LL128: 8.5, Simple: 14 }, ring: { LL: 2.7, LL128: 4, Simple: 14 } },
} as const;
const NVLS_US = 25;
const NVLS_EFFICIENCY = 0.85;

export interface NcclEstimate {
  readonly timeUs: number;
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
}

function ringSteps(op: OperationName, n: number): number {
  if (op === "all_reduce") return 2 * (n - 1);
  if (op === "broadcast" || op === "reduce") return n;
  return n - 1;
}

/** Times one algorithm and protocol. `sizeBytes` is the size that nccl-tests prints. Undefined where NCCL has no such. */
export function ncclTime(
  op: OperationName,
  sizeBytes: number,
  machine: NcclMachine,
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
): number | undefined {
  const { numRanks: n, numNodes, intraGBps, interGBps, llMaxGBps } = machine;
  const intra = HOP_US[machine.nvlink ? "nvlink" : "pcie"];
  const bandwidth = numNodes > 1 ? Math.min(intraGBps, interGBps) : intraGBps;
  if (algorithm === "nvls") {
    if (!machine.nvls || protocol !== "Simple" || op !== "all_reduce") return undefined;
    return NVLS_US + (numNodes > 1 ? HOP_US.net.tree.Simple : 0) + sizeBytes / (1000 * bandwidth * NVLS_EFFICIENCY);
  }
  const llGBps = machine.llGBps ?? Math.min(llMaxGBps, bandwidth * 0.5);
  const busbw = protocol === "LL" ? llGBps : protocol === "LL128" ? bandwidth * 0.92 : bandwidth;
  if (algorithm === "ring") {
    const steps = ringSteps(op, n);
    const netSteps = numNodes > 1 ? (op === "all_reduce" ? 2 * (numNodes - 1) : numNodes - 1) : 0;
    const latency =
      BASE_US.ring[protocol] + (steps - netSteps) * intra.ring[protocol] + netSteps * HOP_US.net.ring[protocol];
    const ratio = op === "broadcast" || op === "reduce" ? 1 : n / steps;
    return latency + sizeBytes / (1000 * busbw * ratio);
  }
  if (op !== "all_reduce") return undefined;
  const perNode = n / numNodes;
  const latency =
    BASE_US.tree[protocol] +
    2 * ((perNode - 1) * intra.tree[protocol] + Math.log2(numNodes) * HOP_US.net.tree[protocol]);
  const treeBandwidth =
    protocol === "LL" ? (bandwidth * 0.92) / 3.8 : protocol === "LL128" ? busbw * 0.92 : busbw * 0.92;
  return latency + sizeBytes / (1000 * treeBandwidth * 0.5);
}

/**
 * What NCCL would expect of itself: its fastest algorithm and protocol for a size.
 * @throws InvalidArgumentError for operations that its model does not cover
 * @example
 * ncclEstimate("all_reduce", 2 ** 20, { numRanks: 4, numNodes: 1, intraGBps: 18 * 20.6, interGBps: 0, llMaxGBps: 141, nvlink: true, nvls: false }).protocol // "LL"
 */
export function ncclEstimate(op: OperationName, sizeBytes: number, machine: NcclMachine): NcclEstimate {
  let best: NcclEstimate | undefined;
  for (const algorithm of NCCL_ALGORITHMS) {
    for (const protocol of PROTOCOLS) {
      const timeUs = ncclTime(op, sizeBytes, machine, algorithm, protocol);
      if (timeUs !== undefined && (best === undefined || timeUs < best.timeUs)) best = { timeUs, algorithm, protocol };
    }
  }
  if (best === undefined) throw new InvalidArgumentError("operation", op, "an operation that NCCL's model covers");
  return best;
}
