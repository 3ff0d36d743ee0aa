/** Buffers of a case: poisoned, with guard elements on both sides, as world tensors or as typed arrays. */

import { type DType, newArray, sizeOf, Tensor, type TypedArray } from "../../../core/index.ts";
import type { Data } from "../../../runtime/comm/index.ts";
import type { World } from "../../../runtime/world/index.ts";

export type StorageKind = "tensor" | "array";
const POISON = 0xa5;
const GUARD = 0x5c;

/** `count` elements between two guards. */
export interface Buffer {
  /** What the case passes to the communicator. */
  readonly data: Data;
  /** The elements. */
  readonly view: TypedArray;
  /** A part of it, to be passed as in-place input or output. */
  part(start: number, end: number): Data;
  /** Whether the guards are as they were. */
  intact(): boolean;
  /** Whether no element was written since it was made. */
  untouched(): boolean;
  release(): void;
}

function bytesOf(array: TypedArray): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

/**
 * Makes a poisoned buffer.
 * @param guard elements on each side; an odd number makes the data unaligned for SIMD
 */
export function makeBuffer(world: World, storage: StorageKind, dtype: DType, count: number, guard: number): Buffer {
  const total = count + 2 * guard;
  const whole = storage === "tensor" ? world.tensor(dtype, [total]) : undefined;
  const array: TypedArray = whole === undefined ? newArray(dtype, total) : whole.data;
  const bytes = bytesOf(array);
  const edge = guard * sizeOf(dtype);
  bytes.fill(GUARD, 0, edge);
  bytes.fill(POISON, edge, bytes.length - edge);
  bytes.fill(GUARD, bytes.length - edge);
  const part = (start: number, end: number): Data =>
    whole === undefined
      ? (array.subarray(guard + start, guard + end) as TypedArray)
      : whole.slice(guard + start, guard + end);
  return {
    data: part(0, count),
    view: array.subarray(guard, guard + count) as TypedArray,
    part,
    intact: () =>
      bytes.subarray(0, edge).every((b) => b === GUARD) &&
      bytes.subarray(bytes.length - edge).every((b) => b === GUARD),
    untouched: () => bytes.subarray(edge, bytes.length - edge).every((b) => b === POISON),
    release: () => {
      if (whole !== undefined) world.free(whole);
    },
  };
}

/** The elements of what a collective gave back. */
export function elementsOf(data: Data): TypedArray {
  return data instanceof Tensor ? data.data : data;
}
