/**
 * A call's results in tiles, which whoever is free copies: a rank takes its own first, and then what the others have yet to take of
 * theirs. Cores that share a cache, or that somebody else uses as well, are slower than others by half and more, and a call lasts as
 * long as its last rank; by this, all end together.
 *
 * A rank that fails in a call lets nobody else write to its result any more, and waits until those that do have ended: then its
 * program may use the memory again.
 */
import { Writers } from "../../memory/index.ts";
import { MEETING } from "./host-arena.ts";

/** A tile: long enough that taking it costs nothing beside copying it. */
export const TILE_BYTES = 64 * 1024;

/** The tiles of a group's ranks, in their places to meet. `at` is the index of a rank's first word there. */
export class SharedTiles extends Writers {
  constructor(words: Int32Array) {
    super(words, MEETING.writers);
  }

  /** Before the others know of the call. */
  override reset(at: number): void {
    this.words[at + MEETING.tilesTaken] = 0;
    super.reset(at);
  }

  /** Takes one of a rank's tiles. @returns its number: from that of its tiles on, there is none left */
  take(at: number): number {
    return Atomics.add(this.words, at + MEETING.tilesTaken, 1);
  }
}
