/** The work of a call that is several collectives, with steps of this thread between them. */
import { checkWait, PendingWork, runningTime, type Work } from "../comm/index.ts";

/** Gives the collectives one after the other, and gets their results. What it returns is the call's. */
export type Stages<T> = Generator<Work<unknown>, T, unknown>;

export class StagedWork<T> extends PendingWork<T> {
  readonly #stages: () => Stages<T>;
  /** The call before this one, whose stages come first. */
  #before: StagedWork<unknown> | undefined;
  #running: Stages<T> | undefined;
  #current: Work<unknown> | undefined;

  constructor(
    seq: number,
    op: string,
    group: string,
    stages: () => Stages<T>,
    before: StagedWork<unknown> | undefined,
  ) {
    super(seq, op, group);
    this.#stages = stages;
    this.#before = before?.settled === true ? undefined : before;
    if (this.#before === undefined) this.#start();
    else this.#before.onSettled = () => this.#start();
  }

  #start(): void {
    if (this.state !== "queued") return;
    this.#before = undefined;
    this.state = "running";
    try {
      this.#running = this.#stages();
    } catch (error) {
      this.fail(error);
      return;
    }
    this.#goOn(undefined);
  }

  /** Runs the steps up to the next collective. */
  #goOn(result: unknown): void {
    try {
      const { done, value } = (this.#running as Stages<T>).next(result);
      if (done === true) {
        this.complete(value);
        return;
      }
      this.#current = value;
      // The event loop drives it too: members must not wait until somebody asks for the result here.
      const isCurrent = () => this.#current === value && !this.settled;
      value.then(
        (next) => {
          if (isCurrent()) this.#goOn(next);
        },
        (error) => {
          if (isCurrent()) this.fail(error);
        },
      );
    } catch (error) {
      this.fail(error);
    }
  }

  wait(options?: { timeoutMs?: number }): T {
    if (options !== undefined) checkWait(options);
    this.seen = true;
    const until = options?.timeoutMs === undefined ? undefined : runningTime() + options.timeoutMs;
    const left = () => (until === undefined ? {} : { timeoutMs: Math.max(1, until - runningTime()) });
    this.#drive(left);
    return this.result();
  }

  /** Waits for all stages. @throws TimeoutError when the time is up */
  #drive(left: () => { timeoutMs?: number }): void {
    if (this.#before !== undefined) this.#before.#drive(left);
    while (!this.settled) {
      const current = this.#current as Work<unknown>;
      let result: unknown;
      try {
        result = current.wait(left());
      } catch (error) {
        // What is still under way was only waited for too long.
        if (current.state !== "done" && current.state !== "failed") throw error;
        if (this.#current === current) this.fail(error);
        continue;
      }
      if (this.#current === current && !this.settled) this.#goOn(result);
    }
  }

  protected onAwaited(): void {}
}
