/** Page-locked host memory: the only kind that copies to and from a device without blocking, and that both can poll. */
import { freemem } from "node:os";
import { ClosedError, InvalidArgumentError, OutOfMemoryError } from "../../core/index.ts";
import { CUDA_STATUS } from "../../foreign/cuda/index.ts";
import { emptyViews } from "../../foreign/native/index.ts";
import { checkMade, MADE_HERE, type MadeHere } from "./construction-key.ts";
import { type CudaDevice, checkDevice } from "./device.ts";

/** CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP: usable by every context, and at a device address. */
const PORTABLE_MAPPED = 3;

/**
 * One piece of page-locked host memory.
 * @example
 * import { openDevice, PinnedBuffer, requireCudaDriver } from "chorale/device";
 *
 * const device = openDevice(requireCudaDriver(), 0);
 * const pinned = PinnedBuffer.create(device, 4096);
 * new Float32Array(pinned.buffer)[0] = 1;
 * pinned.close(); // or device.close()
 * device.close();
 */
export class PinnedBuffer implements Disposable {
  readonly device: CudaDevice;
  readonly sizeBytes: number;
  readonly #address: bigint;
  readonly #deviceAddress: bigint;
  #buffer: ArrayBuffer | undefined;

  private constructor(key: MadeHere, device: CudaDevice, sizeBytes: number, address: bigint, deviceAddress: bigint) {
    checkMade(key, "PinnedBuffer", "PinnedBuffer.create(device, sizeBytes)");
    this.device = device;
    this.sizeBytes = sizeBytes;
    this.#address = address;
    this.#deviceAddress = deviceAddress;
    this.#buffer = device.driver.viewMemory(address, sizeBytes);
    device.track(this);
  }

  /** Allocates `sizeBytes` (at least 1) of zeros. @throws InvalidArgumentError, OutOfMemoryError, ClosedError */
  static create(device: CudaDevice, sizeBytes: number): PinnedBuffer {
    checkDevice(device);
    checkSize(sizeBytes);
    const size = Math.max(1, sizeBytes);
    const operation = "pinned allocation";
    device.activate();
    const address = device.make("pinned", (out) => {
      const status = device.driver.api.cuMemHostAlloc(out, size, PORTABLE_MAPPED);
      if (status === CUDA_STATUS.outOfMemory) {
        throw new OutOfMemoryError(
          "page-locked host memory",
          size,
          freemem(),
          `The driver could not lock as much. Free memory of this host, copy less at a time, or raise the limit of locked memory (ulimit -l, a container's memory limit).`,
        );
      }
      if (status !== CUDA_STATUS.success) device.fail("cuMemHostAlloc", status, operation);
    });
    const out = new BigUint64Array(1);
    try {
      device.call("cuMemHostGetDevicePointer_v2", operation, out, address, 0);
    } catch (error) {
      device.ledger?.drop("pinned", address);
      if (device.poison === undefined) device.driver.api.cuMemFreeHost(address);
      throw error;
    }
    const pinned = new PinnedBuffer(MADE_HERE, device, size, address, out[0] ?? 0n);
    new Uint8Array(pinned.buffer).fill(0);
    return pinned;
  }

  /** Its address, for the host and for copies. @throws ClosedError after `close` */
  get address(): bigint {
    this.#refuseClosed();
    return this.#address;
  }

  /** Where it lies for kernels. @throws ClosedError after `close` */
  get deviceAddress(): bigint {
    this.#refuseClosed();
    return this.#deviceAddress;
  }

  get closed(): boolean {
    return this.#buffer === undefined;
  }

  #refuseClosed(): void {
    if (this.#buffer === undefined) throw new ClosedError("pinned buffer", "was closed");
  }

  /** The memory itself. Views of it must not be used after `close`. */
  get buffer(): ArrayBuffer {
    if (this.#buffer === undefined) throw new ClosedError("pinned buffer", "was closed");
    return this.#buffer;
  }

  /** Frees it; views of it become empty. Idempotent. */
  close(): void {
    const buffer = this.#buffer;
    if (buffer === undefined) return;
    this.#buffer = undefined;
    // A buffer that was transferred away is out of reach: its memory stays, and goes with the process.
    if (!emptyViews(buffer)) {
      this.device.forget(this);
      return;
    }
    this.device.untrack(this, "pinned", this.#address);
    if (this.device.poison === undefined && !this.device.closed) {
      this.device.call("cuMemFreeHost", "pinned free", this.#address);
    }
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function checkSize(sizeBytes: number): void {
  if (Number.isSafeInteger(sizeBytes) && sizeBytes >= 0) return;
  throw new InvalidArgumentError("sizeBytes", sizeBytes, "an integer of 0 or more");
}

/** Reuses pinned buffers by power-of-two size: page-locking costs milliseconds. */
export class PinnedPool implements Disposable {
  readonly #device: CudaDevice;
  readonly #free = new Map<number, PinnedBuffer[]>();
  readonly #all = new Set<PinnedBuffer>();
  /** Handed out. */
  readonly #out = new Set<PinnedBuffer>();
  #closed = false;

  /** @throws InvalidArgumentError for what `openDevice` did not make */
  constructor(device: CudaDevice) {
    checkDevice(device);
    this.#device = device;
  }

  /** A buffer of at least `sizeBytes`; give it back with `giveBack`. @throws as `PinnedBuffer.create`; ClosedError after `close` */
  take(sizeBytes: number): PinnedBuffer {
    if (this.#closed) throw new ClosedError("pinned pool", "was closed");
    checkSize(sizeBytes);
    const size = 2 ** Math.max(12, Math.ceil(Math.log2(Math.max(1, sizeBytes))));
    const list = this.#free.get(size);
    for (let reused = list?.pop(); reused !== undefined; reused = list?.pop()) {
      // Whoever had it may have kept it, and closed it since.
      if (reused.closed) continue;
      this.#out.add(reused);
      return reused;
    }
    const buffer = PinnedBuffer.create(this.#device, size);
    this.#all.add(buffer);
    this.#out.add(buffer);
    return buffer;
  }

  /** Takes a buffer back, once: nothing may use it any more. What this pool did not hand out, or was closed, is ignored. */
  giveBack(buffer: PinnedBuffer): void {
    if (!this.#out.delete(buffer)) return;
    if (buffer.closed) {
      this.#all.delete(buffer);
      return;
    }
    const list = this.#free.get(buffer.sizeBytes) ?? [];
    list.push(buffer);
    this.#free.set(buffer.sizeBytes, list);
  }

  /** Frees every buffer that it made, also those that were not given back. Idempotent. */
  close(): void {
    this.#closed = true;
    for (const buffer of this.#all) buffer.close();
    this.#all.clear();
    this.#out.clear();
    this.#free.clear();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
