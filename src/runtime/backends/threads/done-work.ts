/**
 * A call that was done when it was issued, as most small ones are. It extends nothing: engines inline the constructor of such
 * a class and none of one that calls `super`, which cost a tenth of a small call.
 */
import type { CallTrace } from "../../../core/index.ts";
import { checkWait, passOn, type QuickWork, type WorkNote } from "../../comm/index.ts";

export class DoneWork<T> implements QuickWork<T> {
  readonly seq: number;
  readonly op: string;
  readonly group: string;
  readonly #value: T;
  trace: CallTrace | undefined;
  note: WorkNote | undefined;

  constructor(seq: number, op: string, group: string, value: T) {
    this.seq = seq;
    this.op = op;
    this.group = group;
    this.#value = value;
    this.trace = undefined;
    this.note = undefined;
  }

  get state(): "done" {
    return "done";
  }

  wait(options?: { timeoutMs?: number }): T {
    if (options !== undefined) checkWait(options);
    if (this.note !== undefined) this.note.seen = true;
    return this.#value;
  }

  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    _onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.note !== undefined) this.note.seen = true;
    return passOn(onFulfilled, this.#value) as Promise<A>;
  }

  catch<B = never>(_onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.then();
  }

  finally(onFinally?: (() => void) | null): Promise<T> {
    return this.then().finally(onFinally);
  }

  get [Symbol.toStringTag](): string {
    return "Work";
  }
}
