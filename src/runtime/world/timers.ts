import { afterRunning, type RunningTimer } from "../comm/index.ts";

/** The timers of one owner, which can end them all at once. They count the time that the process runs. */
export class Timers {
  readonly #pending = new Set<RunningTimer>();

  after(ms: number, then: () => void): RunningTimer {
    const timer = afterRunning(ms, () => {
      this.#pending.delete(timer);
      then();
    });
    this.#pending.add(timer);
    return timer;
  }

  cancel(timer: RunningTimer): void {
    timer.cancel();
    this.#pending.delete(timer);
  }

  clear(): void {
    for (const timer of this.#pending) timer.cancel();
    this.#pending.clear();
  }
}
