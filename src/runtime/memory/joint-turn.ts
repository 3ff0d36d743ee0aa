/**
 * Joint turns: for something that ranks must do together, and that blocks each of them until all have begun. Each names the
 * ranks that it needs, and those may need others: the turn is granted to all of them at once or to none, and never while
 * one of them has a turn of a group (turns.ts), nor the other way round. Nothing here waits, but for a grant that is under
 * way (`withdraw`). It is granted while all of them attend (attendance.ts), so that none waits for the program of another.
 *
 * Words: one per rank of the world. What is offered, then granted; then whether the rank has come, and has done its part;
 * below them, as bits, the ranks that it needs, and once granted all that take part.
 */
import { GRANTED, grantAll, HELD, type TakenPlace, withdrawOffer } from "./grant.ts";

const OFFERED = 2 ** 16;
const RANKS = OFFERED - 1;
const HERE = 2 ** 17;
const DONE = 2 ** 18;

/** Most ranks of a world whose ranks can have joint turns. */
export const MAX_JOINT_RANKS = 16;

/** Where joint turns stand; ranks are taken with a mark that is no group's. */
interface JointPlace extends TakenPlace {
  /** First of the words of the world's ranks. */
  readonly at: number;
  /** How many there are. */
  readonly numRanks: number;
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
    const together = this.#together(this.#rank);
    return together !== undefined && this.#grant(together);
  }

  /** Who would have a turn with this rank, itself among them, as soon as they all attend: all of them have offered. */
  get together(): readonly number[] | undefined {
    for (let rank = 0; rank < this.#place.numRanks; rank++) {
      // Of those without a need of their own, none has a turn for itself.
      if ((this.#word(rank) & RANKS) === 0) continue;
      const found = this.#together(rank);
      if (found?.has(this.#rank) === true) return [...found.keys()];
    }
    return undefined;
  }

  /** Whether this rank has been granted a turn that is not over. */
  get granted(): boolean {
    return (this.#word(this.#rank) & GRANTED) !== 0;
  }

  /** Takes the offer back, unless the turn is granted already. @returns whether none is granted */
  withdraw(): boolean {
    return withdrawOffer(this.#words, this.#at(this.#rank), this.#place.isOver);
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
      // A rank that is not in it has not read its grant yet, or saw that all were done and left.
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

  /** Everybody that `first` needs, with what each has offered; `undefined` until all have. */
  #together(first: number): ReadonlyMap<number, number> | undefined {
    const found = new Map<number, number>();
    const asked = [first];
    for (const rank of asked) {
      const word = this.#word(rank);
      if ((word & OFFERED) === 0 || (word & (HELD | GRANTED)) !== 0) return undefined;
      found.set(rank, word);
      for (const other of ranksOf(word)) if (!asked.includes(other)) asked.push(other);
    }
    return found;
  }

  #grant(found: ReadonlyMap<number, number>): boolean {
    const granted = GRANTED | maskOf([...found.keys()]);
    const offers = [...found].map(([rank, word]) => ({ rank, at: this.#at(rank), word }));
    return grantAll(this.#words, this.#place, offers, () => granted);
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
