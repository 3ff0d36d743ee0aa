/**
 * Runs execution plans over a Transport, on CPUs and as generated CUDA kernels, and chooses what serves a call.
 * Refuses to know what ranks are: threads, processes or devices are the transport's matter.
 * Start with transport.ts, then cpu/prepared-plan.ts, cuda/generate.ts and choices.ts; internal.ts is the door for ranks,
 * cuda/internal.ts the one for ranks on GPUs.
 */
export { registerAlgorithm } from "./algorithm-names.ts";
export {
  CHOICES_SCHEMA_VERSION,
  type ChoiceDocument,
  type ChoiceRow,
  type ChoiceTable,
  checkChoices,
  type StoredPlan,
} from "./choices.ts";
export type { BufferReach } from "./cuda/buffer-reach.ts";
export { DevicePlan, type DevicePlanOptions } from "./cuda/device-plan.ts";
export type { KernelOp as GeneratedKernelOp } from "./cuda/elements.ts";
export {
  type CudaOptions,
  type GeneratedKernel,
  generateCuda,
  PACKET_FORMATS,
  type PacketFormat,
} from "./cuda/generate.ts";
export type { StateLayout, WindowLayout } from "./cuda/launch-layout.ts";
export { type WindowSizes, windowBytes } from "./cuda/launch-words.ts";
export { machineChoices } from "./machine-choices.ts";
export { type AlgorithmRequest, parseServed, type RegisteredAlgorithm, type Served } from "./served.ts";
export { SHIPPED_CHOICES } from "./shipped-choices.ts";
