/**
 * Time that this process computed. Limits of a search count it, not the wall's: on a busy machine the same search would
 * otherwise end earlier, with another result.
 */
import type { Deadline } from "./deadline.ts";

/** A solver that counts the wall's time gets at most so many times its limit. */
const MOST_SLOWDOWN = 16;
/** With less than this, what the slowdown is cannot be told. */
const LEAST_SECONDS = 0.05;

export class WorkClock {
  readonly #deadline: Deadline | undefined;
  readonly #wallStart = performance.now();
  readonly #cpuStart = cpuMs();

  /** @param deadline that no limit of the wall's time is beyond */
  constructor(deadline?: Deadline) {
    this.#deadline = deadline;
  }

  /** Seconds of CPU time since the clock was made; of the wall's where that is less (several threads), or is all there is. */
  get seconds(): number {
    const now = cpuMs();
    const wall = performance.now() - this.#wallStart;
    const cpu = now === undefined || this.#cpuStart === undefined ? wall : now - this.#cpuStart;
    return Math.min(cpu, wall) / 1000;
  }

  /** How long so many seconds of work take by the wall's clock, as busy as the machine has been since the clock was made. */
  wallSeconds(seconds: number): number {
    const wall = (performance.now() - this.#wallStart) / 1000;
    const work = this.seconds;
    const limit = work < LEAST_SECONDS ? seconds : seconds * Math.min(MOST_SLOWDOWN, Math.max(1, wall / work));
    return Math.min(limit, this.#deadline?.leftSeconds ?? limit);
  }
}

/** Undefined where the runtime does not tell. */
function cpuMs(): number | undefined {
  if (typeof process === "undefined" || typeof process.cpuUsage !== "function") return undefined;
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
