/**
 * Whether ranks attend: their threads do nothing but wait for a turn that all who take part must begin together (to free a
 * group, joint-turn.ts). An offer alone does not say so. Its rank may be at work in the program since, for as long as it
 * likes, and would not take the turn: others, who wait in it, would wait for that work, and for ever where the work waits
 * for them. Such turns are granted to ranks that attend alone.
 *
 * A rank attends for some milliseconds, then it goes back to its program. The word is the one by which turns take ranks.
 */
import { MAX_GROUPS, TURNS_AT } from "./control-layout.ts";

/** Stands where a rank that attends may be taken; no group's mark, nor that of joint turns. */
export const ATTENDS = MAX_GROUPS + 2;

/** The attendance of a world's ranks, as one of them sees it. */
export class Attendance {
  readonly #words: Int32Array;
  readonly #rank: number;

  constructor(words: Int32Array, rank: number) {
    this.#words = words;
    this.#rank = rank;
  }

  /** Says that this rank attends. @returns false where it has a turn already */
  enter(): boolean {
    const before = Atomics.compareExchange(this.#words, TURNS_AT + this.#rank, 0, ATTENDS);
    return before === 0 || before === ATTENDS;
  }

  /** Says that it does not any more. @returns false where a turn is granted to it, or just being granted */
  leave(): boolean {
    const before = Atomics.compareExchange(this.#words, TURNS_AT + this.#rank, ATTENDS, 0);
    return before === ATTENDS || before === 0;
  }

  /** Whether `rank` attends now. */
  has(rank: number): boolean {
    return Atomics.load(this.#words, TURNS_AT + rank) === ATTENDS;
  }
}
