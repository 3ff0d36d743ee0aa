/**
 * Drives unfinished work of one thread from the event loop. The first turns follow each other at once, because most
 * collectives end within microseconds; then timers, ever longer, so that waiting burns no core.
 */

/** What can be looked at again. */
export interface Pollable {
  /** Looks at what is pending. @returns whether somebody still waits for something */
  poll(now: number): boolean;
}

/** How long turns of the event loop follow each other before timers take over, ms: most collectives end within it. */
const EAGER_MS = 3;
/** Longest pause between two looks; bounds how late a failure of a peer is noticed. */
const MAX_PAUSE_MS = 10;

export class Poller {
  readonly #active = new Set<Pollable>();
  #since = 0;
  #scheduled = false;

  /** Sees to `pollable` until its `poll` says that nobody waits any more. */
  add(pollable: Pollable): void {
    this.#active.add(pollable);
    this.#since = performance.now();
    this.#schedule();
  }

  /** Looks at everything once: for a thread that blocks in one group while its other groups have peers to serve. */
  pollAll(now: number): void {
    for (const pollable of this.#active) {
      if (!pollable.poll(now)) this.#active.delete(pollable);
    }
  }

  remove(pollable: Pollable): void {
    this.#active.delete(pollable);
  }

  #schedule(): void {
    if (this.#scheduled || this.#active.size === 0) return;
    this.#scheduled = true;
    const waitedMs = performance.now() - this.#since;
    if (waitedMs < EAGER_MS) setImmediate(this.#turn);
    else setTimeout(this.#turn, Math.min(MAX_PAUSE_MS, 1 + waitedMs / 100));
  }

  readonly #turn = (): void => {
    this.#scheduled = false;
    this.pollAll(performance.now());
    this.#schedule();
  };
}

const nap = new Int32Array(new SharedArrayBuffer(4));

/**
 * Polls `done` on this thread: spins for about a millisecond, then naps between looks, and looks at everything else in
 * between. Throws what `done` throws.
 */
export function blockUntil(poller: Poller, done: (now: number) => boolean): void {
  const start = performance.now();
  for (;;) {
    const now = performance.now();
    if (done(now)) return;
    if (now - start > 0.05) poller.pollAll(now);
    if (now - start > 1) Atomics.wait(nap, 0, 0, now - start > 20 ? 1 : 0.05);
  }
}
