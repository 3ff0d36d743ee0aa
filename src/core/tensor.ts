/**
 * Tensors: a dtype, a shape and a place. Contiguous, row-major. Where the bytes are (private or shared memory, pinned
 * or device memory) is the storage's business; code that computes must not assume one WASM memory.
 */
import { type ArrayOf, DTYPES, type DType, holds, newArray, parseDType, type ScalarOf, viewAs } from "./dtype.ts";
import { ClosedError, described, InvalidArgumentError, OutOfMemoryError } from "./errors.ts";
import { headText, jsonValue, tensorText } from "./tensor-text.ts";
import { decodeValue, decodeValues, encodeValue, encodeValues } from "./values.ts";

export type StorageKind = "private" | "shared" | "pinned" | "device";

/** A block of memory that tensors lie in. */
export interface Storage {
  readonly kind: StorageKind;
  /** Where it begins in `buffer`, in bytes; 0 by default. What lies before belongs to somebody else. */
  readonly firstByte?: number;
  /** Where it ends, in bytes from the start of `buffer`. */
  readonly sizeBytes: number;
  /** Host-addressable memory, absent for device storage. */
  readonly buffer: ArrayBufferLike | undefined;
  /** The generation of the world that owns it; 0 for private memory, which no rebuild touches. */
  readonly generation: number;
  /** Set when the storage was freed or its world ended; every use is then refused with this text. */
  readonly closed: string | undefined;
}

/** Element count of a shape. @throws InvalidArgumentError when a dim is not an integer of 0 or more */
export function numElements(shape: readonly number[]): number {
  if (!Array.isArray(shape))
    throw new InvalidArgumentError("shape", shape, "an array of dims, such as [1024] or [2, 3]");
  let count = 1;
  for (const dim of shape) {
    if (!Number.isSafeInteger(dim) || dim < 0) {
      throw new InvalidArgumentError("shape", shape, "dims that are integers, 0 or more");
    }
    count *= dim;
  }
  if (!Number.isSafeInteger(count)) throw new InvalidArgumentError("shape", shape, "fewer than 2^53 elements");
  return count;
}

/** A contiguous, row-major view of a storage. */
export class Tensor<D extends DType = DType> {
  readonly dtype: D;
  readonly shape: readonly number[];
  /** Number of elements. */
  readonly size: number;
  readonly sizeBytes: number;
  readonly storage: Storage;
  /** Where the first element lies, in bytes from the start of the storage's `buffer`. */
  readonly byteOffset: number;
  readonly #data: ArrayOf<D> | undefined;

  constructor(dtype: D, shape: readonly number[], storage: Storage, byteOffset = 0) {
    if (DTYPES[dtype] === undefined) parseDType(dtype);
    this.dtype = dtype;
    this.shape = Object.freeze([...shape]);
    this.size = numElements(shape);
    this.sizeBytes = this.size * DTYPES[dtype].sizeBytes;
    this.storage = storage;
    this.byteOffset = byteOffset;
    const { firstByte = 0 } = storage;
    if (
      byteOffset % DTYPES[dtype].sizeBytes !== 0 ||
      byteOffset < firstByte ||
      byteOffset + this.sizeBytes > storage.sizeBytes
    ) {
      throw new InvalidArgumentError(
        "byteOffset",
        byteOffset,
        `a multiple of ${DTYPES[dtype].sizeBytes} such that ${this.sizeBytes} bytes from there lie within the storage, bytes ${firstByte} to ${storage.sizeBytes}`,
      );
    }
    this.#data = storage.buffer === undefined ? undefined : viewAs(dtype, storage.buffer, byteOffset, this.size);
  }

  /**
   * The elements (bit patterns for 16- and 8-bit floats), in place.
   * @throws ClosedError when the storage was freed
   * @throws InvalidArgumentError when the tensor is on a device: copy it to the host first
   */
  get data(): ArrayOf<D> {
    if (this.storage.closed !== undefined) throw new ClosedError("tensor", this.storage.closed);
    if (this.#data === undefined) {
      throw new InvalidArgumentError(
        "tensor",
        this.storage.kind,
        "a tensor in host memory; copy device tensors to the host",
      );
    }
    return this.#data;
  }

  /**
   * Writes values from element `offset` on: as many as are given, or all of them for an array that is nested as the shape
   * is. Floats are rounded to the dtype, as `encodeFloat` says; i64 and u64 take bigint and safe integers.
   * @throws InvalidArgumentError for values that the dtype cannot hold, and for too many; nothing was written then
   * @throws ClosedError when the storage was freed
   * @example
   * import { tensor } from "chorale";
   *
   * const t = tensor("bf16", [2, 2]);
   * t.set([[1, 2], [3, 4]]);
   * t.set([0.5], 3);
   * console.log(t.toArray()); // [1, 2, 3, 0.5]
   */
  set(values: TensorValues, offset = 0): this {
    const { data } = this;
    if (!Number.isInteger(offset) || offset < 0 || offset > this.size) {
      throw new InvalidArgumentError("offset", offset, `an integer from 0 to ${this.size}`);
    }
    const flat = flatten(values, this.shape);
    if (flat.length > this.size - offset) {
      throw new InvalidArgumentError("values", described(`${flat.length} elements`), `at most ${this.size - offset}`);
    }
    const bits: ArrayOf<DType> = encodeValues(this.dtype, flat);
    (data as { set(from: ArrayOf<DType>, at: number): void }).set(bits, offset);
    return this;
  }

  /**
   * Writes one value to every element, rounded as `set` does.
   * @throws as `set`
   */
  fill(value: number | bigint): this {
    (this.data as { fill(element: number | bigint): void }).fill(encodeValue(this.dtype, value));
    return this;
  }

  /**
   * Reads one element as a value: one index per dim, negative ones from the end.
   * @throws InvalidArgumentError for an index out of range; and as `data`
   * @example
   * import { tensor } from "chorale";
   *
   * console.log(tensor("f16", [2, 2]).set([1, 2, 3, 4]).at(1, -1)); // 4
   */
  at(...indices: readonly number[]): ScalarOf<D> {
    const { data, shape } = this;
    let flat = 0;
    for (const [i, dim] of shape.entries()) {
      const index = indices[i] ?? Number.NaN;
      if (indices.length !== shape.length || !Number.isInteger(index) || index < -dim || index >= dim) {
        throw new InvalidArgumentError(
          "indices",
          [...indices],
          `one index for each dim of ${show(shape)}, from minus its size to its size - 1`,
        );
      }
      flat = flat * dim + (index < 0 ? index + dim : index);
    }
    return decodeValue(this.dtype, (data as ArrayLike<number | bigint>)[flat]!);
  }

  /**
   * Copies the elements out as values, flat and in row-major order: numbers, bigint for i64 and u64.
   * @throws as `data`
   */
  toArray(): ScalarOf<D>[] {
    return decodeValues(this.dtype, this.data);
  }

  /** Prints dtype, shape and values as NumPy does; of memory that cannot be read here, why. */
  toString(): string {
    const head = headText(this.dtype, this.shape);
    if (this.storage.closed !== undefined) return `${head} (${this.storage.closed})`;
    if (this.#data === undefined) return `${head} (in ${this.storage.kind} memory)`;
    return tensorText(this.dtype, this.shape, this.#data);
  }

  /**
   * What JSON.stringify writes: dtype, shape and the values, flat. i64, u64, NaN and infinities are text.
   * @throws as `data`
   */
  toJSON(): { readonly dtype: D; readonly shape: readonly number[]; readonly values: readonly (number | string)[] } {
    return { dtype: this.dtype, shape: this.shape, values: (this.toArray() as (number | bigint)[]).map(jsonValue) };
  }

  /** For console.log. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }

  /** A view of elements [start, end) as a flat tensor. */
  slice(start: number, end: number = this.size): Tensor<D> {
    if (!Number.isInteger(start) || !Number.isInteger(end) || start < 0 || end < start || end > this.size) {
      throw new InvalidArgumentError("slice", [start, end], `0 <= start <= end <= ${this.size}`);
    }
    return new Tensor(this.dtype, [end - start], this.storage, this.byteOffset + start * DTYPES[this.dtype].sizeBytes);
  }

  /** The same elements with another shape. */
  reshape(shape: readonly number[]): Tensor<D> {
    if (numElements(shape) !== this.size) {
      throw new InvalidArgumentError("shape", shape, `a shape of ${this.size} elements, as ${show(this.shape)} has`);
    }
    return new Tensor(this.dtype, shape, this.storage, this.byteOffset);
  }
}

/** Values in the order of the elements, or nested as the shape is. */
export type TensorValues = ArrayLike<number | bigint> | readonly TensorValues[];

/** @throws InvalidArgumentError when nested arrays are not of `shape` */
function flatten(values: TensorValues, shape: readonly number[]): ArrayLike<number | bigint> {
  if (typeof values !== "object" || values === null || typeof values.length !== "number") {
    throw new InvalidArgumentError("values", values, "an array of values, flat or nested as the shape is");
  }
  if (!Array.isArray(values) || !values.some((value) => typeof value === "object")) {
    return values as ArrayLike<number | bigint>;
  }
  const flat: (number | bigint)[] = [];
  const walk = (part: unknown, depth: number): void => {
    if (depth === shape.length) flat.push(part as number | bigint);
    else if (isArrayLike(part) && part.length === shape[depth]) {
      for (let i = 0; i < part.length; i++) walk(part[i], depth + 1);
    } else throw new InvalidArgumentError("values", values, `flat values, or arrays nested as ${show(shape)}`);
  };
  walk(values, 0);
  return flat;
}

function isArrayLike(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && "length" in value);
}

function show(shape: readonly number[]): string {
  return `[${shape.join(", ")}]`;
}

/** Wraps memory of this process that no other rank sees: bytes `firstByte` to `endByte` of `buffer`. */
export function privateStorage(buffer: ArrayBufferLike, firstByte = 0, endByte: number = buffer.byteLength): Storage {
  return { kind: "private", firstByte, sizeBytes: endByte, buffer, generation: 0, closed: undefined };
}

/**
 * Allocates a tensor of zeros in private memory, or wraps `data`.
 * @throws OutOfMemoryError, InvalidArgumentError
 * @example
 * const t = tensor("f32", [2, 3]) // six zeros
 */
export function tensor<D extends DType>(dtype: D, shape: readonly number[], data?: ArrayOf<D>): Tensor<D> {
  parseDType(dtype);
  const array = data ?? allocate(dtype, numElements(shape));
  if (array.length !== numElements(shape)) {
    throw new InvalidArgumentError(
      "data",
      described(`${array.length} elements`),
      `${numElements(shape)} elements, for shape ${show(shape)}`,
    );
  }
  // Of a part of a buffer (Node's small Buffers are parts of one) the rest stays out of reach.
  const { buffer, byteOffset, byteLength } = array;
  return new Tensor(dtype, shape, privateStorage(buffer, byteOffset, byteOffset + byteLength), byteOffset);
}

/** @throws OutOfMemoryError instead of V8's RangeError, which names no size */
function allocate<D extends DType>(dtype: D, count: number): ArrayOf<D> {
  try {
    return newArray(dtype, count);
  } catch (cause) {
    const [asked, free] = [count * DTYPES[dtype].sizeBytes, process.availableMemory()];
    throw new OutOfMemoryError("private memory of this process", asked, free, "Make the tensor smaller.", { cause });
  }
}

/**
 * Checks that `values` can be copied into `target` as they are: an array of the dtype's class, with as many elements.
 * @throws InvalidArgumentError
 */
export function checkValues(target: Tensor, values: ArrayLike<unknown>): void {
  if (!(target instanceof Tensor)) throw new InvalidArgumentError("target", target, "a tensor");
  const { dtype, size } = target;
  if (!holds(dtype, values)) {
    const given = ArrayBuffer.isView(values) ? values.constructor.name : values;
    throw new InvalidArgumentError("values", given, `a ${newArray(dtype, 0).constructor.name}, which holds ${dtype}`);
  }
  if (values.length !== size) {
    throw new InvalidArgumentError("values", described(`${values.length} elements`), `${size}, as the tensor has`);
  }
}
