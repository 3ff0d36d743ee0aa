/** The lock of the control segment: one word that says who alone may change what has no order of its own. */
import { nap, pauseMs } from "./nap.ts";

/** Most locks are held for microseconds; whoever holds one for so long, while another rank looks, is dead. */
const STEAL_MS = 1000;
/** Polls of the lock before this rank yields its core. */
const SPINS = 100;
const NAP_MS = 0.05;

export class Lock {
  readonly #words: Int32Array;
  readonly #at: number;
  readonly #stealMs: number;

  /**
   * @param at the lock's word, zero while nobody holds it
   * @param stealMs longer than any rank that lives holds it
   */
  constructor(words: Int32Array, at: number, stealMs = STEAL_MS) {
    this.#words = words;
    this.#at = at;
    this.#stealMs = stealMs;
  }

  /** Runs `fn` alone among the ranks. A rank that died inside loses the lock after `stealMs`, to one of those who wait. */
  run<T>(fn: () => T): T {
    const words = this.#words;
    const at = this.#at;
    // Identifies this holder, so that nobody takes the lock from the wrong rank, or releases it for another.
    const mine = 1 + Math.floor(Math.random() * 0x7fff_fffe);
    let holder = 0;
    let [looked, waitedMs] = [0, 0];
    for (let tries = 1; ; tries++) {
      const found = Atomics.compareExchange(words, at, 0, mine);
      if (found === 0) break;
      const now = performance.now();
      waitedMs = found === holder ? waitedMs + pauseMs(now - looked) : 0;
      holder = found;
      looked = now;
      if (waitedMs > this.#stealMs && Atomics.compareExchange(words, at, found, mine) === found) break;
      if (tries > SPINS) nap(NAP_MS);
    }
    try {
      return fn();
    } finally {
      Atomics.compareExchange(words, at, mine, 0);
    }
  }
}
