/**
 * What serves all-reduces with an epilogue whose blocks make whole units (epilogue-shape.ts), found again by the number of units and
 * their length. To make its label, and to find it by that, would cost each call more than the rest of its way through this thread.
 */
import { InvalidArgumentError, UnsupportedError } from "../../../core/index.ts";
import { apartShape } from "./epilogue-shape.ts";
import type { PlannedCall, Serving } from "./nccl-calls.ts";
import type { Range } from "./size-ranges.ts";

/** Numbers of units of one length that are remembered; of more each is looked for again. */
const MOST_NUMBERS = 1024;

type ByNumber = Map<number, Serving | null>;
/** By what all of their calls have in common, then by the length of a unit. */
const KEPT = new WeakMap<Pick<Range, "choice">, Map<number, ByNumber>>();

/**
 * @param range what calls of one operation, element type, operator, epilogue and class of sizes have in common
 * @param named finds what serves by a label
 * @returns undefined where nothing does. What no member can open is returned too, for NCCL to serve: members may not all know yet
 */
export function apartServing(
  range: Pick<Range, "choice">,
  numRanks: number,
  { numUnits, unitBytes }: Pick<NonNullable<PlannedCall["epilogue"]>, "numUnits" | "unitBytes">,
  named: (label: string) => Serving | undefined,
): Serving | undefined {
  const byLength = KEPT.get(range) ?? new Map<number, ByNumber>();
  const byNumber = byLength.get(unitBytes) ?? new Map<number, Serving | null>();
  let serving = byNumber.get(numUnits);
  if (serving === undefined) {
    const apart = apartShape(range.choice.served, numRanks, numUnits, unitBytes);
    serving = (apart && unlessRefused(() => named(apart.label))) ?? null;
    if (byNumber.size === MOST_NUMBERS) byNumber.clear();
    byNumber.set(numUnits, serving);
    byLength.set(unitBytes, byNumber);
    KEPT.set(range, byLength);
  }
  return serving ?? undefined;
}

/** What `fn` gives; nothing where it is refused, as it is on all members alike. */
function unlessRefused<T>(fn: () => T): T | undefined {
  try {
    return fn();
  } catch (error) {
    if (error instanceof UnsupportedError || error instanceof InvalidArgumentError) return undefined;
    throw error;
  }
}
