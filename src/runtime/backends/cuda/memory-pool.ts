/**
 * A caching pool of device memory: cuMemAlloc is slow and synchronises, so freed blocks are kept and cut up again. Best
 * fit within segments, neighbours merge when both are free.
 *
 * Reuse is stream-ordered: a block belongs to the stream that it was allocated for, and work on that stream may still be
 * running when it is freed, because whatever reuses it is queued behind. A block that other streams touched
 * (`recordUse`) is set aside until their events are done.
 */
import { ClosedError, OutOfMemoryError } from "../../../core/index.ts";
import type { CudaDevice } from "./device.ts";
import { CudaEvent, type CudaStream, streamHandle } from "./stream.ts";
import { CUDA_STATUS } from "./symbols.ts";

/** Addresses that cuMemAlloc returns are multiples of 256; 512 keeps blocks apart as PyTorch's allocator does. */
const ALIGNMENT_BYTES = 512;
/** Small blocks share segments of this size: the driver's own granularity. */
const SMALL_SEGMENT_BYTES = 2 * 1024 * 1024;

interface Block {
  readonly address: bigint;
  sizeBytes: number;
  pendingUses: number;
  free: boolean;
  /** Handle of the stream whose order protects the block. */
  stream: bigint;
  label: string;
  previous: Block | undefined;
  next: Block | undefined;
  /** Other streams that touched it since it was allocated. */
  users: Set<CudaStream> | undefined;
}

/** A piece of device memory. Opaque; `free` takes it back. */
export interface Allocation {
  readonly address: bigint;
  readonly sizeBytes: number;
  /**
   * Calls that were taken and have not settled: a queue raises it when it takes one and lowers it when that settles. A
   * call that is held back is on no stream yet, so no event tells of it; while there are any, the piece is not reused.
   */
  pendingUses: number;
}

export interface PoolStats {
  /** Handed out, bytes and pieces. */
  readonly usedBytes: number;
  readonly peakBytes: number;
  readonly numAllocations: number;
  /** Taken from the driver, bytes and calls. */
  readonly reservedBytes: number;
  readonly numDriverCalls: number;
  /** The largest piece that fits without the driver, bytes. */
  readonly largestFreeBytes: number;
  readonly numOutOfMemory: number;
}

/** Where a pool's segments come from, when not from cuMemAlloc. */
export interface SegmentSource {
  readonly kind: "ncclMemory";
  /** Writes an address into `out`. @returns whether there was memory */
  allocate(out: BigUint64Array, sizeBytes: number): boolean;
  free(address: bigint): void;
}

/** Who wants to know of a pool's segments. */
export interface SegmentListener {
  added(address: bigint, sizeBytes: number): void;
  removed(address: bigint): void;
}

export interface PoolOptions {
  /** Most that it takes from the device, bytes; the whole device unless told. */
  readonly limitBytes?: number;
  readonly source?: SegmentSource;
  readonly listener?: SegmentListener;
}

/** One device's pool in one thread. */
export class MemoryPool implements Disposable {
  readonly device: CudaDevice;
  readonly limitBytes: number;
  readonly #source: SegmentSource | undefined;
  readonly #listener: SegmentListener | undefined;
  readonly #segments = new Set<Block>();
  readonly #kept = new Set<bigint>();
  readonly #live = new Map<bigint, Block>();
  /** Freed by the program while calls that were not settled used them. */
  readonly #awaited = new Set<Block>();
  readonly #deferred: { block: Block; events: CudaEvent[] }[] = [];
  #usedBytes = 0;
  #peakBytes = 0;
  #reservedBytes = 0;
  #numDriverCalls = 0;
  #numOutOfMemory = 0;
  #closed = false;

  constructor(device: CudaDevice, options: PoolOptions = {}) {
    this.#source = options.source;
    this.#listener = options.listener;
    this.device = device;
    this.limitBytes = options.limitBytes ?? device.info.memoryBytes;
    device.track(this);
  }

  /**
   * Hands out at least `sizeBytes` (0 is rounded up to one unit) for use on `stream`.
   * @throws OutOfMemoryError with the pool's state; nothing is changed then
   * @throws ClosedError after `close`, or for a stream that was closed; InvalidArgumentError for one of another device
   */
  allocate(sizeBytes: number, stream: CudaStream, label = "tensor"): Allocation {
    if (this.#closed) throw new ClosedError("memory pool", "was closed");
    const size = Math.max(ALIGNMENT_BYTES, Math.ceil(sizeBytes / ALIGNMENT_BYTES) * ALIGNMENT_BYTES);
    this.#settleDeferred(false);
    const on = streamHandle(this.device, stream);
    const block = this.#bestFit(size, on) ?? this.#grow(size, on) ?? this.#outOfMemory(size);
    this.#split(block, size);
    block.free = false;
    block.stream = on;
    block.label = label;
    this.#live.set(block.address, block);
    this.#usedBytes += block.sizeBytes;
    this.#peakBytes = Math.max(this.#peakBytes, this.#usedBytes);
    return block;
  }

  /** Says that work on `stream` uses the piece, so that it is not reused before that work is done. */
  recordUse(allocation: Allocation, stream: CudaStream): void {
    const block = this.#live.get(allocation.address);
    if (block === undefined || block.stream === stream.handle || block.users?.has(stream) === true) return;
    block.users ??= new Set();
    // Streams of groups that were closed meanwhile: a tensor may outlive many.
    for (const user of block.users) if (user.closed) block.users.delete(user);
    block.users.add(stream);
  }

  /** Takes a piece back. A piece that is not live is ignored: freeing twice is harmless. */
  free(allocation: Allocation): void {
    const block = this.#live.get(allocation.address);
    if (block === undefined || block !== allocation) return;
    this.#live.delete(block.address);
    this.#usedBytes -= block.sizeBytes;
    if (block.pendingUses > 0 && this.device.poison === undefined) this.#awaited.add(block);
    else this.#retire(block);
  }

  /** Has a block that nothing will use any more be reused once other streams are done with it. */
  #retire(block: Block): void {
    const users = block.users;
    block.users = undefined;
    block.pendingUses = 0;
    if (users === undefined || this.device.poison !== undefined) {
      this.#release(block);
      return;
    }
    // A group that was closed has waited for its work, and its stream is gone.
    const open = [...users].filter((stream) => !stream.closed);
    const events = open.map((stream) => {
      // A peer may use the piece from its own device.
      const event = CudaEvent.create(stream.device);
      event.record(stream);
      return event;
    });
    this.#deferred.push({ block, events });
  }

  /** Gives whole free segments back to the driver. @returns bytes given back */
  trim(): number {
    this.#settleDeferred(true);
    let given = 0;
    for (const segment of [...this.#segments]) {
      if (!segment.free || segment.next !== undefined || this.#kept.has(segment.address)) continue;
      this.#segments.delete(segment);
      this.#freeSegment(segment.address);
      this.#reservedBytes -= segment.sizeBytes;
      given += segment.sizeBytes;
    }
    return given;
  }

  /**
   * Keeps the driver's allocation at `address` until the pool closes: other processes have mapped it, and another
   * allocation at its address must not be taken for it.
   */
  keep(address: bigint): void {
    this.#kept.add(address);
  }

  /** The driver's allocation that `address` lies in. */
  segmentOf(address: bigint): bigint | undefined {
    for (const segment of this.#segments) {
      let end = segment.address;
      for (let block: Block | undefined = segment; block !== undefined; block = block.next)
        end += BigInt(block.sizeBytes);
      if (address >= segment.address && address < end) return segment.address;
    }
    return undefined;
  }

  /** What is handed out and to whom. */
  leaks(): readonly { readonly label: string; readonly sizeBytes: number }[] {
    return [...this.#live.values()].map(({ label, sizeBytes }) => ({ label, sizeBytes }));
  }

  stats(): PoolStats {
    let largest = 0;
    for (const block of this.#blocks()) if (block.free) largest = Math.max(largest, block.sizeBytes);
    return {
      usedBytes: this.#usedBytes,
      peakBytes: this.#peakBytes,
      numAllocations: this.#live.size,
      reservedBytes: this.#reservedBytes,
      numDriverCalls: this.#numDriverCalls,
      largestFreeBytes: largest,
      numOutOfMemory: this.#numOutOfMemory,
    };
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Gives everything back to the driver, live pieces too. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.device.forget(this);
    // Freeing waits for the device by itself: the events are of no use any more.
    for (const { events } of this.#deferred) for (const event of events) event.close();
    if (this.device.poison === undefined && !this.device.closed) {
      for (const segment of this.#segments) {
        this.#freeSegment(segment.address);
      }
    }
    this.#segments.clear();
    this.#live.clear();
    this.#awaited.clear();
    this.#deferred.length = 0;
    this.#usedBytes = 0;
    this.#reservedBytes = 0;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  *#blocks(): Generator<Block> {
    for (const segment of this.#segments) {
      for (let block: Block | undefined = segment; block !== undefined; block = block.next) yield block;
    }
  }

  #bestFit(size: number, stream: bigint): Block | undefined {
    let best: Block | undefined;
    for (const block of this.#blocks()) {
      if (!block.free || block.sizeBytes < size || block.stream !== stream) continue;
      if (best === undefined || block.sizeBytes < best.sizeBytes) best = block;
    }
    return best;
  }

  #grow(size: number, stream: bigint): Block | undefined {
    const bytes = Math.ceil(size / SMALL_SEGMENT_BYTES) * SMALL_SEGMENT_BYTES;
    return this.#newSegment(bytes, stream) ?? (this.#reclaim() ? this.#newSegment(bytes, stream) : undefined);
  }

  /** Frees cached segments of all streams, after their work is done. */
  #reclaim(): boolean {
    this.device.synchronize();
    return this.trim() > 0;
  }

  #newSegment(bytes: number, stream: bigint): Block | undefined {
    if (this.#reservedBytes + bytes > this.limitBytes) return undefined;
    this.device.activate();
    this.#numDriverCalls++;
    let status: number = CUDA_STATUS.success;
    const kind = this.#source?.kind ?? "memory";
    const address = this.device.make(kind, (out) => {
      if (this.#source !== undefined) {
        status = this.#source.allocate(out, bytes) ? CUDA_STATUS.success : CUDA_STATUS.outOfMemory;
        return;
      }
      status = this.device.driver.api.cuMemAlloc_v2(out, bytes);
      if (status === CUDA_STATUS.outOfMemory) out[0] = 0n;
      else if (status !== CUDA_STATUS.success) this.device.fail("cuMemAlloc_v2", status, "allocation");
    });
    if (status === CUDA_STATUS.outOfMemory) {
      this.device.ledger?.drop(kind, address);
      return undefined;
    }
    const segment: Block = {
      address,
      sizeBytes: bytes,
      pendingUses: 0,
      free: true,
      stream,
      label: "",
      previous: undefined,
      next: undefined,
      users: undefined,
    };
    this.#segments.add(segment);
    this.#listener?.added(address, bytes);
    this.#reservedBytes += bytes;
    return segment;
  }

  #freeSegment(address: bigint): void {
    this.#listener?.removed(address);
    this.device.ledger?.drop(this.#source?.kind ?? "memory", address);
    if (this.#source !== undefined) this.#source.free(address);
    else this.device.call("cuMemFree_v2", "pool", address);
  }

  #outOfMemory(size: number): never {
    this.#numOutOfMemory++;
    const { freeBytes, totalBytes } = this.device.memoryInfo();
    const available = Math.min(freeBytes, this.limitBytes - this.#reservedBytes);
    throw new OutOfMemoryError(
      `CUDA device ${this.device.ordinal}`,
      size,
      available,
      `The pool holds ${this.#reservedBytes} bytes (${this.#usedBytes} in use by ${this.#live.size} tensors, limit ${this.limitBytes}); the device has ${freeBytes} of ${totalBytes} bytes free. Free tensors, or use more devices.`,
    );
  }

  #split(block: Block, size: number): void {
    const rest = block.sizeBytes - size;
    if (rest < ALIGNMENT_BYTES) return;
    const tail: Block = {
      address: block.address + BigInt(size),
      sizeBytes: rest,
      pendingUses: 0,
      free: true,
      stream: block.stream,
      label: "",
      previous: block,
      next: block.next,
      users: undefined,
    };
    if (block.next !== undefined) block.next.previous = tail;
    block.next = tail;
    block.sizeBytes = size;
  }

  #release(block: Block): void {
    block.free = true;
    block.label = "";
    const { next, previous } = block;
    if (next?.free && next.stream === block.stream) absorbNext(block);
    if (previous?.free && previous.stream === block.stream) absorbNext(previous);
  }

  #settleDeferred(wait: boolean): void {
    for (const block of this.#awaited) {
      if (block.pendingUses > 0) continue;
      this.#awaited.delete(block);
      this.#retire(block);
    }
    for (let i = this.#deferred.length - 1; i >= 0; i--) {
      const entry = this.#deferred[i];
      if (entry === undefined) continue;
      // Events that were closed with their device's streams have nothing to wait for.
      if (wait) for (const event of entry.events) if (!event.closed) event.synchronize();
      if (!wait && !entry.events.every((event) => event.isDone())) continue;
      for (const event of entry.events) event.close();
      this.#deferred.splice(i, 1);
      this.#release(entry.block);
    }
  }
}

/** Merges a block with its right neighbour. */
function absorbNext(block: Block): void {
  const { next } = block;
  if (next === undefined) return;
  block.sizeBytes += next.sizeBytes;
  block.next = next.next;
  if (next.next !== undefined) next.next.previous = block;
}
