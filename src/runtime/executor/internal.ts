/**
 * The executor's second door, for ranks on CPUs: kernels, the machine that runs plans, and the tables of choices.
 * It loads neither the CUDA generator nor the device runtime: those are behind index.ts and cuda/internal.ts.
 * Start with transport.ts, then cpu/prepared-plan.ts and choices.ts; wasm/ holds the assembler and the kernels.
 */
export { acceptedNames, libraryPlans, loadLibraryPlans, registeredAlgorithm } from "./algorithm-names.ts";
export { BUILT_KERNELS_FILE, builtCode } from "./built-code.ts";
export { builtPlanFile, MOST_BUILT_RANKS } from "./built-plans.ts";
export {
  AS_WRITTEN,
  CHOICES_SCHEMA_VERSION,
  type Choice,
  type ChoiceDocument,
  type ChoiceRow,
  Choices,
  type ChoiceTable,
  checkChoices,
  choiceNews,
  type KernelNames,
  type StoredPlan,
} from "./choices.ts";
export {
  choiceFor,
  knownPlanOf,
  planCallOf,
  SERVED_OPINION,
  type TunedRun,
  tunedRun,
} from "./chosen-plan.ts";
export { ArenaReducer, kernelOp, type ReduceJob } from "./cpu/arena-reducer.ts";
export { type Carriage, carriageOf, isCarriedAsIs, scalarOf } from "./cpu/carriage.ts";
export { FarRun } from "./cpu/far-run.ts";
export { COUNTER_BYTES } from "./cpu/image.ts";
export { buildExecutor, type ExecutorExports } from "./cpu/module.ts";
export { type BufferHost, PlanBuffers } from "./cpu/plan-buffers.ts";
export { PreparedPlan, strandPositions } from "./cpu/prepared-plan.ts";
export { reductionDepth } from "./cpu/reduction-depth.ts";
export { strandLines } from "./cpu/strand-lines.ts";
export { addStrandMachine, type MachineExports } from "./cpu/strand-machine.ts";
export { loadEarly } from "./load-early.ts";
export { isChoices, machineChoices } from "./machine-choices.ts";
export { PLAN_CHOICES } from "./plan-choices.ts";
export { isServed, parseServed, SERVED_COLLECTIVES } from "./served.ts";
export type { ServingPlan } from "./serving-plan.ts";
export { builtUses, SHIPPED_CHOICES } from "./shipped-choices.ts";
export { registerStoredPlans } from "./stored-plans.ts";
export { type ExecutorMemory, type FarForm, type FarPlace, type FarPort, REACHES, type Reach } from "./transport.ts";
export { type FunctionBuilder, type Local, ModuleBuilder, type Signature } from "./wasm/assembler.ts";
export { addCopy, addCopyBackwards } from "./wasm/copy.ts";
export { initContext, setParameter } from "./wasm/kernel-context.ts";
export {
  addReduceKernels,
  CONTEXT,
  COPY_KERNEL,
  KERNEL_INDEX,
  type KernelOp,
  MAX_INPUTS,
} from "./wasm/reduce-kernels.ts";
export { assembleReduce, reduceOn } from "./wasm/reduce-module.ts";
export { decode as decodeLanes, encode as encodeLanes } from "./wasm/small-float-lanes.ts";
export {
  compileModule,
  instantiate,
  MAX_PAGES,
  newSharedMemory,
  PAGE_BYTES,
  type WasmFunction,
  type WasmMemory,
  type WasmModule,
} from "./wasm/webassembly.ts";
export { addWiden, type WidenExports } from "./wasm/widen.ts";
