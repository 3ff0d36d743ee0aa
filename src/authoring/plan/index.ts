/**
 * The execution plan as frozen, plain data: operations, layout of chunks, conditions, tables, limits, hash, print, diff.
 * Refuses to do I/O, to load packages and to judge plans: a rank may import it as it starts.
 * Start reading in execution-plan.ts.
 */
export { diffPlans, type PlanDifference, printDiff } from "./diff-plans.ts";
export {
  type BarrierOp,
  BUFFERS,
  type BufferKind,
  type BufferPlan,
  bodyOf,
  type ChannelKind,
  type ChannelWay,
  type CopyOp,
  type CustomCollective,
  channelOrdinal,
  countOps,
  DEFAULT_PLAN_OPTIONS,
  type ExecutionPlan,
  type FlushOp,
  type GetOp,
  type GroupSlice,
  MAX_INSTANCES,
  type NopOp,
  OP_KINDS,
  type Op,
  type OpKind,
  type OpOf,
  type PipelineOp,
  PLAN_REDUCE_OPS,
  PLAN_SCHEMA_VERSION,
  type PlanCollective,
  type PlanMode,
  type PlanOptions,
  type PlanReduceOp,
  type PutOp,
  type Range,
  type RankChannels,
  type RankPlan,
  type RankTables,
  type ReduceChunksOp,
  type RemoteBuffer,
  type RemoteRange,
  type SemaphoreAcquireOp,
  type SemaphorePlan,
  type SemaphoreReleaseOp,
  type SignalOp,
  type SimpleOp,
  type SourceLocation,
  type Strand,
  type StrandTables,
  type SwitchBroadcastOp,
  type SwitchChannelPlan,
  type SwitchRange,
  type SwitchReduceBroadcastOp,
  type SwitchReduceOp,
  sameGroup,
  sameRange,
  UNLIMITED_MESSAGE_SIZE,
  type WaitOp,
} from "./execution-plan.ts";
export { EXECUTOR_LIMITS, type LimitViolation, limitViolations } from "./executor-limits.ts";
export { hashPlan } from "./hash-plan.ts";
export { checkPartBytes, chunkBytesOf, type PlanShape, partBytesOf, shapeOf, takesWholeChunks } from "./part-sizes.ts";
export {
  collectiveChunks,
  type Place,
  type PlaceContext,
  placeOf,
  planPostcondition,
  segmentsOf,
} from "./plan-conditions.ts";
export { type BufferLayout, layoutPlan, type Piece, pieces, type RankBytes, type RankLayout } from "./plan-layout.ts";
export {
  askOnce,
  noteProof,
  type PlanProof,
  proofOf,
  type SharedVerdicts,
  shareVerdicts,
} from "./plan-proof.ts";
export { formatOp, printPlan, printRank } from "./print-plan.ts";
export { withTables } from "./strand-tables.ts";
export { needsWholeChunks } from "./whole-chunks.ts";
