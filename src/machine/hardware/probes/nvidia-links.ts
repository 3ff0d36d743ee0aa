/** NVLinks from what NVML or nvidia-smi told: pair by pair, or to an NVSwitch fabric. */
import { defined } from "../pci.ts";
import type { LinkDraft, ProbeContext, ProbeWarning, RelationDraft, SwitchDraft } from "../probe.ts";
import { type NvidiaReading, type NvidiaReadings, nvlinkGeneration, nvlinkOf, pairKey } from "./nvidia-reading.ts";

const NVIDIA_VENDOR = 0x10de;

/** The key of a GPU's draft. */
export const keyOf = (index: number) => `nvidia:${index}`;

/** The NVLinks, switches and stated relations of what was read. */
export async function linksOf(context: ProbeContext, readings: NvidiaReadings, warnings: ProbeWarning[]) {
  const links: LinkDraft[] = [];
  const switches: SwitchDraft[] = [];
  const relations: RelationDraft[] = [];
  const rate = (gpu: NvidiaReading | undefined) => gpu?.links?.linkGBps ?? nvlinkOf(gpu?.computeCapability)?.linkGBps;
  const generation = (gpu: NvidiaReading | undefined) =>
    (gpu?.links?.linkGBps === undefined ? undefined : nvlinkGeneration(gpu.links.linkGBps)) ??
    nvlinkOf(gpu?.computeCapability)?.generation;
  const link = (gpu: NvidiaReading, b: string, num: number): LinkDraft => ({
    a: keyOf(gpu.index),
    b,
    kind: "nvlink",
    count: num,
    ...defined({ generation: generation(gpu), bandwidthGBps: scaled(num, rate(gpu)) }),
  });
  const byIndex = new Map(readings.gpus.map((gpu) => [gpu.index, gpu]));
  const byAddress = new Map(readings.gpus.map((gpu) => [gpu.pciAddress, gpu]));
  const fabric = await switchedGpus(context, readings);
  if (fabric.size > 0) {
    const found = await countSwitches(context);
    switches.push({ key: "nvswitch", kind: "nvswitch", name: found > 0 ? `${found}x NVSwitch` : "NVSwitch fabric" });
    for (const [gpu, num] of fabric) links.push(link(gpu, "nvswitch", num));
  }
  const bonded = new Map<string, number>();
  for (const [pair, cell] of readings.matrix) {
    const [a, b] = pair.split("-").map(Number) as [number, number];
    const nv = /^NV(\d+)$/.exec(cell);
    if (nv !== null) bonded.set(pair, Number(nv[1]));
    else relations.push({ a: keyOf(a), b: keyOf(b), relation: cell });
  }
  for (const { gpu, nic, relation } of readings.nics ?? []) {
    relations.push({ a: keyOf(gpu), b: `nic:${nic}`, relation });
  }
  for (const gpu of readings.gpus) {
    for (const [address, num] of gpu.links?.toGpu ?? []) {
      const other = byAddress.get(address);
      if (other !== undefined) bonded.set(pairKey(gpu.index, other.index), num);
    }
  }
  for (const [pair, num] of bonded) {
    const [a, b] = pair.split("-").map(Number) as [number, number];
    const [first, second] = [byIndex.get(a), byIndex.get(b)];
    if (first === undefined || second === undefined || num < 1) continue;
    // On a switched fabric the matrix states the same links again, for every pair.
    if (fabric.has(first) && fabric.has(second)) continue;
    links.push(link(first, keyOf(b), num));
  }
  if (links.length === 0) {
    const linked = readings.gpus.filter((gpu) => (gpu.links?.active ?? 0) > 0);
    const [first, second] = linked;
    // Two GPUs in all, both linked: to each other, there is nobody else.
    if (
      readings.gpus.length === 2 &&
      readings.lost === undefined &&
      linked.length === 2 &&
      first !== undefined &&
      second !== undefined
    ) {
      links.push(link(first, keyOf(second.index), Math.min(first.links?.active ?? 0, second.links?.active ?? 0)));
    } else if (linked.length > 0) {
      warnings.push({
        source: "nvidia",
        message: `${linked.length} GPUs have active NVLinks, but where these lead is unknown`,
        hint: "nvidia-smi topo -m gave no matrix.",
      });
    }
  }
  return { links, switches, relations };
}

/** The rate of `num` links, without the noise of floating point. */
export function scaled(num: number, rate: number | undefined): number | undefined {
  return rate === undefined ? undefined : Number((num * rate).toFixed(3));
}

/**
 * The GPUs whose links end at an NVSwitch, with their active links: NVML says so of each link. Otherwise: the matrix shows
 * a GPU more bonded links to its peers together than it has, or the bus shows NVSwitches.
 */
async function switchedGpus(context: ProbeContext, readings: NvidiaReadings): Promise<Map<NvidiaReading, number>> {
  const fabric = new Map<NvidiaReading, number>();
  for (const gpu of readings.gpus) if ((gpu.links?.toSwitch ?? 0) > 0) fabric.set(gpu, gpu.links?.toSwitch ?? 0);
  if (fabric.size > 0) return fabric;
  const switchesOnBus = (await countSwitches(context)) > 0;
  for (const gpu of readings.gpus) {
    if ((gpu.links?.toGpu?.size ?? 0) > 0) continue;
    const peers = readings.gpus.flatMap((other) => {
      const nv = other === gpu ? null : /^NV(\d+)$/.exec(readings.matrix.get(pairKey(gpu.index, other.index)) ?? "");
      return nv === null ? [] : [Number(nv[1])];
    });
    const widest = Math.max(0, ...peers);
    const own = gpu.links?.active ?? widest;
    const oversubscribed = peers.reduce((sum, n) => sum + n, 0) > own && peers.length > 1;
    if (own > 0 && (oversubscribed || (switchesOnBus && (peers.length > 0 || readings.matrix.size === 0)))) {
      fabric.set(gpu, Math.min(own, widest || own));
    }
  }
  return fabric;
}

/** NVSwitches on the PCI bus: NVIDIA's functions of class "other bridge". Hypervisors usually hide them. */
async function countSwitches(context: ProbeContext): Promise<number> {
  const functions = await context.pci();
  return [...functions.values()].filter((f) => f.vendor === NVIDIA_VENDOR && f.classCode >> 8 === 0x0680).length;
}
