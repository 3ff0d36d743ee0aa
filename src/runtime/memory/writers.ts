/**
 * Who writes to memory that ranks lend each other: a shared word of each lender counts them, until that one fails and lets nobody
 * write any more. Whoever writes has then ended before the lender's program uses the memory again, or was stopped, and may go on at
 * any time: the lender keeps the memory out of use.
 */
import { napUntil } from "./nap.ts";

/** Added to the number of those that write: more than there are. */
const CLOSED = 2 ** 30;

/** `at` is the index of a lender's first word. */
export class Writers {
  protected readonly words: Int32Array;
  readonly #offset: number;

  /** @param offset of the word that counts, from a lender's first */
  constructor(words: Int32Array, offset: number) {
    this.words = words;
    this.#offset = offset;
  }

  /** Before others know of what is lent. */
  reset(at: number): void {
    this.words[at + this.#offset] = 0;
  }

  /** Begins to write. @returns whether the lender lets anybody; `leave` follows in any case */
  enter(at: number): boolean {
    return Atomics.add(this.words, at + this.#offset, 1) < CLOSED;
  }

  leave(at: number): void {
    Atomics.sub(this.words, at + this.#offset, 1);
  }

  /** Whether the lender lets nobody write any more. */
  isClosed(at: number): boolean {
    return Atomics.load(this.words, at + this.#offset) >= CLOSED;
  }

  /**
   * Lets nobody write any more, and waits for those that do. Idempotent.
   * @returns whether they have ended
   */
  close(at: number, limitMs: number): boolean {
    Atomics.or(this.words, at + this.#offset, CLOSED);
    return napUntil(() => Atomics.load(this.words, at + this.#offset) <= CLOSED, limitMs);
  }
}
