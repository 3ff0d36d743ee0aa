/** The memory in which one rank's plans run: that of its reducer, with the executor's code over it. */
import { type DType, InvalidArgumentError, sizeOf, type Tensor, tensor } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import type { Operand } from "../../comm/index.ts";
import {
  type BufferHost,
  buildExecutor,
  CONTEXT,
  type ExecutorExports,
  type ExecutorMemory,
  initContext,
  instantiate,
  type KernelOp,
  setParameter,
} from "../../executor/internal.ts";
import type { Reducer } from "./reducer.ts";

/** What kernels write beyond the end of a buffer at most. */
const MARGIN_BYTES = 128;

export class PlanMemory implements ExecutorMemory {
  readonly #reducer: Reducer;
  readonly #sizes = new Map<number, number>();
  #words: Int32Array;
  #exports: ExecutorExports | undefined;
  /** Of kernels that run outside of plans: their context, and a table of one source and one destination. */
  #context = 0;

  constructor(reducer: Reducer) {
    this.#reducer = reducer;
    this.#words = new Int32Array(reducer.memory.buffer);
  }

  /** The code that runs plans: some ten milliseconds to compile, at the first plan of a rank. */
  get exports(): ExecutorExports {
    this.#exports ??= instantiate<ExecutorExports>(buildExecutor(), this.#reducer.memory);
    return this.#exports;
  }

  words(): Int32Array {
    const { buffer } = this.#reducer.memory;
    if (this.#words.buffer !== buffer) this.#words = new Int32Array(buffer);
    return this.#words;
  }

  bytes(address: number, length: number): Uint8Array {
    return this.#reducer.bytes(address, length);
  }

  /** @throws OutOfMemoryError */
  allocate(bytes: number, zeroed = true): number {
    const address = this.#reducer.allocate(bytes + MARGIN_BYTES);
    this.#sizes.set(address, bytes + MARGIN_BYTES);
    if (zeroed) this.bytes(address, bytes).fill(0);
    return address;
  }

  free(address: number): void {
    const bytes = this.#sizes.get(address);
    if (bytes === undefined) return;
    this.#sizes.delete(address);
    this.#reducer.free(address, bytes);
  }

  /** How runs find their buffers here: programs' own are copied. */
  host(rank: number, numRanks: number): BufferHost {
    const { exports } = this;
    const context = this.#contextAt();
    const table = context + CONTEXT.sizeBytes;
    return {
      rank,
      numRanks,
      allocate: (bytes) => this.allocate(bytes, false),
      free: (address) => this.free(address),
      place: (given, fill) => {
        const address = this.allocate(given.count * sizeOf(given.dtype), false);
        if (fill) this.#view(address, given).set(bytesOf(given));
        return { address, staged: true };
      },
      copyOut: (address, given) => bytesOf(given).set(this.#view(address, given)),
      result: (dtype: DType, count: number): Tensor => tensor(dtype, [count]),
      kernel: (kernel, from, to, bytes) => {
        this.words().set([from, to], table / 4);
        exports.reduce(kernel, table, 1, table + 4, 1, 0, bytes, context);
      },
      useParameter: (dtype: DType, op: KernelOp, value) =>
        setParameter(this.#reducer.memory.buffer, context, dtype, op, value),
      widen: exports,
      view: () => this.#reducer.memory.buffer,
    };
  }

  #contextAt(): number {
    if (this.#context === 0) {
      this.#context = this.allocate(CONTEXT.sizeBytes + 8);
      initContext(this.#reducer.memory.buffer, this.#context);
    }
    return this.#context;
  }

  #view(address: number, { count, dtype }: Operand): Uint8Array {
    return this.bytes(address, count * sizeOf(dtype));
  }
}

function bytesOf({ tensor, array }: Operand): Uint8Array {
  const data = tensor?.data ?? array;
  if (data === undefined)
    throw new InvalidArgumentError("tensor", described("in device memory"), "a tensor in host memory");
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}
