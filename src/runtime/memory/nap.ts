/** Pauses of this thread, for loops that look at shared memory on which nothing can be waited for. */

const bed = new Int32Array(new SharedArrayBuffer(4));
const NAP_MS = 0.05;
const PAUSE_MS = 1;
/** A longer pause between two looks counts as this, ms: the process was stopped, or whom it waits for lacked a core as well. */
const LONGEST_PAUSE_MS = 10;

/** Lets other threads run for `ms`, or about as long. Also on the main thread. */
export function nap(ms: number): void {
  Atomics.wait(bed, 0, 0, ms);
}

/**
 * Looks at `isDone` until it says yes, with a nap between two looks.
 * @param limitMs how long it looks, at least once
 * @param pause naps of `napMs`, after looks without a nap for `spinMs`
 * @returns whether `isDone` said yes
 */
export function napUntil(
  isDone: () => boolean,
  limitMs: number,
  pause: { napMs?: number; spinMs?: number } = {},
): boolean {
  const { napMs = NAP_MS, spinMs = 0 } = pause;
  const start = performance.now();
  while (!isDone()) {
    const waitedMs = performance.now() - start;
    if (waitedMs >= limitMs) return false;
    if (waitedMs >= spinMs) nap(napMs);
  }
  return true;
}

/** The same from the event loop, which runs in between. */
export async function pauseUntil(isDone: () => boolean, limitMs: number): Promise<boolean> {
  const until = performance.now() + limitMs;
  while (!isDone()) {
    if (performance.now() >= until) return false;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return true;
}

/** What the time between two looks counts, for a loop that takes whom it waits for as dead after so long. */
export function pauseMs(sinceLookMs: number): number {
  return Math.min(sinceLookMs, LONGEST_PAUSE_MS);
}
