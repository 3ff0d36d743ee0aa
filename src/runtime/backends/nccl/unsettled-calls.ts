/**
 * The calls of a group that NCCL was given and that are not known to be done, in order. Marks behind them tell when
 * they are. A call is settled once, when a mark behind it was reached or the stream was found idle.
 */
import { napUntil } from "../../memory/index.ts";
import type { Agreement, CallSettlement } from "../../progress/index.ts";
import type { Completion } from "./completion.ts";
import type { Entry } from "./nccl-entry.ts";

/** How long to poll without a pause, ms; then this thread yields the core. */
const FINISH_SPIN_MS = 1;

export class UnsettledCalls {
  readonly #calls: Entry[] = [];
  /** How many were ever put there. */
  numIssued = 0;
  readonly #completion: Completion;
  readonly #settlement: CallSettlement<Entry>;
  #markedUpTo = 0;

  constructor(completion: Completion, settlement: CallSettlement<Entry>) {
    this.#completion = completion;
    this.#settlement = settlement;
  }

  /** The calls on the stream, oldest first. Always the same array. */
  get calls(): readonly Entry[] {
    return this.#calls;
  }

  /** Adds a call that was put on the stream. @param marker what its kernel writes at its end; 0 where it writes nothing */
  add(entry: Entry, marker: number): void {
    this.#calls.push(entry);
    this.numIssued++;
    if (marker !== 0) this.#markAll(marker);
  }

  /** Whether there is a mark behind every call. */
  get marked(): boolean {
    return this.#markedUpTo === this.numIssued;
  }

  /** Whether all calls on the stream are done. */
  get idle(): boolean {
    const marker = this.#calls.at(-1)?.marker ?? 0;
    return marker === 0 ? this.#completion.idle() : this.#completion.reached(marker);
  }

  /** Looks for a short while whether all calls on the stream are done. */
  idleWithin(limitMs: number): boolean {
    const until = performance.now() + limitMs;
    do {
      for (let i = 0; i < 8; i++) if (this.idle) return true;
    } while (performance.now() < until);
    return false;
  }

  /** Puts a mark behind everything issued, so that its completion can be read. @throws NativeError, ClosedError */
  mark(): void {
    // Also when it fails: the group ends then, and is not to try again.
    this.#markedUpTo = this.numIssued;
    this.#markAll(this.#completion.mark());
  }

  /** Says that a mark is behind every call. */
  #markAll(marker: number): void {
    this.#markedUpTo = this.numIssued;
    for (let i = this.#calls.length - 1; i >= 0 && this.#calls[i]?.marker === 0; i--) {
      const entry = this.#calls[i];
      if (entry !== undefined) entry.marker = marker;
    }
  }

  /** How many calls, from the oldest on, are known to be done. */
  get numDone(): number {
    let done = 0;
    while (done < this.#calls.length && this.#completion.reached(this.#calls[done]?.marker ?? 0)) done++;
    return done;
  }

  /** Settles the oldest `count` calls, in order. */
  settle(count: number): void {
    const now = performance.now();
    if (count === 1) {
      const entry = this.#calls.length === 1 ? this.#calls.pop() : this.#calls.shift();
      if (entry !== undefined) this.#settlement.settle(entry, now);
    } else for (const entry of this.#calls.splice(0, count)) this.#settlement.settle(entry, now);
    if (this.#calls.length === 0) this.#markedUpTo = this.numIssued;
  }

  /** How many calls, from the oldest on, every member has issued: those will complete. */
  numWhole(agreement: Agreement): number {
    const broken = this.#calls.findIndex((entry) => !agreement.complete(entry.arrivals));
    return broken < 0 ? this.#calls.length : broken;
  }

  /** Waits, for `limitMs` at most and while the group goes on, until the oldest `count` calls are done, as far as marks tell. */
  waitFor(count: number, limitMs: number, over: () => boolean): void {
    const last = this.#calls.slice(0, count).findLast((entry) => entry.marker !== 0);
    if (last === undefined) return;
    napUntil(() => this.#completion.reached(last.marker) || over(), limitMs, { spinMs: FINISH_SPIN_MS });
  }

  /** Forgets all calls: they were settled elsewhere. */
  clear(): void {
    this.#calls.length = 0;
  }

  /** Ends it. @param settled whether the stream is known to be done with all that was put there */
  close(settled: boolean): void {
    this.#completion.close(settled);
  }
}
