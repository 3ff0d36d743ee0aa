/**
 * The language in which collective algorithms are written: programs, ranks, buffers, chunks, channels, loops.
 * Refuses to run or to change what is called: every call is checked and recorded, in order.
 * Start reading in program.ts.
 */
export { type CompileOptions, compile, type Program } from "../compiler/index.ts";
export { writeMscclpp } from "../interchange/internal.ts";
export { Builder } from "./builder.ts";
export { MemoryChannel, PortChannel, SwitchChannel, SwitchView } from "./channels.ts";
export { type ProgramFactory, type ProgramOptions, program } from "./program.ts";
export {
  allGather,
  allGatherV,
  allReduce,
  allToAll,
  allToAllV,
  barrier,
  broadcast,
  type CollectiveOptions,
  type CustomOptions,
  copied,
  customCollective,
  gather,
  type ReducingOptions,
  reduce,
  reduced,
  reduceScatter,
  reduceScatterV,
  scatter,
  sendRecv,
  testCollective,
} from "./program-collectives.ts";
export {
  type At,
  Buffer,
  Chunk,
  type ReduceOptions as ReduceStrandOptions,
  type StrandGroup,
  type SyncOptions,
} from "./program-values.ts";
export { RankHandle, Semaphore } from "./rank-handle.ts";
export type { Sentence } from "./type-error-sentence.ts";
