/** JavaScript's side of a kernel's context block: addresses of the tail tables, and the parameter. */
import { type DType, decodeFloat, encodeFloat, isSmallFloat, viewAs } from "../../../core/index.ts";
import { CONTEXT, type KernelOp, MAX_INPUTS, parameterType } from "./reduce-kernels.ts";

/** Prepares the block at `address` (a multiple of 16, `CONTEXT.sizeBytes` long). Once per thread. */
export function initContext(buffer: ArrayBufferLike, address: number): void {
  const words = new Int32Array(buffer, address, CONTEXT.sizeBytes / 4);
  words.fill(0);
  words[CONTEXT.tailOutTable / 4] = address + CONTEXT.tailOut;
  for (let i = 0; i < MAX_INPUTS; i++) words[CONTEXT.tailInTable / 4 + i] = address + CONTEXT.tailIn + 16 * i;
}

/**
 * Writes the parameter that the next `avg` (number of ranks) or `preMulSum` (scalar, which is rounded to the dtype)
 * kernel with this context uses.
 */
export function setParameter(
  buffer: ArrayBufferLike,
  address: number,
  dtype: DType,
  op: KernelOp,
  value: number | bigint,
): void {
  const type = parameterType(dtype, op);
  const lanes = viewAs(type, buffer, address + CONTEXT.parameter, 16 / laneBytes(type));
  if (lanes instanceof BigInt64Array || lanes instanceof BigUint64Array) lanes.fill(BigInt(value));
  else if (op === "preMulSum" && isSmallFloat(dtype)) lanes.fill(decodeFloat(dtype, encodeFloat(dtype, Number(value))));
  else lanes.fill(Number(value));
}

function laneBytes(type: ReturnType<typeof parameterType>): 1 | 4 | 8 {
  return type === "i8" || type === "u8" ? 1 : type === "f32" || type === "i32" || type === "u32" ? 4 : 8;
}
