/**
 * Numbers of calls in 32-bit words. A program that makes a call every ten microseconds has made 2^31 in six hours, and no
 * word may then say something else than before: a count has two words, and what tells the calls of a ring apart wraps,
 * which it may, for a slot is used again after a few hundred calls and not after 2^31.
 */

/** The low word of a count holds so many bits: it is never negative, and below 2^31 it is the count. */
const LOW_BITS = 0x7fff_ffff;
const WRAP = 2 ** 31;
/** The high word, counted from the low one. */
const HIGH = 2;

/**
 * Reads a count that another rank writes, up to 2^53. While its low word begins anew it may be told as less than it is, but
 * never as more: a rank that waits for a count looks again.
 */
export function readCount(words: Int32Array, at: number): number {
  // In the opposite order to the writer's.
  const high = Atomics.load(words, at + HIGH);
  return high * WRAP + Atomics.load(words, at);
}

/**
 * Whether a count is above `seq`, at the cost of one look: for the path of every call. The two must be less than 2^30 apart,
 * as numbers of calls are that a ring holds together.
 */
export function isAbove(words: Int32Array, at: number, seq: number): boolean {
  // Of the difference modulo 2^31 the highest bit is the sign.
  return (Atomics.load(words, at) - seq - 1) << 1 >= 0;
}

/** Writes a count, which only its owner does; it never falls. The word between its two is not touched. */
export function writeCount(words: Int32Array, at: number, count: number): void {
  Atomics.store(words, at, count & LOW_BITS);
  if (count >= WRAP) Atomics.store(words, at + HIGH, Math.floor(count / WRAP));
}

/** What stands for call `seq` in a slot of a ring: never zero, and no other call's that this slot can have. */
export function markOf(seq: number): number {
  return ((seq & LOW_BITS) + 1) | 0;
}

/** Whether what stands in a slot of a ring is of a call after `seq`. */
export function isLaterMark(mark: number, seq: number): boolean {
  // As in `isAbove`; equal is not later.
  return mark !== 0 && (mark - 1 - seq) << 1 > 0;
}
