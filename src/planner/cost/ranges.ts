/** How far an estimate may be off: the spread of estimate to published among measurements of its kind that nothing was fitted to. */
import { wordTable } from "../../core/index.ts";
import type { ShardingPlan } from "../plan.ts";
import { ESTIMATE_ERRORS, UNMEASURED_ERRORS } from "./estimate-errors.ts";

export interface EstimateRange {
  /** What the estimated speed is multiplied by for the low and the high end: 86 % of held-out measurements are between. */
  readonly low: number;
  readonly high: number;
  /** Measurements that it comes from; 0 where nothing of its kind was compared. */
  readonly count: number;
  readonly kind: string;
  /** Parts of the generations that these measurements are of. */
  readonly measuredOn: readonly string[];
  /** Whether the plan's own generation is among them; the range is wider where it is not. */
  readonly isMeasured: boolean;
}

/** Where nothing of the kind was measured. */
const UNKNOWN = { low: 0.5, high: 2 } as const;

/** Generations of hardware, by parts that people know. */
const PARTS_OF: Readonly<Record<string, string>> = wordTable({
  ampere: "A100",
  "ampere-rtx": "RTX 30 and A6000",
  ada: "RTX 40 and L40S",
  hopper: "H100 and H200",
  "hopper-pcie": "H100 PCIe",
  blackwell: "B200 and GB200",
  "blackwell-rtx": "RTX PRO 6000 and RTX 50",
  spark: "DGX Spark",
  turing: "RTX 20 and T4",
  volta: "V100",
  pascal: "GTX 10 and P40",
  maxwell: "GTX 9 and P100",
  orin: "Jetson Orin",
  thor: "Jetson Thor",
  cdna2: "MI250",
  cdna3: "MI300X",
  cdna4: "MI355X",
  gaudi2: "Gaudi 2",
  gaudi3: "Gaudi 3",
  apple: "Apple M1 and M2",
  "apple-m3": "Apple M3 and later",
  tpu: "TPU",
  neuron: "Trainium",
});

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
  if (known === undefined) return { ...UNKNOWN, count: 0, kind, measuredOn: [], isMeasured: false };
  const { points, generations } = known;
  const isMeasured = plan.workload.generation !== undefined && generations.includes(plan.workload.generation);
  // Beside the errors of its kind, those of hardware that the constants were not fitted to.
  const low = known.low * (isMeasured ? 1 : UNMEASURED_ERRORS.low);
  const high = known.high * (isMeasured ? 1 : UNMEASURED_ERRORS.high);
  // A ratio above one means that estimates of this kind were too fast.
  return {
    low: 1 / high,
    high: 1 / low,
    count: points,
    kind,
    measuredOn: generations.map((name) => PARTS_OF[name] ?? name),
    isMeasured,
  };
}
