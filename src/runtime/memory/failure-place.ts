/** A place for a failure in the control segment: a state word, a length word and the text. The first failure stays. */
import { decodeFailure, encodeFailure, type Failure } from "../comm/index.ts";
import { FAILURE_BYTES, SET } from "./control-layout.ts";
import type { Lock } from "./lock.ts";

export class FailurePlace {
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #lock: Lock;
  readonly #at: number;

  /** @param bytes the bytes of `words` */
  constructor(words: Int32Array, bytes: Uint8Array, lock: Lock, at: number) {
    this.#words = words;
    this.#bytes = bytes;
    this.#lock = lock;
    this.#at = at;
  }

  get isSet(): boolean {
    return Atomics.load(this.#words, this.#at) === SET;
  }

  get failure(): Failure | undefined {
    if (!this.isSet) return undefined;
    const length = this.#words[this.#at + 1] ?? 0;
    return decodeFailure(this.#bytes.subarray(4 * (this.#at + 2), 4 * (this.#at + 2) + length));
  }

  /** @returns whether this failure was the first */
  set(failure: Failure): boolean {
    if (this.isSet) return false;
    const text = encodeFailure(failure, FAILURE_BYTES);
    // Under the lock: a rank may die while it writes its cause, and another rank's must be taken then.
    return this.#lock.run(() => {
      if (this.isSet) return false;
      this.#bytes.set(text, 4 * (this.#at + 2));
      this.#words[this.#at + 1] = text.length;
      Atomics.store(this.#words, this.#at, SET);
      Atomics.notify(this.#words, this.#at);
      return true;
    });
  }
}
