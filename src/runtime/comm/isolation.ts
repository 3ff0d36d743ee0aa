/** What a rank can run in. */
import { InvalidArgumentError } from "../../core/index.ts";

/** A thread of the launching process, or a process of its own. */
export const ISOLATIONS = ["thread", "process"] as const;
export type Isolation = (typeof ISOLATIONS)[number];

/** Reads an isolation. @throws InvalidArgumentError naming both */
export function parseIsolation(text: string, argument = "isolation"): Isolation {
  const found = ISOLATIONS.find((known) => known === text);
  if (found === undefined) throw new InvalidArgumentError(argument, text, `one of ${ISOLATIONS.join(", ")}`);
  return found;
}
