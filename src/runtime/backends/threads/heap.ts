/**
 * The allocator of a world's shared memory: first fit over a list of free blocks sorted by address, neighbours merged,
 * the last one given back to the untouched top. All ranks share it under one lock, so memory that one rank frees
 * serves every other. Blocks are aligned to 128 bytes, and have a header of as many before them.
 */
import { InvariantError, OutOfMemoryError } from "../../../core/index.ts";
import { runningTime } from "../../comm/index.ts";
import { PAGE_BYTES, type WasmMemory } from "../../executor/internal.ts";
import { LINE, WORLD } from "./layout.ts";
import { type Growth, type SharedWorld, THREAD_WAITING, type WordWaiting } from "./shared-world.ts";

/** Header words: size of the whole block in units of 128 bytes, a mark, the next free block's address. */
const SIZE = 0;
const MARK = 1;
const NEXT = 2;
const USED = 0x75736564;
const FREE = 0x66726565;
/** Memory is grown by at least this much: every growth is told to all threads. */
const GROWTH_BYTES = 16 * 1024 * 1024;

export class Heap {
  readonly memory: WasmMemory;
  readonly waiting: WordWaiting;
  readonly #kind: string;
  readonly #growth: Growth | undefined;
  readonly #holder: number;
  #words: Int32Array;
  /** Every buffer that this thread has had of the memory: each growth makes another object of it. */
  readonly #buffers = new WeakSet<object>();
  #zero: (address: number, bytes: number) => void = (address, bytes) => {
    new Uint8Array(this.memory.buffer, address, bytes).fill(0);
  };

  /** @param rank of this thread, or LAUNCHER: whose lock is broken when it dies */
  constructor({ kind, memory, waiting, growth }: SharedWorld, rank: number) {
    this.memory = memory;
    this.waiting = waiting ?? THREAD_WAITING;
    this.#kind = kind;
    this.#growth = growth;
    this.#holder = rank + 1;
    this.#words = new Int32Array(memory.buffer);
    this.#buffers.add(memory.buffer);
  }

  /** Lets zeroing use SIMD stores. */
  useZero(zero: (address: number, bytes: number) => void): void {
    this.#zero = zero;
  }

  /** All words of the memory, of at least `endAddress` bytes. */
  words(endAddress = 0): Int32Array {
    if (endAddress > this.#words.byteLength) {
      // Another thread grew the memory: a growth by nothing makes this thread see its new size.
      this.memory.grow(0);
      this.#words = new Int32Array(this.memory.buffer);
      this.#buffers.add(this.memory.buffer);
    }
    return this.#words;
  }

  /** Where the heap begins; what lies before are the world's own words. */
  get firstByte(): number {
    return (this.#words[WORLD.heapStart]! >>> 0) * LINE;
  }

  /** Whether a buffer is this memory. */
  isIn(buffer: ArrayBufferLike): boolean {
    return this.#buffers.has(buffer);
  }

  get usedBytes(): number {
    return (this.#words[WORLD.usedBytes]! >>> 0) * LINE;
  }
  get peakBytes(): number {
    return (this.#words[WORLD.peakBytes]! >>> 0) * LINE;
  }
  get limitBytes(): number {
    return ((this.#words[WORLD.heapLimit]! >>> 0) - (this.#words[WORLD.heapStart]! >>> 0)) * LINE;
  }

  /** Runs `body` while no other thread is in the heap or the list of groups. */
  locked<T>(body: () => T): T {
    this.#acquire(Number.POSITIVE_INFINITY);
    return this.#holding(body);
  }

  /**
   * As `locked`, for a thread that must not wait for others: gives up after `ms`. A thread that was killed within the
   * heap holds the lock until somebody who knows of its death breaks it.
   * @returns whether `body` ran
   */
  tryLocked(body: () => void, ms: number): boolean {
    if (!this.#acquire(performance.now() + ms)) return false;
    this.#holding(body);
    return true;
  }

  #acquire(until: number): boolean {
    const words = this.#words;
    for (let tries = 0; Atomics.compareExchange(words, WORLD.lock, 0, this.#holder) !== 0; tries++) {
      if (tries <= 100) continue;
      // Looked at in terms of running time, too: a wait for a rank that was stopped is time of this rank's deadlines.
      const now = performance.now();
      runningTime(now);
      if (now >= until) return false;
      this.waiting.wait(words, WORLD.lock, Atomics.load(words, WORLD.lock), 1);
    }
    return true;
  }

  #holding<T>(body: () => T): T {
    const words = this.#words;
    try {
      return body();
    } finally {
      Atomics.compareExchange(words, WORLD.lock, this.#holder, 0);
      this.waiting.notify(words, WORLD.lock, 1);
    }
  }

  /** Takes the lock from a dead rank. */
  breakLockOf(rank: number): void {
    if (Atomics.compareExchange(this.#words, WORLD.lock, rank + 1, 0) === rank + 1) this.#wakeNext();
  }

  /** Takes the lock from whoever has it. */
  breakLock(): void {
    Atomics.store(this.#words, WORLD.lock, 0);
    this.#wakeNext();
  }

  #wakeNext(): void {
    this.waiting.notify(this.#words, WORLD.lock, 1);
  }

  /**
   * Allocates `bytes` of zeros.
   * @returns the address, a multiple of 128
   * @throws OutOfMemoryError
   */
  allocate(bytes: number, zeroed = true): number {
    const units = Math.ceil(Math.max(bytes, 1) / LINE) + 1;
    const { block, dirtyUnits } = this.locked(() => this.#take(units, bytes));
    const address = (block + 1) * LINE;
    if (zeroed && dirtyUnits > 1) this.#zero(address, (dirtyUnits - 1) * LINE);
    return address;
  }

  /** Gives back what `allocate` returned. */
  free(address: number): void {
    this.locked(() => this.#give(address / LINE - 1));
  }

  #header(block: number): number {
    const word = (block * LINE) / 4;
    this.words((block + 1) * LINE);
    return word;
  }

  #take(units: number, bytes: number): { block: number; dirtyUnits: number } {
    let words = this.words();
    let previous = 0;
    let block = words[WORLD.freeList]! >>> 0;
    while (block !== 0) {
      const at = this.#header(block);
      words = this.words();
      const size = words[at + SIZE]! >>> 0;
      const next = words[at + NEXT]! >>> 0;
      if (size >= units) {
        const rest = size - units;
        let replacement = next;
        if (rest > 1) {
          replacement = block + units;
          const restAt = this.#header(replacement);
          this.#write(restAt, rest, FREE, next);
          this.#write(at, units, USED, 0);
        } else this.#write(at, size, USED, 0);
        if (previous === 0) words[WORLD.freeList] = replacement;
        else words[this.#header(previous) + NEXT] = replacement;
        this.#account(rest > 1 ? units : size);
        return { block, dirtyUnits: rest > 1 ? units : size };
      }
      previous = block;
      block = next;
    }
    const top = words[WORLD.heapTop]! >>> 0;
    const limit = words[WORLD.heapLimit]! >>> 0;
    if (top + units > limit) this.#refuse(bytes);
    this.#grow((top + units) * LINE, bytes);
    words = this.words((top + units) * LINE);
    words[WORLD.heapTop] = top + units;
    const clean = words[WORLD.highWater]! >>> 0;
    words[WORLD.highWater] = Math.max(clean, top + units);
    this.#write(this.#header(top), units, USED, 0);
    this.#account(units);
    return { block: top, dirtyUnits: Math.max(0, Math.min(units, clean - top)) };
  }

  #give(block: number): void {
    const at = this.#header(block);
    const words = this.words();
    if (words[at + MARK] !== USED) throw new InvariantError(`block ${block} is freed twice (this is a bug in chorale)`);
    let size = words[at + SIZE]! >>> 0;
    this.#account(-size);
    let previous = 0;
    let next = words[WORLD.freeList]! >>> 0;
    while (next !== 0 && next < block) {
      previous = next;
      next = words[this.#header(next) + NEXT]! >>> 0;
    }
    if (next !== 0 && block + size === next) {
      const nextAt = this.#header(next);
      size += words[nextAt + SIZE]! >>> 0;
      next = words[nextAt + NEXT]! >>> 0;
    }
    this.#write(at, size, FREE, next);
    if (previous === 0) {
      words[WORLD.freeList] = block;
      this.#lowerTop(0, block, size);
      return;
    }
    const previousAt = this.#header(previous);
    const previousSize = words[previousAt + SIZE]! >>> 0;
    if (previous + previousSize === block) {
      this.#write(previousAt, previousSize + size, FREE, next);
      this.#lowerTop(this.#before(previous), previous, previousSize + size);
    } else {
      words[previousAt + NEXT] = block;
      this.#lowerTop(previous, block, size);
    }
  }

  /** The free block before `block` in the list, 0 when it is the first. */
  #before(block: number): number {
    const words = this.words();
    let previous = 0;
    let current = words[WORLD.freeList]! >>> 0;
    while (current !== 0 && current !== block) {
      previous = current;
      current = words[this.#header(current) + NEXT]! >>> 0;
    }
    return previous;
  }

  /** A free block at the top leaves the list. */
  #lowerTop(previous: number, block: number, size: number): void {
    const words = this.words();
    if (block + size !== words[WORLD.heapTop]! >>> 0) return;
    words[WORLD.heapTop] = block;
    if (previous === 0) words[WORLD.freeList] = 0;
    else words[this.#header(previous) + NEXT] = 0;
  }

  #write(at: number, size: number, mark: number, next: number): void {
    const words = this.words();
    words[at + SIZE] = size;
    words[at + MARK] = mark;
    words[at + NEXT] = next;
  }

  #account(units: number): void {
    const words = this.words();
    const used = (words[WORLD.usedBytes]! >>> 0) + units;
    words[WORLD.usedBytes] = used;
    if (used > words[WORLD.peakBytes]! >>> 0) words[WORLD.peakBytes] = used;
  }

  #grow(endAddress: number, bytes: number): void {
    const growth = this.#growth;
    const current = growth?.sizeBytes ?? this.memory.buffer.byteLength;
    if (endAddress <= current) return;
    const limit = Math.ceil(((this.#words[WORLD.heapLimit]! >>> 0) * LINE) / PAGE_BYTES) * PAGE_BYTES;
    const wanted = Math.min(limit, Math.max(endAddress, current + GROWTH_BYTES));
    try {
      if (growth !== undefined) growth.grow(endAddress, wanted);
      else this.memory.grow(Math.ceil((wanted - current) / PAGE_BYTES));
    } catch (error) {
      if ((growth?.sizeBytes ?? this.memory.buffer.byteLength) >= endAddress) return;
      this.#refuse(bytes, error);
    }
    this.#words = new Int32Array(this.memory.buffer);
  }

  #refuse(bytes: number, cause?: unknown): never {
    const free = this.limitBytes - this.usedBytes;
    const why = cause instanceof Error ? `. No more memory was given: ${cause.message}` : "";
    throw new OutOfMemoryError(
      `communication memory of the ${this.#kind} backend`,
      bytes,
      free,
      `${this.usedBytes} of ${this.limitBytes} bytes are in use by all ranks together (free blocks may lie apart). Free tensors ` +
        `with world.free(), keep weights in private memory, or raise memoryLimitBytes (at most 4 GiB)${why}`,
      cause === undefined ? undefined : { cause },
    );
  }
}
