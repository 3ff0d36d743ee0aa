/** The executor's code as a module of its own: kernels, copy and strand machine, where no backend adds to them. */
import { ModuleBuilder } from "../wasm/assembler.ts";
import { addCopy } from "../wasm/copy.ts";
import { addReduceKernels } from "../wasm/reduce-kernels.ts";
import { addReduce, type ReduceExports } from "../wasm/reduce-module.ts";
import { compileModule, type WasmModule } from "../wasm/webassembly.ts";
import { addWiden, type WidenExports } from "../wasm/widen.ts";
import { addStrandMachine, type MachineExports } from "./strand-machine.ts";

export type ExecutorExports = MachineExports & ReduceExports & WidenExports;

/** Compiles it: some ten milliseconds, once per process. Instances export `ExecutorExports`. */
export function buildExecutor(): WasmModule {
  const module = new ModuleBuilder();
  const kernelType = addReduceKernels(module);
  addReduce(module, kernelType);
  addWiden(module);
  addStrandMachine(module, { kernelType, copy: addCopy(module) });
  return compileModule(module.encode());
}
