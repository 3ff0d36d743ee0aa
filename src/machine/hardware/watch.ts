/** Watches a machine: detects again and again, and tells what changed. */
import type { Device, Inventory } from "../topology/index.ts";
import { type DetectOptions, detect } from "./detect.ts";

/** How a device's state differs from the time before; undefined values of either side leave no entry. */
export interface DeviceDelta {
  readonly id: string;
  readonly kind: "appeared" | "disappeared" | "changed";
  readonly memoryUsedBytes?: number;
  readonly temperatureC?: number;
  readonly powerWatts?: number;
  readonly utilizationPercent?: number;
}

export interface WatchEvent {
  readonly inventory: Inventory;
  readonly deltas: readonly DeviceDelta[];
  /** From 0. */
  readonly sequence: number;
}

export interface WatchOptions extends DetectOptions {
  /** Milliseconds between the beginnings of two detections. Default 2000. */
  readonly intervalMs?: number;
  readonly signal?: AbortSignal;
}

/** Shortest interval: detection of 8 GPUs through nvidia-smi takes most of a second. */
const MIN_INTERVAL_MS = 50;

/**
 * Gives the inventory now and after every interval, with what changed, until the loop over it ends or `signal` fires. Only
 * families that were found at first are probed again.
 * @example
 * import { watch } from "chorale/hardware";
 * for await (const { inventory } of watch({ exec: false })) {
 *   inventory.devices.length;
 *   break;
 * }
 */
export async function* watch(options: WatchOptions = {}): AsyncGenerator<WatchEvent, void, undefined> {
  const { intervalMs = 2000, signal, ...rest } = options;
  const interval = Math.max(intervalMs, MIN_INTERVAL_MS);
  let before: Inventory | undefined;
  for (let sequence = 0; signal?.aborted !== true; sequence++) {
    const begin = performance.now();
    const families = before === undefined ? rest.families : [...new Set(before.devices.map((device) => device.family))];
    const inventory = await detect({ ...rest, ...(families !== undefined && families.length > 0 && { families }) });
    const deltas = before === undefined ? [] : deltasBetween(before, inventory);
    before = inventory;
    yield { inventory, deltas, sequence };
    await pause(Math.max(0, interval - (performance.now() - begin)), signal);
  }
}

function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done, { once: true });
    if (signal?.aborted === true) done();
  });
}

const STATE_FIELDS = ["memoryUsedBytes", "temperatureC", "powerWatts", "utilizationPercent"] as const;

/** What differs between two inventories, by device id. */
export function deltasBetween(before: Inventory, after: Inventory): DeviceDelta[] {
  const old = new Map(before.devices.map((device) => [device.id, device]));
  const now = new Map(after.devices.map((device) => [device.id, device]));
  const deltas: DeviceDelta[] = [];
  for (const device of after.devices) {
    const was = old.get(device.id);
    if (was === undefined) {
      deltas.push({ id: device.id, kind: "appeared" });
      continue;
    }
    const changed = difference(was, device);
    if (Object.keys(changed).length > 0) deltas.push({ id: device.id, kind: "changed", ...changed });
  }
  for (const id of old.keys()) if (!now.has(id)) deltas.push({ id, kind: "disappeared" });
  return deltas;
}

function difference(before: Device, after: Device): Partial<Record<(typeof STATE_FIELDS)[number], number>> {
  const changes: Partial<Record<(typeof STATE_FIELDS)[number], number>> = {};
  for (const field of STATE_FIELDS) {
    const [a, b] = [before[field], after[field]];
    if (a !== undefined && b !== undefined && a !== b) changes[field] = b - a;
  }
  return changes;
}
