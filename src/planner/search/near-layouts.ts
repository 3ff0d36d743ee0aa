/**
 * Layouts that are nearly as good as the chosen one: estimates are not exact enough to tell them apart, so they are listed.
 * Those that the search judged on its way, those that it dismissed as slower than the best, and those that it did not come to,
 * whose bound allows it.
 */
import { axesKey, type PlanAxisSizes } from "../plan.ts";
import { type Context, type Evaluated, evaluate } from "./evaluate.ts";
import type { Bounded } from "./variants.ts";

export interface NearLayout {
  readonly axes: PlanAxisSizes;
  /** Its score to the best one's: 1.04 is 4 % worse. */
  readonly ratio: number;
}

/** How much worse a layout that is listed may be, and how many are. */
const NEAR = 1.1;
const MAX_NEAR = 8;
/** How many stages are split for that alone: on large machines each takes long. */
const MAX_NEAR_STAGES = { host: 1000, cluster: 64 };
const HOST_DEVICES = 8;

/** Keeps the best of each combination of axes. */
export function remember(judged: Map<string, Evaluated>, item: Evaluated): void {
  const name = axesKey(item.candidate.axes);
  if (item.score < (judged.get(name)?.score ?? Number.POSITIVE_INFINITY)) judged.set(name, item);
}

interface Searched {
  readonly best: readonly Evaluated[];
  readonly judged: Map<string, Evaluated>;
  /** Candidates that were dismissed as slower than the best, best bound first. */
  readonly slower: readonly Bounded[];
  /** The next candidate that the search did not come to, best bound first. */
  readonly next: (limit: number) => Bounded | undefined;
  readonly numDevices: number;
}

/** The layouts near the best one, best first. */
export function nearLayouts(
  context: Context,
  { best, judged, slower, next, numDevices }: Searched,
): readonly NearLayout[] {
  const [first] = best;
  if (first === undefined) return [];
  const limit = first.score * NEAR;
  let left = MAX_NEAR_STAGES[numDevices > HOST_DEVICES ? "cluster" : "host"];
  const judge = ({ candidate, classes }: Bounded) => {
    // One variant of its axes is enough to list them.
    if ((judged.get(axesKey(candidate.axes))?.score ?? Number.POSITIVE_INFINITY) <= limit) return;
    left -= candidate.axes.pp;
    const item = evaluate({ ...context, limit }, candidate, classes);
    if (!("reason" in item)) remember(judged, item);
  };
  for (const item of slower) if (left > 0 && item.bound <= limit) judge(item);
  for (let item = next(limit); left > 0 && item !== undefined; item = next(limit)) judge(item);
  const shown = new Set(best.map(({ candidate }) => axesKey(candidate.axes)));
  return [...judged]
    .filter(([name, { score }]) => !shown.has(name) && score <= limit)
    .map(([, { candidate, score }]) => ({ axes: candidate.axes, ratio: score / first.score }))
    .sort((a, b) => a.ratio - b.ratio)
    .slice(0, MAX_NEAR);
}
