/** Buffers of a case: poisoned, with guard elements on both sides, as world tensors or as typed arrays. */

import { type ArrayOf, type DType, newArray, sizeOf, Tensor, type TypedArray } from "../../core/index.ts";
import type { Data } from "../../runtime/comm/index.ts";
import type { World } from "../../runtime/world/index.ts";

export type StorageKind = "tensor" | "array";
const POISON = 0xa5;
const GUARD = 0x5c;

/** `count` elements between two guards. */
export interface Buffer {
  /** What the case passes to the communicator. */
  readonly data: Data;
  /** The elements; of a device tensor, what was last pushed or pulled. */
  readonly view: TypedArray;
  /** A part of it, to be passed as in-place input or output. */
  part(start: number, end: number): Data;
  /** Brings what was written into `view` to where the tensor lies. */
  push(): void;
  /** Brings what lies in the tensor back into `view`. */
  pull(): void;
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
  const onDevice = whole?.storage.kind === "device" ? whole : undefined;
  const array: TypedArray = whole === undefined || onDevice !== undefined ? newArray(dtype, total) : whole.data;
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
    push: () => {
      if (onDevice !== undefined) world.upload(onDevice, array as ArrayOf<DType>);
    },
    pull: () => {
      if (onDevice !== undefined) bytes.set(bytesOf(world.download(onDevice)));
    },
    intact: () =>
      bytes.subarray(0, edge).every((b) => b === GUARD) &&
      bytes.subarray(bytes.length - edge).every((b) => b === GUARD),
    untouched: () => bytes.subarray(edge, bytes.length - edge).every((b) => b === POISON),
    release: () => {
      if (whole !== undefined) world.free(whole);
    },
  };
}

/** The elements of what a collective gave back, wherever they lie. */
export function elementsOf(world: World, data: Data): TypedArray {
  if (!(data instanceof Tensor)) return data;
  return data.storage.kind === "device" ? world.download(data) : data.data;
}

/** Says whether two buffers start at one place of one memory. */
export function samePlace(a: Data, b: Data): boolean {
  const memory = (data: Data) => (data instanceof Tensor ? (data.storage.buffer ?? data.storage) : data.buffer);
  return memory(a) === memory(b) && a.byteOffset === b.byteOffset;
}
