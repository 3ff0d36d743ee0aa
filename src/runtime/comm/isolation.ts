/** What a rank can run in. */
import { oneOf } from "../../core/internal.ts";

/** A thread of the launching process, or a process of its own. */
export const ISOLATIONS = ["thread", "process"] as const;
export type Isolation = (typeof ISOLATIONS)[number];

/** Reads an isolation. @throws InvalidArgumentError naming both */
export function parseIsolation(text: string, argument = "isolation"): Isolation {
  return oneOf(text, argument, ISOLATIONS);
}
