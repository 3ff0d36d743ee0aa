/**
 * Says what each collective means: buffers, pre- and post-condition, rules for calls, reference results, bandwidth factor.
 * Refuses to move data, and knows neither plans nor backends: it needs only core/.
 * Start reading in operation-table.ts, the table of all operations.
 */
export {
  agreedCount,
  type Call,
  checkCall,
  checkCounts,
  checkPeer,
  checkPlacement,
  checkReduceOp,
  checkRoot,
  checkScalar,
  checkTimeout,
  describeCall,
  outputCount,
  overlaps,
  ownOffset,
  type Region,
} from "./call-rules.ts";
export {
  type BufferChunks,
  bufferChunks,
  type ChunkRef,
  type ChunkValue,
  type ConditionOptions,
  explainChunk,
  postcondition,
  precondition,
} from "./chunk-conditions.ts";
export {
  busFactor,
  COLLECTIVE_NAMES,
  type CollectiveName,
  type Extent,
  findOperation,
  type Holder,
  type InPlace,
  OPERATION_NAMES,
  OPERATIONS,
  type OperationInfo,
  type OperationName,
  operationInfo,
  parseOperation,
  partCount,
  type ReducingName,
  reportedCount,
} from "./operation-table.ts";
export {
  type ExpectedSegment,
  outputSegments,
  referenceOutput,
  type Segment,
  type SegmentOptions,
} from "./output-segments.ts";
export {
  asPrecise,
  type Expected,
  findWrong,
  referenceCopy,
  referenceReduce,
  type Wrong,
} from "./reference-results.ts";
export { encodeSmallFloat, smallFloatTables } from "./small-floats.ts";
