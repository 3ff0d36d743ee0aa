/**
 * Superchips with a memory of their own on the GPU (Grace Hopper, Grace Blackwell): the kernel shows it as NUMA nodes
 * without CPUs and counts it as main memory too. Here it is taken out of what the CPU is said to have.
 */
import { type NumaNode, numaFacts } from "./numa.ts";
import type { DeviceDraft } from "./probe.ts";

/** Whether a GPU's memory is a NUMA node of its own. GB10 has none: it uses main memory. */
export function hasOwnNode(name: string | undefined): boolean {
  return /\b(GH200|GB[23]00)\b/.test(name ?? "");
}

/** The nodes that hold the memory of such GPUs, in the order of the GPUs. */
export function gpuNodes(numa: readonly NumaNode[]): NumaNode[] {
  return numa.filter((node) => node.cpus === 0 && (node.memoryBytes ?? 0) > 0);
}

/** Takes the GPUs' memory out of the NUMA nodes and out of the CPU's memory. Other machines are left as they are. */
export function withoutGpuMemory(
  drafts: readonly DeviceDraft[],
  numa: readonly NumaNode[],
): { readonly drafts: readonly DeviceDraft[]; readonly numa: readonly NumaNode[] } {
  const nodes = gpuNodes(numa);
  if (nodes.length === 0 || !drafts.some((draft) => draft.parentKey === undefined && hasOwnNode(draft.name)))
    return { drafts, numa };
  const ofGpus = new Set(nodes.map((node) => node.id));
  const stays = numa.map((node) => !ofGpus.has(node.id));
  const kept = numa
    .filter((_, i) => stays[i])
    .map(({ distances, ...node }) => ({
      ...node,
      ...(distances !== undefined && {
        distances: distances.length === numa.length ? distances.filter((_, i) => stays[i]) : distances,
      }),
    }));
  return {
    drafts: drafts.map((draft) => (draft.family === "cpu" ? cpuWithout(draft, nodes, kept) : draft)),
    numa: kept,
  };
}

function cpuWithout(cpu: DeviceDraft, nodes: readonly NumaNode[], kept: readonly NumaNode[]): DeviceDraft {
  const { hostMemoryBytes, numaNodes: _all, ...details } = cpu.details ?? {};
  const told = typeof hostMemoryBytes === "number" ? hostMemoryBytes : cpu.memoryBytes;
  if (told === undefined || cpu.memoryBytes === undefined) return cpu;
  const sum = (list: readonly NumaNode[], of: (node: NumaNode) => number | undefined) =>
    list.reduce((total, node) => total + (of(node) ?? 0), 0);
  const ofGpus = sum(nodes, (node) => node.memoryBytes);
  // Where the kernel does not online the GPU's memory as main memory, MemTotal is the CPU's nodes alone.
  const isCounted = told >= sum(kept, (node) => node.memoryBytes) + ofGpus / 2;
  const hostBytes = isCounted ? told - ofGpus : told;
  const freeOfGpus = isCounted ? sum(nodes, (node) => node.freeBytes) : 0;
  const memoryBytes = Math.min(cpu.memoryBytes, hostBytes);
  return {
    ...cpu,
    memoryBytes,
    ...(cpu.memoryFreeBytes !== undefined && {
      memoryFreeBytes: Math.max(0, Math.min(cpu.memoryFreeBytes - freeOfGpus, memoryBytes)),
    }),
    details: {
      ...details,
      ...(memoryBytes < hostBytes && { hostMemoryBytes: hostBytes }),
      numaNodes: kept.map(numaFacts),
    },
  };
}
