/**
 * The PCIe tree from sysfs. A device's canonical path, /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0, names its host
 * bridge and every bridge above it; below the root port, bridges come in pairs (upstream and downstream port of one
 * switch), as NCCL reads them too. Relations between two devices have the names of `nvidia-smi topo -m`.
 */
import { pcieGBps } from "../topology/index.ts";
import type { FileSystem } from "./machine.ts";
import { count, hex, pciAddress } from "./text.ts";

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
  /** Physical function of a virtual one. */
  readonly physicalFunction?: string;
}

export type PciRelation = "PIX" | "PXB" | "PHB" | "NODE" | "SYS";

const GENERATION_BY_SPEED: Readonly<Record<string, number>> = { 2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6 };

/** `32.0 GT/s PCIe` is generation 5. */
function pcieGeneration(speed: string | undefined): number | undefined {
  const match = /^([\d.]+) GT\/s/.exec(speed?.trim() ?? "");
  return match === null ? undefined : GENERATION_BY_SPEED[Number(match[1])];
}

const PCI_DEVICES = "/sys/bus/pci/devices";

/** Reads one function. */
export async function readPci(files: FileSystem, address: string): Promise<PciFunction | undefined> {
  const folder = `${PCI_DEVICES}/${address}`;
  const read = (name: string) => files.readText(`${folder}/${name}`, 256);
  const [real, vendor, device, classCode, numa, driver, speed, width, maxSpeed, maxWidth, physical] = await Promise.all(
    [
      files.realPath(folder),
      read("vendor"),
      read("device"),
      read("class"),
      read("numa_node"),
      files.realPath(`${folder}/driver`),
      read("current_link_speed"),
      read("current_link_width"),
      read("max_link_speed"),
      read("max_link_width"),
      files.realPath(`${folder}/physfn`),
    ],
  );
  if (real === undefined && vendor === undefined) return undefined;
  const parts = (real ?? "").split("/");
  const hostBridge = parts.find((part) => /^pci[0-9a-f]{4}:[0-9a-f]{2}$/i.test(part));
  const bridges = parts.slice(0, -1).filter((part) => pciAddress(part) !== undefined);
  const numaNode = count(numa);
  const values = {
    hostBridge,
    numaNode,
    driver: driver?.split("/").at(-1),
    generation: pcieGeneration(speed),
    width: positive(count(width)),
    maxGeneration: pcieGeneration(maxSpeed),
    maxWidth: positive(count(maxWidth)),
    physicalFunction: physical?.split("/").at(-1),
  };
  return {
    address,
    vendor: hex(vendor) ?? 0,
    device: hex(device) ?? 0,
    classCode: hex(classCode) ?? 0,
    bridges,
    ...defined(values),
  };
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

/** Every function of the machine whose class or address is asked for; a bounded number is read at a time. */
export async function readAllPci(files: FileSystem): Promise<ReadonlyMap<string, PciFunction>> {
  const addresses = (await files.list(PCI_DEVICES)).filter((name) => pciAddress(name) !== undefined).sort();
  const found = await Promise.all(
    addresses.map(async (name) => {
      const address = pciAddress(name) as string;
      const classCode = hex(await files.readText(`${PCI_DEVICES}/${name}/class`, 64)) ?? 0;
      return isInteresting(classCode) ? readPci(files, address) : undefined;
    }),
  );
  return new Map(found.flatMap((f) => (f === undefined ? [] : [[f.address, f] as const])));
}

/** Displays, accelerators, network and InfiniBand controllers, NVSwitches (other bridges), coprocessors, unclassified. */
function isInteresting(classCode: number): boolean {
  const base = classCode >> 16;
  return (
    base === 0x03 ||
    base === 0x12 ||
    base === 0x02 ||
    base === 0x0b ||
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

/** GB/s of a function's link in one direction: its top speed (an idle GPU lowers it) by the width that is really wired. */
export function pciBandwidthGBps(pci: PciFunction): number | undefined {
  const generation = pci.maxGeneration ?? pci.generation;
  const width = pci.width ?? pci.maxWidth;
  if (generation === undefined || width === undefined) return undefined;
  return pcieGBps(generation, width);
}
