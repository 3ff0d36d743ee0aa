/** A plan that serves a collective, as those who choose one and those who run it know it. */
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import type { CollectiveName } from "../../collectives/index.ts";
import type { Served } from "./served.ts";

/** What tells plans apart. */
export interface PlanRequest {
  readonly served: Served;
  readonly collective: CollectiveName;
  readonly numRanks: number;
  readonly root: number;
}

/** A plan that was proved, with what its runners ask of it. */
export interface ServingPlan {
  readonly plan: ExecutionPlan;
  readonly hash: string;
  readonly endsAlone: boolean;
  /** Whether the plan is right also where a rank's result lies on top of its input. */
  readonly worksInPlace: () => boolean;
}
