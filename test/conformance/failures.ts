import type { ConformanceResult } from "chorale/conformance";
import { isFull, spread } from "../support/spread.ts";

/**
 * Behaviour on backends whose ranks are dear to start. The threads backend has more; `npm run conformance:full` has
 * 1,000 interleavings and programs of 3,000 calls on all of them.
 */
export const FEW = { interleavings: 4, programCalls: 6, maxRanks: 5 } as const;

/**
 * Of how many ranks at most the cases of behaviour over NCCL's stand-in are, of threads and of processes: one of the two by turns, and
 * those of four and five ranks, which cost as much as all others, with every fourth seed.
 */
const ncclTurns = [{ threads: 3 }, { processes: 2 }, { threads: 5 }, { processes: 3 }] as const;
export const MOST_NCCL_RANKS: { readonly threads?: number; readonly processes?: number } = isFull
  ? { threads: 5, processes: 3 }
  : (spread(ncclTurns, 4)[0] ?? {});

/** Failures as text, so that an assertion shows all there is to know. */
export function failuresOf(result: ConformanceResult): string[] {
  return result.failed.map(({ name, problems }) => `${name}: ${problems.slice(0, 3).join(" | ")}`);
}
