/** The reduction kernels on an arena: inputs and output are addresses in its WebAssembly memory. */
import type { DType, ReduceOp } from "../../../core/index.ts";
import { initContext, setParameter } from "../wasm/kernel-context.ts";
import { CONTEXT, KERNEL_INDEX, type KernelOp } from "../wasm/reduce-kernels.ts";
import { reduceOn } from "../wasm/reduce-module.ts";
import type { WasmFunction, WasmMemory } from "../wasm/webassembly.ts";

/** A reduction that is ready to run, on this thread or another one: the kernel's arguments, but for the range. */
export interface ReduceJob {
  readonly kernel: number;
  readonly inTable: number;
  readonly numInputs: number;
  readonly outTable: number;
  readonly numOutputs: number;
  readonly context: number;
}

export class ArenaReducer {
  readonly #buffer: ArrayBufferLike;
  readonly #words: Int32Array;
  readonly #reduce: WasmFunction;
  readonly #context: number;
  readonly #inTable: number;
  readonly #outTable: number;
  readonly #allocate: (bytes: number) => number;
  readonly #tablesBytes: number;
  /** Room for those that other threads make, by place: a context, and behind it its tables. */
  readonly #beside: number[] = [];

  /** @param allocate gives memory of this rank alone */
  constructor(memory: WasmMemory, ranks: number, allocate: (bytes: number) => number) {
    this.#buffer = memory.buffer;
    this.#words = new Int32Array(memory.buffer);
    this.#reduce = reduceOn(memory);
    this.#context = allocate(CONTEXT.sizeBytes);
    this.#tablesBytes = 4 * (2 * ranks + 1);
    this.#inTable = allocate(this.#tablesBytes);
    this.#outTable = this.#inTable + 4 * ranks;
    this.#allocate = allocate;
    initContext(memory.buffer, this.#context);
  }

  /**
   * Makes a reduction ready for other threads, which run it range by range. There is room for one of each
   * place: it must have ended before the next is made.
   */
  prepareBeside(
    place: number,
    dtype: DType,
    redop: ReduceOp,
    inputs: readonly number[],
    outputs: readonly number[],
    divisor: number,
  ): ReduceJob {
    let context = this.#beside[place];
    if (context === undefined) {
      context = this.#allocate(CONTEXT.sizeBytes + this.#tablesBytes);
      this.#beside[place] = context;
      initContext(this.#buffer, context);
    }
    const inTable = context + CONTEXT.sizeBytes;
    this.#words.set([...inputs, ...outputs], inTable / 4);
    const kernel = this.#kernel(dtype, redop, context, divisor);
    const outTable = inTable + 4 * inputs.length;
    return { kernel, inTable, numInputs: inputs.length, outTable, numOutputs: outputs.length, context };
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
    // `set` takes longer for so few.
    for (let i = 0; i < inputs.length; i++) this.#words[this.#inTable / 4 + i] = inputs[i]!;
    const numOutputs = typeof output === "number" ? 1 : output.length;
    if (typeof output === "number") this.#words[this.#outTable / 4] = output;
    else for (let i = 0; i < numOutputs; i++) this.#words[this.#outTable / 4 + i] = output[i]!;
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
    const kernel = this.#kernel(dtype, redop, this.#context, divisor);
    this.#reduce(kernel, inTable, numInputs, outTable, numOutputs, 0, length, this.#context);
  }

  /** The kernel, with its parameter in the context. */
  #kernel(dtype: DType, redop: ReduceOp, context: number, divisor: number): number {
    const op = kernelOp(redop);
    if (typeof redop === "object") setParameter(this.#buffer, context, dtype, op, redop.scalar);
    else if (op === "avg") setParameter(this.#buffer, context, dtype, op, divisor);
    return KERNEL_INDEX[dtype][op] as number;
  }
}

/** The kernel of an operator; of what only copies, any will do. */
export function kernelOp(redop: ReduceOp | undefined): KernelOp {
  return redop === undefined ? "sum" : typeof redop === "object" ? "preMulSum" : redop;
}
