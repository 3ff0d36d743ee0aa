/** What a kernel of a debug build that has waited for too long says of that: see `Patience` in prelude.ts. */
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import { InvalidArgumentError } from "../../../core/index.ts";
import { strandLines } from "../cpu/strand-lines.ts";

/** Turns after which waits end. */
const DEBUG_VARIABLE = "CHORALE_CUDA_DEBUG_TURNS";

/** What the environment says of that, if anything. @throws InvalidArgumentError */
export function debugTurns(): number | undefined {
  const text = process.env[DEBUG_VARIABLE];
  if (text === undefined || text === "") return undefined;
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new InvalidArgumentError(DEBUG_VARIABLE, text, "a whole number of turns, from 1 to 999999999");
}

/** Waits of a launch itself: `Site{-1, 0}` and so on. */
const BETWEEN_LAUNCHES = [
  "for all ranks to begin the launch",
  "for all ranks to end the launch",
  "for peers to be done with a slot of scratch",
] as const;

/** The words of a report (`REPORT_WORDS`) in words. @returns undefined where nobody has given up */
export function waitReport(plan: ExecutionPlan, rank: number, words: Int32Array): string | undefined {
  const [isThere, strand = 0, op = 0, body = 0, seen = 0, wanted = 0] = words;
  if (isThere !== 1) return undefined;
  const place = { strand, op, body: body > 0 ? body - 1 : undefined };
  const what =
    op < 0 ? `strand ${strand} waits ${BETWEEN_LAUNCHES[-1 - op]}` : (strandLines(plan, rank, [place])[0] ?? "");
  return `${what}: it has seen ${seen >>> 0} and wants ${wanted >>> 0}`;
}
