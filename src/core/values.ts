/**
 * Values of every dtype, to and from the bits that arrays hold: numbers for floats and integers up to 32 bits, bigint for
 * i64 and u64. Nothing wraps or is cut off here: what a dtype cannot hold is refused, and only floats are rounded.
 */
import { type ArrayOf, DTYPES, type DType, newArray, parseDType, type ScalarOf, type TypedArray } from "./dtype.ts";
import { InvalidArgumentError } from "./errors.ts";
import { decodeFloat, decodeTable, encodeFloat, isSmallFloat } from "./float-formats.ts";

/** Least and greatest value of an integer dtype, as bigint. */
function rangeOf(dtype: DType): readonly [min: bigint, max: bigint] {
  const { sizeBytes, isSigned } = DTYPES[dtype];
  const bits = BigInt(8 * sizeBytes);
  return isSigned ? [-(1n << (bits - 1n)), (1n << (bits - 1n)) - 1n] : [0n, (1n << bits) - 1n];
}

function refuse(dtype: DType, value: unknown, argument: string): never {
  const { isFloat, sizeBytes } = DTYPES[dtype];
  const [min, max] = rangeOf(dtype);
  const accepted = isFloat
    ? `a number, for ${dtype}`
    : `${sizeBytes === 8 ? "a bigint, or a safe integer," : "an integer"} from ${min} to ${max}, for ${dtype}`;
  throw new InvalidArgumentError(argument, value, accepted);
}

/**
 * Turns one value into what the dtype's array holds: a bit pattern for 16- and 8-bit floats, a bigint for i64 and u64.
 * @throws InvalidArgumentError for what the dtype cannot hold
 */
export function encodeValue(dtype: DType, value: number | bigint, argument = "value"): number | bigint {
  const { isFloat, sizeBytes } = DTYPES[dtype];
  if (isFloat) {
    if (typeof value !== "number") refuse(dtype, value, argument);
    return isSmallFloat(dtype) ? encodeFloat(dtype, value) : value;
  }
  if (typeof value === "bigint" ? sizeBytes !== 8 : !Number.isSafeInteger(value)) refuse(dtype, value, argument);
  const exact = BigInt(value);
  const [min, max] = rangeOf(dtype);
  if (exact < min || exact > max) refuse(dtype, value, argument);
  return sizeBytes === 8 ? exact : Number(value);
}

/** Reads one element of a dtype's array as a value. */
export function decodeValue<D extends DType>(dtype: D, element: number | bigint): ScalarOf<D> {
  return (isSmallFloat(dtype) ? decodeFloat(dtype, Number(element)) : element) as ScalarOf<D>;
}

/** Node 24's array of f16 values; the types are those of Node 20. */
type Float16ArrayClass = new (buffer: ArrayBufferLike, byteOffset: number, length: number) => ArrayLike<number>;
const Float16 = (globalThis as { Float16Array?: Float16ArrayClass }).Float16Array;

/**
 * Rounds or checks values and gives them as the dtype's array holds them.
 * @throws InvalidArgumentError naming the first value that the dtype cannot hold
 * @example
 * encodeValues("bf16", [1, 2]) // Uint16Array [0x3f80, 0x4000]
 * encodeValues("i64", [1, 2n]) // BigInt64Array [1n, 2n]
 */
export function encodeValues<D extends DType>(dtype: D, values: ArrayLike<number | bigint>): ArrayOf<D> {
  parseDType(dtype);
  const out = newArray(dtype, values.length) as { [index: number]: number | bigint };
  for (let i = 0; i < values.length; i++) out[i] = encodeValue(dtype, values[i]!, `values[${i}]`);
  return out as unknown as ArrayOf<D>;
}

/**
 * Reads a dtype's array as values: every one is exact.
 * @example
 * decodeValues("f8e4m3", Uint8Array.of(0x38, 0x7e)) // [1, 448]
 */
export function decodeValues<D extends DType>(dtype: D, elements: ArrayOf<D>): ScalarOf<D>[] {
  parseDType(dtype);
  const data: TypedArray = elements;
  let values: ArrayLike<number | bigint> = data;
  if (dtype === "f16" && Float16 !== undefined) values = new Float16(data.buffer, data.byteOffset, data.length);
  else if (isSmallFloat(dtype)) {
    const table = decodeTable(dtype);
    return Array.from(data as Uint16Array, (bits) => table[bits]) as ScalarOf<D>[];
  }
  return Array.from(values) as ScalarOf<D>[];
}
