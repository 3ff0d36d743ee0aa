/**
 * Scratch memory and reductions of one rank, by the WebAssembly kernels that all CPU backends share (executor/wasm). Scratch lies
 * in their memory, so what peers send is reduced where it arrived; a program's own buffers are staged in blocks that
 * stay in the cache.
 */
import type { Region } from "../../../collectives/index.ts";
import {
  DTYPES,
  type DType,
  decodeFloat,
  encodeFloat,
  isSmallFloat,
  OutOfMemoryError,
  type ReduceOp,
} from "../../../core/index.ts";
import { copyMemory } from "../../../foreign/native/index.ts";
import {
  CONTEXT,
  initContext,
  KERNEL_INDEX,
  type KernelOp,
  MAX_INPUTS,
  newSharedMemory,
  PAGE_BYTES,
  reduceOn,
  setParameter,
} from "../../executor/internal.ts";
import { HostAddresses } from "../../memory/index.ts";

/** Of a program's own buffers: what is combined with a block of them stays in a first cache of 48 KiB beside it. */
const BLOCK_BYTES = 16 * 1024;
const CONTEXT_AT = 1024;
const TABLE_AT = CONTEXT_AT + Math.ceil(CONTEXT.sizeBytes / 64) * 64;
/** A block of the program's input, which the output's takes the place of: kernels read an element before they write it. */
const STAGED_AT = TABLE_AT + 4 * (MAX_INPUTS + 16);
/** Blocks are at multiples of their least size. */
const LEAST_BYTES = 256;
const FIRST_FREE = Math.ceil((STAGED_AT + BLOCK_BYTES) / LEAST_BYTES) * LEAST_BYTES;
/** From here on C's copy is faster than V8's to and from shared memory: twice for a whole block. */
const COPY_BYTES = 2 * 1024;
/** Of all groups together: schedules bound what they take. */
const MAX_BYTES = 2 ** 30;

/** Where a buffer is: an address in the kernels' memory, or a program's own. */
export type BufferPlace = number | Uint8Array;

/** How a call combines elements. */
export interface Operator {
  readonly dtype: DType;
  readonly op: KernelOp;
  /** The divisor of `avg`, the scalar of `preMulSum`. */
  readonly parameter: number | bigint | undefined;
}

export function operatorOf(dtype: DType, redop: ReduceOp, numRanks: number): Operator {
  if (typeof redop === "string") return { dtype, op: redop, parameter: redop === "avg" ? numRanks : undefined };
  const { scalar } = redop;
  const value = isSmallFloat(dtype)
    ? decodeFloat(dtype, encodeFloat(dtype, Number(scalar)))
    : DTYPES[dtype].isFloat
      ? Number(scalar)
      : scalar;
  return { dtype, op: "preMulSum", parameter: value };
}

export class Reducer {
  readonly memory = newSharedMemory(Math.ceil(FIRST_FREE / PAGE_BYTES), MAX_BYTES / PAGE_BYTES);
  readonly #reduce = reduceOn(this.memory);
  /** Free blocks by the power of two of their size. */
  readonly #free = new Map<number, number[]>();
  #end = FIRST_FREE;
  usedBytes = 0;
  peakBytes = 0;
  readonly limitBytes = MAX_BYTES;
  #table = new Int32Array(this.memory.buffer, TABLE_AT, MAX_INPUTS + 1);
  readonly #addresses = new HostAddresses();
  readonly #copy = copyMemory();
  /** Where the memory lies: it grows in place. */
  readonly #base = this.#addresses.at(this.memory.buffer, 0);

  constructor() {
    initContext(this.memory.buffer, CONTEXT_AT);
  }

  /** Takes scratch, whose contents are anything. @throws OutOfMemoryError */
  allocate(sizeBytes: number): number {
    const bytes = blockBytes(sizeBytes);
    const known = this.#free.get(bytes)?.pop();
    const at = known ?? this.#end;
    if (known === undefined) {
      const missing = at + bytes - this.memory.buffer.byteLength;
      if (at + bytes > MAX_BYTES)
        throw new OutOfMemoryError("scratch of collectives", bytes, MAX_BYTES - at, "Use fewer groups at a time.");
      if (missing > 0) this.memory.grow(Math.ceil(missing / PAGE_BYTES));
      this.#end = at + bytes;
    }
    this.usedBytes += bytes;
    this.peakBytes = Math.max(this.peakBytes, this.usedBytes);
    return at;
  }

  free(address: number, sizeBytes: number): void {
    const bytes = blockBytes(sizeBytes);
    const list = this.#free.get(bytes);
    if (list === undefined) this.#free.set(bytes, [address]);
    else list.push(address);
    this.usedBytes -= bytes;
  }

  bytes(address: number, sizeBytes: number): Uint8Array {
    return new Uint8Array(this.memory.buffer, address, sizeBytes);
  }

  /** Combines `inputs`, of which at most one is a program's own, in their order. The output may be an input. */
  reduce(
    { dtype, op, parameter }: Operator,
    inputs: readonly BufferPlace[],
    output: BufferPlace,
    sizeBytes: number,
  ): void {
    const kernel = KERNEL_INDEX[dtype][op] as number;
    if (parameter !== undefined) setParameter(this.memory.buffer, CONTEXT_AT, dtype, op, parameter);
    const staged = inputs.find((one) => typeof one !== "number") as Uint8Array | undefined;
    const table = this.#table;
    const numInputs = inputs.length;
    for (let i = 0; i < numInputs; i++) {
      const one = inputs[i] as BufferPlace;
      table[i] = typeof one === "number" ? one : STAGED_AT;
    }
    table[numInputs] = typeof output === "number" ? output : STAGED_AT;
    const [inAt, outAt] = [this.#addressOf(staged, sizeBytes), this.#addressOf(output, sizeBytes)];
    for (let from = 0; from < sizeBytes; from += BLOCK_BYTES) {
      const bytes = Math.min(BLOCK_BYTES, sizeBytes - from);
      if (staged !== undefined) this.#stage(staged, inAt, from, bytes);
      this.#reduce(kernel, TABLE_AT, numInputs, TABLE_AT + 4 * numInputs, 1, 0, bytes, CONTEXT_AT);
      if (typeof output !== "number") this.#unstage(output, outAt, from, bytes);
      for (let i = 0; i <= numInputs; i++) if (table[i] !== STAGED_AT) table[i]! += BLOCK_BYTES;
    }
  }

  /** Where C finds a program's memory; 0 where V8 copies it: a little, or a buffer that the program has transferred. */
  #addressOf(place: BufferPlace | undefined, sizeBytes: number): number {
    const isFast = typeof place === "object" && sizeBytes >= COPY_BYTES && place.length >= sizeBytes;
    return isFast ? this.#addresses.of(place) : 0;
  }

  #stage(input: Uint8Array, address: number, from: number, bytes: number): void {
    if (address > 0) this.#copy(this.#base + STAGED_AT, address + from, bytes);
    else this.bytes(STAGED_AT, bytes).set(input.subarray(from, from + bytes));
  }

  #unstage(output: Uint8Array, address: number, from: number, bytes: number): void {
    if (address > 0) this.#copy(address + from, this.#base + STAGED_AT, bytes);
    else output.set(this.bytes(STAGED_AT, bytes), from);
  }
}

/** The bytes of a program's memory. */
export function viewOf({ storage, byteOffset, sizeBytes }: Region): Uint8Array {
  return new Uint8Array(storage as ArrayBuffer, byteOffset, sizeBytes);
}

function blockBytes(sizeBytes: number): number {
  // `Math.clz32` takes its argument modulo 2 ** 32.
  if (sizeBytes > MAX_BYTES) return sizeBytes;
  return Math.max(LEAST_BYTES, 2 ** (32 - Math.clz32(Math.max(1, sizeBytes) - 1)));
}
