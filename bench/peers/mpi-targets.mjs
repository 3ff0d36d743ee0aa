/** What is asked of the threads backend against the better of two MPI libraries, by operation, ranks, size and cores. */

/** How much slower a collective other than all-reduce may be all the same, us. */
const GRACE_US = 0.15;

/** @returns what is asked, in words, and whether a time of ours meets it, given the better peer's */
export function targetOf(op, ranks, bytes, cores) {
  if (op === "all_reduce") {
    if (bytes <= 64 && cores < 32) return { text: "<= 0.3 us", isMet: (is) => ranks > 2 || is <= 0.3 };
    const factor = bytes >= 16_384 ? 3 : bytes >= 4096 ? 2 : 1;
    return { text: `>= ${factor}x`, isMet: (is, best) => best / is >= factor };
  }
  const factor = bytes >= 16_384 ? 1.5 : 1;
  const isSmall = bytes < 16_384;
  const text = isSmall ? `>= 1x or at most ${GRACE_US} us slower` : `>= ${factor}x`;
  return { text, isMet: (is, best) => best / is >= factor || (isSmall && is - best <= GRACE_US) };
}
