/** Asks an inventory for devices that meet requirements. */
import { type DType, InvalidArgumentError, parseSize } from "../../core/index.ts";
import { type Device, type Family, type Inventory, islands, usableDevices } from "../topology/index.ts";

export interface DeviceRequirements {
  readonly family?: Family | readonly Family[];
  readonly vendor?: string;
  /** Bytes, or a size such as `40G`; of the device's total, or of what is free with `free`. */
  readonly minMemory?: number | string;
  readonly free?: boolean;
  /** `9.0`: NVIDIA's compute capability, at least; other architectures exactly. */
  readonly arch?: string;
  readonly dtype?: DType;
  /** GB/s. */
  readonly minBandwidthGBps?: number;
  /** Exactly so many devices; fewer give an empty list. Default: all that fit. */
  readonly count?: number;
  /** All of one island: joined by NVLink, XGMI and their like. */
  readonly sameIsland?: boolean;
  readonly sameFamily?: boolean;
  /** Also devices that the environment hides. */
  readonly includeMasked?: boolean;
  /** Also parts of devices (MIG instances). A GPU whose MIG mode is on is never given whole: no process can use it so. */
  readonly includeParts?: boolean;
}

/**
 * Finds the devices that meet the requirements: those with most memory first, of one island or family if asked. What an
 * inventory does not state does not meet a requirement.
 * @returns an empty list when fewer than `count` meet them
 * @throws InvalidArgumentError for a count below 1 or an invalid size
 * @example
 * import { findDevices } from "chorale/hardware";
 * import { presetInventory } from "chorale/topology";
 * findDevices(presetInventory("hgx-h100-8"), { minMemory: "70G", dtype: "f8e4m3", count: 4, sameIsland: true }).length // 4
 */
export function findDevices(inventory: Inventory, requirements: DeviceRequirements = {}): Device[] {
  const { count } = requirements;
  if (count !== undefined && (!Number.isInteger(count) || count < 1)) {
    throw new InvalidArgumentError("count", count, "an integer, 1 or more");
  }
  const fitting = usableDevices(inventory)
    .filter((device) => requirements.includeParts === true || device.parent === undefined)
    .filter((device) => meets(device, requirements))
    .sort((a, b) => (b.memoryBytes ?? 0) - (a.memoryBytes ?? 0));
  const groups = groupsOf(inventory, fitting, requirements);
  const enough = groups.filter((group) => group.length >= (count ?? 1));
  const best = enough.sort((a, b) => memoryOf(b, count) - memoryOf(a, count))[0] ?? [];
  return best.slice(0, count);
}

function memoryOf(devices: readonly Device[], count: number | undefined): number {
  return devices.slice(0, count).reduce((sum, device) => sum + (device.memoryBytes ?? 0), 0);
}

function groupsOf(inventory: Inventory, fitting: readonly Device[], requirements: DeviceRequirements): Device[][] {
  let groups: Device[][] = [[...fitting]];
  if (requirements.sameIsland === true) {
    const includeMasked = requirements.includeMasked === true;
    groups = islands(inventory, { includeMasked }).map(({ devices }) =>
      fitting.filter((device) => devices.includes(device.parent ?? device.id)),
    );
  }
  if (requirements.sameFamily !== true) return groups;
  return groups.flatMap((group) =>
    [...new Set(group.map((d) => d.family))].map((family) => group.filter((d) => d.family === family)),
  );
}

function meets(device: Device, requirements: DeviceRequirements): boolean {
  const { family, vendor, minMemory, arch, dtype, minBandwidthGBps } = requirements;
  const families = family === undefined ? undefined : [family].flat();
  if (families === undefined ? device.family === "cpu" : !families.includes(device.family)) return false;
  if (!device.visible && requirements.includeMasked !== true) return false;
  if (vendor !== undefined && device.vendor.toLowerCase() !== vendor.toLowerCase()) return false;
  if (minMemory !== undefined) {
    const bytes = typeof minMemory === "string" ? parseSize(minMemory, "minMemory") : minMemory;
    const have = requirements.free === true ? device.memoryFreeBytes : device.memoryBytes;
    if (have === undefined || have < bytes) return false;
  }
  if (arch !== undefined && !archMeets(device, arch)) return false;
  if (dtype !== undefined && device.dtypes?.includes(dtype) !== true) return false;
  return minBandwidthGBps === undefined || (device.memoryBandwidthGBps ?? 0) >= minBandwidthGBps;
}

function archMeets(device: Device, wanted: string): boolean {
  if (device.family !== "nvidia-gpu") return device.arch === wanted;
  const [have, need] = [Number(device.arch), Number(wanted)];
  return Number.isFinite(have) && Number.isFinite(need) && have >= need;
}

/** Families that no engine of ours runs on: chosen last. */
const NPUS: ReadonlySet<Family> = new Set<Family>([
  "apple-npu",
  "intel-npu",
  "amd-xdna",
  "samsung-npu",
  "mediatek-npu",
]);

/**
 * Picks the accelerator to use when one is wanted: visible, of known memory, the best by speed and memory; a MIG instance
 * where GPUs are split; an NPU only where there is nothing else; the CPU when there is none.
 */
export function bestDevice(inventory: Inventory): Device | undefined {
  const speed = (device: Device) => Math.max(0, ...Object.values(device.peakTflops ?? {}));
  const memoryBytes = (device: Device) => device.memoryBytes ?? 0;
  const accelerators = findDevices(inventory, { includeParts: true }).filter((d) => d.memoryBytes !== undefined);
  const byWorth = accelerators.sort(
    (a, b) =>
      Number(NPUS.has(a.family)) - Number(NPUS.has(b.family)) ||
      speed(b) * memoryBytes(b) - speed(a) * memoryBytes(a) ||
      memoryBytes(b) - memoryBytes(a),
  );
  return byWorth[0] ?? inventory.devices.find((device) => device.family === "cpu");
}

/**
 * Bytes of memory that processes can use on accelerators: of a GPU that is split, its instances'. Memory shared with the
 * host is counted once and only when asked for.
 */
export function acceleratorMemory(inventory: Inventory, options: { readonly includeUnified?: boolean } = {}): number {
  const own = usableDevices(inventory).filter((d) => d.family !== "cpu" && d.visible);
  const discrete = own.filter((d) => d.unifiedMemory !== true).reduce((sum, d) => sum + (d.memoryBytes ?? 0), 0);
  const shared = Math.max(0, ...own.filter((d) => d.unifiedMemory === true).map((d) => d.memoryBytes ?? 0));
  return discrete + (options.includeUnified === false ? 0 : shared);
}

/**
 * Estimates the seconds that reading `bytes` takes from the fastest storage of the inventory, by its bandwidth class: a
 * lower bound, the link's or interface's rate. Undefined when no storage's class is known.
 * @throws InvalidArgumentError for a negative size
 */
export function ingestionSeconds(inventory: Inventory, bytes: number): number | undefined {
  if (!(bytes >= 0)) throw new InvalidArgumentError("bytes", bytes, "a size, 0 or more");
  const storage = inventory.environment?.["storage"];
  const rates = (Array.isArray(storage) ? storage : []).flatMap((entry) => {
    const rate =
      typeof entry === "object" && entry !== null && !Array.isArray(entry) ? entry["bandwidthClassGBps"] : undefined;
    return typeof rate === "number" && rate > 0 ? [rate] : [];
  });
  return rates.length === 0 ? undefined : bytes / (Math.max(...rates) * 1e9);
}
