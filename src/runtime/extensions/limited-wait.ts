/** One call's wait for another work, which goes on when the call gives up: at its own deadline, or because of its signal. */
import { AbortedError, TimeoutError } from "../../core/index.ts";
import {
  abortReason,
  afterRunning,
  type CallOptions,
  PendingWork,
  type RunningTimer,
  runningTime,
  type Work,
} from "../comm/index.ts";

/** A wait in which the other work tells who is missing. */
const LOOK_MS = 1;

export class LimitedWait<T> extends PendingWork<T> {
  readonly #work: Work<T>;
  readonly #timeoutMs: number;
  readonly #until: number;

  constructor(work: Work<T>, { timeoutMs = Number.POSITIVE_INFINITY, signal }: CallOptions) {
    super(work.seq, work.op, work.group);
    this.#work = work;
    this.#timeoutMs = timeoutMs;
    this.#until = runningTime() + timeoutMs;
    const timer: RunningTimer | undefined = Number.isFinite(timeoutMs)
      ? afterRunning(timeoutMs, () => this.#look(LOOK_MS, true))
      : undefined;
    const abort = () => this.fail(new AbortedError(abortReason(signal as AbortSignal)));
    this.onSettled = () => {
      timer?.cancel();
      signal?.removeEventListener("abort", abort);
    };
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted === true) abort();
    work.then(
      (value) => this.complete(value),
      (error) => this.fail(error),
    );
  }

  /** Waits for the other work for so long. @throws TimeoutError, unless this call's own time is up with that */
  #look(ms: number, isLast: boolean): void {
    try {
      this.complete(this.#work.wait({ timeoutMs: ms }));
    } catch (error) {
      if (!(error instanceof TimeoutError) || this.#work.state === "failed") this.fail(error);
      else if (!isLast) throw error;
      else this.fail(new TimeoutError(error.op, this.#timeoutMs, error.ranks, { callSite: error.callSite }));
    }
  }

  wait({ timeoutMs = Number.POSITIVE_INFINITY }: { timeoutMs?: number } = {}): T {
    const leftMs = Math.max(LOOK_MS, this.#until - runningTime());
    if (!this.settled) this.#look(Math.min(timeoutMs, leftMs), leftMs <= timeoutMs);
    return this.result();
  }

  protected onAwaited(): void {}
}
