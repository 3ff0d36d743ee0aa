/**
 * Runs execution plans over a Transport, the WebAssembly kernels of CPUs, and the choice of what serves a call.
 * Refuses to know what ranks are: threads, processes or devices are the transport's matter.
 * Start with transport.ts, then cpu/prepared-plan.ts, cuda/generate.ts and choices.ts; wasm/ holds the assembler.
 */
export { libraryPlans, loadLibraryPlans, registerAlgorithm, registeredAlgorithm } from "./algorithm-names.ts";
export {
  CHOICES_SCHEMA_VERSION,
  type Choice,
  type ChoiceDocument,
  type ChoicePlace,
  type ChoiceRow,
  Choices,
  type ChoiceTable,
  checkChoices,
  type KernelNames,
  logsSelection,
} from "./choices.ts";
export {
  addStrandMachine,
  buildExecutor,
  COUNTER_BYTES,
  type MachineExports,
  type MachineParts,
  PreparedPlan,
  type PreparedPlanParts,
  reductionDepth,
  type StrandPosition,
  strandPositions,
} from "./cpu/index.ts";
export {
  type CudaOptions,
  type GeneratedKernel,
  type GeneratedKernelOp,
  generateCuda,
  type LaunchValues,
  launchWords,
  needsOneRounding,
  PACKET_FORMATS,
  type PacketFormat,
  packetChunkBytes,
  REPORT_WORDS,
  type StateLayout,
  type WindowLayout,
  type WindowSizes,
  windowBytes,
} from "./cuda/index.ts";
export type { ServingPlan } from "./library-plans.ts";
export { machineChoices } from "./machine-choices.ts";
export { PLAN_CHOICES } from "./plan-choices.ts";
export {
  type AlgorithmRequest,
  parseServed,
  type RegisteredAlgorithm,
  SERVED_COLLECTIVES,
  type Served,
} from "./served.ts";
export { SHIPPED_CHOICES } from "./shipped-choices.ts";
export { type ExecutorMemory, REACHES, type Reach, type Transport } from "./transport.ts";
export {
  addCopy,
  addReduceKernels,
  addWiden,
  CONTEXT,
  COPY_KERNEL,
  compileModule,
  FunctionBuilder,
  initContext,
  instantiate,
  KERNEL_INDEX,
  KERNEL_OPS,
  type KernelIndex,
  type KernelOp,
  type Local,
  MAX_INPUTS,
  MAX_PAGES,
  ModuleBuilder,
  newSharedMemory,
  PAGE_BYTES,
  type ParameterType,
  parameterType,
  type Signature,
  setParameter,
  type WasmFunction,
  type WasmMemory,
  type WasmModule,
  WIDEN_BYTES,
  type WidenExports,
} from "./wasm/index.ts";
