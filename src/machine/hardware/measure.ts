/**
 * Measures what the links between NVIDIA GPUs really carry: copies between the memories of every two GPUs, in each
 * direction, one pair at a time, timed by events on the device.
 */
import { UnavailableError } from "../../core/index.ts";
import type { LibrarySpec } from "../../foreign/native/index.ts";
import type { Inventory } from "../topology/index.ts";
import { widestPath } from "../topology/index.ts";
import { CUDA_DRIVER, type CudaDevice, CudaDriver } from "./cuda-driver.ts";

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
  readonly library?: LibrarySpec;
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
  const opened = CudaDriver.open(options.library ?? CUDA_DRIVER);
  if (!(opened instanceof CudaDriver)) throw new UnavailableError(opened.what, opened.why, opened.howToGetIt);
  using driver = opened;
  const devices = driver.devices();
  if (devices.length < 2) {
    throw new UnavailableError(
      "a link to measure",
      `CUDA shows ${devices.length} GPU(s)`,
      "Run it where two GPUs are visible.",
    );
  }
  const sizeBytes = options.sizeBytes ?? DEFAULT_SIZE_BYTES;
  const buffers = new Map<CudaDevice, bigint>();
  const results: PairMeasurement[] = [];
  try {
    for (const device of devices) {
      driver.use(device);
      buffers.set(device, driver.alloc(sizeBytes));
    }
    for (const from of devices) {
      for (const to of devices) {
        if (from === to) continue;
        results.push(measurePair(driver, inventory, { from, to, buffers, sizeBytes }, options));
        options.onProgress?.(results.length, devices.length * (devices.length - 1));
      }
    }
  } finally {
    for (const [device, pointer] of buffers) {
      driver.use(device);
      driver.free(pointer);
    }
  }
  return results;
}

interface PairSetup {
  readonly from: CudaDevice;
  readonly to: CudaDevice;
  readonly buffers: ReadonlyMap<CudaDevice, bigint>;
  readonly sizeBytes: number;
}

function measurePair(
  driver: CudaDriver,
  inventory: Inventory,
  setup: PairSetup,
  options: MeasureOptions,
): PairMeasurement {
  const { from, to, sizeBytes } = setup;
  const peerAccess = driver.canAccessPeer(from, to) && driver.canAccessPeer(to, from);
  const [fromPointer, toPointer] = [setup.buffers.get(from) ?? 0n, setup.buffers.get(to) ?? 0n];
  const timeOn = (engine: CudaDevice, bytes: number, copies: number): number => {
    driver.use(engine);
    if (peerAccess) driver.enablePeer(engine === from ? to : from);
    const stream = driver.newStream();
    const [begin, end] = [driver.newEvent(), driver.newEvent()];
    try {
      driver.copyPeer(to, toPointer, from, fromPointer, bytes, stream);
      driver.record(begin, stream);
      for (let i = 0; i < copies; i++) driver.copyPeer(to, toPointer, from, fromPointer, bytes, stream);
      driver.record(end, stream);
      driver.wait(end);
      return driver.elapsedMs(begin, end);
    } finally {
      driver.destroy("event", begin);
      driver.destroy("event", end);
      driver.destroy("stream", stream);
    }
  };
  const repeats = options.repeats ?? 4;
  const best = (engine: CudaDevice) =>
    Math.min(...Array.from({ length: options.trials ?? 3 }, () => timeOn(engine, sizeBytes, repeats)));
  const [write, read] = [best(from), best(to)];
  const bandwidthGBps = (sizeBytes * repeats) / (Math.min(write, read) * 1e6);
  const latencyUs = (timeOn(from, 4, SMALL_COPIES) * 1000) / SMALL_COPIES;
  const [fromId, toId] = [idOf(inventory, from), idOf(inventory, to)];
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
function idOf(inventory: Inventory, device: CudaDevice): string {
  const found = inventory.devices.find((d) => d.pciAddress !== undefined && d.pciAddress === device.pciAddress);
  return found?.id ?? `cuda${device.ordinal}`;
}
