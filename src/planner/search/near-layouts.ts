/**
 * Layouts that are nearly as good as the chosen one: estimates are not exact enough to tell them apart, so they are listed.
 * Those that the search judged on its way, and the next few whose bound allows it.
 */
import type { BlockClass } from "../placement/blocks.ts";
import { axesKey, type PlanAxisSizes } from "../plan.ts";
import { type Context, type Evaluated, evaluate } from "./evaluate.ts";
import type { Candidate } from "./schedule.ts";

export interface NearLayout {
  readonly axes: PlanAxisSizes;
  /** Its score to the best one's: 1.04 is 4 % worse. */
  readonly ratio: number;
}

/** How much worse a layout that is listed may be, and how many are. */
const NEAR = 1.1;
const MAX_NEAR = 8;
/** How many are judged for that alone, on machines of up to so many devices: on large ones each takes long. */
const MAX_NEAR_JUDGED = 6;
const MAX_NEAR_DEVICES = 8;

/** Keeps the best of each combination of axes. */
export function remember(judged: Map<string, Evaluated>, item: Evaluated): void {
  const name = axesKey(item.candidate.axes);
  if (item.score < (judged.get(name)?.score ?? Number.POSITIVE_INFINITY)) judged.set(name, item);
}

interface Searched {
  readonly best: readonly Evaluated[];
  readonly judged: Map<string, Evaluated>;
  /** Candidates that the search did not come to, best bound first. */
  readonly next: readonly {
    readonly candidate: Candidate;
    readonly classes: readonly BlockClass[];
    readonly bound: number;
  }[];
  readonly numDevices: number;
}

/** The layouts near the best one, best first. */
export function nearLayouts(context: Context, { best, judged, next, numDevices }: Searched): readonly NearLayout[] {
  const [first] = best;
  if (first === undefined) return [];
  const limit = first.score * NEAR;
  const most = numDevices > MAX_NEAR_DEVICES ? 0 : MAX_NEAR_JUDGED;
  for (const { candidate, classes } of next.slice(0, most).filter(({ bound }) => bound <= limit)) {
    const item = evaluate({ ...context, limit }, candidate, classes);
    if (!("reason" in item)) remember(judged, item);
  }
  const shown = new Set(best.map(({ candidate }) => axesKey(candidate.axes)));
  return [...judged]
    .filter(([name, { score }]) => !shown.has(name) && score <= limit)
    .map(([, { candidate, score }]) => ({ axes: candidate.axes, ratio: score / first.score }))
    .sort((a, b) => a.ratio - b.ratio)
    .slice(0, MAX_NEAR);
}
