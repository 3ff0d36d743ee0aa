/**
 * What a collective costs on the links that a mesh axis really has: NCCL's own ring model on NVIDIA and AMD fabrics,
 * alpha-beta elsewhere, hierarchical across hosts. Times in microseconds; all are non-increasing in bandwidth.
 */
import {
  COLLECTIVE_LAUNCH_US,
  ENGINE_BASE_US,
  NCCL_BASE_US,
  NCCL_GENERATIONS,
  NCCL_HOP_US,
  NCCL_LL_FRACTION,
  NCCL_LL128_FRACTION,
  NCCL_PROTOCOL_NAMES,
  type NcclProtocol,
} from "../../machine/cost/index.ts";
import type { GroupLink } from "../placement/fabric.ts";

type Shape = "allReduce" | "allGather" | "reduceScatter";

/** Ring steps, and the share of the data that each device sends in total. */
function ring(shape: Shape, ranks: number): { steps: number; share: number } {
  const times = shape === "allReduce" ? 2 : 1;
  return { steps: times * (ranks - 1), share: (times * (ranks - 1)) / ranks };
}

function usesNccl(link: GroupLink): boolean {
  return link.kind === "nvlink" || link.kind === "xgmi" || link.kind === "pcie" || link.scope === "network";
}

/** What a ring's bus bandwidth is of its links', by protocol, and where LL stops on Hopper. */
const PROTOCOL_LIMITS: Readonly<Record<NcclProtocol, { readonly fraction: number; readonly capGBps: number }>> = {
  LL: { fraction: NCCL_LL_FRACTION, capGBps: NCCL_GENERATIONS.hopper.llMaxGBps },
  LL128: { fraction: NCCL_LL128_FRACTION, capGBps: Number.POSITIVE_INFINITY },
  Simple: { fraction: 1, capGBps: Number.POSITIVE_INFINITY },
};

/** One ring over links that are all alike. */
function flatUs(shape: Shape, bytes: number, ranks: number, link: GroupLink): number {
  const { steps, share } = ring(shape, ranks);
  const transferUs = (GBps: number) => (share * bytes) / (GBps * 1e3);
  if (!usesNccl(link)) {
    const base = link.scope === "device" ? ENGINE_BASE_US.device : ENGINE_BASE_US.other;
    const tree = 2 * Math.ceil(Math.log2(ranks)) * (link.latencyUs + bytes / (link.effectiveGBps * 1e3));
    return base + Math.min(tree, steps * link.latencyUs + transferUs(link.effectiveGBps));
  }
  const hop = link.scope === "network" ? "network" : link.scope === "host" ? "pcie" : "nvlink";
  let least = Number.POSITIVE_INFINITY;
  for (const protocol of NCCL_PROTOCOL_NAMES) {
    const { fraction, capGBps } = PROTOCOL_LIMITS[protocol];
    const bandwidth = Math.min(link.effectiveGBps * fraction, capGBps);
    const latencyUs = NCCL_BASE_US.ring[protocol] + steps * NCCL_HOP_US[hop].ring[protocol];
    least = Math.min(least, latencyUs + transferUs(bandwidth));
  }
  return least + COLLECTIVE_LAUNCH_US;
}

/** Across hosts: reduce-scatter inside, the collective between hosts on each one's share, all-gather inside. */
function hierarchicalUs(shape: Shape, bytes: number, ranks: number, link: GroupLink): number {
  const inner = link.inner;
  const perHost = Math.max(1, Math.round(ranks / link.hosts));
  if (inner === undefined || perHost === 1) return flatUs(shape, bytes, ranks, link);
  const between = flatUs(shape, bytes / perHost, link.hosts, link);
  const inside =
    shape === "allReduce"
      ? flatUs("reduceScatter", bytes, perHost, inner) + flatUs("allGather", bytes, perHost, inner)
      : flatUs(shape, bytes, perHost, inner);
  return between + inside;
}

function collectiveUs(shape: Shape, bytes: number, ranks: number, link: GroupLink | undefined): number {
  if (ranks <= 1 || link === undefined) return 0;
  return link.scope === "network" ? hierarchicalUs(shape, bytes, ranks, link) : flatUs(shape, bytes, ranks, link);
}

/** All-reduce of `bytes` on every rank. */
export const allReduceUs = (bytes: number, ranks: number, link: GroupLink | undefined) =>
  collectiveUs("allReduce", bytes, ranks, link);

/** All-gather whose result is `bytes` on every rank. */
export const allGatherUs = (bytes: number, ranks: number, link: GroupLink | undefined) =>
  collectiveUs("allGather", bytes, ranks, link);

/** Reduce-scatter of `bytes` on every rank. */
export const reduceScatterUs = (bytes: number, ranks: number, link: GroupLink | undefined) =>
  collectiveUs("reduceScatter", bytes, ranks, link);

/** All-to-all in which every rank sends `bytes` in total, its own share kept. */
export function allToAllUs(bytes: number, ranks: number, link: GroupLink | undefined): number {
  if (ranks <= 1 || link === undefined) return 0;
  const base = link.scope === "device" ? ENGINE_BASE_US.device : ENGINE_BASE_US.other;
  const sent = (bytes * (ranks - 1)) / ranks;
  return base + link.latencyUs + sent / (link.effectiveGBps * 1e3);
}

/** One message of `bytes` to the next stage. */
export function sendUs(bytes: number, link: GroupLink | undefined): number {
  if (link === undefined) return 0;
  const base = link.scope === "device" ? ENGINE_BASE_US.device : ENGINE_BASE_US.other / 2;
  return base + link.latencyUs + bytes / (link.effectiveGBps * 1e3);
}
