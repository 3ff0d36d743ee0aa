import type { ConformanceResult } from "chorale/bench";

/** Failures as text, so that an assertion shows all there is to know. */
export function failuresOf(result: ConformanceResult): string[] {
  return result.failed.map(({ name, problems }) => `${name}: ${problems.slice(0, 3).join(" | ")}`);
}
