/**
 * Naming a piece of device memory so that a peer can read it: by its address among threads of one process (addresses are
 * unified), by an IPC handle of its allocation and an offset among processes.
 */
import { type CudaDevice, retainContext } from "./device.ts";
import { MemoryPool } from "./memory-pool.ts";
import { CUDA_STATUS } from "./symbols.ts";

const HANDLE_BYTES = 64;
/** CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
const LAZY_PEER_ACCESS = 1;
/** Words: size (2), offset or address (2), process (1), handle (16). */
const NOTE_WORDS = 21;

export interface PeerPiece {
  readonly address: bigint;
  readonly sizeBytes: number;
}

export class PeerMemory {
  /** Where memory comes from that peers can be told of. */
  readonly pool: MemoryPool;
  readonly #device: CudaDevice;
  readonly #interprocess: boolean;
  readonly #exported = new Map<bigint, Uint8Array>();
  readonly #opened = new Map<string, bigint>();

  /** @param interprocess whether peers are processes; a process cannot open its own handles */
  constructor(device: CudaDevice, pool: MemoryPool, interprocess: boolean) {
    this.#device = device;
    // Memory of NCCL's allocator is made of physical pieces (cuMemCreate), which have no IPC handle (cuda.h).
    this.pool = interprocess && !pool.exportable ? new MemoryPool(device, { limitBytes: pool.limitBytes }) : pool;
    this.#interprocess = interprocess;
  }

  /** Writes down where `address`, of `pool`, is, in at most 31 words. */
  describe(address: bigint, sizeBytes: number): Int32Array {
    const words = new Int32Array(NOTE_WORDS);
    const view = new DataView(words.buffer);
    view.setBigUint64(0, BigInt(sizeBytes), true);
    view.setInt32(16, process.pid, true);
    const base = this.#interprocess ? this.pool.segmentOf(address) : undefined;
    view.setBigUint64(8, address, true);
    if (base === undefined) return words;
    new Uint8Array(words.buffer, 20, HANDLE_BYTES).set(this.#export(base));
    // The reader adds the difference of addresses to wherever the segment is mapped for it.
    view.setBigUint64(8, address - base, true);
    return words;
  }

  /** Finds what a peer wrote down. Peer access is opened as needed. @throws NativeError */
  locate(note: Int32Array): PeerPiece {
    const view = new DataView(note.buffer, note.byteOffset);
    const sizeBytes = Number(view.getBigUint64(0, true));
    const place = view.getBigUint64(8, true);
    const handle = new Uint8Array(note.buffer, note.byteOffset + 20, HANDLE_BYTES);
    if (!handle.some((byte) => byte !== 0)) return { address: place, sizeBytes };
    return { address: this.#open(handle, view.getInt32(16, true)) + place, sizeBytes };
  }

  /** Closes what was opened. */
  close(): void {
    if (this.#device.poison === undefined) {
      for (const address of this.#opened.values()) this.#device.call("cuIpcCloseMemHandle", "peer memory", address);
    }
    this.#opened.clear();
    this.#exported.clear();
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

  #open(handle: Uint8Array, pid: number): bigint {
    const key = `${pid}:${Buffer.from(handle).toString("hex")}`;
    let address = this.#opened.get(key);
    if (address === undefined) {
      const out = new BigUint64Array(1);
      this.#device.activate();
      const status = this.#device.driver.openIpcHandle(out, { reserved: handle }, LAZY_PEER_ACCESS);
      if (status !== CUDA_STATUS.success) throw this.#device.driver.error("cuIpcOpenMemHandle_v2", status);
      address = out[0] ?? 0n;
      this.#opened.set(key, address);
    }
    return address;
  }
}

/**
 * Lets `device` read and write the memory of other devices of this process directly, where the hardware can.
 * @param peers CUDA ordinals whose contexts other threads of this process use
 */
export function enablePeerAccess(device: CudaDevice, peers: readonly number[]): void {
  const { driver } = device;
  for (const peer of peers) {
    if (peer === device.ordinal || peer >= driver.numDevices) continue;
    const can = new Int32Array(1);
    driver.check("cuDeviceCanAccessPeer", driver.api.cuDeviceCanAccessPeer(can, device.ordinal, peer));
    if (can[0] !== 1) continue;
    const context = retainContext(driver, peer, device.ledger);
    device.onClose(() => {
      device.ledger?.drop("context", BigInt(peer + 1));
      driver.api.cuDevicePrimaryCtxRelease_v2(peer);
    });
    device.activate();
    const status = driver.api.cuCtxEnablePeerAccess(context, 0);
    if (status !== CUDA_STATUS.peerAccessAlreadyEnabled) driver.check("cuCtxEnablePeerAccess", status);
  }
}
