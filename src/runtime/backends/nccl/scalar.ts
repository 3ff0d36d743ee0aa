/** One value of a dtype as bytes, for operators that take a scalar. */
import { type DType, encodeFloat, isSmallFloat, newArray } from "../../../core/index.ts";

/** The bits of `value` in `dtype`. The caller has checked that the dtype holds it. */
export function encodeScalar(dtype: DType, value: number | bigint): Uint8Array {
  const array = newArray(dtype, 1);
  if (array instanceof BigInt64Array || array instanceof BigUint64Array) array[0] = BigInt(value);
  else array[0] = isSmallFloat(dtype) ? encodeFloat(dtype, Number(value)) : Number(value);
  return new Uint8Array(array.buffer, 0, array.byteLength);
}
