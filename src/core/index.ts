/**
 * What all rooms share: dtypes and their bit formats, reduce operators, tensors and storage, brands, units, errors.
 * Refuses to know anything of devices, ranks or files, and imports no other room.
 * Start with dtype.ts and tensor.ts; errors.ts holds every error class.
 */
export {
  type Bytes,
  bytes,
  type DevicePtr,
  type Rank,
  rank,
} from "./brands.ts";
export { type CallSite, type CallTrace, callSiteOf, foldersBeside, traceOfCall } from "./call-site.ts";
export { deepFreeze } from "./deep-freeze.ts";
export {
  type ArrayOf,
  DTYPE_NAMES,
  DTYPES,
  type DType,
  type DTypeArrays,
  dtypeOf,
  holds,
  newArray,
  parseDType,
  type ScalarOf,
  sizeOf,
  type TypedArray,
  viewAs,
} from "./dtype.ts";
export {
  AbortedError,
  ChoraleError,
  ClosedError,
  type ErrorCode,
  FormatError,
  InvalidArgumentError,
  InvariantError,
  invariant,
  MismatchError,
  type MismatchSide,
  NativeError,
  OutOfMemoryError,
  PlanError,
  type PlanProblem,
  type RankActivity,
  RankFailedError,
  show,
  TimeoutError,
  type Unavailable,
  UnavailableError,
  UnsupportedError,
} from "./errors.ts";
export {
  decodeArray,
  decodeFloat,
  decodeTable,
  encodeArray,
  encodeFloat,
  FLOAT_FORMATS,
  type FloatFormat,
  isSmallFloat,
  type SmallFloat,
} from "./float-formats.ts";
export {
  printable,
  printableInColour,
  printableJson,
  printableJsonText,
  printableLine,
} from "./plain-text.ts";
export {
  isLegal,
  type NamedReduceOp,
  type PreMulSum,
  parseReduceOp,
  REDUCE_OPS,
  type ReduceOp,
} from "./reduce-op.ts";
export {
  checkValues,
  numElements,
  privateStorage,
  type Storage,
  type StorageKind,
  Tensor,
  type TensorValues,
  tensor,
} from "./tensor.ts";
export { isThenable } from "./thenable.ts";
export {
  formatSize,
  parseSize,
} from "./units.ts";
export { decodeValues, encodeValues } from "./values.ts";
export { wordTable } from "./word-table.ts";
