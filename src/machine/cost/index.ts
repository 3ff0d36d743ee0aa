/**
 * What communication costs: NCCL's constants and its model of itself, what engines add, and the file of what was measured here.
 * Refuses to know models, plans or programs: planner, simulator and executor bring these and ask here.
 * Start with nccl-constants.ts, the one copy of what NCCL assumes; machine-store.ts keeps this machine's own figures.
 */
export { COLLECTIVE_LAUNCH_US, ENGINE_BASE_US } from "./engine-constants.ts";
export {
  type MachineId,
  type MachineRecord,
  machineFile,
  readMachineFile,
  removeMachineFile,
  STORE_SCHEMA_VERSION,
  STORE_SECTIONS,
  type StoredSection,
  type StoreSection,
  thisMachine,
  writeMachineSection,
} from "./machine-store.ts";
export {
  NCCL_BASE_US,
  NCCL_GENERATIONS,
  NCCL_HOP_US,
  NCCL_LL_FRACTION,
  NCCL_LL128_FRACTION,
  NCCL_NVLS,
  NCCL_PROTOCOL_NAMES,
  NCCL_TREE,
  type NcclProtocol,
} from "./nccl-constants.ts";
export {
  type NcclAlgorithm,
  type NcclEstimate,
  type NcclMachine,
  ncclEstimate,
  ncclTime,
} from "./nccl-model.ts";
