/**
 * A limit of a search's time by the wall's clock. Searches look at it between steps that take milliseconds and give up by an
 * exception, which ends at the last place that has found something. Nothing is interrupted, so a search ends a little late.
 */
import { InvalidArgumentError, TimeoutError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";

/** Thrown where the time is up, for whoever has something to fall back on. */
const OUT_OF_TIME = new Error("the time limit of a synthesis is reached");
/** A solver that gets no time may take no limit at all. */
const LEAST_SECONDS = 0.001;

export class Deadline {
  readonly #limitSeconds: number;
  readonly #end: number;
  #hasCutShort = false;

  /** @throws InvalidArgumentError */
  constructor(limitSeconds: number) {
    if (!(typeof limitSeconds === "number" && limitSeconds > 0))
      throw new InvalidArgumentError(
        "timeLimitSeconds",
        described(String(limitSeconds)),
        "a number of seconds above 0",
      );
    this.#limitSeconds = limitSeconds;
    this.#end = performance.now() + limitSeconds * 1000;
  }

  /** Whether a search was given up for it. */
  get hasCutShort(): boolean {
    return this.#hasCutShort;
  }

  /** What a solver may still take. */
  get leftSeconds(): number {
    return Math.max(LEAST_SECONDS, (this.#end - performance.now()) / 1000);
  }

  /** Gives the search up when the time is over. */
  check(): void {
    if (performance.now() < this.#end) return;
    this.#hasCutShort = true;
    throw OUT_OF_TIME;
  }

  /** The error for users, where nothing was found in time. */
  timeout(what: string): TimeoutError {
    return new TimeoutError(what, this.#limitSeconds * 1000);
  }
}

/** What a search finds, or what there is already when its time is up. */
export async function unlessLate<T>(have: T, search: () => T | Promise<T>): Promise<T> {
  try {
    return await search();
  } catch (error) {
    if (error === OUT_OF_TIME) return have;
    throw error;
  }
}
