import type { ConformanceResult } from "chorale/conformance";

/** Failures as text, so that an assertion shows all there is to know. */
export function failuresOf(result: ConformanceResult): string[] {
  return result.failed.map(({ name, problems }) => `${name}: ${problems.slice(0, 3).join(" | ")}`);
}
