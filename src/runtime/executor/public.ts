/** What programs use of the executor: algorithms of their own by name, and the tables of choices. */
export { registerAlgorithm } from "./algorithm-names.ts";
export {
  CHOICES_SCHEMA_VERSION,
  type ChoiceDocument,
  type ChoiceRow,
  type ChoiceTable,
  checkChoices,
} from "./choices.ts";
// Loads the device runtime, which ranks on CPUs do without.
export { DevicePlan, type DevicePlanOptions } from "./cuda/device-plan.ts";
export {
  type CudaOptions,
  type GeneratedKernel,
  type GeneratedKernelOp,
  generateCuda,
  PACKET_FORMATS,
  type PacketFormat,
  type StateLayout,
  type WindowLayout,
} from "./cuda/index.ts";
export { machineChoices } from "./machine-choices.ts";
export { type AlgorithmRequest, parseServed, type RegisteredAlgorithm, type Served } from "./served.ts";
export { SHIPPED_CHOICES } from "./shipped-choices.ts";
