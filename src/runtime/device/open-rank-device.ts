/** Opens what one rank holds of its device: the backends' way in, which leaves nothing open where any of it fails. */
import type { CudaDriver } from "../../foreign/cuda/index.ts";
import type { ResourceLedger } from "../memory/index.ts";
import { type CudaDevice, openDevice } from "./device.ts";
import type { DeviceWaiting } from "./device-waiting.ts";
import { MemoryPool, type SegmentListener, type SegmentSource } from "./memory-pool.ts";
import { enablePeerAccess, PeerMemory } from "./peer-memory.ts";
import { PinnedPool } from "./pinned.ts";
import { RankDevice } from "./rank-device.ts";
import { CudaStream } from "./stream.ts";

/** Who gives the pool its segments, and who is told of them. */
interface PoolSegments<L extends SegmentListener = SegmentListener> {
  readonly listener: L;
  readonly source?: SegmentSource;
}

interface RankDeviceOptions<L extends SegmentListener> {
  readonly ordinal: number;
  readonly generation: number;
  readonly ledger: ResourceLedger | undefined;
  /** How the rank waits for the device, once it is open. */
  readonly waiting: DeviceWaiting;
  /** Most memory of the pool, bytes; the whole device where it is undefined. */
  readonly limitBytes: number | undefined;
  /** Whether ranks are processes; threads of one process otherwise. */
  readonly interprocess: boolean;
  /** Among threads: the ordinals of the ranks whose memory this one may use, if they are known. */
  readonly peers: readonly number[] | undefined;
  readonly segments: ((device: CudaDevice) => PoolSegments<L>) | undefined;
}

export interface OpenedRankDevice<L extends SegmentListener> {
  readonly at: RankDevice;
  readonly peers: PeerMemory;
  /** How many of the devices of `peers` this one reaches. */
  readonly numReached: number;
  readonly listener: L | undefined;
}

/** @throws InvalidArgumentError, OutOfMemoryError, NativeError; nothing is open then */
export function openRankDevice<L extends SegmentListener>(
  driver: CudaDriver,
  { ordinal, generation, ledger, waiting, limitBytes, interprocess, peers, segments }: RankDeviceOptions<L>,
): OpenedRankDevice<L> {
  const device = openDevice(driver, ordinal, { ledger });
  try {
    const given = segments?.(device);
    const pool = new MemoryPool(device, { ...(limitBytes === undefined ? {} : { limitBytes }), ...given });
    const pinned = new PinnedPool(device);
    const at = new RankDevice({ device, pool, pinned, main: CudaStream.create(device), generation });
    device.waiting = waiting;
    const numReached = interprocess || peers === undefined ? 0 : enablePeerAccess(device, peers).length;
    return { at, peers: new PeerMemory(device, pool, { interprocess }), numReached, listener: given?.listener };
  } catch (error) {
    device.close();
    throw error;
  }
}
