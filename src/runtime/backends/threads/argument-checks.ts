/** What the fast path asks of its arguments: comparisons of numbers, and whether what it calls refuses them. */
import { ChoraleError } from "../../../core/index.ts";

/** Whether two ranges of bytes do not overlap. */
export function apart(a: number, aBytes: number, b: number, bBytes: number): boolean {
  return a + aBytes <= b || b + bBytes <= a;
}

/** The sum of one count per rank; -1 when they are no counts. */
export function sumOfCounts(counts: readonly number[], n: number): number {
  if (counts.length !== n) return -1;
  let sum = 0;
  for (let r = 0; r < n; r++) {
    const count = counts[r]!;
    if (!Number.isSafeInteger(count) || count < 0) return -1;
    sum += count;
  }
  return sum;
}

/** Whether an action ends with an error of ours: the careful path meets it again, and reports it. */
export function isRefused(action: () => void): boolean {
  try {
    action();
    return false;
  } catch (error) {
    if (error instanceof ChoraleError) return true;
    throw error;
  }
}
