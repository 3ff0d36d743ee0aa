/**
 * The one door to FFI: finding and loading libraries, probing symbols, calling them, mapping memory.
 * Refuses to know any library: what an absent one is called and where it comes from is said by the room that asks for it.
 * Start with library.ts.
 */
export { endWithParent, exitNow } from "./exit.ts";
export { ffiProblem } from "./ffi-problem.ts";
export { emptyViews, viewMemory } from "./foreign-memory.ts";
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
export { mapShared, type SharedMapping } from "./mapping.ts";
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
export {
  descriptorOf,
  POLL_BROKEN,
  POLL_IN,
  POLL_OUT,
  type SocketCalls,
  socketCalls,
  WOULD_BLOCK,
} from "./sockets.ts";
