/**
 * The one door to FFI: finding and loading libraries, probing symbols, calling them, mapping memory.
 * Knows no library in particular: the room that asks for one says what it is called and where to get it.
 * Start with library.ts.
 */
export { boundTo } from "./affinity.ts";
export { copyMemory, type MemoryCopy } from "./copy-memory.ts";
export { endWithParent, exitNow } from "./exit.ts";
export { ffiProblem } from "./ffi-problem.ts";
export { emptyViews, viewMemory } from "./foreign-memory.ts";
export { type FutexCalls, futexCalls } from "./futex.ts";
export {
  type Attempt,
  candidates,
  checkStatus,
  describeAttempts,
  type LibrarySpec,
  type LibraryUnavailable,
  type NativeFunction,
  type NativeLibrary,
  type NativeValue,
  openLibrary,
  type Signature,
} from "./library.ts";
export { mapPrivateOver, mapShared, mapSharedOver, type SharedMapping } from "./mapping.ts";
export {
  cString,
  type OutValue,
  outUint64,
} from "./memory.ts";
export {
  addressOf,
  bindAll,
  bindOptional,
  declareStruct,
  keepLoaded,
  parsePrototype,
  readString,
  type StatusFunction,
  type TextFunction,
} from "./prototypes.ts";
export { socketPair } from "./socket-pair.ts";
export {
  descriptorOf,
  POLL_BROKEN,
  POLL_IN,
  POLL_OUT,
  type SocketCalls,
  socketCalls,
  WOULD_BLOCK,
} from "./sockets.ts";
