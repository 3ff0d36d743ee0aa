/** The time in which the survivors of a generation are awaited: until a deadline, which may come nearer. */
import type { RunningTimer } from "../comm/index.ts";
import type { Timers } from "./timers.ts";

export class SurvivorDeadline {
  readonly #timers: Timers;
  readonly #onLate: () => void;
  readonly #sinceMs = performance.now();
  readonly #notBeforeMs: number;
  #deadlineMs: number;
  #timer: RunningTimer;

  /**
   * @param limitMs how long survivors may take
   * @param delayMs the next generation does not start before
   * @param onLate is told when the deadline has come
   */
  constructor(timers: Timers, limitMs: number, delayMs: number, onLate: () => void) {
    this.#timers = timers;
    this.#onLate = onLate;
    this.#notBeforeMs = this.#sinceMs + delayMs;
    this.#deadlineMs = this.#sinceMs + limitMs;
    this.#timer = timers.after(limitMs, onLate);
  }

  get sinceMs(): number {
    return this.#sinceMs;
  }

  /** How long the next generation must wait yet, ms; 0 or less when it need not. */
  get delayMs(): number {
    return this.#notBeforeMs - performance.now();
  }

  /** Brings the deadline nearer, if need be: so long from now. */
  hasten(limitMs: number): void {
    const deadlineMs = performance.now() + limitMs;
    if (deadlineMs >= this.#deadlineMs) return;
    this.#timers.cancel(this.#timer);
    this.#deadlineMs = deadlineMs;
    this.#timer = this.#timers.after(limitMs, this.#onLate);
  }

  /** Awaits nobody any more. */
  end(): void {
    this.#timers.cancel(this.#timer);
  }
}
