/**
 * From devices to what a mesh is made of. Devices of one kind are carved into units of tp devices, nearest together
 * first (island, then host; never across hosts, save where the fast fabric itself spans them); ep * cp neighbouring
 * units make a block, which holds one pipeline stage of one replica.
 */
import type { Device } from "../../machine/topology/index.ts";
import { type Fabric, type GroupLink, slower } from "./fabric.ts";

/** Devices that compute alike and have (nearly) the same memory for the plan. */
export interface DeviceKind {
  readonly device: Device;
  /** The least that any of them has, per rank. */
  readonly availableBytes: number;
  /** Sorted by host, island, NUMA node, index. An id stands once for every rank that the device hosts. */
  readonly ids: readonly string[];
  readonly ranksPerDevice: number;
}

/** Free memory within this fraction counts as equal; the least of them is used for all. */
const SAME_MEMORY = 0.02;

export interface KindOptions {
  readonly useTotalMemory: boolean;
  readonly ranksPerDevice: number;
  /** Share of the device's memory that the engine may take. Default 1. */
  readonly memoryShare?: number;
}

/** Share of an Apple chip's unified memory that its GPU may use: Metal's recommendedMaxWorkingSetSize, up to 32 GB and above. */
const APPLE_GPU_SHARE = { small: 2 / 3, large: 0.75 } as const;
const APPLE_SMALL_BYTES = 32 * 1024 ** 3;

/** What a device has for the plan: free memory where that is known, unless total is asked for. */
export function availableMemory(device: Device, useTotalMemory: boolean): number {
  const bytes = (useTotalMemory ? device.memoryBytes : (device.memoryFreeBytes ?? device.memoryBytes)) ?? 0;
  if (device.family !== "apple-gpu" || device.memoryBytes === undefined) return bytes;
  const share = APPLE_GPU_SHARE[device.memoryBytes <= APPLE_SMALL_BYTES ? "small" : "large"];
  return Math.min(bytes, Math.floor(device.memoryBytes * share));
}

/** Groups devices into kinds. */
export function deviceKinds(devices: readonly Device[], fabric: Fabric, options: KindOptions): DeviceKind[] {
  const { ranksPerDevice } = options;
  const buckets = new Map<string, Device[]>();
  for (const device of devices) {
    const key = [device.name, device.arch, device.memoryBandwidthGBps, JSON.stringify(device.peakTflops)].join("|");
    const list = buckets.get(key) ?? [];
    list.push(device);
    buckets.set(key, list);
  }
  const kinds: DeviceKind[] = [];
  // Islands follow each other by NUMA node too: a device that stands alone is an island of its own.
  const numaOf = new Map<number, number>();
  for (const { id } of devices) {
    const { island, numa } = fabric.place(id);
    numaOf.set(island, Math.min(numa, numaOf.get(island) ?? Number.POSITIVE_INFINITY));
  }
  const near = (a: Device, b: Device) => {
    const [p, q] = [fabric.place(a.id), fabric.place(b.id)];
    const nodes = (numaOf.get(p.island) ?? 0) - (numaOf.get(q.island) ?? 0);
    return p.host - q.host || nodes || p.island - q.island || p.numa - q.numa || a.index - b.index;
  };
  for (const bucket of buckets.values()) {
    const byMemory = bucket
      .map((device) => ({ device, bytes: availableMemory(device, options.useTotalMemory) }))
      .sort((a, b) => b.bytes - a.bytes);
    for (let start = 0; start < byMemory.length; ) {
      const most = byMemory[start]?.bytes ?? 0;
      let end = start + 1;
      while (end < byMemory.length && (byMemory[end]?.bytes ?? 0) >= most * (1 - SAME_MEMORY)) end++;
      const members = byMemory.slice(start, end);
      const sorted = members.map((member) => member.device).sort(near);
      const [device] = sorted;
      if (device !== undefined) {
        kinds.push({
          device,
          availableBytes: Math.floor(((members.at(-1)?.bytes ?? 0) * (options.memoryShare ?? 1)) / ranksPerDevice),
          ids: sorted.flatMap(({ id }) => Array.from({ length: ranksPerDevice }, () => id)),
          ranksPerDevice,
        });
      }
      start = end;
    }
  }
  return kinds;
}

/** Units of tp devices, grouped by what joins them. */
export interface UnitClass {
  readonly kind: DeviceKind;
  readonly link: GroupLink;
  readonly units: readonly (readonly string[])[];
}

function chunk<T>(items: readonly T[], size: number): { whole: T[][]; rest: T[] } {
  const whole: T[][] = [];
  let at = 0;
  for (; at + size <= items.length; at += size) whole.push(items.slice(at, at + size));
  return { whole, rest: items.slice(at) };
}

function groupBy<T>(items: readonly T[], key: (item: T) => number): T[][] {
  const groups = new Map<number, T[]>();
  for (const item of items) {
    const list = groups.get(key(item)) ?? [];
    list.push(item);
    groups.set(key(item), list);
  }
  return [...groups.values()];
}

/** Carves a kind into units of tp: first inside islands, then inside hosts out of what is left. */
export function carveUnits(kind: DeviceKind, fabric: Fabric, tp: number): UnitClass[] {
  const units: string[][] = [];
  const left: string[] = [];
  for (const island of groupBy(kind.ids, (id) => fabric.place(id).island)) {
    const { whole, rest } = chunk(island, tp);
    units.push(...whole);
    left.push(...rest);
  }
  for (const host of groupBy(left, (id) => fabric.place(id).host)) units.push(...chunk(host, tp).whole);
  const classes = new Map<string, { link: GroupLink; units: string[][] }>();
  for (const unit of units) {
    const link = fabric.group(unit);
    if (link === undefined) continue;
    const key = `${link.scope} ${link.kind} ${link.effectiveGBps.toPrecision(3)}`;
    const known = classes.get(key) ?? { link, units: [] };
    known.units.push(unit);
    classes.set(key, known);
  }
  return [...classes.values()].map((found) => ({ kind, ...found }));
}

/** Blocks of ep * cp units that are alike in every respect that costs time or memory. */
export interface BlockClass {
  readonly kind: DeviceKind;
  readonly links: {
    readonly tp: GroupLink | undefined;
    readonly cp: GroupLink | undefined;
    readonly ep: GroupLink | undefined;
  };
  /** Device ids in the order (ep, cp, tp), tp fastest. */
  readonly blocks: readonly (readonly string[])[];
}

/**
 * Joins ep * cp neighbouring units into blocks; undefined links mean an axis of one. Blocks are carved inside islands (racks
 * of one NVLink domain) first, then inside hosts, then out of what is left: a block that straddles two is a class of its
 * own, so that its slow link is nobody else's.
 */
export function carveBlocks(unitClass: UnitClass, fabric: Fabric, ep: number, cp: number): BlockClass[] {
  const size = ep * cp;
  if (size === 1)
    return joinBlocks(
      unitClass,
      fabric,
      unitClass.units.map((unit) => [unit]),
      ep,
      cp,
    );
  const placeOf = (unit: readonly string[]) => fabric.place(unit[0] ?? "");
  const inside: (readonly string[])[][] = [];
  let left: readonly (readonly string[])[] = unitClass.units;
  for (const near of [
    (unit: readonly string[]) => placeOf(unit).island,
    (unit: readonly string[]) => placeOf(unit).host,
  ]) {
    const rest: (readonly string[])[] = [];
    for (const group of groupBy(left, near)) {
      const { whole, rest: over } = chunk(group, size);
      inside.push(...whole);
      rest.push(...over);
    }
    left = rest;
  }
  const across = chunk(left, size).whole;
  return [...joinBlocks(unitClass, fabric, inside, ep, cp), ...joinBlocks(unitClass, fabric, across, ep, cp)];
}

function joinBlocks(
  unitClass: UnitClass,
  fabric: Fabric,
  groups: readonly (readonly (readonly string[])[])[],
  ep: number,
  cp: number,
): BlockClass[] {
  let cpLink: GroupLink | undefined;
  let epLink: GroupLink | undefined;
  const blocks: string[][] = [];
  for (const units of groups) {
    const heads = units.map((unit) => unit[0] ?? "");
    const cpGroup = cp > 1 ? fabric.group(heads.slice(0, cp)) : undefined;
    const epGroup = ep > 1 ? fabric.group(heads.filter((_, index) => index % cp === 0)) : undefined;
    if ((cp > 1 && cpGroup === undefined) || (ep > 1 && epGroup === undefined)) continue;
    if (cpGroup !== undefined) cpLink = slower(cpLink, cpGroup);
    if (epGroup !== undefined) epLink = slower(epLink, epGroup);
    blocks.push(units.flat());
  }
  if (blocks.length === 0) return [];
  const tpSize = unitClass.units[0]?.length ?? 1;
  const links = { tp: tpSize > 1 ? unitClass.link : undefined, cp: cpLink, ep: epLink };
  return [{ kind: unitClass.kind, links, blocks }];
}
