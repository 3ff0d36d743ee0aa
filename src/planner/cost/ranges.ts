/** How far an estimate may be off: the spread of estimate to published among measurements of its kind that nothing was fitted to. */
import type { ShardingPlan } from "../plan.ts";
import { ESTIMATE_ERRORS } from "./estimate-errors.ts";

export interface EstimateRange {
  /** What the estimated speed is multiplied by for the low and the high end: 86 % of held-out measurements are between. */
  readonly low: number;
  readonly high: number;
  /** Measurements that it comes from; 0 where nothing of its kind was compared. */
  readonly count: number;
  readonly kind: string;
}

/** Where nothing of the kind was measured. */
const UNKNOWN = { low: 0.5, high: 2 } as const;

/** The kind of a plan's estimate, as the results name it. */
function kindOf({ estimates, workload }: ShardingPlan): string {
  if (estimates.kind === "training") return "training";
  if (workload.outputTokens <= 1) return `${workload.engine} prefill`;
  return workload.batch >= 8 ? `${workload.engine} serving` : `${workload.engine} decode`;
}

/** The range of a plan's speed. */
export function rangeOf(plan: ShardingPlan): EstimateRange {
  const kind = kindOf(plan);
  const known = ESTIMATE_ERRORS[kind];
  // A ratio above one means that estimates of this kind were too fast.
  return known === undefined
    ? { ...UNKNOWN, count: 0, kind }
    : { low: 1 / known[1], high: 1 / known[0], count: known[2], kind };
}
