/**
 * Measures what the links between NVIDIA GPUs really carry: copies between the memories of every two GPUs, in each
 * direction, one pair at a time, timed by events on the device.
 */
import { UnavailableError } from "../../core/index.ts";
import { type CudaDriver, requireCudaDriver } from "../../foreign/cuda/index.ts";
import type { Inventory } from "../topology/index.ts";
import { widestPath } from "../topology/index.ts";
import { type CopyDevice, type CopyEnd, PeerCopies } from "./peer-copies.ts";

export interface PairMeasurement {
  readonly from: string;
  readonly to: string;
  readonly bandwidthGBps: number;
  /** One copy of 4 bytes, from its start on the device to its end. */
  readonly latencyUs: number;
  /** Whether the GPUs reach each other's memory, or the copy goes through the host's. */
  readonly peerAccess: boolean;
  /** Which GPU's copy engine was faster: the source's (write) or the destination's (read). */
  readonly engine: "write" | "read";
  /** The topology's width of the widest path, and the part of it that was reached. */
  readonly linkGBps?: number;
  readonly fractionOfLink?: number;
}

export interface MeasureOptions {
  /** Bytes of one copy. Default 256 MiB: long enough that the start does not count. */
  readonly sizeBytes?: number;
  /** Copies timed together. Default 4. */
  readonly repeats?: number;
  /** How often each direction is timed; the best counts. Default 3. */
  readonly trials?: number;
  /** The driver to measure with; the one that every part of chorale finds by default. */
  readonly driver?: CudaDriver;
  readonly onProgress?: (done: number, total: number) => void;
}

const DEFAULT_SIZE_BYTES = 256 * 1024 ** 2;
const SMALL_COPIES = 32;

/**
 * Measures every ordered pair of the inventory's NVIDIA GPUs.
 * @throws UnavailableError when the CUDA driver is absent or shows fewer than two GPUs
 * @throws NativeError when the driver fails
 */
export function measureLinks(inventory: Inventory, options: MeasureOptions = {}): PairMeasurement[] {
  using copies = new PeerCopies(options.driver ?? requireCudaDriver());
  const { devices } = copies;
  if (devices.length < 2) {
    throw new UnavailableError(
      "a link to measure",
      `CUDA shows ${devices.length} GPU(s)`,
      "Run it where two GPUs are visible.",
    );
  }
  const sizeBytes = options.sizeBytes ?? DEFAULT_SIZE_BYTES;
  const ends: CopyEnd[] = [];
  const results: PairMeasurement[] = [];
  try {
    for (const device of devices) {
      copies.use(device);
      ends.push({ device, address: copies.allocate(sizeBytes) });
    }
    for (const from of ends) {
      for (const to of ends) {
        if (from === to) continue;
        results.push(measurePair(copies, inventory, { from, to, sizeBytes }, options));
        options.onProgress?.(results.length, devices.length * (devices.length - 1));
      }
    }
  } finally {
    for (const { device, address } of ends) {
      copies.use(device);
      copies.free(address);
    }
  }
  return results;
}

interface Pair {
  readonly from: CopyEnd;
  readonly to: CopyEnd;
  readonly sizeBytes: number;
}

function measurePair(
  copies: PeerCopies,
  inventory: Inventory,
  { from, to, sizeBytes }: Pair,
  options: MeasureOptions,
): PairMeasurement {
  const peerAccess = copies.canAccessPeer(from.device, to.device) && copies.canAccessPeer(to.device, from.device);
  const timeOn = (engine: CopyEnd, bytes: number, numCopies: number): number => {
    copies.use(engine.device);
    if (peerAccess) copies.enablePeer((engine === from ? to : from).device);
    return copies.timeMs(from, to, bytes, numCopies);
  };
  const repeats = options.repeats ?? 4;
  const best = (engine: CopyEnd) =>
    Math.min(...Array.from({ length: options.trials ?? 3 }, () => timeOn(engine, sizeBytes, repeats)));
  const [write, read] = [best(from), best(to)];
  const bandwidthGBps = (sizeBytes * repeats) / (Math.min(write, read) * 1e6);
  const latencyUs = (timeOn(from, 4, SMALL_COPIES) * 1000) / SMALL_COPIES;
  const [fromId, toId] = [idOf(inventory, from.device), idOf(inventory, to.device)];
  const known = [fromId, toId].every((id) => inventory.devices.some((device) => device.id === id));
  const path = known ? widestPath(inventory.topology, fromId, toId) : undefined;
  const linkGBps = path?.isRateKnown === true ? path.bandwidthGBps : 0;
  return {
    from: fromId,
    to: toId,
    bandwidthGBps,
    latencyUs,
    peerAccess,
    engine: write <= read ? "write" : "read",
    ...(linkGBps > 0 && Number.isFinite(linkGBps) && { linkGBps, fractionOfLink: bandwidthGBps / linkGBps }),
  };
}

/** CUDA counts visible devices in its own order; the PCI address says which is which. */
function idOf(inventory: Inventory, device: CopyDevice): string {
  const found = inventory.devices.find((d) => d.pciAddress !== undefined && d.pciAddress === device.pciAddress);
  return found?.id ?? `cuda${device.ordinal}`;
}
