/**
 * A call's results in tiles, which whoever is free copies: a rank takes its own first, and then what the others have yet to take of
 * theirs. Cores that share a cache, or that somebody else uses as well, are slower than others by half and more, and a call lasts as
 * long as its last rank; by this, all end together.
 *
 * A rank that fails in a call lets nobody else write to its result any more, and waits until those that do have ended: then its
 * program may use the memory again.
 */
import { nap } from "../../memory/index.ts";
import { MEETING } from "./host-arena.ts";

/** A tile: long enough that taking it costs nothing beside copying it. */
export const TILE_BYTES = 64 * 1024;
/** Added to the number of those that write: more than there are. */
const CLOSED = 2 ** 30;
/** How long a rank that failed waits for one that copies: that one may have been stopped, or have died. */
const MOST_MS = 1000;
const NAP_MS = 0.05;

/** The tiles of a group's ranks, in their places to meet. `at` is the index of a rank's first word there. */
export class SharedTiles {
  readonly #words: Int32Array;

  constructor(words: Int32Array) {
    this.#words = words;
  }

  /** Before the others know of the call. */
  reset(at: number): void {
    this.#words[at + MEETING.tilesTaken] = 0;
    this.#words[at + MEETING.writers] = 0;
  }

  /** Takes one of a rank's tiles. @returns its number: from that of its tiles on, there is none left */
  take(at: number): number {
    return Atomics.add(this.#words, at + MEETING.tilesTaken, 1);
  }

  /** Begins to write to another rank's result. @returns whether that rank lets anybody; `leave` follows in any case */
  enter(at: number): boolean {
    return Atomics.add(this.#words, at + MEETING.writers, 1) < CLOSED;
  }

  leave(at: number): void {
    Atomics.sub(this.#words, at + MEETING.writers, 1);
  }

  /**
   * Lets nobody write to a rank's result any more, and waits for those that do. Idempotent.
   * @returns whether they have ended: one that was stopped may go on at any time
   */
  close(at: number, mostMs = MOST_MS): boolean {
    const writers = at + MEETING.writers;
    Atomics.or(this.#words, writers, CLOSED);
    const began = performance.now();
    while (Atomics.load(this.#words, writers) > CLOSED) {
      if (performance.now() - began >= mostMs) return false;
      nap(NAP_MS);
    }
    return true;
  }
}
