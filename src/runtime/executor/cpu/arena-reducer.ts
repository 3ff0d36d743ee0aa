/** The reduction kernels on an arena: inputs and output are addresses in its WebAssembly memory. */
import type { DType, ReduceOp } from "../../../core/index.ts";
import { initContext, setParameter } from "../wasm/kernel-context.ts";
import { CONTEXT, KERNEL_INDEX, type KernelOp } from "../wasm/reduce-kernels.ts";
import { reduceOn } from "../wasm/reduce-module.ts";
import type { WasmFunction, WasmMemory } from "../wasm/webassembly.ts";

export class ArenaReducer {
  readonly #buffer: ArrayBufferLike;
  readonly #words: Int32Array;
  readonly #reduce: WasmFunction;
  readonly #context: number;
  readonly #inTable: number;
  readonly #outTable: number;

  /** @param allocate gives memory of this rank alone */
  constructor(memory: WasmMemory, ranks: number, allocate: (bytes: number) => number) {
    this.#buffer = memory.buffer;
    this.#words = new Int32Array(memory.buffer);
    this.#reduce = reduceOn(memory);
    this.#context = allocate(CONTEXT.sizeBytes);
    this.#inTable = allocate(4 * (2 * ranks + 1));
    this.#outTable = this.#inTable + 4 * ranks;
    initContext(memory.buffer, this.#context);
  }

  /**
   * Reduces `length` bytes of all ranks' inputs, in order, to one output or several. An output may be an input.
   * @param divisor of an average
   */
  run(
    dtype: DType,
    redop: ReduceOp,
    inputs: readonly number[],
    output: number | readonly number[],
    length: number,
    divisor = inputs.length,
  ): void {
    this.#words.set(inputs, this.#inTable / 4);
    const numOutputs = typeof output === "number" ? 1 : output.length;
    if (typeof output === "number") this.#words[this.#outTable / 4] = output;
    else this.#words.set(output, this.#outTable / 4);
    this.runTables(dtype, redop, this.#inTable, inputs.length, this.#outTable, length, divisor, numOutputs);
  }

  /** The same, where the addresses of the inputs, and of the outputs, are in the arena already. */
  runTables(
    dtype: DType,
    redop: ReduceOp,
    inTable: number,
    numInputs: number,
    outTable: number,
    length: number,
    divisor = numInputs,
    numOutputs = 1,
  ): void {
    const op = kernelOp(redop);
    if (typeof redop === "object") setParameter(this.#buffer, this.#context, dtype, op, redop.scalar);
    else if (op === "avg") setParameter(this.#buffer, this.#context, dtype, op, divisor);
    const kernel = KERNEL_INDEX[dtype][op] as number;
    this.#reduce(kernel, inTable, numInputs, outTable, numOutputs, 0, length, this.#context);
  }
}

/** The kernel of an operator; of what only copies, any will do. */
export function kernelOp(redop: ReduceOp | undefined): KernelOp {
  return redop === undefined ? "sum" : typeof redop === "object" ? "preMulSum" : redop;
}
