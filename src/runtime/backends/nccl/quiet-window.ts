/**
 * When new calls are held back so that all members of a group come to a moment with nothing on their devices: for what
 * can be done at no other. In each period, by the clock that the ranks of a host share, for a part of it: calls that
 * others have made already, and that need one of this rank, come to their end in the rest.
 */

/** How long new calls are held back at most, ms. */
export const HOLD_BACK_MS = 1000;
const PERIOD_MS = 45;
const PART_MS = 30;

/** Whether the endings hold new calls back now. */
export function isHoldWindow(): boolean {
  return Date.now() % PERIOD_MS < PART_MS;
}
