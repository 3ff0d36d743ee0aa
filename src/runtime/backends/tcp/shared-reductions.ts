/**
 * Reductions that the threads of a rank make together, block by block: whoever has nothing else to do takes the next block of the oldest
 * one that has any left. So none of them is idle while another one has a backlog, and the thread that writes to sockets is away from
 * them for one block at most.
 *
 * A reduction has a place in a ring of words that all of them see. Its word `next` counts the blocks that were taken, and above
 * that it has the number of the reduction: so a thread that read the place of the one before takes nothing of the next.
 */
import { type ReduceJob, reduceOn, type WasmFunction, type WasmMemory } from "../../executor/internal.ts";
import { napUntil } from "../../memory/index.ts";

/** Reductions under way: more than the pieces of a call that are. A power of two. */
export const MAX_REDUCTIONS = 16;
/** Whole vectors. One thread takes some 20 us for it. */
const BLOCK_BYTES = 64 * 1024;
/**
 * To several outputs so many bytes at a time: the kernels write shorter ranges to all outputs at once, which is faster where those are
 * in no cache (17.4 ms in place of 20.6 for two outputs of 64 MiB).
 */
const STREAMED_BYTES = 7936;
/** A count of blocks that no reduction has: nobody takes any. */
const CLOSED = 0xffff;
/** How long other threads may take for a block, ms: they may wait for a core. */
const FINISH_MS = 10_000;

const GIVEN = 0;
const COMMON_WORDS = 16;
const JOB = {
  next: 0,
  made: 1,
  numBlocks: 2,
  bytes: 3,
  memory: 4,
  kernel: 5,
  inTable: 6,
  numInputs: 7,
  outTable: 8,
  numOutputs: 9,
  context: 10,
} as const;
const JOB_WORDS = 16;
const jobAt = (nth: number) => COMMON_WORDS + (nth & (MAX_REDUCTIONS - 1)) * JOB_WORDS;

export const newReductions = (): Int32Array =>
  new Int32Array(new SharedArrayBuffer(4 * (COMMON_WORDS + MAX_REDUCTIONS * JOB_WORDS)));

/**
 * Takes a block, if any is left, and makes it.
 * @param kernelsOf the kernels on a memory, by its number
 * @returns whether there was one, and it was the last of its reduction that was not made
 */
export function makeBlock(words: Int32Array, kernelsOf: (memory: number) => WasmFunction): "none" | "one" | "last" {
  const given = Atomics.load(words, GIVEN);
  for (let nth = 0; nth < MAX_REDUCTIONS; nth++) {
    const at = jobAt(given + nth);
    for (;;) {
      const next = Atomics.load(words, at + JOB.next);
      const block = next & CLOSED;
      const numBlocks = words[at + JOB.numBlocks] as number;
      if (block >= numBlocks) break;
      const of = (field: number) => words[at + field] as number;
      const [from, bytes, memory] = [block * BLOCK_BYTES, of(JOB.bytes), of(JOB.memory)];
      const [kernel, inTable, numInputs] = [of(JOB.kernel), of(JOB.inTable), of(JOB.numInputs)];
      const [outTable, numOutputs, context] = [of(JOB.outTable), of(JOB.numOutputs), of(JOB.context)];
      // Only now they are known to be of one reduction.
      if (Atomics.compareExchange(words, at + JOB.next, next, next + 1) !== next) continue;
      const end = Math.min(bytes, from + BLOCK_BYTES);
      const reduce = kernelsOf(memory);
      const step = numOutputs > 1 ? STREAMED_BYTES : BLOCK_BYTES;
      for (let start = from; start < end; start += step) {
        reduce(kernel, inTable, numInputs, outTable, numOutputs, start, Math.min(end, start + step), context);
      }
      return Atomics.add(words, at + JOB.made, 1) + 1 === numBlocks ? "last" : "one";
    }
  }
  return "none";
}

/** Who gives reductions, and makes blocks as well. */
export class SharedReductions {
  readonly words = newReductions();
  /** What follows those that are under way, by their place. */
  readonly #under: (((isMade: boolean) => void) | undefined)[] = Array(MAX_REDUCTIONS).fill(undefined);
  #numUnder = 0;
  #numGiven = 0;
  readonly #numbers = new Map<WasmMemory, number>();
  readonly #kernels = new Map<number, WasmFunction>();
  #numMemories = 0;

  get isEmpty(): boolean {
    return this.#numUnder === 0;
  }

  /** Memories that are known, with their numbers. */
  get memories(): ReadonlyMap<WasmMemory, number> {
    return this.#numbers;
  }

  /** @returns its number */
  learn(memory: WasmMemory): number {
    const number = this.#numMemories++;
    this.#numbers.set(memory, number);
    return number;
  }

  /** @returns the number that it had */
  forget(memory: WasmMemory): number | undefined {
    const number = this.#numbers.get(memory);
    if (number === undefined) return undefined;
    this.#numbers.delete(memory);
    this.#kernels.delete(number);
    return number;
  }

  /**
   * Gives one on a memory that is known.
   * @param job makes it ready for a place, by number
   * @param done called by `settle`: whether it was made
   * @returns whether there was a place
   */
  give(memory: number, job: (place: number) => ReduceJob, bytes: number, done: (isMade: boolean) => void): boolean {
    const place = this.#numGiven & (MAX_REDUCTIONS - 1);
    if (this.#under[place] !== undefined) return false;
    const { words } = this;
    const { kernel, inTable, numInputs, outTable, numOutputs, context } = job(place);
    const at = jobAt(place);
    const number = (this.#numGiven & 0x7fff) << 16;
    Atomics.store(words, at + JOB.next, number | CLOSED);
    const numBlocks = Math.ceil(bytes / BLOCK_BYTES);
    words.set([0, numBlocks, bytes, memory, kernel, inTable, numInputs, outTable, numOutputs, context], at + JOB.made);
    Atomics.store(words, at + JOB.next, number);
    this.#under[place] = done;
    this.#numUnder++;
    this.#numGiven = (this.#numGiven + 1) | 0;
    Atomics.store(words, GIVEN, this.#numGiven);
    return true;
  }

  /** Whether a block is left that nobody has taken. */
  get hasBlocks(): boolean {
    if (this.isEmpty) return false;
    for (let place = 0; place < MAX_REDUCTIONS; place++) {
      const at = jobAt(place);
      if ((Atomics.load(this.words, at + JOB.next) & CLOSED) < (this.words[at + JOB.numBlocks] as number)) return true;
    }
    return false;
  }

  /** Makes a block, if any is left. @returns whether it did */
  help(): boolean {
    return !this.isEmpty && makeBlock(this.words, this.#kernelsOf) !== "none";
  }

  readonly #kernelsOf = (number: number): WasmFunction => {
    const known = this.#kernels.get(number);
    if (known !== undefined) return known;
    const [memory] = [...this.#numbers].find(([, one]) => one === number) as [WasmMemory, number];
    const kernels = reduceOn(memory);
    this.#kernels.set(number, kernels);
    return kernels;
  };

  #isMade(place: number): boolean {
    const at = jobAt(place);
    return Atomics.load(this.words, at + JOB.made) === this.words[at + JOB.numBlocks];
  }

  /** Goes on after those that were made. @param isLost whether nobody makes what is not made by now */
  settle(isLost = false): void {
    if (this.isEmpty) return;
    // The oldest first. What follows one may give others.
    const oldest = this.#numGiven;
    for (let nth = 0; nth < MAX_REDUCTIONS; nth++) {
      const place = (oldest + nth) & (MAX_REDUCTIONS - 1);
      const done = this.#under[place];
      const isMade = this.#isMade(place);
      if (done === undefined || !(isMade || isLost)) continue;
      this.#under[place] = undefined;
      this.#numUnder--;
      done(isMade);
    }
  }

  /** Returns when none is being made any more. @param areIdle whether the other threads make no block */
  finish(areIdle: () => boolean): void {
    while (this.help());
    const isMade = (_: unknown, place: number) => this.#under[place] === undefined || this.#isMade(place);
    napUntil(() => this.#under.every(isMade) || areIdle(), FINISH_MS);
  }
}
