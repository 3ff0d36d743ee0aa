/** Page-locked host memory: the only kind that copies to and from a device without blocking, and that both can poll. */
import { ClosedError } from "../../../core/index.ts";
import type { CudaDevice } from "./device.ts";

/** CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP: usable by every context, and at a device address. */
const PORTABLE_MAPPED = 3;

export class PinnedBuffer implements Disposable {
  readonly device: CudaDevice;
  readonly sizeBytes: number;
  readonly address: bigint;
  readonly deviceAddress: bigint;
  #buffer: ArrayBuffer | undefined;

  private constructor(device: CudaDevice, sizeBytes: number, address: bigint, deviceAddress: bigint) {
    this.device = device;
    this.sizeBytes = sizeBytes;
    this.address = address;
    this.deviceAddress = deviceAddress;
    this.#buffer = device.driver.viewMemory(address, sizeBytes);
  }

  /** Allocates `sizeBytes` (at least 1) of zeros. */
  static create(device: CudaDevice, sizeBytes: number): PinnedBuffer {
    const out = new BigUint64Array(2);
    device.call("cuMemHostAlloc", "pinned allocation", out.subarray(0, 1), Math.max(1, sizeBytes), PORTABLE_MAPPED);
    device.call("cuMemHostGetDevicePointer_v2", "pinned allocation", out.subarray(1, 2), out[0] ?? 0n, 0);
    const pinned = new PinnedBuffer(device, Math.max(1, sizeBytes), out[0] ?? 0n, out[1] ?? 0n);
    new Uint8Array(pinned.buffer).fill(0);
    return pinned;
  }

  /** The memory itself. Views of it must not be used after `close`. */
  get buffer(): ArrayBuffer {
    if (this.#buffer === undefined) throw new ClosedError("pinned buffer", "was closed");
    return this.#buffer;
  }

  close(): void {
    if (this.#buffer === undefined) return;
    this.#buffer = undefined;
    if (this.device.poison === undefined) this.device.call("cuMemFreeHost", "pinned free", this.address);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Reuses pinned buffers by power-of-two size: page-locking costs milliseconds. */
export class PinnedPool implements Disposable {
  readonly #device: CudaDevice;
  readonly #free = new Map<number, PinnedBuffer[]>();
  readonly #all = new Set<PinnedBuffer>();

  constructor(device: CudaDevice) {
    this.#device = device;
  }

  /** A buffer of at least `sizeBytes`; give it back with `giveBack`. */
  take(sizeBytes: number): PinnedBuffer {
    const size = 2 ** Math.max(12, Math.ceil(Math.log2(Math.max(1, sizeBytes))));
    const reused = this.#free.get(size)?.pop();
    if (reused !== undefined) return reused;
    const buffer = PinnedBuffer.create(this.#device, size);
    this.#all.add(buffer);
    return buffer;
  }

  giveBack(buffer: PinnedBuffer): void {
    const list = this.#free.get(buffer.sizeBytes) ?? [];
    list.push(buffer);
    this.#free.set(buffer.sizeBytes, list);
  }

  close(): void {
    for (const buffer of this.#all) buffer.close();
    this.#all.clear();
    this.#free.clear();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
