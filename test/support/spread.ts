/**
 * What the suite takes of cases that differ little: some of them, others with every seed (CI takes it from the commit), so
 * that commit after commit comes round to all. `npm run cases:full` sets CHORALE_FULL=1, with which they are all taken.
 */
export const isFull = process.env["CHORALE_FULL"] === "1";
const seed = Number(process.env["CHORALE_SEED"] ?? 1);
// With any other, no case at all would be chosen, and the suite would pass.
if (!Number.isSafeInteger(seed)) throw new Error(`CHORALE_SEED is ${process.env["CHORALE_SEED"]}; expected an integer`);

/** One of every `of` cases, at least one of any that there are. Lists that complete each other have different offsets. */
export function spread<T>(cases: readonly T[], of: number, offset = 0): readonly T[] {
  if (isFull) return cases;
  return cases.filter((_, index) => (index + offset + seed) % Math.min(of, cases.length) === 0);
}
