/**
 * The PCIe tree from sysfs. A device's canonical path, /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0, names its host
 * bridge and every bridge above it; below the root port, bridges come in pairs (upstream and downstream port of one
 * switch), as NCCL reads them too. Relations between two devices have the names of `nvidia-smi topo -m`.
 */
import { wordTable } from "../../core/index.ts";
import { pcieGBps } from "../topology/index.ts";
import { count, hex, pciAddress } from "./field-readers.ts";
import type { FileSystem } from "./machine.ts";

export interface PciFunction {
  readonly address: string;
  readonly vendor: number;
  readonly device: number;
  readonly classCode: number;
  /** `pci0000:00`; absent where the path does not say. */
  readonly hostBridge?: string;
  /** Addresses of the bridges above it, the root port first. */
  readonly bridges: readonly string[];
  readonly numaNode?: number;
  readonly driver?: string;
  readonly generation?: number;
  readonly width?: number;
  readonly maxGeneration?: number;
  readonly maxWidth?: number;
  /** The links from the root port down to the function, as far as sysfs tells of them. */
  readonly hops: readonly PciHop[];
  /** Physical function of a virtual one. */
  readonly physicalFunction?: string;
}

/** One PCIe link: what its two ends agree on. */
export interface PciHop {
  /** The function at its lower end. */
  readonly address: string;
  readonly generation: number;
  readonly width: number;
}

export type PciRelation = "PIX" | "PXB" | "PHB" | "NODE" | "SYS";

const GENERATION_BY_SPEED: Readonly<Record<string, number>> = wordTable({ 2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6 });

/** `32.0 GT/s PCIe` is generation 5. */
function pcieGeneration(speed: string | undefined): number | undefined {
  const match = /^([\d.]+) GT\/s/.exec(speed?.trim() ?? "");
  return match === null ? undefined : GENERATION_BY_SPEED[Number(match[1])];
}

const PCI_DEVICES = "/sys/bus/pci/devices";

/** One end of a link as the files of its function say. */
interface LinkEnd {
  readonly generation?: number;
  readonly width?: number;
  readonly maxGeneration?: number;
  readonly maxWidth?: number;
}

async function readLinkEnd(files: FileSystem, folder: string): Promise<LinkEnd> {
  const [speed, width, maxSpeed, maxWidth] = await Promise.all(
    ["current_link_speed", "current_link_width", "max_link_speed", "max_link_width"].map((name) =>
      files.readText(`${folder}/${name}`, 256),
    ),
  );
  return defined({
    generation: pcieGeneration(speed),
    width: positive(count(width)),
    maxGeneration: pcieGeneration(maxSpeed),
    maxWidth: positive(count(maxWidth)),
  });
}

/** Reads one function. `ends` keeps what was read of the bridges above it, which many functions share. */
export async function readPci(
  files: FileSystem,
  address: string,
  ends = new Map<string, Promise<LinkEnd>>(),
): Promise<PciFunction | undefined> {
  const folder = `${PCI_DEVICES}/${address}`;
  const read = (name: string) => files.readText(`${folder}/${name}`, 256);
  const [real, vendor, device, classCode, numa, driver, own, physical] = await Promise.all([
    files.realPath(folder),
    read("vendor"),
    read("device"),
    read("class"),
    read("numa_node"),
    files.realPath(`${folder}/driver`),
    readLinkEnd(files, folder),
    files.realPath(`${folder}/physfn`),
  ]);
  if (real === undefined && vendor === undefined) return undefined;
  const parts = (real ?? "").split("/");
  const hostBridge = parts.find((part) => /^pci[0-9a-f]{4}:[0-9a-f]{2}$/i.test(part));
  const bridges = parts.slice(0, -1).filter((part) => pciAddress(part) !== undefined);
  const above = await Promise.all(
    bridges.map((bridge) => {
      const at = parts.slice(0, parts.indexOf(bridge) + 1).join("/");
      const known = ends.get(at) ?? readLinkEnd(files, at);
      ends.set(at, known);
      return known;
    }),
  );
  const vendorId = hex(vendor) ?? 0;
  // What a card with a switch of its own says of its place is its switch's upstream port.
  const place = isInternalLink(vendorId, own, bridges.length) ? (above.at(-2) ?? {}) : own;
  const values = {
    hostBridge,
    numaNode: count(numa),
    driver: driver?.split("/").at(-1),
    ...place,
    physicalFunction: physical?.split("/").at(-1),
  };
  return {
    address,
    vendor: vendorId,
    device: hex(device) ?? 0,
    classCode: hex(classCode) ?? 0,
    bridges,
    hops: hopsOf([...bridges, address], [...above, own], vendorId),
    ...defined(values),
  };
}

const INTEL = 0x8086;

/** Intel's cards have a switch of their own, and the GPU behind it always says 2.5 GT/s x1 (Intel Arc, LnkSta). */
function isInternalLink(vendor: number, own: LinkEnd, numBridges: number): boolean {
  return vendor === INTEL && numBridges > 1 && own.maxGeneration === 1 && (own.maxWidth ?? own.width) === 1;
}

/**
 * The links of a chain of functions, the root port first. A link lies between each even one and the next: the two ports
 * of a switch between them are no link. Its speed is the lower of what both ends can (an idle device lowers the current
 * one), its width what is really wired.
 */
function hopsOf(addresses: readonly string[], ends: readonly LinkEnd[], vendor: number): PciHop[] {
  const hops: PciHop[] = [];
  for (let lower = ends.length === 1 ? 0 : 1; lower < ends.length; lower += 2) {
    const [own, upper] = [ends[lower] ?? {}, ends[lower - 1] ?? {}];
    const isDevice = lower === ends.length - 1;
    if (isDevice && isInternalLink(vendor, own, lower)) continue;
    const generation = least(own.maxGeneration ?? own.generation, upper.maxGeneration ?? upper.generation);
    const width = least(own.width ?? own.maxWidth, upper.width ?? upper.maxWidth);
    if (generation !== undefined && width !== undefined)
      hops.push({ address: addresses[lower] ?? "", generation, width });
  }
  return hops;
}

function least(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : b === undefined ? a : Math.min(a, b);
}

/** 255 is what a function of a virtual machine answers; 0 says that there is no link. */
function positive(width: number | undefined): number | undefined {
  return width !== undefined && width > 0 && width <= 32 ? width : undefined;
}

/** The entries that are not undefined. */
export function defined<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

/** Most functions whose class is looked at: eight adapters of 4,096 virtual functions each, and the machine's own. */
const MAX_FUNCTIONS = 65_536;
/** Most functions that are read whole. */
const MAX_READ = 1024;
/** Functions that are looked at side by side. */
const BATCH = 256;

/** Runs `work` over all items, a bounded number at a time. */
export async function inBatches<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let i = 0; i < items.length; i += BATCH) {
    results.push(...(await Promise.all(items.slice(i, i + BATCH).map(work))));
  }
  return results;
}

/** The addresses of all functions on the bus, in order. */
export async function listPci(files: FileSystem): Promise<string[]> {
  const names = await files.list(PCI_DEVICES, MAX_FUNCTIONS);
  return names.filter((name) => pciAddress(name) !== undefined).sort();
}

/**
 * Every function whose class concerns us: accelerators first, so that no crowd of virtual network functions keeps them
 * out, then the others, up to a bound.
 */
export async function readAllPci(files: FileSystem): Promise<ReadonlyMap<string, PciFunction>> {
  const all = await inBatches(await listPci(files), async (name) => ({
    address: pciAddress(name) as string,
    classCode: hex(await files.readText(`${PCI_DEVICES}/${name}/class`, 64)) ?? 0,
  }));
  const wanted = all.filter(({ classCode }) => isInteresting(classCode));
  const first = wanted.filter(({ classCode }) => isAccelerator(classCode));
  const chosen = [...first, ...wanted.filter(({ classCode }) => !isAccelerator(classCode))].slice(0, MAX_READ);
  const ends = new Map<string, Promise<LinkEnd>>();
  const found = await inBatches(chosen, ({ address }) => readPci(files, address, ends));
  const byAddress = found.flatMap((f) => (f === undefined ? [] : [[f.address, f] as const]));
  return new Map(byAddress.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Displays, processing accelerators, coprocessors and signal processors (AMD XDNA). */
function isAccelerator(classCode: number): boolean {
  return [0x03, 0x12, 0x0b, 0x11].includes(classCode >> 16) || classCode >> 8 === 0x0880;
}

/** Displays, accelerators, network and InfiniBand controllers, NVSwitches (other bridges), coprocessors, unclassified. */
function isInteresting(classCode: number): boolean {
  const base = classCode >> 16;
  return (
    base === 0x03 ||
    base === 0x12 ||
    base === 0x02 ||
    base === 0x0b ||
    base === 0x11 ||
    base === 0x00 ||
    classCode >> 8 === 0x0680 ||
    classCode >> 8 === 0x0880 ||
    classCode >> 8 === 0x0207
  );
}

/** How two functions reach each other. */
export function pciRelation(a: PciFunction, b: PciFunction): PciRelation | undefined {
  if (a.hostBridge === undefined || b.hostBridge === undefined) return undefined;
  if (a.hostBridge !== b.hostBridge) {
    // Both without a node: the machine has one.
    return a.numaNode === b.numaNode ? "NODE" : "SYS";
  }
  let common = 0;
  while (common < a.bridges.length && a.bridges[common] === b.bridges[common]) common++;
  if (common === 0) return a.address.slice(0, -2) === b.address.slice(0, -2) ? "PIX" : "PHB";
  return a.bridges.length - common <= 1 && b.bridges.length - common <= 1 ? "PIX" : "PXB";
}

/** The switches above a function, nearest the root first: the upstream port of each pair of bridges under the root port. */
export function switchesAbove(pci: PciFunction): readonly string[] {
  return pci.bridges.slice(1).filter((_, i) => i % 2 === 0);
}

/** GB/s of one link in one direction. */
export function hopGBps({ generation, width }: PciHop): number {
  return pcieGBps(generation, width);
}

/** GB/s between a function and its root port in one direction: those of the slowest link on the way. */
export function pciBandwidthGBps({ hops }: PciFunction): number | undefined {
  return hops.length === 0 ? undefined : Math.min(...hops.map(hopGBps));
}
