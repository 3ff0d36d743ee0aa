/**
 * Naming a piece of device memory so that a peer can read it: by its address among threads of one process (addresses are
 * unified), by an IPC handle of its allocation and an offset among processes.
 */
import { ClosedError, InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { CUDA_STATUS } from "../../foreign/cuda/index.ts";
import { type CudaDevice, checkDevice, retainContext } from "./device.ts";
import { checkPool, MemoryPool } from "./memory-pool.ts";

const HANDLE_BYTES = 64;
/** CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
const LAZY_PEER_ACCESS = 1;
/** Words: size (2), offset or address (2), process (1), handle (16). */
const NOTE_WORDS = 21;
const NOTE = { place: 2, process: 4, handle: 5 } as const;

/** Device memory of a peer as this thread can use it: an address for copies and kernels, and its bytes. */
export interface PeerPiece {
  readonly address: bigint;
  readonly sizeBytes: number;
}

/**
 * Describes device memory to peers, and finds what they described: in notes of 21 words, sent over any channel. A note
 * names memory as long as its owner neither frees nor closes it: have the reader say when it is done. Notes are between
 * processes that trust each other: where in an allocation something lies is taken from them.
 * @example
 * import { CudaStream, devicePtr, deviceTensor, MemoryPool, openDevice, PeerMemory, requireCudaDriver } from "chorale/device";
 *
 * const driver = requireCudaDriver();
 * const [here, there] = [openDevice(driver, 0), openDevice(driver, 1)]; // each in a thread of its own, as a rule
 * const stream = CudaStream.create(there);
 * const pool = new MemoryPool(there);
 * const theirs = new PeerMemory(there, pool, { interprocess: false });
 * const x = deviceTensor(pool, stream, "f32", [256]);
 * const note = theirs.describe(devicePtr(x, there), x.sizeBytes); // sent to the other thread
 *
 * const ours = new PeerMemory(here, new MemoryPool(here), { interprocess: false });
 * const copies = CudaStream.create(here);
 * const y = deviceTensor(ours.pool, copies, "f32", [256]);
 * const { address, sizeBytes } = ours.locate(note);
 * here.call("cuMemcpyDtoDAsync_v2", "copy from a peer", devicePtr(y, here), address, sizeBytes, copies.handle);
 * copies.synchronize();
 *
 * // Between processes the note has an IPC handle, and the reader maps the memory. A process cannot open its own.
 * const told = new PeerMemory(there, pool, { interprocess: true }).describe(devicePtr(x, there), x.sizeBytes);
 * console.log(told.length); // 21
 * ours.close(); // when nothing uses what it located
 * for (const device of [here, there]) device.close();
 */
export class PeerMemory implements Disposable {
  /** Where memory comes from that peers can be told of. */
  readonly pool: MemoryPool;
  readonly #device: CudaDevice;
  readonly #interprocess: boolean;
  readonly #exported = new Map<bigint, Uint8Array>();
  /** Few: one a segment of each peer. `owner` has the words of a note from its process on. */
  readonly #opened: { readonly owner: Int32Array; readonly address: bigint }[] = [];
  #closed = false;

  /**
   * Names memory of `pool`; `pool` of this object is another one where that has memory without IPC handles.
   * @param options `interprocess`: whether peers are processes; a process cannot open its own handles
   * @throws InvalidArgumentError for what chorale did not make, and for a pool of another device
   */
  constructor(device: CudaDevice, pool: MemoryPool, options: { readonly interprocess: boolean }) {
    checkDevice(device);
    checkPool(pool);
    if (pool.device !== device) {
      throw new InvalidArgumentError(
        "pool",
        described(`of CUDA device ${pool.device.ordinal}`),
        `one of device ${device.ordinal}`,
      );
    }
    const interprocess = options?.interprocess;
    if (typeof interprocess !== "boolean") {
      throw new InvalidArgumentError("interprocess", interprocess, "true or false: whether peers are processes");
    }
    this.#device = device;
    // Memory of NCCL's allocator is made of physical pieces (cuMemCreate), which have no IPC handle (cuda.h).
    this.pool = interprocess && !pool.exportable ? new MemoryPool(device, { limitBytes: pool.limitBytes }) : pool;
    this.#interprocess = interprocess;
    device.track(this);
  }

  /** Whether `describe` takes the memory at `address`: among threads any, between processes that of `pool` alone. */
  names(address: bigint): boolean {
    return !this.#interprocess || this.pool.segmentOf(address) !== undefined;
  }

  /**
   * Describes the `sizeBytes` at `address`, which are of `pool`. Between processes the allocation that they lie in stays
   * with the pool until it closes.
   * @returns 21 words
   * @throws InvalidArgumentError for an invalid size, and between processes for an address that is not of `pool`;
   *   NativeError, ClosedError
   */
  describe(address: bigint, sizeBytes: number): Int32Array {
    this.#refuseClosed();
    if (typeof address !== "bigint" || address < 0n) {
      throw new InvalidArgumentError("address", address, "a device address, as devicePtr gives");
    }
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
      throw new InvalidArgumentError("sizeBytes", sizeBytes, "an integer of 0 or more");
    }
    const words = new Int32Array(NOTE_WORDS);
    const view = new DataView(words.buffer);
    view.setBigUint64(0, BigInt(sizeBytes), true);
    view.setInt32(16, process.pid, true);
    view.setBigUint64(8, address, true);
    if (!this.#interprocess) return words;
    const base = this.pool.segmentOf(address);
    if (base === undefined) {
      throw new InvalidArgumentError(
        "address",
        address,
        "memory of this object's pool: other processes can map that alone",
      );
    }
    new Uint8Array(words.buffer, 20, HANDLE_BYTES).set(this.#export(base));
    // The reader adds the difference of addresses to wherever the segment is mapped for it.
    view.setBigUint64(8, address - base, true);
    return words;
  }

  /**
   * Finds what a peer wrote down. The memory of another process is mapped, and peer access opened, as needed; among
   * threads see `enablePeerAccess`.
   * @throws InvalidArgumentError for a value that is not a note, and for an address of another process without a handle;
   *   NativeError for a handle that the driver does not take; ClosedError
   */
  locate(note: Int32Array): PeerPiece {
    this.#refuseClosed();
    if (!(note instanceof Int32Array) || note.length < NOTE_WORDS) {
      throw new InvalidArgumentError("note", note, `the ${NOTE_WORDS} words that describe() gave`);
    }
    const sizeBytes = Number(wordsAt(note, 0));
    const place = wordsAt(note, NOTE.place);
    if (hasHandle(note)) return { address: this.#open(note) + place, sizeBytes };
    const pid = note[NOTE.process];
    if (pid === process.pid) return { address: place, sizeBytes };
    throw new InvalidArgumentError("note", described(`an address of process ${pid}`), "one with an IPC handle");
  }

  /** Unmaps what was opened: nothing may use it any more. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#device.forget(this);
    if (this.#device.poison === undefined && !this.#device.closed) {
      for (const { address } of this.#opened) this.#device.call("cuIpcCloseMemHandle", "peer memory", address);
    }
    this.#opened.length = 0;
    this.#exported.clear();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #refuseClosed(): void {
    if (this.#closed) throw new ClosedError("peer memory", "was closed");
  }

  #export(base: bigint): Uint8Array {
    let handle = this.#exported.get(base);
    if (handle === undefined) {
      handle = new Uint8Array(new ArrayBuffer(HANDLE_BYTES));
      this.#device.call("cuIpcGetMemHandle", "peer memory", handle, base);
      this.pool.keep(base);
      this.#exported.set(base, handle);
    }
    return handle;
  }

  /** Looked up in calls that are to take microseconds: no key is made of the handle. */
  #open(note: Int32Array): bigint {
    for (const { owner, address } of this.#opened) if (isOwner(owner, note)) return address;
    const owner = note.slice(NOTE.process, NOTE_WORDS);
    const handle = new Uint8Array(owner.buffer, 4, HANDLE_BYTES);
    const out = new BigUint64Array(1);
    this.#device.activate();
    const status = this.#device.driver.openIpcHandle(out, { reserved: handle }, LAZY_PEER_ACCESS);
    if (status !== CUDA_STATUS.success) throw this.#device.driver.error("cuIpcOpenMemHandle_v2", status);
    const address = out[0] ?? 0n;
    this.#opened.push({ owner, address });
    return address;
  }
}

const wordsAt = (note: Int32Array, at: number) => (BigInt(note[at + 1]! >>> 0) << 32n) | BigInt(note[at]! >>> 0);

function hasHandle(note: Int32Array): boolean {
  for (let i = NOTE.handle; i < NOTE_WORDS; i++) if (note[i] !== 0) return true;
  return false;
}

function isOwner(owner: Int32Array, note: Int32Array): boolean {
  for (let i = NOTE.process; i < NOTE_WORDS; i++) if (owner[i - NOTE.process] !== note[i]) return false;
  return true;
}

/**
 * Lets kernels of `device` read and write the memory of other devices of this process, where the hardware can: without
 * it they end the context with an illegal address. Copies need no peer access, but go around by the host without.
 * A world over NCCL whose ranks are threads does it for its devices.
 * @param peers CUDA ordinals, whose contexts may be used by other threads; the device itself is passed over
 * @returns those of `peers` whose memory the device can use now, as long as it is open
 * @throws InvalidArgumentError for a device that is not there; NativeError, ClosedError
 * @example
 * import { enablePeerAccess, openDevice, requireCudaDriver } from "chorale/device";
 *
 * const device = openDevice(requireCudaDriver(), 0);
 * const peers = Array.from({ length: device.driver.numDevices }, (_, ordinal) => ordinal);
 * console.log(enablePeerAccess(device, peers)); // [1, 2, 3] of four GPUs with NVLink, [] without peer access
 * device.close();
 */
export function enablePeerAccess(device: CudaDevice, peers: readonly number[]): readonly number[] {
  checkDevice(device);
  const { driver } = device;
  if (!Array.isArray(peers)) throw new InvalidArgumentError("peers", peers, "an array of CUDA ordinals");
  for (const peer of peers) {
    if (Number.isInteger(peer) && peer >= 0 && peer < driver.numDevices) continue;
    throw new InvalidArgumentError("peers", peer, `visible CUDA devices, 0 to ${driver.numDevices - 1}`);
  }
  return peers.filter((peer) => {
    if (peer === device.ordinal) return false;
    const can = new Int32Array(1);
    driver.check("cuDeviceCanAccessPeer", driver.api.cuDeviceCanAccessPeer(can, device.ordinal, peer));
    if (can[0] !== 1) return false;
    const context = retainContext(driver, peer, device.ledger);
    device.onClose(() => {
      device.ledger?.drop("context", BigInt(peer + 1));
      driver.api.cuDevicePrimaryCtxRelease_v2(peer);
    });
    device.activate();
    const status = driver.api.cuCtxEnablePeerAccess(context, 0);
    if (status !== CUDA_STATUS.peerAccessAlreadyEnabled) driver.check("cuCtxEnablePeerAccess", status);
    return true;
  });
}
