/** Pending work of a queue: the event loop drives it, or the thread that waits for it. */
import { type RankActivity, TimeoutError } from "../../core/index.ts";
import { callSite, checkWait, PendingWork, runningTime } from "../comm/index.ts";
import { blockUntil, type Poller } from "./poller.ts";

/** What drives a work: its group's queue. */
export interface WorkDriver {
  readonly poller: Poller;
  /** Makes sure that `work`'s completion is noticed, and looks at once. @returns whether it is settled */
  advance(work: QueuedWork<unknown>, now: number): boolean;
  /** Looks for a moment, without asking the engine for a mark: most collectives end within it. */
  spin(work: QueuedWork<unknown>): void;
  /** Hands it to the event loop, after a short spin. */
  watch(work: QueuedWork<unknown>): void;
  /** Who has come to a pending call, and what each did last. */
  activityOf(work: QueuedWork<unknown>): readonly RankActivity[];
}

export class QueuedWork<T> extends PendingWork<T> {
  readonly #driver: WorkDriver;

  constructor(driver: WorkDriver, seq: number, op: string, group: string) {
    super(seq, op, group);
    this.#driver = driver;
  }

  wait(options?: { timeoutMs?: number }): T {
    if (options !== undefined) checkWait(options);
    this.seen = true;
    if (!this.settled) this.#driver.spin(this as QueuedWork<unknown>);
    if (!this.settled && !this.#driver.advance(this as QueuedWork<unknown>, performance.now())) {
      const until = options?.timeoutMs === undefined ? Number.POSITIVE_INFINITY : runningTime() + options.timeoutMs;
      blockUntil(this.#driver.poller, (now) => {
        if (this.#driver.advance(this as QueuedWork<unknown>, now)) return true;
        if (runningTime(now) > until) {
          const what = `${this.op} #${this.seq} of ${this.group}`;
          const ranks = this.#driver.activityOf(this as QueuedWork<unknown>);
          throw new TimeoutError(what, options?.timeoutMs ?? 0, ranks, { callSite: callSite() });
        }
        return false;
      });
    }
    return this.result();
  }

  protected onAwaited(): void {
    this.#driver.watch(this as QueuedWork<unknown>);
  }
}
