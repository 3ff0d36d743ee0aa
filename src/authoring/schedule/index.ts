export * from "./collective.ts";
export { type CompatOptions, checkPairing, lowerRank } from "./compat/lower.ts";
export { diffPlans, type PlanDifference, printDiff } from "./diff.ts";
export { SYNC, type SyncName } from "./draft.ts";
export { parseExact } from "./exact-json.ts";
export * from "./hash.ts";
export * from "./ir.ts";
export * from "./layout.ts";
export { EXECUTOR_LIMITS, type LimitViolation, limitViolations } from "./limits.ts";
export { writeMscclXml } from "./msccl/export.ts";
export { readMscclXml } from "./msccl/import.ts";
export { type ConformanceResult, checkConformance } from "./mscclpp/conformance.ts";
export { readMscclpp } from "./mscclpp/read.ts";
export { replay, replayToPlan, replayToText, type Trace } from "./mscclpp/replay.ts";
export { withTables } from "./mscclpp/tables.ts";
export { type MscclppHeader, mscclppCollective, writeMscclppPieces } from "./mscclpp/write.ts";
export { readPlan } from "./plan-file.ts";
export { formatOp, printPlan, printRank } from "./print.ts";
export { Recorder, type Strands } from "./recorder.ts";
export {
  type ChannelRecord,
  MEMORY,
  PORT,
  pairChannels,
  type RankRecord,
  type SemaphoreRecord,
  type SwitchRecord,
} from "./records.ts";
export { planFromJson, planSchema, planToJson } from "./schema.ts";
export { type AutoSyncMode, lowerSound, SOUND_PASSES, type SoundOptions } from "./sound/lower.ts";
export type { RawChunk } from "./tape.ts";
export * from "./verify/index.ts";
