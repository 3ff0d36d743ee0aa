/**
 * Drives unfinished work of one thread from the event loop. The first turns follow each other at once, because most
 * collectives end within microseconds; then timers, ever longer, so that waiting burns no core.
 */
import { availableParallelism } from "node:os";
import { nap } from "../memory/index.ts";

/** What can be looked at again. */
export interface Pollable {
  /** Looks at what is pending. @returns whether somebody still waits for something */
  poll(now: number): boolean;
}

/** How long turns of the event loop follow each other before timers take over, ms: most collectives end within it. */
const EAGER_MS = 3;
/** Longest pause between two looks; bounds how late a failure of a peer is noticed. */
const MAX_PAUSE_MS = 10;
/** How long turns follow each other after somebody was in a hurry, ms. */
const HURRY_MS = 5;
/** Longest hurry: what takes longer than this to meet is not about to. */
const MAX_HURRY_MS = 200;
const HURRY_PAUSE_MS = 1000;

export class Poller {
  readonly #active = new Set<Pollable>();
  #since = 0;
  #hurryUntil = 0;
  #hurrySince = 0;
  #scheduled = false;
  #closed = false;

  /** Ends it: nothing is looked at any more. */
  close(): void {
    this.#closed = true;
    this.#active.clear();
  }

  /** Polls `pollable` from now on, until its `poll` says that nobody waits for it any more. */
  add(pollable: Pollable, now = performance.now()): void {
    if (this.#closed) return;
    this.#active.add(pollable);
    this.#since = now;
    this.#schedule();
  }

  /**
   * Says that ranks are about to meet, and that all of them lose while one of them naps: for a while turns of the event
   * loop follow each other at once. A rank that never comes does not keep a core busy for ever.
   */
  hurry(): void {
    const now = performance.now();
    if (now - this.#hurryUntil > HURRY_PAUSE_MS) this.#hurrySince = now;
    if (now - this.#hurrySince < MAX_HURRY_MS) this.#hurryUntil = now + HURRY_MS;
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
    const now = performance.now();
    const waitedMs = now - this.#since;
    if (waitedMs < EAGER_MS || now < this.#hurryUntil) setImmediate(this.#turn);
    else setTimeout(this.#turn, Math.min(MAX_PAUSE_MS, 1 + waitedMs / 100));
  }

  readonly #turn = (): void => {
    this.#scheduled = false;
    this.pollAll(performance.now());
    this.#schedule();
  };
}

/** How long a thread that blocks may spin, ms: with a core for every thread of the process, and otherwise. */
const SPIN_MS = availableParallelism() >= 8 ? 5 : 1;

/**
 * Polls `done` on this thread: spins for some milliseconds, then naps between looks, ever longer but never for more than
 * about a hundredth of the time waited, and looks at everything else in between. Throws what `done` throws.
 */
export function blockUntil(poller: Poller, done: (now: number) => boolean): void {
  const start = performance.now();
  for (;;) {
    const now = performance.now();
    if (done(now)) return;
    const waitedMs = now - start;
    if (waitedMs > 0.05) poller.pollAll(now);
    if (waitedMs > SPIN_MS) nap(Math.min(1, Math.max(0.05, waitedMs / 100)));
  }
}
