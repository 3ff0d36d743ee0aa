/**
 * A call's results in tiles, which whoever is free copies: a rank takes those of its own result first, and then what the others
 * have yet to take of theirs. Cores that share a cache, or that somebody else uses as well, are slower than others by half and more,
 * and a call lasts as long as its last rank; by this, all end together.
 *
 * A rank that fails in a call gives no more tiles away, and waits until those that others have taken are copied: then its
 * program may use the memory again.
 */
import { nap } from "../../memory/index.ts";
import { MEETING } from "./host-arena.ts";

/** A tile: long enough that taking it costs nothing beside copying it. */
export const TILE_BYTES = 64 * 1024;
/** More than any result has tiles. */
const CLOSED = 2 ** 30;
/** How long a rank that failed waits for one that copies: that one may have been stopped, or have died. */
const MOST_MS = 1000;
const NAP_MS = 0.05;

/** The tiles of one rank's result, in its place to meet. */
export class SharedTiles {
  readonly #words: Int32Array;
  /** Index of the place's first word. */
  readonly #at: number;
  readonly #numTiles: number;

  constructor(words: Int32Array, at: number, numTiles: number) {
    this.#words = words;
    this.#at = at;
    this.#numTiles = numTiles;
  }

  /** Before the others know of the call. */
  reset(): void {
    this.#words[this.#at + MEETING.tilesTaken] = 0;
    this.#words[this.#at + MEETING.tilesCopied] = 0;
  }

  /** Takes a tile. @returns its number; `undefined` when there is none left */
  take(): number | undefined {
    const tile = Atomics.add(this.#words, this.#at + MEETING.tilesTaken, 1);
    return tile < this.#numTiles ? tile : undefined;
  }

  /** Says that a tile which was taken is copied. */
  copied(): void {
    Atomics.add(this.#words, this.#at + MEETING.tilesCopied, 1);
  }

  /** Gives no more away, and waits for those that were taken. Idempotent. */
  close(mostMs = MOST_MS): void {
    const counted = Atomics.exchange(this.#words, this.#at + MEETING.tilesTaken, CLOSED);
    const taken = counted < CLOSED ? Math.min(this.#numTiles, counted) : 0;
    const began = performance.now();
    while (Atomics.load(this.#words, this.#at + MEETING.tilesCopied) < taken && performance.now() - began < mostMs) {
      nap(NAP_MS);
    }
  }
}
