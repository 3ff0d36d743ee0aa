export {
  FunctionBuilder,
  type Local,
  ModuleBuilder,
  type Signature,
} from "./assembler.ts";
export { addCopy } from "./copy.ts";
export {
  initContext,
  setParameter,
} from "./kernel-context.ts";
export {
  addReduceKernels,
  CONTEXT,
  COPY_KERNEL,
  KERNEL_INDEX,
  KERNEL_OPS,
  type KernelIndex,
  type KernelOp,
  MAX_INPUTS,
  type ParameterType,
  parameterType,
} from "./reduce-kernels.ts";
export {
  compileModule,
  instantiate,
  MAX_PAGES,
  newSharedMemory,
  PAGE_BYTES,
  type WasmFunction,
  type WasmMemory,
  type WasmModule,
} from "./webassembly.ts";
export { addWiden, WIDEN_BYTES, type WidenExports } from "./widen.ts";
