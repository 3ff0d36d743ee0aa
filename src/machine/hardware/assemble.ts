/**
 * Puts the probes' drafts together: numbers the devices, gives each its place in the PCIe tree and on a NUMA node (by PCI
 * address, never by position in a list), links everything, and derives how each pair is related.
 */
import {
  type Device,
  type Family,
  idPrefix,
  type Link,
  type LinkKind,
  type Pair,
  pcieGBps,
  relate,
  type Topology,
  type TopologyNode,
} from "../topology/index.ts";
import { visibleIds } from "./device-masks.ts";
import { line } from "./field-readers.ts";
import type { Nic } from "./network.ts";
import type { NumaNode } from "./numa.ts";
import { defined, hopGBps, type PciFunction, pciBandwidthGBps, pciRelation, switchesAbove } from "./pci.ts";
import type { DeviceDraft, ProbeResult } from "./probe.ts";
import { withoutGpuMemory } from "./superchip-memory.ts";

export interface Parts {
  readonly results: readonly ProbeResult[];
  readonly pci: ReadonlyMap<string, PciFunction>;
  readonly numa: readonly NumaNode[];
  readonly nics: readonly Nic[];
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Pairs are stated up to this many accelerators; a rack of 72 is the largest domain one host shows. */
const MAX_PAIRED_DEVICES = 144;

/** Most NICs that a tool may name. */
const MAX_TOOL_NICS = 64;

/** Vendors' own probes know more than these two; a device that one of them shows too is dropped here. */
const LAST_RESORTS: ReadonlySet<Family> = new Set<Family>(["vulkan", "windows-gpu"]);

/** Makes devices and topology of what the probes found. */
export function assemble(found: Parts): { devices: Device[]; topology: Topology } {
  const all = withoutDuplicates(found.results.flatMap((result) => result.devices));
  const { drafts, numa } = withoutGpuMemory(all, found.numa);
  const parts = { ...found, numa, nics: found.nics.length > 0 ? found.nics : nicsOfTools(found.results) };
  const ids = number(drafts);
  const unmasked = drafts.map((draft) => place(draft, ids, parts));
  const visible = visibleIds(
    unmasked.map((device) => ({ ...device })),
    parts.env,
  );
  const devices = unmasked.map((device): Device => ({ ...device, visible: visible.has(device.id) }));
  const hostLinks = new Map(drafts.flatMap(({ key, hostLink }) => (hostLink ? [[ids.get(key), hostLink]] : [])));
  const topology = link(parts, devices, ids, hostLinks);
  const pairs = derivePairs(parts, topology, devices, ids);
  return { devices, topology: { ...topology, pairs } };
}

/** The NICs that only a tool names, where sysfs shows none: all that is known is that they are there. */
function nicsOfTools(results: readonly ProbeResult[]): Nic[] {
  const names = results
    .flatMap((r) => r.relations ?? [])
    .flatMap(({ b }) => (b.startsWith("nic:") ? [b.slice(4)] : []));
  return [...new Set(names)].slice(0, MAX_TOOL_NICS).map((name) => ({ name, details: {} }));
}

function withoutDuplicates(all: readonly DeviceDraft[]): DeviceDraft[] {
  // A tool that prints a row twice means one device; the first one counts.
  const seen = new Set<string>();
  const drafts = all.filter((draft) => {
    const known = seen.has(draft.key);
    seen.add(draft.key);
    return !known;
  });
  const proper = drafts.filter((draft) => !LAST_RESORTS.has(draft.family));
  const gpus = proper.filter((draft) => idPrefix(draft.family) === "gpu");
  const addresses = new Set(gpus.map((draft) => draft.pciAddress));
  return drafts.filter((draft) => {
    if (!LAST_RESORTS.has(draft.family)) return true;
    if (draft.pciAddress !== undefined) return !addresses.has(draft.pciAddress);
    return !gpus.some((gpu) => gpu.vendor === draft.vendor);
  });
}

/** `gpu0`, `gpu1`… over all GPU families, likewise npu, tpu and acc; an instance gets its parent's id before its own. */
function number(drafts: readonly DeviceDraft[]): Map<string, string> {
  const ids = new Map<string, string>();
  const next = new Map<string, number>();
  for (const draft of drafts.filter((d) => d.parentKey === undefined)) {
    const prefix = idPrefix(draft.family);
    const index = next.get(prefix) ?? 0;
    next.set(prefix, index + 1);
    ids.set(draft.key, `${prefix}${index}`);
  }
  for (const draft of drafts) {
    const parent = draft.parentKey === undefined ? undefined : ids.get(draft.parentKey);
    if (parent !== undefined) ids.set(draft.key, `${parent}.mig${draft.index}`);
  }
  return ids;
}

function place(
  draft: DeviceDraft,
  ids: ReadonlyMap<string, string>,
  { pci, numa }: Pick<Parts, "pci" | "numa">,
): Omit<Device, "visible"> {
  const { key, parentKey, name, details, pcie, hostLink, ...stated } = draft;
  const rest = sound(stated);
  const bus = draft.pciAddress === undefined ? undefined : pci.get(draft.pciAddress);
  const fromBus =
    bus === undefined || draft.unifiedMemory === true || hostLink !== undefined
      ? {}
      : defined({
          generation: bus.generation,
          width: bus.width,
          maxGeneration: bus.maxGeneration,
          maxWidth: bus.maxWidth,
        });
  const both = { ...fromBus, ...pcie };
  const parent = parentKey === undefined ? undefined : ids.get(parentKey);
  // The kernel writes -1 where there is nothing to choose from: one node is everybody's.
  const only = numa.length === 1 && draft.family !== "cpu" && parent === undefined ? numa[0]?.id : undefined;
  const numaNode = rest.numaNode ?? bus?.numaNode ?? only;
  return {
    ...rest,
    id: ids.get(key) ?? key,
    name: line(name) || "unknown",
    ...(Object.keys(both).length > 0 && { pcie: both }),
    ...(numaNode !== undefined && { numaNode }),
    ...(parent !== undefined && { parent }),
    ...(details !== undefined && Object.keys(details).length > 0 && { details }),
  };
}

/** What no device can be is a misreading and left out: negative watts, a memory used twice over, node 70000. */
function sound<T extends Partial<Device>>(draft: T): T {
  const within = (value: number | undefined, low: number, high: number) =>
    value !== undefined && value >= low && value <= high;
  const copy = { ...draft };
  const total = copy.memoryBytes ?? Number.POSITIVE_INFINITY;
  if (!within(copy.powerWatts, 0, 100_000)) delete copy.powerWatts;
  if (!within(copy.powerLimitWatts, 0, 100_000)) delete copy.powerLimitWatts;
  if (!within(copy.temperatureC, -80, 300)) delete copy.temperatureC;
  if (!within(copy.utilizationPercent, 0, 100)) delete copy.utilizationPercent;
  if (!within(copy.memoryUsedBytes, 0, total)) delete copy.memoryUsedBytes;
  if (!within(copy.memoryFreeBytes, 0, total)) delete copy.memoryFreeBytes;
  if (!within(copy.numaNode, 0, 65_535)) delete copy.numaNode;
  return copy;
}

class Builder {
  readonly nodes = new Map<string, TopologyNode>();
  readonly links: Link[] = [];

  node(id: string, kind: TopologyNode["kind"], extra: Partial<TopologyNode> = {}): string {
    if (!this.nodes.has(id)) this.nodes.set(id, { id, kind, ...extra });
    return id;
  }

  link(a: string, b: string, kind: LinkKind, extra: Partial<Link> = {}): void {
    if (!this.links.some((l) => l.kind === kind && ((l.a === a && l.b === b) || (l.a === b && l.b === a)))) {
      this.links.push({ a, b, kind, ...extra });
    }
  }
}

function link(
  parts: Parts,
  devices: readonly Device[],
  ids: ReadonlyMap<string, string>,
  hostLinks: ReadonlyMap<string | undefined, NonNullable<DeviceDraft["hostLink"]>>,
): Topology {
  const build = new Builder();
  for (const device of devices) build.node(device.id, "device", { name: device.name });
  const numa: readonly NumaNode[] = parts.numa.length > 0 ? parts.numa : [{ id: 0, cpus: 0 }];
  const numaIds = new Set(numa.map((node) => node.id));
  const numaOf = (id: number | undefined) => `numa${id !== undefined && numaIds.has(id) ? id : (numa[0]?.id ?? 0)}`;
  for (const node of numa) {
    const id = build.node(
      `numa${node.id}`,
      "numa",
      node.distances === undefined ? {} : { details: { distances: [...node.distances] } },
    );
    const bandwidthGBps = node.readBandwidthMBps === undefined ? undefined : node.readBandwidthMBps / 1000;
    build.link("cpu0", id, "memory", defined({ bandwidthGBps }));
    for (const other of numa) if (other.id < node.id) build.link(`numa${other.id}`, id, "host-interconnect");
  }
  const attach = (id: string, address: string | undefined, numaNode: number | undefined): void => {
    const pci = address === undefined ? undefined : parts.pci.get(address);
    if (pci !== undefined && pci.hostBridge !== undefined) {
      attachByBus(build, id, pci, numaOf(pci.numaNode ?? numaNode));
      return;
    }
    build.link(
      id,
      numaOf(numaNode),
      "pcie",
      defined({ bandwidthGBps: pci === undefined ? undefined : pciBandwidthGBps(pci) }),
    );
  };
  for (const device of devices) {
    if (device.family === "cpu" || device.parent !== undefined) continue;
    const hostLink = hostLinks.get(device.id);
    if (hostLink !== undefined) {
      const { kind, ...facts } = hostLink;
      build.link(device.id, numaOf(device.numaNode), kind, facts);
    } else if (device.unifiedMemory === true) {
      build.link(device.id, numaOf(device.numaNode), "memory", defined({ bandwidthGBps: device.memoryBandwidthGBps }));
    } else if (device.pciAddress !== undefined || device.pcie !== undefined) {
      const before = build.links.length;
      attach(device.id, device.pciAddress, device.numaNode);
      const own = build.links.slice(before).find((l) => l.a === device.id);
      const { maxGeneration, generation = maxGeneration, width, maxWidth = width } = device.pcie ?? {};
      const top = maxGeneration ?? generation;
      const lanes = width ?? maxWidth;
      // What the bus does not tell, the vendor's tool may: of the device's own link.
      const isOnBus = (parts.pci.get(device.pciAddress ?? "")?.hops.length ?? 0) > 0;
      if (
        own !== undefined &&
        !isOnBus &&
        own.bandwidthGBps === undefined &&
        top !== undefined &&
        lanes !== undefined
      ) {
        const bandwidthGBps = pcieGBps(top, lanes);
        if (bandwidthGBps > 0) own.bandwidthGBps = bandwidthGBps;
      }
    }
  }
  for (const nic of parts.nics) {
    const id = build.node(nicId(parts.nics, nic), "nic", {
      name: nic.name,
      details: { ...nic.details, ...(nic.pciAddress !== undefined && { pciAddress: nic.pciAddress }) },
    });
    attach(id, nic.pciAddress, nic.pciAddress === undefined ? undefined : parts.pci.get(nic.pciAddress)?.numaNode);
  }
  for (const result of parts.results) {
    for (const found of result.switches ?? []) {
      build.node(switchId(found.key), found.kind, defined({ name: found.name }));
    }
    for (const { a, b, ...rest } of result.links ?? []) {
      const ends = [a, b].map((key) => ids.get(key) ?? (build.nodes.has(switchId(key)) ? switchId(key) : undefined));
      if (ends[0] !== undefined && ends[1] !== undefined && ends[0] !== ends[1]) {
        const { kind, ...facts } = rest;
        build.link(ends[0], ends[1], kind, defined(facts));
      }
    }
  }
  return { nodes: [...build.nodes.values()], links: build.links };
}

function switchId(key: string): string {
  return `${key.replace(/:.*/, "")}0`;
}

function nicId(nics: readonly Nic[], nic: Nic): string {
  return `nic${nics.indexOf(nic)}`;
}

function attachByBus(build: Builder, id: string, pci: PciFunction, numa: string): void {
  const facts = (address: string) => {
    const hop = pci.hops.find((one) => one.address === address);
    return hop === undefined ? {} : { generation: hop.generation, bandwidthGBps: hopGBps(hop) };
  };
  const root = build.node(pci.hostBridge as string, "pcie-root");
  build.link(root, numa, "host-interconnect");
  let parent = root;
  for (const address of switchesAbove(pci)) {
    const node = build.node(`pcie-${address}`, "pcie-switch");
    build.link(node, parent, "pcie", facts(address));
    parent = node;
  }
  build.link(id, parent, "pcie", facts(pci.address));
}

function derivePairs(
  parts: Parts,
  topology: Topology,
  devices: readonly Device[],
  ids: ReadonlyMap<string, string>,
): Pair[] {
  const accelerators = devices.filter((d) => d.family !== "cpu" && d.parent === undefined);
  const nics = topology.nodes.filter((node) => node.kind === "nic");
  if (accelerators.length === 0 || accelerators.length > MAX_PAIRED_DEVICES) return [];
  const stated = new Map<string, string>();
  for (const { a, b, relation } of parts.results.flatMap((r) => r.relations ?? [])) {
    const nic = b.startsWith("nic:") ? parts.nics.find(({ name }) => name === b.slice(4)) : undefined;
    stated.set([ids.get(a), nic === undefined ? ids.get(b) : nicId(parts.nics, nic)].sort().join(" "), relation);
  }
  const addressOf = new Map<string, string | undefined>([
    ...accelerators.map((d) => [d.id, d.pciAddress] as const),
    ...parts.nics.map((nic) => [nicId(parts.nics, nic), nic.pciAddress] as const),
  ]);
  const byBus = (a: string, b: string): string | undefined => {
    const [first, second] = [a, b].map((id) => parts.pci.get(addressOf.get(id) ?? ""));
    const relation = first === undefined || second === undefined ? undefined : pciRelation(first, second);
    const told = stated.get([a, b].sort().join(" "));
    return told === "XGMI" ? told : (relation ?? told);
  };
  const pairs: Pair[] = [];
  for (const [i, a] of accelerators.entries()) {
    for (const b of accelerators.slice(i + 1)) {
      const pair = relate(topology, a.id, b.id, byBus(a.id, b.id));
      if (pair !== undefined) pairs.push(pair);
    }
    for (const nic of nics) {
      const relation = byBus(a.id, nic.id);
      if (relation !== undefined) pairs.push({ a: a.id, b: nic.id, relation });
    }
  }
  return pairs;
}
