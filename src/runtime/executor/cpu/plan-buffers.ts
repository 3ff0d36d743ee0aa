/**
 * Where a run of a plan finds its buffers: addresses in the executor's memory, and what has to be done to the values before
 * and after where the plan alone would round them more than once. A plan that was not proved may write nothing to parts of its
 * output: those keep what the caller had there, or are zero in a new tensor.
 */

import { proofOf } from "../../../authoring/plan/index.ts";
import {
  type DType,
  decodeFloat,
  encodeFloat,
  isSmallFloat,
  sizeOf,
  type Tensor,
  viewAs,
} from "../../../core/index.ts";
import { asTensor, type Operand, type PlanCall } from "../../comm/index.ts";
import { COPY_KERNEL, KERNEL_INDEX, type KernelOp } from "../wasm/reduce-kernels.ts";
import { WIDEN_BYTES, type WidenExports } from "../wasm/widen.ts";
import { type Carriage, scalarOf } from "./carriage.ts";

/** What kernels write beyond the end of a buffer at most. */
const MARGIN_BYTES = 16;

/** Whose memory the plan runs in. */
export interface BufferHost {
  /** This rank, and how many there are in its group. */
  readonly rank: number;
  readonly numRanks: number;
  allocate(bytes: number): number;
  free(address: number): void;
  /** The address of a caller's buffer: its own, or a copy's, filled if asked, which `free` takes. */
  place(given: Operand, fill: boolean): { readonly address: number; readonly staged: boolean };
  /** Copies a staged result to the caller's buffer. */
  copyOut(address: number, given: Operand): void;
  /** A new tensor for a result. */
  result(dtype: DType, count: number): Tensor;
  /** Runs a kernel with one source and one destination. */
  kernel(kernel: number, from: number, to: number, bytes: number): void;
  /** Sets what the next `avg` or `preMulSum` kernel uses. */
  useParameter(dtype: DType, op: KernelOp, value: number | bigint): void;
  readonly widen: WidenExports;
  /** The memory, up to `end` at least. */
  view(end: number): ArrayBufferLike;
}

/** What a buffer holds before the plan runs: operands to combine, what is there already, zeros, or whatever it is. */
type Fill = "operands" | "kept" | "zeros" | "none";

interface Buffer {
  readonly address: number;
  readonly count: number;
}

export class PlanBuffers {
  /** Addresses, 0 where the rank has none, and the bytes that the plan may touch there. */
  readonly input: number;
  readonly output: number;
  readonly inputBytes: number;
  readonly outputBytes: number;
  /** What the caller gets. */
  readonly result: Tensor | undefined;
  readonly #host: BufferHost;
  readonly #call: PlanCall;
  readonly #carriage: Carriage;
  readonly #staged: number[] = [];
  readonly #after: (() => void)[] = [];

  /** Takes, fills and converts. @throws OutOfMemoryError, with nothing held */
  constructor(host: BufferHost, call: PlanCall, carriage: Carriage) {
    this.#host = host;
    this.#call = call;
    this.#carriage = carriage;
    try {
      const { input, output, result } = this.#bringBoth();
      const size = sizeOf(carriage.dtype);
      this.input = input;
      this.output = output;
      this.inputBytes = call.inputCount * size;
      this.outputBytes = call.outputCount * size;
      this.result = result;
    } catch (error) {
      this.free();
      throw error;
    }
  }

  get isStaged(): boolean {
    return this.#staged.length > 0;
  }

  /** Brings what the plan wrote to where the caller wants it. */
  finish(): Tensor | undefined {
    for (const step of this.#after) step();
    return this.result;
  }

  free(): void {
    for (const address of this.#staged.splice(0)) this.#host.free(address);
  }

  #bringBoth(): { input: number; output: number; result: Tensor | undefined } {
    const { plan, input, output, outputCount, shared, dtype } = this.#call;
    const host = this.#host;
    if (shared !== undefined) {
      const whole = (shared.in === "input" ? input : output) as Operand;
      const isOutput = shared.in === "output";
      const at = this.#bring(
        whole,
        "operands",
        isOutput ? { at: 0, count: outputCount } : { at: shared.at, count: outputCount },
      );
      const inner = at + shared.at * sizeOf(this.#carriage.dtype);
      const result = asTensor(whole);
      if (isOutput) return { input: inner, output: at, result };
      return { input: at, output: inner, result: result.slice(shared.at, shared.at + outputCount) };
    }
    const source = input === undefined ? 0 : this.#bring(input, "operands", undefined);
    if (plan.ranks[host.rank]?.output.chunks === 0) return { input: source, output: 0, result: undefined };
    const result = output === undefined ? host.result(dtype, outputCount) : undefined;
    const target = output ?? operandOf(result as Tensor, sizeOf(dtype));
    const isWhole = proofOf(plan)?.ok === true;
    const fill = isWhole ? "none" : output === undefined ? "zeros" : "kept";
    return {
      input: source,
      output: this.#bring(target, fill, { at: 0, count: outputCount }),
      result: result ?? asTensor(target),
    };
  }

  /** Gives a buffer an address, fills it if it is read, and copies the written part back at the end. */
  #bring(given: Operand, fill: Fill, written: { readonly at: number; readonly count: number } | undefined): number {
    const host = this.#host;
    const carriage = this.#carriage;
    const own = host.place(given, fill === "operands" || fill === "kept");
    if (own.staged) this.#staged.push(own.address);
    const { count } = given;
    const sizeBytes = count * sizeOf(given.dtype);
    if (fill === "zeros") new Uint8Array(host.view(own.address + sizeBytes), own.address, sizeBytes).fill(0);
    const native = { address: own.address, count };
    const part = (whole: Buffer, dtype: DType): Buffer => ({
      address: whole.address + (written?.at ?? 0) * sizeOf(dtype),
      count: written?.count ?? 0,
    });
    const scales = carriage.scaled && fill === "operands";
    if (!carriage.widened && !scales) {
      const result = part(native, given.dtype);
      if (written !== undefined && carriage.divided) this.#after.push(() => this.#divide(result, carriage.dtype));
      if (written !== undefined && own.staged) this.#after.push(() => host.copyOut(own.address, given));
      return own.address;
    }
    const carried = { address: host.allocate(count * sizeOf(carriage.dtype) + MARGIN_BYTES), count };
    this.#staged.push(carried.address);
    if (fill !== "none") {
      if (carriage.widened) this.#convert("widen", given.dtype, native, carried);
      else this.#kernel(COPY_KERNEL, given.dtype, native, carried);
      if (scales) this.#scale(carried);
    }
    if (written !== undefined) {
      const [small, wide] = [part(native, given.dtype), part(carried, carriage.dtype)];
      this.#after.push(() => {
        if (carriage.divided) this.#divide(wide, carriage.dtype);
        if (carriage.widened) this.#convert("narrow", given.dtype, small, wide);
        else this.#kernel(COPY_KERNEL, given.dtype, wide, small);
        if (own.staged) host.copyOut(own.address, given);
      });
    }
    return carried.address;
  }

  #scale(buffer: Buffer): void {
    const { dtype } = this.#carriage;
    this.#host.useParameter(dtype, "preMulSum", scalarOf(this.#call.op, this.#call.dtype));
    this.#kernel(KERNEL_INDEX[dtype].preMulSum as number, dtype, buffer, buffer);
  }

  #divide(buffer: Buffer, dtype: DType): void {
    this.#host.useParameter(dtype, "avg", this.#host.numRanks);
    this.#kernel(KERNEL_INDEX[dtype].avg as number, dtype, buffer, buffer);
  }

  #kernel(kernel: number, dtype: DType, from: Buffer, to: Buffer): void {
    this.#host.kernel(kernel, from.address, to.address, from.count * sizeOf(dtype));
  }

  /** Between small floats and f32: whole vectors in WebAssembly, the last few here. */
  #convert(how: "widen" | "narrow", dtype: DType, small: Buffer, wide: Buffer): void {
    if (!isSmallFloat(dtype)) return;
    const size = sizeOf(dtype);
    const perTurn = WIDEN_BYTES / size;
    const turns = Math.floor(small.count / perTurn);
    const done = turns * perTurn;
    const convert = this.#host.widen[`${how}_${dtype}` as keyof WidenExports];
    if (how === "widen") convert(wide.address, small.address, turns);
    else convert(small.address, wide.address, turns);
    const rest = small.count - done;
    if (rest === 0) return;
    const buffer = this.#host.view(Math.max(small.address + small.count * size, wide.address + 4 * small.count));
    const bits = viewAs(dtype, buffer, small.address + done * size, rest);
    const values = viewAs("f32", buffer, wide.address + 4 * done, rest);
    for (let i = 0; i < rest; i++) {
      if (how === "widen") values[i] = decodeFloat(dtype, bits[i] as number);
      else bits[i] = encodeFloat(dtype, values[i] as number);
    }
  }
}

function operandOf(tensor: Tensor, size: number): Operand {
  const region = { storage: tensor.storage, byteOffset: tensor.byteOffset, sizeBytes: tensor.size * size };
  return { dtype: tensor.dtype, count: tensor.size, tensor, array: undefined, region };
}
