/** The reduction kernels by themselves, as one function: for backends whose ranks share no memory. */
import { BUILT_KERNELS_FILE, builtCode } from "../built-code.ts";
import { ModuleBuilder } from "./assembler.ts";
import { addReduceKernels } from "./reduce-kernels.ts";
import { compileModule, instantiate, type WasmFunction, type WasmMemory, type WasmModule } from "./webassembly.ts";

export interface ReduceExports {
  /** (kernel, inTable, numIn, outTable, numOut, start, end, context) */
  readonly reduce: WasmFunction;
}

/** Exports the kernels of a module as one function. @param kernelType as `addReduceKernels` gave it */
export function addReduce(module: ModuleBuilder, kernelType: number): void {
  const params = Array.from({ length: 8 }, () => "i32" as const);
  module.function(
    { params, results: [] },
    (f) => {
      for (let i = 1; i < params.length; i++) f.get(f.param(i));
      f.get(f.param(0)).callIndirect(kernelType);
    },
    "reduce",
  );
}

export function assembleReduce(): Uint8Array<ArrayBuffer> {
  const module = new ModuleBuilder();
  addReduce(module, addReduceKernels(module));
  return module.encode();
}

/** The same code for each memory of a thread. */
let compiled: WasmModule | undefined;

/** @returns `ReduceExports.reduce` on this memory */
export function reduceOn(memory: WasmMemory): WasmFunction {
  compiled ??= compileModule(builtCode(BUILT_KERNELS_FILE) ?? assembleReduce());
  return instantiate<ReduceExports>(compiled, memory).reduce;
}
