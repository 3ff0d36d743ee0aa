/**
 * NCCL as a library: finds it, binds its functions, and wraps its errors; and what its interface calls things.
 * Knows nothing of groups, streams or of when a call may be made: that is runtime/backends/nccl's.
 * Start reading at library.ts; symbols.ts is nccl.h.
 */
export {
  decodeVersion,
  loadNccl,
  NcclLibrary,
  ncclLibrary,
  OLDEST_NCCL,
  requireEngine,
  requireNccl,
} from "./library.ts";
export {
  NCCL_DTYPE,
  NCCL_OPTIONAL,
  NCCL_REDOP,
  NCCL_RESULT,
  type NcclOptionalSymbol,
  SCALAR_HOST_IMMEDIATE,
  SPLIT_NO_COLOR,
  UNIQUE_ID_BYTES,
} from "./symbols.ts";
