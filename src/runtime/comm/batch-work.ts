/** The works of a batch: one for each call, which starts when the batch does, and one for all of them. */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { checkWait } from "./call.ts";
import { PendingWork } from "./work.ts";

const ignore = () => {};

/** A call of a batch. Until the batch's function has returned there is nothing to wait for. */
export class BatchedWork<T> extends PendingWork<T> {
  #work: PendingWork<T> | undefined;

  /** Follows the work that the driver made of the call. `also` runs when that one settles. */
  start(work: PendingWork<T>, also?: () => void): void {
    this.#work = work;
    this.state = "running";
    // Somebody attached to it inside the batch.
    if (this.seen) work.then(ignore, ignore);
    const settle = () => {
      also?.();
      if (work.state === "failed") this.fail(work.error);
      else this.complete(work.outcome);
    };
    if (work.settled) settle();
    else work.onSettled = settle;
  }

  /** Ends it: the batch was not made. */
  cancel(error: unknown): void {
    this.seen = true;
    this.fail(error);
  }

  wait(options?: { timeoutMs?: number }): T {
    if (options !== undefined) checkWait(options);
    if (!this.settled) {
      if (this.#work === undefined) {
        throw new InvalidArgumentError(
          "wait",
          described(`called for ${this.op} inside the batch that issues it`),
          "to wait for the batch's work, which starts when its function has returned",
        );
      }
      return this.#work.wait(options);
    }
    if (this.#work !== undefined) this.#work.seen = true;
    return this.result();
  }

  override then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.#work !== undefined) this.#work.seen = true;
    return super.then(onFulfilled, onRejected);
  }

  protected onAwaited(): void {
    this.#work?.then(ignore, ignore);
  }
}

/** A batch's work: done when all of its operations are. */
export class BatchWork extends PendingWork<void> {
  readonly #works: readonly PendingWork<unknown>[];

  constructor(seq: number, group: string, works: readonly PendingWork<unknown>[]) {
    super(seq, "batch", group);
    this.#works = works;
    this.state = "running";
    this.#look();
  }

  wait(options?: { timeoutMs?: number }): void {
    if (options !== undefined) checkWait(options);
    const start = performance.now();
    for (const work of this.#works) {
      if (work.settled) {
        work.seen = true;
        continue;
      }
      try {
        const left =
          options?.timeoutMs === undefined ? undefined : Math.max(0.1, start + options.timeoutMs - performance.now());
        work.wait(left === undefined ? undefined : { timeoutMs: left });
      } catch (error) {
        if (!work.settled) throw error;
      }
    }
    this.#look();
    this.result();
  }

  protected onAwaited(): void {
    let left = this.#works.length;
    for (const work of this.#works) {
      const done = () => {
        left--;
        if (left === 0) this.#look();
      };
      work.then(done, done);
    }
    if (left === 0) this.#look();
  }

  #look(): void {
    if (!this.#works.every((work) => work.settled)) return;
    const failed = this.#works.find((work) => work.state === "failed");
    if (failed === undefined) this.complete(undefined);
    else this.fail(failed.error);
  }
}
