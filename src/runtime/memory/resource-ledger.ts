/**
 * What one rank holds in the driver and in NCCL, written down where another thread of the process can read it. A thread
 * that is killed cannot clean up, and its process lives on: whoever comes after frees what stands here (`reapNccl`).
 *
 * A handle's place is taken before the native call that makes the thing, and that call writes the handle straight into
 * it: there is no moment at which a thread could die with something that is written nowhere. A place is given up before
 * the thing is freed, so that nothing is ever freed twice; a kill between the two leaks that one thing.
 */

import { Lock } from "./lock.ts";

/** What may be held, in the order in which it is freed. `launches`: the word by which those of a plan are ended; `graphSource`: what a graph was made from. */
export const HELD_KINDS = [
  "launches",
  "communicator",
  "registration",
  "graph",
  "graphSource",
  "stream",
  "event",
  "module",
  "mapping",
  "secondMapping",
  "memoryHandle",
  "memory",
  "ncclMemory",
  "pinned",
  "context",
] as const;
export type HeldKind = (typeof HELD_KINDS)[number];

/** One thing that a rank holds. */
export interface Held {
  readonly kind: HeldKind;
  /** CUDA device. */
  readonly ordinal: number;
  /** Handle or address; of a context its ordinal + 1. */
  readonly handle: bigint;
}

/** Things one rank may hold at once; what is beyond them is not written down. */
const NUM_SLOTS = 4096;
/** A word of kind and device, one to spare, and the handle. */
const SLOT_WORDS = 4;
/** How many things found no place; of the first rank also the lock of those who free. */
const HEADER_WORDS = 4;
const LOCK_AT = 1;
/** Who frees waits for kernels and aborts communicators meanwhile, which takes seconds: only after this is it taken for dead, ms. */
const FREED_MS = 15_000;
const RANK_BYTES = 4 * (HEADER_WORDS + NUM_SLOTS * SLOT_WORDS);

/** Size of the ledger of a world, bytes. */
export function ledgerBytes(numRanks: number): number {
  return numRanks * RANK_BYTES;
}

/** One rank's pages, as that rank writes them. */
export class ResourceLedger {
  readonly #words: Int32Array;
  readonly #buffer: SharedArrayBuffer;
  readonly #base: number;
  readonly #recycled: number[] = [];
  readonly #places = new Map<string, number>();
  #next = 0;

  constructor(buffer: SharedArrayBuffer, rank: number) {
    this.#buffer = buffer;
    this.#base = rank * RANK_BYTES;
    this.#words = new Int32Array(buffer, this.#base, RANK_BYTES / 4);
  }

  /** Takes a place for a handle, which the native call that makes the thing writes. Then `keep` or `cancel` it. */
  open(kind: HeldKind, ordinal: number): BigUint64Array {
    const slot = this.#recycled.pop() ?? (this.#next < NUM_SLOTS ? this.#next++ : -1);
    if (slot < 0) {
      Atomics.add(this.#words, 0, 1);
      return new BigUint64Array(1);
    }
    const at = HEADER_WORDS + slot * SLOT_WORDS;
    const out = new BigUint64Array(this.#buffer, this.#base + 4 * (at + 2), 1);
    out[0] = 0n;
    Atomics.store(this.#words, at, ((HELD_KINDS.indexOf(kind) + 1) << 8) | (ordinal & 255));
    return out;
  }

  /** Says that the thing was made. */
  keep(kind: HeldKind, out: BigUint64Array): void {
    const slot = this.#slotOf(out);
    if (slot !== undefined) this.#places.set(`${kind} ${out[0]}`, slot);
  }

  /** Writes down a thing that is there already. */
  note(kind: HeldKind, ordinal: number, handle: bigint): void {
    const out = this.open(kind, ordinal);
    out[0] = handle;
    this.keep(kind, out);
  }

  /** Gives a place up: nothing was made. */
  cancel(out: BigUint64Array): void {
    const slot = this.#slotOf(out);
    if (slot !== undefined) this.#clear(slot);
  }

  /** Gives a thing's place up. Call it before the thing is freed. */
  drop(kind: HeldKind, handle: bigint): void {
    const key = `${kind} ${handle}`;
    const slot = this.#places.get(key);
    if (slot === undefined) return;
    this.#places.delete(key);
    this.#clear(slot);
  }

  #clear(slot: number): void {
    Atomics.store(this.#words, HEADER_WORDS + slot * SLOT_WORDS, 0);
    this.#recycled.push(slot);
  }

  #slotOf(out: BigUint64Array): number | undefined {
    if (out.buffer !== (this.#buffer as ArrayBufferLike)) return undefined;
    return ((out.byteOffset - this.#base) / 4 - HEADER_WORDS - 2) / SLOT_WORDS;
  }
}

/** Whether any rank of a world holds anything, as far as was written down. */
export function holdsAny(buffer: SharedArrayBuffer): boolean {
  const words = new Int32Array(buffer);
  for (let base = 0; base < words.length; base += RANK_BYTES / 4) {
    for (let slot = 0; slot < NUM_SLOTS; slot++) {
      if (Atomics.load(words, base + HEADER_WORDS + slot * SLOT_WORDS) !== 0) return true;
    }
  }
  return false;
}

/** Runs `fn` alone among the threads that free what ranks of a world held: they look at each other's pages. */
export function whileOthersFreeNothing<T>(buffer: SharedArrayBuffer, fn: () => T): T {
  return new Lock(new Int32Array(buffer), LOCK_AT, FREED_MS).run(fn);
}

/**
 * Takes out what a dead rank held, all of it or some kinds: a second call finds nothing.
 * @returns it, and how many things were never written down
 */
export function takeLedger(
  buffer: SharedArrayBuffer,
  rank: number,
  kinds: readonly HeldKind[] = HELD_KINDS,
): { readonly held: readonly Held[]; readonly numUnknown: number } {
  const words = new Int32Array(buffer, rank * RANK_BYTES, RANK_BYTES / 4);
  const held = heldBy(buffer, rank, kinds);
  const order = (one: Held) => HELD_KINDS.indexOf(one.kind);
  const numUnknown = kinds === HELD_KINDS ? Atomics.exchange(words, 0, 0) : 0;
  return { held: held.sort((a, b) => order(a) - order(b)), numUnknown };
}

/** What a dead rank held, which stays in the ledger. */
export function readLedger(buffer: SharedArrayBuffer, rank: number): readonly Held[] {
  return heldBy(buffer, rank);
}

/** @param taken kinds that are taken out; where it is left out all are only read */
function heldBy(buffer: SharedArrayBuffer, rank: number, taken?: readonly HeldKind[]): Held[] {
  const words = new Int32Array(buffer, rank * RANK_BYTES, RANK_BYTES / 4);
  const held: Held[] = [];
  for (let slot = 0; slot < NUM_SLOTS; slot++) {
    const at = HEADER_WORDS + slot * SLOT_WORDS;
    const word = Atomics.load(words, at);
    const kind = HELD_KINDS[(word >>> 8) - 1];
    if (kind === undefined || taken?.includes(kind) === false) continue;
    if (taken !== undefined && Atomics.exchange(words, at, 0) === 0) continue;
    const handle = new BigUint64Array(buffer, rank * RANK_BYTES + 4 * (at + 2), 1)[0] ?? 0n;
    if (handle !== 0n) held.push({ kind, ordinal: word & 255, handle });
  }
  return held;
}
