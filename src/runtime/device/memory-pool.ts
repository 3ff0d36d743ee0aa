/**
 * A caching pool of device memory: cuMemAlloc is slow and synchronises, so freed blocks are kept and cut up again. Best
 * fit within segments (see free-blocks.ts), neighbours merge when both are free.
 *
 * Reuse is stream-ordered: a block belongs to the stream that it was allocated for, and work on that stream may still be
 * running when it is freed, because whatever reuses it is queued behind. A piece that other streams touched
 * (`recordUse`) is set aside until their events are done, and one that calls in a queue still need until those settle.
 */
import { ClosedError, InvalidArgumentError, NativeError, OutOfMemoryError } from "../../core/index.ts";
import { CUDA_STATUS } from "../../foreign/cuda/index.ts";
import { type CudaDevice, checkDevice } from "./device.ts";
import { absorbNext, type Block, FreeBlocks, splitBlock } from "./free-blocks.ts";
import { CudaEvent, type CudaStream, streamHandle } from "./stream.ts";

/** Addresses that cuMemAlloc returns are multiples of 256; 512 keeps blocks apart as PyTorch's allocator does. */
const ALIGNMENT_BYTES = 512;
/** Small blocks share segments of this size: the driver's own granularity. */
const SMALL_SEGMENT_BYTES = 2 * 1024 * 1024;
/** How long an allocation waits for the device before it gives segments back, ms: the driver would wait for ever. */
const RECLAIM_MS = 5000;

/** A piece of device memory. Opaque; `free` takes it back. */
export interface Allocation {
  readonly address: bigint;
  readonly sizeBytes: number;
  /**
   * Calls that were taken and have not settled: a queue raises it when it takes one and lowers it when that settles. A
   * call that is held back is on no stream yet, so no event tells of it; while there are any, the piece is not reused.
   */
  pendingUses: number;
  /** Open graphs and calls that failed to which copies of others may come: it may be freed meanwhile, and is not reused. */
  exposures: number;
}

/** What `allocate` gives: a new one each time, so that an old one is not mistaken for the block's next use. */
class Piece implements Allocation {
  readonly address: bigint;
  readonly sizeBytes: number;
  readonly label: string;
  readonly block: Block;
  pendingUses = 0;
  exposures = 0;
  /** The stream that `recordUse` was told of last; the block's own at first. */
  lastUser: CudaStream;
  /** Other streams that touched it. */
  users: Set<CudaStream> | undefined;

  constructor(block: Block, stream: CudaStream, label: string) {
    this.address = block.address;
    this.sizeBytes = block.sizeBytes;
    this.label = label;
    this.block = block;
    this.lastUser = stream;
  }
}

/** What a pool has handed out and what it holds of its device. */
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

/** A listener to the segments of a pool. */
export interface SegmentListener {
  added(address: bigint, sizeBytes: number): void;
  removed(address: bigint): void;
}

interface PoolOptions {
  /** Most that it takes from the device, bytes; the whole device by default. */
  readonly limitBytes?: number;
  readonly source?: SegmentSource;
  readonly listener?: SegmentListener;
}

/** A block that was freed while other streams than its own had work on it. */
interface Deferred {
  readonly block: Block;
  readonly events: readonly CudaEvent[];
}

let isPool: (one: object) => boolean;

/** @throws InvalidArgumentError for a value that is not a pool */
export function checkPool(pool: MemoryPool): void {
  if (typeof pool === "object" && pool !== null && isPool(pool)) return;
  throw new InvalidArgumentError("pool", pool, "a MemoryPool");
}

/** One device's pool in one thread; see `deviceTensor` for an example. In a world `deviceOf(world).pool` is the rank's. */
export class MemoryPool implements Disposable {
  readonly device: CudaDevice;
  readonly limitBytes: number;
  readonly #source: SegmentSource | undefined;
  readonly #listener: SegmentListener | undefined;
  /** The first block of each of the driver's allocations, and where that ends. */
  readonly #segments = new Map<Block, bigint>();
  readonly #kept = new Set<bigint>();
  readonly #free = new FreeBlocks();
  readonly #live = new Set<Piece>();
  /** Freed by the program while calls that were not settled used them, or while a stream was captured. */
  readonly #awaited = new Set<Piece>();
  /** In the order in which they were freed. */
  readonly #deferred = new Set<Deferred>();
  #usedBytes = 0;
  #peakBytes = 0;
  #reservedBytes = 0;
  #numDriverCalls = 0;
  #numOutOfMemory = 0;
  #closed = false;

  /** @throws InvalidArgumentError for what `openDevice` did not make, and for a limit that is not a positive number of bytes */
  constructor(device: CudaDevice, options: PoolOptions = {}) {
    checkDevice(device);
    const { limitBytes = device.info.memoryBytes } = options;
    if (!Number.isSafeInteger(limitBytes) || limitBytes < 1) {
      throw new InvalidArgumentError("limitBytes", limitBytes, "a whole number of bytes above 0");
    }
    this.#source = options.source;
    this.#listener = options.listener;
    this.device = device;
    this.limitBytes = limitBytes;
    device.track(this);
  }

  static {
    isPool = (one) => #live in one;
  }

  /** Whether other processes can map its memory: of NCCL's own allocator they cannot. */
  get exportable(): boolean {
    return this.#source === undefined;
  }

  /**
   * Hands out at least `sizeBytes` (0 is rounded up to one unit) for use on `stream`.
   * @throws OutOfMemoryError with the pool's state; nothing is changed then
   * @throws ClosedError after `close`, or for a stream that was closed; InvalidArgumentError for one of another device,
   *   and for a size that is no whole number of 0 or more
   */
  allocate(sizeBytes: number, stream: CudaStream, label = "tensor"): Allocation {
    if (this.#closed) throw new ClosedError("memory pool", "was closed");
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
      throw new InvalidArgumentError("sizeBytes", sizeBytes, "an integer of 0 or more");
    }
    const size = Math.max(ALIGNMENT_BYTES, Math.ceil(sizeBytes / ALIGNMENT_BYTES) * ALIGNMENT_BYTES);
    streamHandle(this.device, stream);
    this.#settleFirst();
    const block =
      this.#free.take(stream, size) ??
      this.#takeSettled(stream, size) ??
      this.#grow(size, stream) ??
      this.#takeMerged(stream, size) ??
      this.#reclaim(size, stream) ??
      this.#outOfMemory(size);
    const rest = splitBlock(block, size, ALIGNMENT_BYTES);
    if (rest !== undefined) this.#free.add(rest);
    // The rest of a closed stream's block stays for whoever comes next.
    block.stream = stream;
    const piece = new Piece(block, stream, label);
    this.#live.add(piece);
    this.#usedBytes += block.sizeBytes;
    this.#peakBytes = Math.max(this.#peakBytes, this.#usedBytes);
    return piece;
  }

  /** Says that work on `stream` uses the piece, so that it is not reused before that work is done. */
  recordUse(allocation: Allocation, stream: CudaStream): void {
    const piece = allocation as Piece;
    if (piece.lastUser === stream) return;
    if (piece.users?.has(stream) === true) {
      piece.lastUser = stream;
      return;
    }
    streamHandle(stream.device, stream);
    if (!this.#live.has(piece)) return;
    piece.lastUser = stream;
    if (piece.block.stream === stream) return;
    piece.users ??= new Set();
    // Streams of groups that were closed meanwhile: a tensor may outlive many.
    for (const user of piece.users) if (user.closed) piece.users.delete(user);
    piece.users.add(stream);
  }

  /** Takes a piece back. A piece that is not live is ignored: freeing twice is harmless. */
  free(allocation: Allocation): void {
    const piece = allocation as Piece;
    if (!this.#live.delete(piece)) return;
    this.#usedBytes -= piece.sizeBytes;
    if (this.#isHeld(piece) && this.device.poison === undefined) this.#awaited.add(piece);
    else this.#retire(piece);
  }

  /** Whether it is still unknown when a piece may be reused. */
  #isHeld({ pendingUses, exposures, users }: Piece): boolean {
    return pendingUses + exposures > 0 || (users !== undefined && this.device.numCaptures > 0);
  }

  /** Lets a piece that has no further use be reused once other streams are done with it. */
  #retire({ block, users }: Piece): void {
    if (users === undefined || this.device.poison !== undefined) {
      this.#release(block);
      return;
    }
    // A group that was closed has waited for its work, and its stream is gone.
    const open = [...users].filter((stream) => !stream.closed);
    const events = open.map((stream) => {
      // A peer may use the piece from its own device.
      const event = CudaEvent.borrow(stream.device);
      event.record(stream);
      return event;
    });
    if (events.length === 0) this.#release(block);
    else this.#deferred.add({ block, events });
  }

  /** Gives whole free segments back to the driver, which waits for the device first. @returns bytes given back */
  trim(): number {
    this.#settleAll();
    if (!this.#isReclaimable()) return 0;
    this.device.untilIdle("pool");
    this.#settleAll();
    return this.#freeSegments();
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
    for (const [{ address: first }, end] of this.#segments) if (address >= first && address < end) return first;
    return undefined;
  }

  /** What is handed out and to whom. */
  leaks(): readonly { readonly label: string; readonly sizeBytes: number }[] {
    return [...this.#live].map(({ label, sizeBytes }) => ({ label, sizeBytes }));
  }

  /** What is handed out and what is held, bytes. */
  stats(): PoolStats {
    return {
      usedBytes: this.#usedBytes,
      peakBytes: this.#peakBytes,
      numAllocations: this.#live.size,
      reservedBytes: this.#reservedBytes,
      numDriverCalls: this.#numDriverCalls,
      largestFreeBytes: this.#free.largestBytes,
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
      for (const segment of this.#segments.keys()) {
        this.#freeSegment(segment.address);
      }
    }
    this.#segments.clear();
    this.#free.clear();
    this.#live.clear();
    this.#awaited.clear();
    this.#deferred.clear();
    this.#usedBytes = 0;
    this.#reservedBytes = 0;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Looks through everything that was set aside. @returns a block, if one has become free that fits */
  #takeSettled(stream: CudaStream, size: number): Block | undefined {
    const isNew = this.#settleAll();
    return (isNew ? this.#free.take(stream, size) : undefined) ?? this.#free.takeClosed(size);
  }

  /** Brings what closed streams had together with what this one has. @returns a block, if one fits then */
  #takeMerged(stream: CudaStream, size: number): Block | undefined {
    const adopted = this.#free.adopt(stream);
    for (const block of adopted) this.#release(block);
    return adopted.length > 0 ? this.#free.take(stream, size) : undefined;
  }

  #grow(size: number, stream: CudaStream): Block | undefined {
    const bytes = Math.ceil(size / SMALL_SEGMENT_BYTES) * SMALL_SEGMENT_BYTES;
    const segment = this.#newSegment(bytes, stream);
    if (segment !== undefined) this.#segments.set(segment, segment.address + BigInt(bytes));
    return segment;
  }

  /**
   * Waits for the device, and gives cached segments of all streams back: but only where there are any, and not for ever,
   * for what runs may wait for a rank that does not come, or for this very thread.
   */
  #reclaim(size: number, stream: CudaStream): Block | undefined {
    if (!this.#isReclaimable()) return undefined;
    try {
      this.device.untilIdle("allocation", RECLAIM_MS);
    } catch {
      // It is not idle, and the driver would block this thread until it is.
      return this.device.poison === undefined ? this.#takeSettled(stream, size) : undefined;
    }
    const settled = this.#takeSettled(stream, size) ?? this.#takeMerged(stream, size);
    if (settled !== undefined) return settled;
    return this.#freeSegments() > 0 ? this.#grow(size, stream) : undefined;
  }

  /** Whether a segment could be given back, now or when other streams are done with its blocks. */
  #isReclaimable(): boolean {
    const setAside = new Set([...this.#deferred].map(({ block }) => block));
    for (const segment of this.#segments.keys()) {
      if (this.#kept.has(segment.address)) continue;
      let block: Block | undefined = segment;
      while (block !== undefined && (block.free || setAside.has(block))) block = block.next;
      if (block === undefined) return true;
    }
    return false;
  }

  #freeSegments(): number {
    let given = 0;
    for (const segment of this.#segments.keys()) {
      if (!segment.free || segment.next !== undefined || this.#kept.has(segment.address)) continue;
      this.#segments.delete(segment);
      this.#free.remove(segment);
      this.#freeSegment(segment.address);
      this.#reservedBytes -= segment.sizeBytes;
      given += segment.sizeBytes;
    }
    return given;
  }

  #newSegment(bytes: number, stream: CudaStream): Block | undefined {
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
    try {
      this.#listener?.added(address, bytes);
    } catch (error) {
      this.#giveBack(address);
      if (error instanceof NativeError && error.status === CUDA_STATUS.outOfMemory) return undefined;
      throw error;
    }
    this.#reservedBytes += bytes;
    return { address, sizeBytes: bytes, free: false, slot: -1, stream, previous: undefined, next: undefined };
  }

  #freeSegment(address: bigint): void {
    this.#listener?.removed(address);
    this.#giveBack(address);
  }

  #giveBack(address: bigint): void {
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

  /** Puts a block among the free ones, together with free neighbours of its stream. */
  #release(block: Block): void {
    let whole = block;
    const { next, previous } = block;
    const joins = (other: Block) => other.stream === block.stream || (other.stream.closed && block.stream.closed);
    if (next?.free && joins(next)) {
      this.#free.remove(next);
      absorbNext(block);
    }
    if (previous?.free && joins(previous)) {
      this.#free.remove(previous);
      absorbNext(previous);
      whole = previous;
    }
    this.#free.add(whole);
  }

  /** Settles what was set aside first, as far as it goes: one question to the driver for most allocations. */
  #settleFirst(): void {
    for (const piece of this.#awaited) {
      if (this.#isHeld(piece)) break;
      this.#awaited.delete(piece);
      this.#retire(piece);
    }
    for (const one of this.#deferred) if (!this.#settle(one)) break;
  }

  /** Settles every piece set aside that can be settled. @returns whether anything was */
  #settleAll(): boolean {
    let any = false;
    for (const piece of this.#awaited) {
      if (this.#isHeld(piece)) continue;
      this.#awaited.delete(piece);
      this.#retire(piece);
      any = true;
    }
    for (const one of this.#deferred) any = this.#settle(one) || any;
    return any;
  }

  /** Puts a block that was set aside among the free ones if the other streams are done. @returns whether they are */
  #settle(one: Deferred): boolean {
    // Events that were closed with their device have nothing to wait for.
    if (!one.events.every((event) => event.closed || event.isDone())) return false;
    for (const event of one.events) event.giveBack();
    this.#deferred.delete(one);
    this.#release(one.block);
    return true;
  }
}
