/**
 * Presence: shared words that name the process and the thread of each rank that has attached, until its engine has
 * ended everything. Two words per rank: its process number (zero: nobody), and its thread's number + 1, negative once
 * it has ended everything, or GONE.
 */

/** Words of one rank. */
export const PRESENCE_WORDS = 2;

/** In place of a thread that is gone and has ended nothing. */
const GONE = 2 ** 31 - 1;

/** The ranks of a world that have come, as any of them sees them. */
export class Presence {
  readonly #words: Int32Array;
  readonly #at: number;
  readonly #worldSize: number;

  /** @param at first of `worldSize * PRESENCE_WORDS` words */
  constructor(words: Int32Array, at: number, worldSize: number) {
    this.#words = words;
    this.#at = at;
    this.#worldSize = worldSize;
  }

  /**
   * Says that `rank` is thread `thread` of process `pid`.
   * @returns the rank that stands in the way: `rank` itself when it is there already, or another one of the same thread
   */
  enter(rank: number, pid: number, thread: number): number | undefined {
    const words = this.#words;
    for (let other = 0; other < this.#worldSize; other++) {
      const isHere =
        Atomics.load(words, this.#pid(other)) === pid && Atomics.load(words, this.#thread(other)) === thread + 1;
      if (isHere && other !== rank) return other;
    }
    if (Atomics.compareExchange(words, this.#pid(rank), 0, pid) !== 0) return rank;
    Atomics.store(words, this.#thread(rank), thread + 1);
    return undefined;
  }

  /** Says that `rank` could not attach after all. */
  withdraw(rank: number): void {
    Atomics.store(this.#words, this.#thread(rank), 0);
    Atomics.store(this.#words, this.#pid(rank), 0);
  }

  /** Says that `rank` has had its engine end everything, and will never call it again. */
  end(rank: number): void {
    const at = this.#thread(rank);
    const thread = Atomics.load(this.#words, at);
    if (thread > 0) Atomics.store(this.#words, at, -thread);
  }

  /** Says that the thread of `rank` is gone: if its engine has not ended everything, it will not. */
  bury(rank: number): void {
    const at = this.#thread(rank);
    if (Atomics.load(this.#words, at) > 0) Atomics.store(this.#words, at, GONE);
  }

  /** Whether `rank` is gone and has not had its engine end everything. */
  isGone(rank: number): boolean {
    return Atomics.load(this.#words, this.#thread(rank)) === GONE;
  }

  /** Whether `rank` has come on this host, whatever became of it. */
  hasCome(rank: number): boolean {
    return Atomics.load(this.#words, this.#pid(rank)) !== 0;
  }

  /** Ranks of process `pid` that have come and have not had their engine end everything. */
  of(pid: number): readonly number[] {
    return Array.from({ length: this.#worldSize }, (_, rank) => rank).filter(
      (rank) => Atomics.load(this.#words, this.#pid(rank)) === pid && Atomics.load(this.#words, this.#thread(rank)) > 0,
    );
  }

  #pid(rank: number): number {
    return this.#at + PRESENCE_WORDS * rank;
  }

  #thread(rank: number): number {
    return this.#at + PRESENCE_WORDS * rank + 1;
  }
}
