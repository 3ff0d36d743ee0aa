/**
 * Joint turns: ranks that must do something together at which each of them blocks until all have begun. Each names the
 * ranks that it needs, and those may need others: the turn is granted to all of them at once or to none, and never while
 * one of them has a turn of a group (turns.ts), nor the other way round. Nothing here waits, but for a grant that is under
 * way (`withdraw`).
 *
 * Words: one per rank of the world. What is offered, then granted; then whether the rank has come, and has done its part;
 * below them, as bits, the ranks that it needs, and once granted all that take part.
 */
import { nap } from "./nap.ts";

const OFFERED = 2 ** 16;
const RANKS = OFFERED - 1;
const HELD = 2 ** 17;
const GRANTED = 2 ** 18;
const HERE = 2 ** 19;
const DONE = 2 ** 20;

/** Most ranks of a world whose ranks can have joint turns. */
export const MAX_JOINT_RANKS = 16;
/** A grant takes microseconds; who is at it for longer is dead. */
const GRANT_MS = 1000;
const NAP_MS = 0.05;

/** Where joint turns stand. */
export interface JointPlace {
  /** First of the words of the world's ranks. */
  readonly at: number;
  /** As `TurnsPlace.takenAt`, and what stands there at a rank that takes part: no group's. */
  readonly takenAt: number;
  readonly mark: number;
  /** Whether the world has failed. */
  readonly isOver: () => boolean;
}

/** The joint turns of a world, as one rank takes them. */
export class JointTurn {
  readonly #words: Int32Array;
  readonly #place: JointPlace;
  readonly #rank: number;

  constructor(words: Int32Array, rank: number, place: JointPlace) {
    this.#words = words;
    this.#place = place;
    this.#rank = rank;
  }

  /**
   * Offers this rank. It commits to nothing until the turn is granted; ask again until it is.
   * @param needs the ranks without which it has no turn; of none, it only serves others
   * @returns whether the turn is granted
   */
  offer(needs: readonly number[]): boolean {
    const word = OFFERED | maskOf(needs);
    const before = this.#word(this.#rank);
    if ((before & GRANTED) !== 0) return true;
    if ((before & HELD) !== 0) return false;
    if (before !== word && Atomics.compareExchange(this.#words, this.#at(this.#rank), before, word) !== before)
      return false;
    if ((word & RANKS) === 0) return false;
    const together = this.#together();
    return together !== undefined && this.#grant(together);
  }

  /** Whether this rank has been granted a turn that is not over. */
  get granted(): boolean {
    return (this.#word(this.#rank) & GRANTED) !== 0;
  }

  /** Takes the offer back, unless the turn is granted already. @returns whether none is granted */
  withdraw(): boolean {
    const words = this.#words;
    const own = this.#at(this.#rank);
    const until = performance.now() + GRANT_MS;
    for (let i = 0; ; i++) {
      const word = Atomics.load(words, own);
      if ((word & GRANTED) !== 0) return false;
      if (word === 0) return true;
      if ((word & HELD) === 0) {
        if (Atomics.compareExchange(words, own, word, 0) === word) return true;
        continue;
      }
      // Another rank is granting the turn, or will let go within microseconds.
      if (i % 64 !== 63) continue;
      if (this.#place.isOver() || performance.now() > until) return true;
      nap(NAP_MS);
    }
  }

  /**
   * Goes on with a turn that is granted, without waiting.
   * @returns "act" when all have come, and this rank is to do its part and call `done`; "over" when all have done theirs,
   *   and the turn has ended; "wait" before
   */
  advance(): "wait" | "act" | "over" {
    const word = this.#word(this.#rank);
    if ((word & GRANTED) === 0) return "over";
    if ((word & HERE) === 0) Atomics.store(this.#words, this.#at(this.#rank), word | HERE);
    const phase = (word & DONE) === 0 ? HERE : DONE;
    for (const rank of ranksOf(word)) {
      if (rank === this.#rank) continue;
      const theirs = this.#word(rank);
      const isIn = (theirs & GRANTED) !== 0 && (theirs & (1 << this.#rank)) !== 0;
      // Who is not in it has not read its grant yet, or has seen that all were done, and left.
      if (isIn ? (theirs & phase) === 0 : phase === HERE) return "wait";
    }
    if (phase === HERE) return "act";
    Atomics.store(this.#words, this.#at(this.#rank), 0);
    Atomics.compareExchange(this.#words, this.#place.takenAt + this.#rank, this.#place.mark, 0);
    return "over";
  }

  /** Says that this rank has done its part. */
  done(): void {
    Atomics.or(this.#words, this.#at(this.#rank), DONE);
  }

  /** Everybody that this rank needs, with what each has offered; `undefined` until all have. */
  #together(): ReadonlyMap<number, number> | undefined {
    const found = new Map<number, number>();
    const asked = [this.#rank];
    for (const rank of asked) {
      const word = this.#word(rank);
      if ((word & OFFERED) === 0 || (word & (HELD | GRANTED)) !== 0) return undefined;
      found.set(rank, word);
      for (const other of ranksOf(word)) if (!asked.includes(other)) asked.push(other);
    }
    return found;
  }

  #grant(offers: ReadonlyMap<number, number>): boolean {
    const words = this.#words;
    const { takenAt, mark } = this.#place;
    // In one order everywhere, as groups' turns are: of several that want the same ranks one always gets them.
    const order = [...offers.keys()].sort((a, b) => a - b);
    const offerOf = (rank: number) => offers.get(rank) ?? 0;
    const taken: number[] = [];
    const held: number[] = [];
    for (const rank of order) {
      if (Atomics.compareExchange(words, takenAt + rank, 0, mark) !== 0) break;
      taken.push(rank);
    }
    if (taken.length === order.length) {
      for (const rank of order) {
        const offer = offerOf(rank);
        if (Atomics.compareExchange(words, this.#at(rank), offer, offer | HELD) !== offer) break;
        held.push(rank);
      }
    }
    if (held.length === order.length) {
      for (const rank of order) Atomics.store(words, this.#at(rank), GRANTED | maskOf(order));
      return true;
    }
    for (const rank of held) Atomics.compareExchange(words, this.#at(rank), offerOf(rank) | HELD, offerOf(rank));
    for (const rank of taken) Atomics.compareExchange(words, takenAt + rank, mark, 0);
    return false;
  }

  #word(rank: number): number {
    return Atomics.load(this.#words, this.#at(rank));
  }

  #at(rank: number): number {
    return this.#place.at + rank;
  }
}

function maskOf(ranks: readonly number[]): number {
  return ranks.reduce((mask, rank) => mask | (1 << rank), 0);
}

function ranksOf(word: number): number[] {
  return Array.from({ length: MAX_JOINT_RANKS }, (_, rank) => rank).filter((rank) => (word & (1 << rank)) !== 0);
}
