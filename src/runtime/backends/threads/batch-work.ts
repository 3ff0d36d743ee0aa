/** A batch's work: done when all of its operations are. */
import { checkWait, PendingWork } from "../../comm/index.ts";

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
