export {
  type At,
  Buffer,
  Builder,
  Chunk,
  MemoryChannel,
  PortChannel,
  RankHandle,
  type ReduceOptions,
  Semaphore,
  type StrandGroup,
  SwitchChannel,
  SwitchView,
  type SyncOptions,
} from "./builder.ts";
export * from "./collective.ts";
export {
  type CompileOptions,
  compile,
  type Program,
  type ProgramFactory,
  type ProgramOptions,
  program,
  writeMscclpp,
} from "./program.ts";
export type { Sentence } from "./sentence.ts";
