/**
 * What a collective costs on the links that a mesh axis really has: NCCL's and RCCL's models (machine/cost) where these
 * libraries run, alpha-beta elsewhere, hierarchical across hosts. Times in microseconds; all are non-increasing in bandwidth.
 */
import {
  COLLECTIVE_LAUNCH_US,
  type CollectiveMachine,
  ENGINE_BASE_US,
  hasLibraryModel,
  predictCollective,
} from "../../machine/cost/index.ts";
import type { GroupLink } from "../placement/fabric.ts";

const OPERATIONS = { allReduce: "all_reduce", allGather: "all_gather", reduceScatter: "reduce_scatter" } as const;
type Shape = keyof typeof OPERATIONS;

/** The machine of `ranks` of the link's devices, where their library is modelled. */
function libraryMachine(link: GroupLink, ranks: number): CollectiveMachine | undefined {
  const machine = link.machine?.();
  if (machine === undefined || !hasLibraryModel(machine)) return undefined;
  if (machine.numRanks === ranks) return machine;
  const numNodes = Math.min(machine.numNodes, ranks);
  const fewer = { ...machine, numRanks: ranks, numNodes, numHosts: Math.min(machine.numHosts, ranks) };
  const { network } = machine;
  if (network === undefined) return fewer;
  // The other devices are in groups of their own, which exchange at the same time: each has its ranks' share of the NICs.
  const share = Math.min(1, (ranks * machine.numNodes) / (numNodes * machine.numRanks));
  const numNics = Math.max(1, Math.round(network.numNics * share));
  return { ...fewer, network: { ...network, numNics, nodeGBps: network.nodeGBps * share } };
}

/** Alpha-beta: the better of a tree and a ring over links that are all alike. */
function flatUs(shape: Shape, bytes: number, ranks: number, link: GroupLink): number {
  const steps = (shape === "allReduce" ? 2 : 1) * (ranks - 1);
  const base = link.scope === "device" ? ENGINE_BASE_US.device : ENGINE_BASE_US.other;
  const tree = 2 * Math.ceil(Math.log2(ranks)) * (link.latencyUs + bytes / (link.effectiveGBps * 1e3));
  return base + Math.min(tree, steps * link.latencyUs + ((steps / ranks) * bytes) / (link.effectiveGBps * 1e3));
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

/** A search asks for the same collective of the same link thousands of times. By link, then shape and ranks, then bytes. */
const known = new WeakMap<GroupLink, Map<string, Map<number, number>>>();

function memoryOf(link: GroupLink, key: string): Map<number, number> {
  const ofLink = known.get(link) ?? new Map<string, Map<number, number>>();
  const times = ofLink.get(key) ?? new Map<number, number>();
  known.set(link, ofLink.set(key, times));
  return times;
}

function collectiveUs(shape: Shape, bytes: number, ranks: number, link: GroupLink | undefined): number {
  if (ranks <= 1 || link === undefined) return 0;
  const times = memoryOf(link, `${shape}${ranks}`);
  const before = times.get(bytes);
  if (before !== undefined) return before;
  const us = predictUs(shape, bytes, ranks, link);
  times.set(bytes, us);
  return us;
}

function predictUs(shape: Shape, bytes: number, ranks: number, link: GroupLink): number {
  const machine = libraryMachine(link, ranks);
  if (machine !== undefined) return predictCollective(OPERATIONS[shape], bytes, machine).timeUs + COLLECTIVE_LAUNCH_US;
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
