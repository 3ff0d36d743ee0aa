/**
 * What a rank's program and the thread that writes for it (send-worker.ts) share: a few words for both, and for each connection a
 * slot with a ring of pieces of memory. The program appends pieces, and the thread writes them in their order. Beside them there is a
 * place for one reduction, which the program gives and the thread makes.
 */

import type { WasmMemory } from "../../executor/internal.ts";

/** Pieces of a connection that the thread has at a time: a power of two, for they are counted modulo 2 ** 32. */
export const RING = 32;

/** Words for both, by index. */
export const WORD = {
  /** Raised whenever there is something to do for the thread, which sleeps on it. */
  asked: 0,
  /** Whether the thread blocks in poll(2), and so must be woken by a byte. */
  polls: 1,
  /** Raised whenever pieces have been written. */
  written: 2,
  /** Whether the program's thread blocks in poll(2), and so must be woken by a byte. */
  waits: 3,
  /** Whether the thread runs, is to end, or has. */
  state: 4,
  /** Whether the thread makes a block of a reduction. */
  reduces: 5,
  /** Raised when memories came or went, which are told by messages. */
  memories: 6,
} as const;
export const THREAD = { starts: 0, runs: 1, ends: 2, ended: 3, failed: 4 } as const;
const COMMON_WORDS = 8;

/** A memory that the thread reduces on, by its number; without one it is to forget it. */
export interface MemoryNote {
  readonly number: number;
  readonly memory?: WasmMemory;
}

/** Words of a slot, from its first one. */
export const SLOT = {
  state: 0,
  fd: 1,
  /** Pieces that were ever given, and that were ever written. */
  given: 2,
  written: 3,
  /** Bytes of the next piece that were written. */
  sent: 4,
  /** The number of an error, negative. */
  error: 5,
  /** Of each piece: its length, twice, plus one where more follows at once. */
  pieces: 8,
} as const;
/** Whose the pieces of a slot are: the thread's, the thread's until it says otherwise, or the program's. */
export const OWNER = { thread: 0, asked: 1, program: 2 } as const;
const SLOT_WORDS = SLOT.pieces + RING;

interface SendSlots {
  readonly words: Int32Array;
  /** Addresses of pieces: RING for each slot. */
  readonly addresses: Float64Array;
  readonly numSlots: number;
}

export function newSlots(numSlots: number): SendSlots {
  return {
    words: new Int32Array(new SharedArrayBuffer(4 * (COMMON_WORDS + SLOT_WORDS * numSlots))),
    addresses: new Float64Array(new SharedArrayBuffer(8 * RING * numSlots)),
    numSlots,
  };
}

/** Where a slot's words begin. */
export const slotAt = (slot: number) => COMMON_WORDS + slot * SLOT_WORDS;

/** What the thread is started with. */
export interface SendWorkerData {
  readonly slots: SendSlots;
  /** The slot that has the first turn. */
  readonly firstSlot: number;
  /** See shared-reductions.ts. */
  readonly reductions: Int32Array;
  /** Its end of a pair of sockets: a byte wakes who blocks in poll(2). */
  readonly wakeFd: number;
}
