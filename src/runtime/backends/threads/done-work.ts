/**
 * A call that was done when it was issued, as most small ones are. It extends nothing: engines inline the constructor of such
 * a class and none of one that calls `super`, which cost a tenth of a small call.
 */
import { checkWait, passOn, type QuickWork, type WorkNote } from "../../comm/index.ts";

/** What all calls of an operation in a group have in common. */
export interface CallKind {
  readonly op: string;
  readonly group: string;
}

export class DoneWork<T> implements QuickWork<T> {
  readonly seq: number;
  readonly #kind: CallKind;
  readonly #value: T;
  note: WorkNote | undefined;

  constructor(seq: number, kind: CallKind, value: T) {
    this.seq = seq;
    this.#kind = kind;
    this.#value = value;
    this.note = undefined;
  }

  get op(): string {
    return this.#kind.op;
  }

  get group(): string {
    return this.#kind.group;
  }

  get trace(): undefined {
    return undefined;
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
