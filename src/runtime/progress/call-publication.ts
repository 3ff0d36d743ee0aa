/**
 * Publishes a queue's calls, in order. A call whose fingerprint would overwrite one that a member has yet to compare is
 * held back, and all behind it; so is whatever comes behind a call that reads what the members said in theirs of its
 * number (lengths of objects, colors of a split), until that has run.
 */
import type { MismatchError } from "../../core/index.ts";
import type { Agreement } from "./agreement.ts";
import type { QueueEntry } from "./queue-entry.ts";

export class CallPublication {
  readonly #agreement: Agreement;
  /** The call that must run before any other is published. */
  #reading: QueueEntry | undefined;
  /** Whether calls are held back, or the next one must be. */
  behind = false;

  constructor(agreement: Agreement) {
    this.#agreement = agreement;
  }

  /** Publishes a call that was just taken, or holds it back. @returns its disagreement with other members' */
  take(entry: QueueEntry): MismatchError | undefined {
    if (!this.behind && this.#agreement.mayAnnounce(entry.arrivals)) return this.#announce(entry);
    this.behind = true;
    return undefined;
  }

  /**
   * Publishes what need not be held back any longer.
   * @param waiting all calls that are not issued yet, in order
   * @returns the first disagreement
   */
  goOn(waiting: readonly QueueEntry[]): MismatchError | undefined {
    for (const entry of waiting) {
      if (entry.announced) continue;
      if (this.#reading !== undefined || !this.#agreement.mayAnnounce(entry.arrivals)) return undefined;
      const mismatch = this.#announce(entry);
      if (mismatch !== undefined) return mismatch;
    }
    this.behind = this.#reading !== undefined;
    return undefined;
  }

  /** Says that a call has run. */
  ran(entry: QueueEntry): void {
    if (this.#reading === entry) this.#reading = undefined;
  }

  #announce(entry: QueueEntry): MismatchError | undefined {
    entry.announced = true;
    if (entry.reads) {
      this.#reading = entry;
      this.behind = true;
    }
    if (entry.comparesLater) {
      this.#agreement.publish(entry.arrivals);
      return undefined;
    }
    return this.#agreement.announce(entry.arrivals);
  }
}
