/** What one rank holds of its device, and copies between host values and device tensors. */
import {
  type ArrayOf,
  checkValues,
  type DType,
  InvalidArgumentError,
  sizeOf,
  Tensor,
  viewAs,
} from "../../core/index.ts";
import { type CudaDevice, checkDevice } from "./device.ts";
import { type DeviceStorage, devicePtr, deviceStorageOf } from "./device-tensor.ts";
import { lookUntil } from "./device-waiting.ts";
import { checkPool, type MemoryPool } from "./memory-pool.ts";
import { type PinnedBuffer, PinnedPool } from "./pinned.ts";
import { CudaEvent, type CudaStream, streamHandle } from "./stream.ts";

/** Copies go through pinned memory in pieces of this size: enough for full speed, little enough to keep. */
const PIECE_BYTES = 32 * 1024 * 1024;
/** How often a copy that nobody waits for any more is looked at, ms. */
const LATE_LOOK_MS = 50;

/** Where an asynchronous copy runs. */
export interface CopyOptions {
  /** The rank's main stream by defaultbehind whatever that was given. */
  readonly stream?: CudaStream;
}

/**
 * What a rank's communicators share: device, memory, and the stream that the program's own kernels run on. `deviceOf(world)`
 * gives it.
 * @example
 * import { launch } from "chorale";
 *
 * const sums = await launch({
 *   ranks: 2,
 *   backend: "nccl",
 *   run: async (world) => {
 *     const { deviceOf } = await import("chorale/world");
 *     const comm = world.comm as import("chorale/nccl").NcclCommunicator;
 *     const at = deviceOf(world);
 *     if (at === undefined) throw new Error("no device");
 *     const x = world.tensor("f32", [2]);
 *     const copied = at.uploadAsync(x, Float32Array.of(world.rank, 1)); // the values are taken at once
 *     comm.allReduce(x); // on the device behind the copy
 *     comm.orderBefore(at.main);
 *     const values = await at.downloadAsync(x); // the event loop is free meanwhile
 *     await copied;
 *     return [...values];
 *   },
 * });
 * console.log(sums[0]); // [1, 2]
 */
export class RankDevice {
  readonly device: CudaDevice;
  readonly pool: MemoryPool;
  readonly pinned: PinnedPool;
  readonly main: CudaStream;
  readonly generation: number;

  /** @throws InvalidArgumentError for parts that chorale did not make, and for a stream of another device */
  constructor(parts: Pick<RankDevice, "device" | "pool" | "pinned" | "main" | "generation">) {
    checkDevice(parts?.device);
    checkPool(parts.pool);
    if (!(parts.pinned instanceof PinnedPool)) throw new InvalidArgumentError("pinned", parts.pinned, "a PinnedPool");
    streamHandle(parts.device, parts.main);
    this.device = parts.device;
    this.pool = parts.pool;
    this.pinned = parts.pinned;
    this.main = parts.main;
    this.generation = parts.generation;
  }

  /**
   * Copies host values to a device tensor of as many elements without blocking: they are taken before this returns, and
   * the copy is in the stream's order. Collectives that are called later come after a copy on the main stream.
   * @returns settles when the copy is done. A failure that nobody looks at ends no process
   * @throws (rejects with) InvalidArgumentError, ClosedError, OutOfMemoryError; the failure of the world, or of a group
   *   that the stream was ordered behind; TimeoutError at the world's deadline
   */
  uploadAsync<D extends DType>(target: Tensor<D>, values: ArrayOf<D>, options: CopyOptions = {}): Promise<void> {
    return quietly(async () => {
      checkValues(target, values);
      const copy = new Copy(this, target, options?.stream ?? this.main, "upload");
      const all = bytesOf(values);
      await copy.run((offset, bytes, pinned) => {
        new Uint8Array(pinned.buffer).set(all.subarray(offset, offset + bytes));
        copy.call("cuMemcpyHtoDAsync_v2", copy.address + BigInt(offset), pinned.address, bytes, copy.handle);
      });
      copy.settle();
    });
  }

  /**
   * Copies a device tensor to the host without blocking: what it holds when the stream comes to the copy. Order the
   * stream behind pending collectives first (`orderBefore`).
   * @returns the elements, in fresh memory
   * @throws (rejects) as `uploadAsync`
   */
  downloadAsync<D extends DType>(source: Tensor<D>, options: CopyOptions = {}): Promise<ArrayOf<D>> {
    return quietly(async () => {
      checkSource(source);
      const copy = new Copy(this, source, options?.stream ?? this.main, "download");
      const pieces = await copy.run((offset, bytes, pinned) => {
        copy.call("cuMemcpyDtoHAsync_v2", pinned.address, copy.address + BigInt(offset), bytes, copy.handle);
      });
      try {
        const values = viewAs(source.dtype, new ArrayBuffer(copy.sizeBytes), 0, source.size);
        const all = bytesOf(values);
        for (const [i, pinned] of pieces.entries()) {
          if (i > 0) await new Promise((resolve) => setImmediate(resolve));
          const part = all.subarray(i * PIECE_BYTES, (i + 1) * PIECE_BYTES);
          part.set(new Uint8Array(pinned.buffer, 0, part.length));
        }
        return values;
      } finally {
        copy.settle();
      }
    });
  }
}

/** One asynchronous copy: the pinned memory that it uses, and the tensor that must stay meanwhile. */
class Copy {
  readonly address: bigint;
  readonly handle: bigint;
  readonly sizeBytes: number;
  readonly #at: RankDevice;
  readonly #stream: CudaStream;
  readonly #storage: DeviceStorage;
  readonly #what: "upload" | "download";
  readonly #taken: PinnedBuffer[] = [];
  readonly #event: CudaEvent;

  constructor(at: RankDevice, tensor: Tensor, stream: CudaStream, what: "upload" | "download") {
    this.#at = at;
    this.#stream = stream;
    this.#what = what;
    this.handle = streamHandle(at.device, stream);
    this.address = devicePtr(tensor, at.device, at.generation);
    this.sizeBytes = tensor.sizeBytes;
    this.#storage = deviceStorageOf(tensor) as DeviceStorage;
    this.#event = CudaEvent.borrow(at.device);
    const { pool, allocation } = this.#storage;
    pool.recordUse(allocation, stream);
    allocation.pendingUses++;
  }

  /** Issues the copy piece by piece and waits for it. @returns the pieces, whole, until `settle` */
  async run(issue: (offset: number, bytes: number, pinned: PinnedBuffer) => void): Promise<readonly PinnedBuffer[]> {
    try {
      try {
        for (let offset = 0; offset < this.sizeBytes; offset += PIECE_BYTES) {
          const bytes = Math.min(PIECE_BYTES, this.sizeBytes - offset);
          const pinned = this.#at.pinned.take(bytes);
          this.#taken.push(pinned);
          issue(offset, bytes, pinned);
        }
      } finally {
        // Also behind what could be issued of a copy that failed.
        this.#event.record(this.#stream);
      }
      const { waiting } = this.#at.device;
      const failure = () => this.#event.sourceFailure;
      if (waiting === undefined) await lookUntil(this.#isDone);
      else await waiting.settles(this.#isDone, this.#what, { failure });
      const cause = failure();
      if (cause === undefined) return this.#taken;
      this.#stream.forgetFailed();
      throw cause;
    } catch (error) {
      onceDone(this.#isDone, () => this.settle());
      throw error;
    }
  }

  call(symbol: "cuMemcpyHtoDAsync_v2" | "cuMemcpyDtoHAsync_v2", ...args: readonly (bigint | number)[]): void {
    this.#at.device.call(symbol, this.#what, ...args);
    this.#stream.touched = true;
  }

  readonly #isDone = (): boolean => this.#event.isDone(this.#what);

  /** Gives everything back; nothing may be under way any more. */
  settle(): void {
    for (const pinned of this.#taken.splice(0)) this.#at.pinned.giveBack(pinned);
    this.#storage.allocation.pendingUses--;
    this.#event.giveBack();
  }
}

/** Runs `fn`, whose failure may go unseen: the groups tell it too, and `close()` does. */
function quietly<T>(fn: () => Promise<T>): Promise<T> {
  const promise = fn();
  promise.catch(() => {});
  return promise;
}

/** Copies host values to a device tensor of as many elements, and waits. @throws InvalidArgumentError */
export function upload<D extends DType>(target: Tensor<D>, values: ArrayOf<D>, at: RankDevice): void {
  checkValues(target, values);
  checkRank(at);
  const to = devicePtr(target, at.device, at.generation);
  inPieces(values, at, (pinned, bytes, offset) => {
    new Uint8Array(pinned.buffer).set(bytes);
    const { device, main } = at;
    device.call("cuMemcpyHtoDAsync_v2", "upload", to + BigInt(offset), pinned.address, bytes.length, main.handle);
    main.synchronize("upload");
  });
}

/** Copies a device tensor to the host on the main stream and waits. @throws as `RankDevice.downloadAsync`; blocks the thread */
export function download<D extends DType>(source: Tensor<D>, at: RankDevice): ArrayOf<D> {
  checkSource(source);
  checkRank(at);
  const values = viewAs(source.dtype, new ArrayBuffer(source.size * sizeOf(source.dtype)), 0, source.size);
  const from = devicePtr(source, at.device, at.generation);
  inPieces(values, at, (pinned, bytes, offset) => {
    const { device, main } = at;
    device.call("cuMemcpyDtoHAsync_v2", "download", pinned.address, from + BigInt(offset), bytes.length, main.handle);
    main.synchronize("download");
    bytes.set(new Uint8Array(pinned.buffer, 0, bytes.length));
  });
  return values;
}

function checkSource(source: unknown): void {
  if (source instanceof Tensor) return;
  throw new InvalidArgumentError("source", source, "a device tensor of this world");
}

function checkRank(at: unknown): void {
  if (!(at instanceof RankDevice)) throw new InvalidArgumentError("at", at, "what deviceOf(world) gives");
}

function bytesOf(values: ArrayBufferView): Uint8Array {
  return new Uint8Array(values.buffer as ArrayBuffer, values.byteOffset, values.byteLength);
}

function inPieces(
  values: ArrayBufferView,
  at: RankDevice,
  run: (pinned: PinnedBuffer, bytes: Uint8Array, offset: number) => void,
): void {
  const all = bytesOf(values);
  if (all.length === 0) return;
  const pinned = at.pinned.take(Math.min(PIECE_BYTES, all.length));
  try {
    for (let offset = 0; offset < all.length; offset += PIECE_BYTES) {
      run(pinned, all.subarray(offset, offset + PIECE_BYTES), offset);
    }
    at.pinned.giveBack(pinned);
  } catch (error) {
    // The stream may still be at the copy.
    onceDone(
      () => at.main.isDone(),
      () => at.pinned.giveBack(pinned),
    );
    throw error;
  }
}

/** Runs `fn` once the device has done something that nobody waits for any more; not at all when the device is lost. */
function onceDone(isDone: () => boolean, fn: () => void): void {
  try {
    if (isDone()) fn();
    else setTimeout(() => onceDone(isDone, fn), LATE_LOOK_MS).unref();
  } catch {
    // The device is closed, or its context lost: all of it went with that.
  }
}
