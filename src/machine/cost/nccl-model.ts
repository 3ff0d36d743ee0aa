/**
 * NCCL's own model of itself, as a reference curve: time = latency + bytes / bandwidth for every algorithm and protocol,
 * and the least of them. Constants from NVIDIA/nccl `src/graph/tuning.cc` and `src/graph/topo.h` (2.30.7); rates of the
 * links as NCCL counts them (20.6 GB/s a link on Hopper). Only what a single NVLink domain or a cluster of them needs:
 * ring and tree with LL, LL128 and Simple, and NVLS where it is asked for. One constant can be replaced by what was
 * measured: what LL reaches, which NCCL takes from a table that is too low for 4x H200.
 */

import type { OperationName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import {
  NCCL_BASE_US,
  NCCL_HOP_US,
  NCCL_LL_FRACTION,
  NCCL_LL128_FRACTION,
  NCCL_NVLS,
  NCCL_PROTOCOL_NAMES,
  NCCL_TREE,
  type NcclProtocol,
} from "./nccl-constants.ts";

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
  const intra = NCCL_HOP_US[machine.nvlink ? "nvlink" : "pcie"];
  const bandwidth = numNodes > 1 ? Math.min(intraGBps, interGBps) : intraGBps;
  if (algorithm === "nvls") {
    if (!machine.nvls || protocol !== "Simple" || op !== "all_reduce") return undefined;
    return (
      NCCL_NVLS.baseUs +
      (numNodes > 1 ? NCCL_HOP_US.network.tree.Simple : 0) +
      sizeBytes / (1000 * bandwidth * NCCL_NVLS.efficiency)
    );
  }
  const llGBps = machine.llGBps ?? Math.min(llMaxGBps, bandwidth * NCCL_LL_FRACTION);
  const busbw = protocol === "LL" ? llGBps : protocol === "LL128" ? bandwidth * NCCL_LL128_FRACTION : bandwidth;
  if (algorithm === "ring") {
    const steps = ringSteps(op, n);
    const netSteps = numNodes > 1 ? (op === "all_reduce" ? 2 * (numNodes - 1) : numNodes - 1) : 0;
    const latency =
      NCCL_BASE_US.ring[protocol] +
      (steps - netSteps) * intra.ring[protocol] +
      netSteps * NCCL_HOP_US.network.ring[protocol];
    const ratio = op === "broadcast" || op === "reduce" ? 1 : n / steps;
    return latency + sizeBytes / (1000 * busbw * ratio);
  }
  if (op !== "all_reduce") return undefined;
  const perNode = n / numNodes;
  const latency =
    NCCL_BASE_US.tree[protocol] +
    2 * ((perNode - 1) * intra.tree[protocol] + Math.log2(numNodes) * NCCL_HOP_US.network.tree[protocol]);
  const treeBandwidth =
    protocol === "LL" ? (bandwidth * NCCL_TREE.efficiency) / NCCL_TREE.llDivisor : busbw * NCCL_TREE.efficiency;
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
    for (const protocol of NCCL_PROTOCOL_NAMES) {
      const timeUs = ncclTime(op, sizeBytes, machine, algorithm, protocol);
      if (timeUs !== undefined && (best === undefined || timeUs < best.timeUs)) best = { timeUs, algorithm, protocol };
    }
  }
  if (best === undefined) throw new InvalidArgumentError("operation", op, "an operation that NCCL's model covers");
  return best;
}
