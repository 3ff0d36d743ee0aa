/**
 * The allocator of a world's shared memory: lists of free blocks by classes of sizes (powers of two), neighbours merged by the sizes
 * in their headers (boundary tags; Knuth, The Art of Computer Programming 1, 2.5), the last one given back to the untouched
 * top. All ranks share it under one lock, so memory that one rank frees serves every other, and each change takes a few steps
 * however many blocks there are: garbage collection frees tensors by the ten thousand. Blocks are aligned to 128 bytes, and
 * have a header of as many before them.
 */
import { InvariantError, OutOfMemoryError } from "../../../core/index.ts";
import { runningTime } from "../../comm/index.ts";
import { PAGE_BYTES, type WasmMemory } from "../../executor/internal.ts";
import { LINE, WORLD } from "./layout.ts";
import { type Growth, type SharedWorld, THREAD_WAITING, type WordWaiting } from "./shared-world.ts";

/**
 * Header words: size of the whole block in units of 128 bytes, a mark, the next and the previous free block of its class, and the
 * size of the block that lies before it, 0 for the first.
 */
const SIZE = 0;
const MARK = 1;
const NEXT = 2;
const PREVIOUS = 3;
const BEFORE = 4;
/** Blocks of the size's own class that are looked at; those of higher classes all fit. Before memory runs out, all are. */
const MAX_LOOKS = 16;
/** Classes of sizes up to 4 GiB. */
const NUM_CLASSES = 26;
const USED = 0x75736564;
const FREE = 0x66726565;
/** Memory is grown by at least this much: every growth is told to all threads. */
const GROWTH_BYTES = 16 * 1024 * 1024;

/** The class of a size in units of LINE: its highest bit. */
const classOf = (units: number) => 31 - Math.clz32(units);

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
    const words = this.#words;
    const top = words[WORLD.heapTop]! >>> 0;
    const isFull = top + units > words[WORLD.heapLimit]! >>> 0;
    const block = this.#find(units, isFull ? Number.POSITIVE_INFINITY : MAX_LOOKS);
    if (block !== 0) return { block, dirtyUnits: this.#use(block, units) };
    if (isFull) this.#refuse(bytes);
    return this.#takeTop(top, units, bytes);
  }

  /** A free block of at least `units`, 0 when none is found. */
  #find(units: number, maxLooks: number): number {
    const own = classOf(units);
    for (let list = own; list < NUM_CLASSES; list++) {
      let block = this.#words[WORLD.freeLists + list]! >>> 0;
      for (let looks = 0; block !== 0 && looks < maxLooks; looks++) {
        const at = this.#header(block);
        if (this.#words[at + SIZE]! >>> 0 >= units) return block;
        block = this.#words[at + NEXT]! >>> 0;
      }
    }
    return 0;
  }

  /** Takes a free block; what it has beyond `units` stays free. @returns how much was taken */
  #use(block: number, units: number): number {
    this.#unlink(block);
    const at = this.#header(block);
    const size = this.#words[at + SIZE]! >>> 0;
    const rest = size - units;
    const taken = rest > 1 ? units : size;
    this.#write(at, taken, USED);
    if (rest > 1) this.#release(block + units, rest, units);
    this.#account(taken);
    return taken;
  }

  /** Takes memory that is in no block. */
  #takeTop(top: number, units: number, bytes: number): { block: number; dirtyUnits: number } {
    this.#grow((top + units) * LINE, bytes);
    const words = this.words((top + units) * LINE);
    words[WORLD.heapTop] = top + units;
    const clean = words[WORLD.highWater]! >>> 0;
    words[WORLD.highWater] = Math.max(clean, top + units);
    const at = this.#header(top);
    this.#write(at, units, USED);
    words[at + BEFORE] = words[WORLD.lastUnits]!;
    words[WORLD.lastUnits] = units;
    this.#account(units);
    return { block: top, dirtyUnits: Math.max(0, Math.min(units, clean - top)) };
  }

  #give(given: number): void {
    const at = this.#header(given);
    if (this.#words[at + MARK] !== USED)
      throw new InvariantError(`block ${given} is freed twice (this is a bug in chorale)`);
    let block = given;
    let size = this.#words[at + SIZE]! >>> 0;
    this.#words[at + MARK] = FREE;
    this.#account(-size);
    const next = block + size;
    if (next < this.#words[WORLD.heapTop]! >>> 0) {
      const nextAt = this.#header(next);
      if (this.#words[nextAt + MARK] === FREE) {
        this.#unlink(next);
        size += this.#words[nextAt + SIZE]! >>> 0;
      }
    }
    let before = this.#words[at + BEFORE]! >>> 0;
    if (before > 0) {
      const previousAt = this.#header(block - before);
      if (this.#words[previousAt + MARK] === FREE) {
        block -= before;
        this.#unlink(block);
        size += before;
        before = this.#words[previousAt + BEFORE]! >>> 0;
      }
    }
    this.#release(block, size, before);
  }

  /** Puts a block, whose neighbours are in use, into its list; the last one goes back to the top. */
  #release(block: number, size: number, before: number): void {
    const words = this.#words;
    if (block + size === words[WORLD.heapTop]! >>> 0) {
      words[WORLD.heapTop] = block;
      words[WORLD.lastUnits] = before;
      return;
    }
    const list = WORLD.freeLists + classOf(size);
    const first = words[list]! >>> 0;
    this.#write(this.#header(block), size, FREE);
    this.#set(block, BEFORE, before);
    this.#set(block, NEXT, first);
    this.#set(block, PREVIOUS, 0);
    words[list] = block;
    if (first !== 0) this.#set(first, PREVIOUS, block);
    this.#set(block + size, BEFORE, size);
  }

  /** Takes a free block out of its list. */
  #unlink(block: number): void {
    const at = this.#header(block);
    // After the header was looked for: that may have made the view longer.
    const words = this.#words;
    const [next, previous] = [words[at + NEXT]! >>> 0, words[at + PREVIOUS]! >>> 0];
    if (previous === 0) words[WORLD.freeLists + classOf(words[at + SIZE]! >>> 0)] = next;
    else this.#set(previous, NEXT, next);
    if (next !== 0) this.#set(next, PREVIOUS, previous);
  }

  /** Sets a word of a block's header, also of one that this thread's view does not reach yet. */
  #set(block: number, word: number, value: number): void {
    const at = this.#header(block);
    this.#words[at + word] = value;
  }

  #write(at: number, size: number, mark: number): void {
    this.#words[at + SIZE] = size;
    this.#words[at + MARK] = mark;
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

  /** @param cause why the system gave no more, where that is less than the limit */
  #refuse(bytes: number, cause?: unknown): never {
    const isShort = cause instanceof Error;
    const most = isShort ? (this.#growth?.sizeBytes ?? this.memory.buffer.byteLength) : this.limitBytes;
    throw new OutOfMemoryError(
      `communication memory of the ${this.#kind} backend`,
      bytes,
      Math.max(0, most - this.usedBytes),
      `${this.usedBytes} of ${most} bytes are in use by all ranks together (free blocks may lie apart). Free tensors with ` +
        `world.free(), keep weights in private memory, ` +
        (isShort ? `or have more given than that: ${cause.message}` : "or raise memoryLimitBytes (at most 4 GiB)"),
      isShort ? { cause } : undefined,
    );
  }
}
