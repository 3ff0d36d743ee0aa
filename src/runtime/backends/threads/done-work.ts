/**
 * A call that was done when it was issued, as most small ones are: an object of a third of `ThreadsWork`, for what a call
 * allocates is a tenth of what it costs.
 */
import { checkWait, PendingWork } from "../../comm/index.ts";

export class DoneWork<T> extends PendingWork<T> {
  constructor(seq: number, op: string, group: string, value: T) {
    super(seq, op, group);
    this.value = value;
    this.state = "done";
  }

  wait(options?: { timeoutMs?: number }): T {
    if (options !== undefined) checkWait(options);
    this.seen = true;
    return this.value as T;
  }

  protected onAwaited(): void {}
}
