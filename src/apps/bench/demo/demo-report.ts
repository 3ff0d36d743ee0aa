/** What a demo run found: the document of `chorale demo --json`. */
import type { Inventory } from "../../../machine/topology/index.ts";
import type { ShardingPlan } from "../../../planner/index.ts";
import type { BenchRow } from "../collectives/bench-types.ts";

/** A plan, in the few figures that the demo shows. */
export interface PlanSummary {
  readonly model: string;
  readonly hardware: string;
  readonly numParameters: number;
  readonly axes: { readonly dp: number; readonly pp: number; readonly tp: number };
  readonly ranks: number;
  readonly peakRankBytes: number;
  readonly minHeadroomBytes: number;
  /** Estimated, all sequences together; `null` when the plan has no inference estimate. */
  readonly decodeTokensPerSecond: number | null;
  readonly bottleneck: string;
  readonly notes: readonly string[];
}

export interface GenerationSummary {
  readonly backend: string;
  readonly ranks: number;
  readonly mesh: { readonly dp: number; readonly pp: number; readonly tp: number };
  readonly tokens: readonly number[];
  readonly text: string | null;
  readonly tokensPerSecond: number;
}

/** The model on accelerators, by its own plan. */
export type DeviceRun = { readonly backend: string; readonly plan: ShardingPlan } & (
  | {
      readonly run: GenerationSummary;
      readonly equalsReference: boolean;
      /** Of the logits after the prompt, to the reference. */
      readonly maxLogitDifference: number;
    }
  | { readonly failed: string }
);

export interface DemoReport {
  readonly schemaVersion: 1;
  /** The sharded runs, the single rank and the reference gave the same tokens. */
  readonly tokensIdentical: boolean;
  readonly comparisons: {
    readonly shardedEqualsSingle: boolean;
    readonly shardedEqualsReference: boolean;
    readonly singleEqualsReference: boolean;
    /** Largest difference of the logits after the prompt between the sharded run and the reference. */
    readonly maxLogitDifference: number;
  };
  readonly inventory: Inventory;
  readonly plans: { readonly here: PlanSummary; readonly large: PlanSummary; readonly constrained: PlanSummary };
  /** The plan that was run on the CPU. */
  readonly plan: ShardingPlan;
  readonly prompt: string;
  readonly runs: { readonly sharded: GenerationSummary; readonly single: GenerationSummary };
  /** On threads. */
  readonly sweep: { readonly ranks: number; readonly rows: readonly BenchRow[] };
  /** What ran on accelerators: absent where there are none that a backend could use. */
  readonly devices?: DeviceRun & { readonly sweep?: { readonly ranks: number; readonly rows: readonly BenchRow[] } };
  /** Why accelerators that are here were not used. */
  readonly devicesUnused?: string;
  readonly cores: number;
  readonly tookMs: number;
}
