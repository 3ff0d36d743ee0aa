/**
 * Runs execution plans over a Transport, and the WebAssembly kernels that move and reduce data on CPUs.
 * Refuses to know what ranks are: threads, processes or devices are the transport's matter.
 * Start with transport.ts, then cpu/prepared-plan.ts; wasm/ holds the assembler and the kernels.
 */
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
