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
import { setZero } from "./world-tensors.ts";

/** Who gives the pool its segments, and who is told of them. */
interface PoolSegments<L extends SegmentListener = SegmentListener> {
  readonly listener: L;
  readonly source?: SegmentSource;
}

export interface RankDeviceOptions<L extends SegmentListener> {
  readonly ordinal: number;
  readonly generation: number;
  readonly ledger: ResourceLedger | undefined;
  /** How the rank waits for the device, once it is open. */
  readonly waiting: DeviceWaiting;
  /** Most memory of the pool, bytes; the whole device where it is undefined. */
  readonly limitBytes: number | undefined;
  /** Whether ranks are processes; threads of one process otherwise. */
  readonly interprocess: boolean;
  /** A few bytes of zeros that the rank keeps on the device for itself: their number, and what for. */
  readonly zeros?: { readonly sizeBytes: number; readonly what: string };
  /** Among threads: the ordinals of the ranks whose memory this one may use, if they are known. */
  readonly peers: readonly number[] | undefined;
  readonly segments: ((device: CudaDevice) => PoolSegments<L>) | undefined;
}

export interface OpenedRankDevice<L extends SegmentListener> {
  readonly at: RankDevice;
  readonly peers: PeerMemory;
  /** How many of the devices of `peers` this one reaches. */
  readonly numReached: number;
  /** Where the bytes of zeros are, if they were asked for. */
  readonly zeros: bigint | undefined;
  readonly listener: L | undefined;
}

/** @throws InvalidArgumentError, OutOfMemoryError, NativeError; nothing is open then */
export function openRankDevice<L extends SegmentListener>(
  driver: CudaDriver,
  { ordinal, generation, ledger, waiting, limitBytes, interprocess, zeros, peers, segments }: RankDeviceOptions<L>,
): OpenedRankDevice<L> {
  const device = openDevice(driver, ordinal, { ledger });
  try {
    const given = segments?.(device);
    const pool = new MemoryPool(device, { ...(limitBytes === undefined ? {} : { limitBytes }), ...given });
    const pinned = new PinnedPool(device);
    const at = new RankDevice({ device, pool, pinned, main: CudaStream.create(device), generation });
    device.waiting = waiting;
    const numReached = interprocess || peers === undefined ? 0 : enablePeerAccess(device, peers).length;
    const address = zeros && pool.allocate(zeros.sizeBytes, at.main, zeros.what).address;
    if (zeros !== undefined && address !== undefined) setZero(at, address, zeros.sizeBytes, zeros.what);
    const peerMemory = new PeerMemory(device, pool, { interprocess });
    return { at, peers: peerMemory, numReached, zeros: address, listener: given?.listener };
  } catch (error) {
    device.close();
    throw error;
  }
}
