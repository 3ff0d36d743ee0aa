/**
 * The Communicator: its contract, the validation and the one GroupCommunicator that every backend shares, BackendKind.
 * Refuses to move data or to know an engine: a backend gives a GroupDriver for each group.
 * Start with contract.ts (what users call), then group-communicator.ts and group-driver.ts.
 */
export {
  type AcrossHosts,
  type BackendKind,
  checkBackendOptions,
  checkIsolation,
  checkRanks,
  type EngineJoin,
  type HostHandle,
  type HostMirror,
  type HostSpec,
  isDuration,
  isFlag,
  isIntegerFrom,
  type JoinedEngine,
  type JoinedWay,
  type JoiningRank,
  type OptionCheck,
  type OptionSchema,
  type StartCommand,
} from "./backend-kind.ts";
export {
  collectBatch,
  type InertCall,
  inertBatch,
} from "./batch.ts";
export {
  BatchedWork,
  BatchWork,
} from "./batch-work.ts";
export {
  abortReason,
  asTensor,
  type CallArguments,
  type CheckedCall,
  checkArguments,
  checkGeneration,
  checkGroup,
  checkGroupName,
  checkOptions,
  checkSupported,
  checkWait,
  checkWorldRank,
  type Operand,
  operand,
  optionsOf,
  type Roles,
  rolesOf,
} from "./call.ts";
export {
  describeWords,
  hashNumbers,
  opCode,
  packCall,
  type UnpackedCall,
  unpackCall,
  WIRE_OPS,
  type WireOp,
} from "./call-fingerprint.ts";
export {
  type AllToAllVOptions,
  type Backend,
  type Bootstrap,
  type CallOptions,
  type Capabilities,
  type CommStats,
  type Communicator,
  type Data,
  DEFAULT_TIMEOUT_MS,
  MAX_OBJECT_BYTES,
  type OperationStats,
  type OutputOptions,
  type ReduceOptions,
  type RootOptions,
  type Runnable,
  type RunOptions,
  type VOptions,
  type Work,
  type WorkState,
} from "./contract.ts";
export type { CallEpilogue, EpilogueKernel, EpilogueOperand } from "./epilogue.ts";
export {
  callSite,
  decodeFailure,
  departed,
  encodeFailure,
  errorOf,
  type Failure,
  failureOf,
} from "./failure.ts";
export {
  FLIGHT_SCHEMA_VERSION,
  type FlightDump,
  type FlightEntry,
  type FlightRank,
  flightDump,
} from "./flight-record.ts";
export {
  allReduceWith,
  driverOf,
  type Extension,
  extensionOf,
  GroupCommunicator,
  refuseCalls,
  takesEpilogues,
} from "./group-communicator.ts";
export type {
  BarrierCall,
  ByteExchange,
  GroupCall,
  GroupDriver,
  GroupOpening,
  GroupPlace,
  SubmittedBatch,
  TensorCall,
  UncheckedOptions,
} from "./group-driver.ts";
export {
  ISOLATIONS,
  type Isolation,
  parseIsolation,
} from "./isolation.ts";
export { checkCarried, decodeObject, encodeObject } from "./object-codec.ts";
export { type NamedCall, PLAIN_OPTIONS } from "./option-names.ts";
export { checkPlanCall, type PlanCall } from "./plan-call.ts";
export {
  afterRunning,
  type RunningTimer,
  runningTime,
  STOPPED_MS,
} from "./running-time.ts";
export {
  readChoice,
  type SplitChoice,
  writeChoice,
} from "./split-choice.ts";
export {
  OpCounter,
  OpCounters,
  SAMPLE_EVERY,
} from "./stats.ts";
export { checkNotHeld, holdTensors } from "./tensor-holds.ts";
export {
  PendingWork,
  passOn,
  type QuickWork,
  SettledWork,
} from "./work.ts";
export { reportUnseenAtExit, type Watched, type WorkNote } from "./work-notes.ts";
export { closeEach, GroupOpenings } from "./world-groups.ts";
