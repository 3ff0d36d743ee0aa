/**
 * Reductions that MPI has not, or has with another meaning: 16- and 8-bit floats, which accumulate in f32 and round once;
 * min and max that propagate NaN; 8-bit integers, which Open MPI's vector code saturates where chorale's wrap; averages and scaled sums. MPI moves
 * the bytes, and the executor's WebAssembly kernels reduce them, in rank order, through a small memory of their own.
 */
import type { DType, ReduceOp } from "../../../core/index.ts";
import {
  CONTEXT,
  initContext,
  KERNEL_INDEX,
  type KernelOp,
  MAX_PAGES,
  newSharedMemory,
  PAGE_BYTES,
  reduceOn,
  setParameter,
  type WasmFunction,
} from "../../executor/internal.ts";

/** Bytes of each input that are in the kernels' memory at once. */
const TILE_BYTES = 65_536;

export class ReductionKernels {
  readonly #bytes: Uint8Array;
  readonly #words: Int32Array;
  readonly #reduce: WasmFunction;
  readonly #inTable: number;
  readonly #outTable: number;
  readonly #tiles: number;

  /** @param maxInputs most inputs of a reduction: the ranks of the world */
  constructor(maxInputs: number) {
    this.#inTable = Math.ceil(CONTEXT.sizeBytes / 16) * 16;
    this.#outTable = this.#inTable + 4 * maxInputs;
    this.#tiles = Math.ceil((this.#outTable + 4) / 128) * 128;
    const sizeBytes = this.#tiles + (maxInputs + 1) * TILE_BYTES;
    const memory = newSharedMemory(Math.ceil(sizeBytes / PAGE_BYTES), MAX_PAGES);
    this.#bytes = new Uint8Array(memory.buffer);
    this.#words = new Int32Array(memory.buffer);
    initContext(memory.buffer, 0);
    this.#reduce = reduceOn(memory);
  }

  /**
   * Reduces bytes [start, end) of the inputs, in order, to `output`, which may be one of them.
   * @param numRanks what an average divides by
   */
  run(
    dtype: DType,
    op: ReduceOp,
    numRanks: number,
    inputs: readonly Uint8Array[],
    output: Uint8Array,
    start = 0,
    end = output.length,
  ): void {
    const name: KernelOp = typeof op === "string" ? op : "preMulSum";
    if (typeof op === "object") setParameter(this.#bytes.buffer, 0, dtype, name, op.scalar);
    else if (op === "avg") setParameter(this.#bytes.buffer, 0, dtype, name, numRanks);
    const kernel = KERNEL_INDEX[dtype][name] as number;
    const words = this.#words;
    for (let i = 0; i < inputs.length; i++) words[this.#inTable / 4 + i] = this.#tiles + (i + 1) * TILE_BYTES;
    words[this.#outTable / 4] = this.#tiles;
    for (let at = start; at < end; at += TILE_BYTES) {
      const length = Math.min(TILE_BYTES, end - at);
      for (const [i, input] of inputs.entries()) {
        this.#bytes.set(input.subarray(at, at + length), this.#tiles + (i + 1) * TILE_BYTES);
      }
      this.#reduce(kernel, this.#inTable, inputs.length, this.#outTable, 1, 0, length, 0);
      output.set(this.#bytes.subarray(this.#tiles, this.#tiles + length), at);
    }
  }
}
