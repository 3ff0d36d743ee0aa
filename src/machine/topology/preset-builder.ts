/** Builds the inventory of a described system: hosts, their PCIe trees, fabrics and NICs. Pure data in, data out. */
import { InvalidArgumentError } from "../../core/index.ts";
import { idPrefix } from "./device-ids.ts";
import {
  type Device,
  INVENTORY_SCHEMA_VERSION,
  type Inventory,
  type Link,
  type LinkKind,
  type TopologyNode,
} from "./inventory.ts";
import { GIB } from "./parts/part.ts";
import { dtypesOf, type Part, partByKey, partFields } from "./parts.ts";

export interface CpuSpec {
  readonly name: string;
  readonly vendor: string;
  readonly sockets: number;
  readonly numaNodes: number;
  readonly coresPerSocket: number;
  readonly memoryBytes: number;
  /** Of all sockets together. */
  readonly memoryBandwidthGBps: number;
}

/** A host's CPUs, by name. */
export function cpu(
  name: string,
  sockets: number,
  coresPerSocket: number,
  memoryGiB: number,
  memoryBandwidthGBps: number,
  numaNodes = sockets,
): CpuSpec {
  const vendor = /EPYC|Ryzen/.test(name)
    ? "AMD"
    : /Grace|GB10/.test(name)
      ? "NVIDIA"
      : /Apple/.test(name)
        ? "Apple"
        : "Intel";
  return { name, vendor, sockets, coresPerSocket, numaNodes, memoryBytes: memoryGiB * GIB, memoryBandwidthGBps };
}

/** A known part. @throws InvalidArgumentError when there is none of that key */
export function part(key: string): Part {
  const found = partByKey(key);
  if (found === undefined) throw new InvalidArgumentError("part", key, "a key of PARTS");
  return found;
}

/** A link between two accelerators of a host, or of an accelerator to the fabric's switch. */
export interface FabricLink {
  readonly a: number;
  readonly b: number | "switch";
  readonly count: number;
  readonly bandwidthGBps: number;
}

export interface Fabric {
  readonly kind: LinkKind;
  readonly generation?: number;
  readonly links: readonly FabricLink[];
  /** Set when links end at a switch: what it is called. */
  readonly switchName?: string;
}

export interface HostSpec {
  readonly cpu: CpuSpec;
  readonly part: Part;
  readonly numDevices: number;
  /** Places for devices, where not all are taken: they fill the sockets in order. */
  readonly numSlots?: number;
  /** GB/s of one device's host link, one direction, and the PCIe generation; chip-to-chip links are their own kind. */
  readonly hostLink: { readonly kind: LinkKind; readonly generation?: number; readonly bandwidthGBps: number };
  /** Devices that share a PCIe switch; 0 when each hangs on a root port of its own. */
  readonly devicesPerPcieSwitch: number;
  readonly fabric?: Fabric;
  readonly memoryBytes?: number;
}

export interface Preset {
  readonly name: string;
  readonly summary: string;
  readonly sources: readonly string[];
  /** NICs of the reference system's compute network, used when hosts are composed and no `--nic` is given. */
  readonly defaultNic: string;
  readonly build: () => Inventory;
}

/** The raw data rate of a PCIe link after its line code, one direction, GB/s (PCIe base specification). */
export function pcieGBps(generation: number, width: number): number {
  const gts = [2.5, 5, 8, 16, 32, 64][generation - 1] ?? 0;
  const code = generation <= 2 ? 8 / 10 : generation <= 5 ? 128 / 130 : 242 / 256;
  return Number(((gts * width * code) / 8).toFixed(3));
}

/** A device's link to its host. */
export const pcie = (generation: number, width = 16) =>
  ({ kind: "pcie", generation, bandwidthGBps: pcieGBps(generation, width) }) as const;

/** All-to-all links between `size` devices. */
export function fullMesh(size: number, count: number, bandwidthGBps: number): FabricLink[] {
  const links: FabricLink[] = [];
  for (let a = 0; a < size; a++) for (let b = a + 1; b < size; b++) links.push({ a, b, count, bandwidthGBps });
  return links;
}

/** Every device to one non-blocking switch (the planes of an NVSwitch system are one switch to the devices). */
export function star(size: number, count: number, bandwidthGBps: number): FabricLink[] {
  return Array.from({ length: size }, (_, a) => ({ a, b: "switch", count, bandwidthGBps }));
}

/**
 * A mesh of the given shape, row-major, last dimension fastest; a dimension wraps where `wraps` says so. In a wrapped
 * dimension of size 2 both links join the same two devices.
 */
export function torus(shape: readonly number[], wraps: readonly boolean[], bandwidthGBps: number): FabricLink[] {
  const size = shape.reduce((a, b) => a * b, 1);
  const links: FabricLink[] = [];
  for (let a = 0; a < size; a++) {
    let stride = size;
    for (const [dim, extent] of shape.entries()) {
      stride /= extent;
      const at = Math.floor(a / stride) % extent;
      if (extent < 2) continue;
      if (at + 1 < extent) {
        const count = extent === 2 && wraps[dim] === true ? 2 : 1;
        links.push({ a, b: a + stride, count, bandwidthGBps: bandwidthGBps * count });
      } else if (wraps[dim] === true && extent > 2) {
        links.push({ a, b: a - (extent - 1) * stride, count: 1, bandwidthGBps });
      }
    }
  }
  return links;
}

interface Parts {
  readonly devices: Device[];
  readonly nodes: TopologyNode[];
  readonly links: Link[];
}

/** Lays out `numHosts` equal hosts whose devices share one fabric (`fabric` counts devices over all hosts). */
export function buildInventory(
  spec: HostSpec,
  numHosts = 1,
  source = "preset",
  fabric: Fabric | undefined = spec.fabric,
): Inventory {
  const parts: Parts = { devices: [], nodes: [], links: [] };
  for (let host = 0; host < numHosts; host++) addHost(parts, spec, host, numHosts);
  if (fabric !== undefined) addFabric(parts, fabric, numHosts);
  return {
    schemaVersion: INVENTORY_SCHEMA_VERSION,
    devices: parts.devices,
    topology: { nodes: parts.nodes, links: parts.links },
    environment: { preset: source },
    warnings: [],
  };
}

function addHost({ devices, nodes, links }: Parts, spec: HostSpec, host: number, numHosts: number): void {
  const { cpu, part } = spec;
  const at = (id: string) => (numHosts === 1 ? id : `h${host}.${id}`);
  const cpuId = `cpu${host}`;
  const add = (id: string, kind: TopologyNode["kind"], name?: string) =>
    nodes.push({ id, kind, host, ...(name !== undefined && { name }) });
  devices.push({
    id: cpuId,
    family: "cpu",
    vendor: cpu.vendor,
    name: cpu.name,
    index: host,
    memoryBytes: cpu.memoryBytes,
    memoryBandwidthGBps: cpu.memoryBandwidthGBps,
    dtypes: dtypesOf("cpu", undefined) ?? [],
    visible: true,
    ...(part.unifiedMemory === true && { unifiedMemory: true }),
    details: { sockets: cpu.sockets, cores: cpu.sockets * cpu.coresPerSocket, numaNodes: cpu.numaNodes },
  });
  add(cpuId, "device");
  for (let numa = 0; numa < cpu.numaNodes; numa++) {
    add(at(`numa${numa}`), "numa");
    links.push({
      a: cpuId,
      b: at(`numa${numa}`),
      kind: "memory",
      bandwidthGBps: cpu.memoryBandwidthGBps / cpu.numaNodes,
    });
    for (let other = 0; other < numa; other++) {
      links.push({ a: at(`numa${other}`), b: at(`numa${numa}`), kind: "host-interconnect" });
    }
  }
  const per = spec.devicesPerPcieSwitch;
  for (let i = 0; i < spec.numDevices; i++) {
    const index = host * spec.numDevices + i;
    const id = `${idPrefix(part.family)}${index}`;
    const numaNode = Math.floor((i * cpu.numaNodes) / (spec.numSlots ?? spec.numDevices));
    const deviceDtypes = dtypesOf(part.family, part.arch);
    devices.push({
      id,
      family: part.family,
      vendor: part.vendor,
      name: part.name,
      index,
      memoryBytes: spec.memoryBytes ?? part.memoryBytes,
      ...partFields(part),
      ...(deviceDtypes !== undefined && { dtypes: deviceDtypes }),
      arch: part.arch,
      ...(part.unifiedMemory === true && { unifiedMemory: true }),
      ...(part.powerLimitWatts !== undefined && { powerLimitWatts: part.powerLimitWatts }),
      numaNode,
      visible: true,
      details: { source: part.source },
    });
    add(id, "device", part.name);
    let parent = at(`numa${numaNode}`);
    if (per > 0) {
      const numSwitch = Math.floor(i / per);
      const switchId = at(`pcie${numSwitch}`);
      if (i % per === 0) {
        add(switchId, "pcie-switch");
        links.push({ ...spec.hostLink, a: parent, b: switchId });
      }
      parent = switchId;
    }
    links.push({ ...spec.hostLink, a: id, b: parent });
  }
}

function addFabric({ devices, nodes, links }: Parts, fabric: Fabric, numHosts: number): void {
  const ids = devices.filter((device) => device.family !== "cpu").map((device) => device.id);
  const common = {
    kind: fabric.kind,
    ...(fabric.generation !== undefined && { generation: fabric.generation }),
  };
  if (fabric.links.some((link) => link.b === "switch")) {
    nodes.push({
      id: "nvswitch0",
      kind: "nvswitch",
      ...(numHosts === 1 && { host: 0 }),
      ...(fabric.switchName !== undefined && { name: fabric.switchName }),
    });
  }
  for (const { a, b, count, bandwidthGBps } of fabric.links) {
    links.push({
      a: ids[a] as string,
      b: b === "switch" ? "nvswitch0" : (ids[b] as string),
      ...common,
      count,
      bandwidthGBps: Number(bandwidthGBps.toFixed(3)),
    });
  }
}
