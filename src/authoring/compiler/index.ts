/**
 * Makes plans of recorded programs: recorder, passes and lowering; mscclpp/ is the lowering that equals MSCCL++'s.
 * Refuses to change what a program computes, except in mscclpp/, on which nothing of the sound lowering stands.
 * Start reading in lower-program.ts, the passes in their order.
 */
export { type CompileOptions, compatRanks, compile, type Program } from "./compile.ts";
export { SYNC, type SyncName } from "./draft-ops.ts";
export { type AutoSyncMode, lowerSound, SOUND_PASSES, type SoundOptions } from "./lower-program.ts";
export { type CompatOptions, checkPairing, lowerRank } from "./mscclpp/mscclpp-lowering.ts";
export type { RawChunk } from "./op-tape.ts";
export {
  type ChannelRecord,
  MEMORY,
  PORT,
  pairChannels,
  type RankRecord,
  type SemaphoreRecord,
  type SwitchRecord,
} from "./rank-records.ts";
export { Recorder, type Strands } from "./recorder.ts";
