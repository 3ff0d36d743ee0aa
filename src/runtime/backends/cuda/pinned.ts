/** Page-locked host memory: the only kind that copies to and from a device without blocking, and that both can poll. */
import { ClosedError } from "../../../core/index.ts";
import type { CudaDevice } from "./device.ts";

/** CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP: usable by every context, and at a device address. */
const PORTABLE_MAPPED = 3;

export class PinnedBuffer implements Disposable {
  readonly device: CudaDevice;
  readonly sizeBytes: number;
  readonly #address: bigint;
  readonly #deviceAddress: bigint;
  #buffer: ArrayBuffer | undefined;

  private constructor(device: CudaDevice, sizeBytes: number, address: bigint, deviceAddress: bigint) {
    this.device = device;
    this.sizeBytes = sizeBytes;
    this.#address = address;
    this.#deviceAddress = deviceAddress;
    this.#buffer = device.driver.viewMemory(address, sizeBytes);
    device.track(this);
  }

  /** Allocates `sizeBytes` (at least 1) of zeros. */
  static create(device: CudaDevice, sizeBytes: number): PinnedBuffer {
    const size = Math.max(1, sizeBytes);
    const operation = "pinned allocation";
    const address = device.make("pinned", (out) =>
      device.call("cuMemHostAlloc", operation, out, size, PORTABLE_MAPPED),
    );
    const out = new BigUint64Array(1);
    device.call("cuMemHostGetDevicePointer_v2", operation, out, address, 0);
    const pinned = new PinnedBuffer(device, size, address, out[0] ?? 0n);
    new Uint8Array(pinned.buffer).fill(0);
    return pinned;
  }

  /** Where it lies for the host and for copies. @throws ClosedError after `close` */
  get address(): bigint {
    this.#refuseClosed();
    return this.#address;
  }

  /** Where it lies for kernels. @throws ClosedError after `close` */
  get deviceAddress(): bigint {
    this.#refuseClosed();
    return this.#deviceAddress;
  }

  #refuseClosed(): void {
    if (this.#buffer === undefined) throw new ClosedError("pinned buffer", "was closed");
  }

  /** The memory itself. Views of it must not be used after `close`. */
  get buffer(): ArrayBuffer {
    if (this.#buffer === undefined) throw new ClosedError("pinned buffer", "was closed");
    return this.#buffer;
  }

  close(): void {
    const buffer = this.#buffer;
    if (buffer === undefined) return;
    this.#buffer = undefined;
    // Views that somebody kept become empty instead of pointing at memory that is gone.
    structuredClone(buffer, { transfer: [buffer] });
    this.device.untrack(this, "pinned", this.#address);
    if (this.device.poison === undefined && !this.device.closed) {
      this.device.call("cuMemFreeHost", "pinned free", this.#address);
    }
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
    if (!this.#all.has(buffer)) return;
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
