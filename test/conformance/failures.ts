import type { ConformanceResult } from "chorale/conformance";

/**
 * Behaviour on backends whose ranks are dear to start. The threads backend has more; `npm run conformance:full` has
 * 1,000 interleavings and programs of 3,000 calls on all of them.
 */
export const FEW = { interleavings: 4, programCalls: 6, maxRanks: 5 } as const;

/** Failures as text, so that an assertion shows all there is to know. */
export function failuresOf(result: ConformanceResult): string[] {
  return result.failed.map(({ name, problems }) => `${name}: ${problems.slice(0, 3).join(" | ")}`);
}
