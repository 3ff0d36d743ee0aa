/** The common half of every backend's `Work`: state, the lazy thenable, and whether a failure was looked at. */
import type { CallTrace } from "../../core/index.ts";
import type { Work, WorkState } from "./contract.ts";
import type { Watched, WorkNote } from "./work-notes.ts";

/** What `GroupDriver.quick` returns: a work that the group may watch. */
export interface QuickWork<T> extends Work<T>, Watched {
  trace: CallTrace | undefined;
  note: WorkNote | undefined;
}

/**
 * A pending operation. A backend's class adds how it is driven: `wait` on this thread, `onAwaited` from the event loop.
 * No promise exists before somebody asks for one, so a failure that nobody looks at disturbs nobody.
 */
export abstract class PendingWork<T> implements Work<T> {
  readonly seq: number;
  readonly op: string;
  readonly group: string;
  state: WorkState = "queued";
  /** The stack of the call, where it was taken: formatted only when it is told. */
  trace: CallTrace | undefined;
  /** Of a work that is watched (work-notes.ts). */
  note: WorkNote | undefined;
  #seen = false;
  protected value: T | undefined;
  error: unknown;
  /** Runs once, when the work settles, before anybody who waits for it hears of it. */
  onSettled: (() => void) | undefined;
  #promise: Promise<T> | undefined;
  /** Settles the promise. */
  #settle: { readonly resolve: (value: unknown) => void; readonly reject: (error: unknown) => void } | undefined;

  constructor(seq: number, op: string, group: string) {
    this.seq = seq;
    this.op = op;
    this.group = group;
  }

  /** Set once somebody waited for this work, or attached to it: its failure is then no secret. */
  get seen(): boolean {
    return this.#seen;
  }
  set seen(yes: boolean) {
    this.#seen = yes;
    if (this.note !== undefined) this.note.seen = yes;
  }

  abstract wait(options?: { timeoutMs?: number }): T;
  /** Called when somebody attaches to work that is not settled: settle it, or see that the event loop drives it. */
  protected abstract onAwaited(): void;

  /** Ends the work with its result. Later calls are ignored. */
  complete(value: T): void {
    if (this.state === "done" || this.state === "failed") return;
    this.value = value;
    this.state = "done";
    this.onSettled?.();
    this.#settle?.resolve(value);
  }

  /** Ends the work with an error. Later calls are ignored. */
  fail(error: unknown): void {
    if (this.state === "done" || this.state === "failed") return;
    this.error = error;
    this.state = "failed";
    this.onSettled?.();
    this.#settle?.reject(error);
  }

  get settled(): boolean {
    return this.state === "done" || this.state === "failed";
  }

  /** The result of work that ended well. Does not count as looking at it. */
  get outcome(): T {
    return this.value as T;
  }

  /** The result of settled work, or its error, thrown. */
  protected result(): T {
    this.seen = true;
    if (this.state === "failed") throw this.error;
    return this.value as T;
  }

  /**
   * As a promise's, but that handlers of settled work run at once: an `await` then costs one turn of the microtask
   * queue, which is as long as a small collective takes.
   */
  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.seen = true;
    if (!this.settled && this.#promise === undefined) this.onAwaited();
    if (this.state === "done") return passOn(onFulfilled, this.value as T) as Promise<A>;
    if (this.state === "failed") {
      if (typeof onRejected !== "function") return Promise.reject(this.error);
      return passOn(onRejected, this.error) as Promise<B>;
    }
    this.#promise ??= new Promise<T>((resolve, reject) => {
      this.#settle = { resolve: resolve as (value: unknown) => void, reject };
    });
    return this.#promise.then(onFulfilled, onRejected);
  }

  /** As a promise's. */
  catch<B = never>(onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.then(undefined, onRejected);
  }

  /** As a promise's. */
  finally(onFinally?: (() => void) | null): Promise<T> {
    return this.then().finally(onFinally);
  }

  get [Symbol.toStringTag](): string {
    return "Work";
  }
}

const NOTHING: Promise<undefined> = Promise.resolve(undefined);

/** Calls a handler and wraps what it returns or throws. The handlers of `await` return nothing. */
export function passOn<V, A>(
  handler: ((value: V) => A | PromiseLike<A>) | null | undefined,
  value: V,
): Promise<unknown> {
  if (typeof handler !== "function") return Promise.resolve(value);
  try {
    const result = handler(value);
    return result === undefined ? NOTHING : Promise.resolve(result);
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Work that is settled from the start, or by somebody else's hand: for tests and inert batches. */
export class SettledWork<T> extends PendingWork<T> {
  constructor(seq: number, op: string, group: string, outcome: { readonly value: T } | { readonly error: unknown }) {
    super(seq, op, group);
    if ("value" in outcome) this.complete(outcome.value);
    else this.fail(outcome.error);
  }
  wait(): T {
    return this.result();
  }
  protected onAwaited(): void {}
}
