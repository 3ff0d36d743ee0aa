/** Opens a rank's device in a world: whatever waits for it there waits as the world does. */
import type { CudaDriver } from "../../foreign/cuda/index.ts";
import {
  type OpenedRankDevice,
  openRankDevice,
  type RankDeviceOptions,
  type SegmentListener,
} from "../device/internal.ts";
import type { ControlSegment } from "../memory/index.ts";
import type { Poller } from "./poller.ts";
import { WorldWaiting } from "./world-waiting.ts";

/** The world that a device is opened for. */
interface DeviceWorld {
  readonly segment: ControlSegment;
  readonly timeoutMs: number;
  /** What sees to the rank's groups meanwhile; its own where it has none yet. */
  readonly poller?: Poller;
}

export interface WorldDevice<L extends SegmentListener> extends OpenedRankDevice<L> {
  readonly waiting: WorldWaiting;
}

/** @throws InvalidArgumentError, OutOfMemoryError, NativeError; nothing is open then */
export function openWorldDevice<L extends SegmentListener>(
  driver: CudaDriver,
  { segment, timeoutMs, poller }: DeviceWorld,
  options: Omit<RankDeviceOptions<L>, "waiting">,
): WorldDevice<L> {
  const waiting = new WorldWaiting(segment, timeoutMs, poller);
  return { ...openRankDevice(driver, { ...options, waiting }), waiting };
}
