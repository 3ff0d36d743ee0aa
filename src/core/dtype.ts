/**
 * The twelve element types. 16- and 8-bit floats have no JavaScript array of their own: their bits are kept in
 * Uint16Array and Uint8Array, and `float-formats.ts` converts.
 */
import { oneOf } from "./one-of.ts";
import { wordTable } from "./word-table.ts";

interface DTypeInfo {
  readonly sizeBytes: 1 | 2 | 4 | 8;
  readonly isFloat: boolean;
  readonly isSigned: boolean;
}

export const DTYPES = wordTable({
  f32: { sizeBytes: 4, isFloat: true, isSigned: true },
  f64: { sizeBytes: 8, isFloat: true, isSigned: true },
  f16: { sizeBytes: 2, isFloat: true, isSigned: true },
  bf16: { sizeBytes: 2, isFloat: true, isSigned: true },
  f8e4m3: { sizeBytes: 1, isFloat: true, isSigned: true },
  f8e5m2: { sizeBytes: 1, isFloat: true, isSigned: true },
  i8: { sizeBytes: 1, isFloat: false, isSigned: true },
  u8: { sizeBytes: 1, isFloat: false, isSigned: false },
  i32: { sizeBytes: 4, isFloat: false, isSigned: true },
  u32: { sizeBytes: 4, isFloat: false, isSigned: false },
  i64: { sizeBytes: 8, isFloat: false, isSigned: true },
  u64: { sizeBytes: 8, isFloat: false, isSigned: false },
} as const satisfies Record<string, DTypeInfo>);

export type DType = keyof typeof DTYPES;
export const DTYPE_NAMES = Object.keys(DTYPES) as readonly DType[];

/** The array that holds the bits of a dtype. */
export interface DTypeArrays {
  readonly f32: Float32Array;
  readonly f64: Float64Array;
  readonly f16: Uint16Array;
  readonly bf16: Uint16Array;
  readonly f8e4m3: Uint8Array;
  readonly f8e5m2: Uint8Array;
  readonly i8: Int8Array;
  readonly u8: Uint8Array;
  readonly i32: Int32Array;
  readonly u32: Uint32Array;
  readonly i64: BigInt64Array;
  readonly u64: BigUint64Array;
}
export type ArrayOf<D extends DType> = DTypeArrays[D];
export type TypedArray = DTypeArrays[DType];

/** Integers of 64 bits are bigint in JavaScript, everything else is a number. */
export type ScalarOf<D extends DType> = D extends "i64" | "u64" ? bigint : number;

const CONSTRUCTORS = wordTable({
  f32: Float32Array,
  f64: Float64Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  f8e4m3: Uint8Array,
  f8e5m2: Uint8Array,
  i8: Int8Array,
  u8: Uint8Array,
  i32: Int32Array,
  u32: Uint32Array,
  i64: BigInt64Array,
  u64: BigUint64Array,
} as const);

/** Size of one element, in bytes. */
export function sizeOf(dtype: DType): number {
  return DTYPES[dtype].sizeBytes;
}

/** Views `count` elements of `buffer` from `byteOffset` (a multiple of the element size) as the dtype's array. */
export function viewAs<D extends DType>(
  dtype: D,
  buffer: ArrayBufferLike,
  byteOffset: number,
  count: number,
): ArrayOf<D> {
  return new CONSTRUCTORS[dtype](buffer as ArrayBuffer, byteOffset, count) as ArrayOf<DType> as ArrayOf<D>;
}

/** Allocates a private array of `count` zeros. */
export function newArray<D extends DType>(dtype: D, count: number): ArrayOf<D> {
  const TypedArrayOf = CONSTRUCTORS[dtype] ?? CONSTRUCTORS[parseDType(dtype)];
  return new TypedArrayOf(count) as ArrayOf<D>;
}

/**
 * The dtype that an array stands for when the caller names none: Uint8Array is u8. Uint16Array is ambiguous (f16 or
 * bf16) and has none.
 */
export function dtypeOf(array: TypedArray): DType | undefined {
  if (array instanceof Float32Array) return "f32";
  if (array instanceof Float64Array) return "f64";
  if (array instanceof Int32Array) return "i32";
  if (array instanceof Uint32Array) return "u32";
  if (array instanceof Uint8Array) return "u8";
  if (array instanceof Int8Array) return "i8";
  if (array instanceof BigInt64Array) return "i64";
  if (array instanceof BigUint64Array) return "u64";
  return undefined;
}

/** Says whether `array` is of the class that holds `dtype`. */
export function holds(dtype: DType, array: unknown): boolean {
  return CONSTRUCTORS[dtype] !== undefined && array instanceof CONSTRUCTORS[dtype];
}

/**
 * Reads a dtype's name.
 * @throws InvalidArgumentError naming the dtypes
 */
export function parseDType(text: string, argument = "dtype"): DType {
  return oneOf(text, argument, DTYPE_NAMES);
}
