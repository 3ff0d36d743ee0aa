/** What the tcp backend can do: everything that host memory can. */

import { OPERATION_NAMES } from "../../../collectives/index.ts";
import { DTYPE_NAMES, isLegal, REDUCE_OPS } from "../../../core/index.ts";
import type { Capabilities } from "../../comm/index.ts";

/** Bounded by the inputs of one reduction. */
export const MAX_TCP_RANKS = 256;

/** Of a pair of ranks. More of them gain nothing and cost descriptors. */
export const MAX_CONNECTIONS = 16;

export const TCP_CAPABILITIES: Capabilities = Object.freeze({
  backend: "tcp",
  dtypes: DTYPE_NAMES,
  reduceOps: Object.fromEntries(
    DTYPE_NAMES.map((dtype) => [dtype, [...REDUCE_OPS.filter((op) => isLegal(op, dtype)), "preMulSum" as const]]),
  ),
  operations: [...OPERATION_NAMES, "broadcast_object", "gather_objects", "batch", "split", "shrink", "run"],
  deviceTensors: false,
  hostTensors: true,
  maxRanks: MAX_TCP_RANKS,
  features: Object.freeze({ accumulatesInF32: true, minMaxPropagatesNan: true }),
});
