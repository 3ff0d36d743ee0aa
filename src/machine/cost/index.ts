/**
 * What communication costs: NCCL's constants and its model of itself, what engines add, and the file of what was measured here.
 * Refuses to know models, plans or programs: planner, simulator and executor bring these and ask here.
 * Start with nccl-constants.ts (what NCCL assumes), nccl-versions.ts (what changed when), nccl-fit.ts (fitted to measurements), machine-store.ts (this machine's).
 */
export {
  type CollectiveEstimate,
  type EstimateOptions,
  LIBRARY_ALGORITHMS,
  type LibraryAlgorithm,
  TIMED_OPERATIONS,
  type TimedOperation,
  timedBusFactor,
} from "./collective-estimate.ts";
export {
  type CollectiveMachine,
  CollectiveMachines,
  collectiveMachineOf,
  type MachineOptions,
  nvidiaGeneration,
} from "./collective-machine.ts";
export {
  CPU_COST_NAMES,
  type CpuCosts,
  type CpuCostTable,
  checkCpuCosts,
  cpuCostsFor,
  DEFAULT_CPU_COSTS,
} from "./cpu-costs.ts";
export { COLLECTIVE_LAUNCH_US, ENGINE_BASE_US } from "./engine-constants.ts";
export {
  type CpuTopology,
  cpuTopology,
  type MachineRecord,
  machineFile,
  readMachineFile,
  readUsedMachineFile,
  removeMachineFile,
  requireMachineFile,
  requireWritable,
  thisMachine,
  writeMachineSection,
} from "./machine-store.ts";
export { NCCL_GENERATIONS, NCCL_PROTOCOL_NAMES, type NcclProtocol } from "./nccl-constants.ts";
export { NCCL_FIT, NCCL_FIT_SOURCE } from "./nccl-fit.ts";
export { type NcclAlgorithm, type NcclEstimate, type NcclMachine, ncclEstimate, ncclTime } from "./nccl-model.ts";
export { ncclPrediction } from "./nccl-prediction.ts";
export { parseNcclVersion, timedAsVersion } from "./nccl-versions.ts";
export { hasLibraryModel, predictCollective, switchesReduce } from "./predict-collective.ts";
