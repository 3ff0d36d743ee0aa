export { Builder } from "./builder.ts";
export { MemoryChannel, PortChannel, SwitchChannel, SwitchView } from "./channels.ts";
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
export { RankHandle, Semaphore } from "./rank.ts";
export type { Sentence } from "./sentence.ts";
export { type At, Buffer, Chunk, type ReduceOptions, type StrandGroup, type SyncOptions } from "./values.ts";
