/** The arithmetic of a kernel: how elements of a dtype are widened, combined and rounded, as C++ of that dtype alone. */
import type { DType, NamedReduceOp } from "../../../core/index.ts";
import { isSmallFloat } from "../../../core/index.ts";

/** Operators of a kernel; `preMulSum` multiplies every operand by the launch's scalar. */
export type KernelOp = NamedReduceOp | "preMulSum";

/** [type of an element, type that is combined]. Integers are combined as unsigned ones: overflow wraps. */
const TYPES: { readonly [D in DType]: readonly [string, string] } = {
  f32: ["float", "float"],
  f64: ["double", "double"],
  f16: ["u16", "float"],
  bf16: ["u16", "float"],
  f8e4m3: ["u8", "float"],
  f8e5m2: ["u8", "float"],
  i8: ["signed char", "int"],
  u8: ["u8", "u32"],
  i32: ["int", "int"],
  u32: ["u32", "u32"],
  i64: ["i64", "i64"],
  u64: ["u64", "u64"],
};

const CONVERSIONS: { readonly [D in DType]?: string } = {
  f16: `__device__ __forceinline__ Wide widen(Element x) { return halfToFloat(x); }
__device__ __forceinline__ Element narrow(Wide x) { return floatToHalf(x); }`,
  bf16: `__device__ __forceinline__ Wide widen(Element x) { return bitsToFloat((u32)x << 16); }
__device__ __forceinline__ Element narrow(Wide x) {
  const u32 bits = floatToBits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (Element)((bits >> 16) & 0x8000u) | 0x7fc0u;
  return (Element)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}`,
  f8e4m3: `__device__ __forceinline__ Wide widen(Element x) { return f8ToFloat(x, 3, 7, 0x7fu); }
__device__ __forceinline__ Element narrow(Wide x) { return floatToF8(x, 3, 7, 0x7eu, 0x7fu); }`,
  f8e5m2: `__device__ __forceinline__ Wide widen(Element x) { return (x & 0x7fu) == 0x7cu ? bitsToFloat((u32)(x & 0x80u) << 24 | 0x7f800000u) : f8ToFloat(x, 2, 15, 0x7du); }
__device__ __forceinline__ Element narrow(Wide x) { return floatToF8(x, 2, 15, 0x7bu, 0x7eu); }`,
};

const FLOAT_BITS = `#ifndef CHORALE_HOST
__device__ __forceinline__ float bitsToFloat(u32 x) { return __uint_as_float(x); }
__device__ __forceinline__ u32 floatToBits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float halfToFloat(u16 x) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(x));
  return v;
}
__device__ __forceinline__ u16 floatToHalf(float x) {
  u16 v;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v) : "f"(x));
  return v;
}
#endif`;

/** OCP 8-bit floats: exact when read; rounded once, to nearest, ties to even, and saturated when written. */
export const F8_CONVERSIONS = `__device__ __forceinline__ float f8ToFloat(u32 x, int mantissa, int bias, u32 nan) {
  const u32 sign = (x & 0x80u) << 24, magnitude = x & 0x7fu;
  if (magnitude >= nan) return bitsToFloat(0x7fc00000u | sign);
  const u32 exponent = magnitude >> mantissa, fraction = magnitude & ((1u << mantissa) - 1u);
  if (exponent == 0) {
    const float v = (float)fraction * bitsToFloat((u32)(127 + 1 - bias - mantissa) << 23);
    return bitsToFloat(floatToBits(v) | sign);
  }
  return bitsToFloat(sign | (exponent + 127u - bias) << 23 | fraction << (23 - mantissa));
}
__device__ __forceinline__ u8 floatToF8(float x, int mantissa, int bias, u32 most, u32 nan) {
  const u32 bits = floatToBits(x), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (u8)(sign | nan);
  const int exponent = (int)(magnitude >> 23) - 127 + bias;
  u32 result;
  if (exponent > 0) {
    const int cut = 23 - mantissa;
    const u32 rounded = magnitude + (1u << (cut - 1)) - 1u + (magnitude >> cut & 1u);
    result = (rounded >> cut) - ((u32)(127 - bias) << mantissa);
  } else {
    const int cut = 23 - mantissa + 1 - exponent;
    const u32 whole = (magnitude & 0x7fffffu) | 0x800000u;
    result = cut > 25 ? 0u : (whole + (1u << (cut - 1)) - 1u + (whole >> cut & 1u)) >> cut;
  }
  return (u8)(sign | (result < most ? result : most));
}`;

/** The functions that an operator needs, as a struct named after it. */
function operator(dtype: DType, op: KernelOp, numRanks: number): string {
  const isFloat = dtype.startsWith("f") || dtype === "bf16";
  const unsigned = dtype === "i64" || dtype === "u64" ? "u64" : "u32";
  const wrapped = (symbol: string) => (isFloat ? `a ${symbol} b` : `(Wide)((${unsigned})a ${symbol} (${unsigned})b)`);
  const bitwise = (symbol: string) => `(Wide)(a ${symbol} b)`;
  // NaN wins, and -0 is below 0, whoever comes first: results must not depend on the order of operands.
  const pick = (less: string) =>
    isFloat
      ? `a != a ? a : b != b ? b : a == b ? (${less === "<" ? "isNegative(a)" : "isNegative(b)"} ? a : b) : a ${less} b ? a : b`
      : `a ${less} b ? a : b`;
  const combine: { readonly [K in KernelOp]: string } = {
    sum: wrapped("+"),
    avg: wrapped("+"),
    preMulSum: wrapped("+"),
    prod: wrapped("*"),
    min: pick("<"),
    max: pick(">"),
    band: bitwise("&"),
    bor: bitwise("|"),
    bxor: bitwise("^"),
  };
  // An operand that is summed in a narrow integer wraps before it is divided.
  const finish = op !== "avg" ? "x" : isFloat ? `x / (Wide)${numRanks}` : `(Wide)((Element)x / (Wide)${numRanks})`;
  const scale = op === "preMulSum" ? (isFloat ? "x * scalar" : `(Wide)((${unsigned})x * (${unsigned})scalar)`) : "x";
  return `struct ${operatorName(op)} {
  __device__ __forceinline__ static Wide operand(Wide x, Wide scalar) { (void)scalar; return ${scale}; }
  __device__ __forceinline__ static Wide combine(Wide a, Wide b) { return ${combine[op]}; }
  __device__ __forceinline__ static Wide finish(Wide x) { return ${finish}; }
};`;
}

/** The struct's name in the source. */
export function operatorName(op: KernelOp): string {
  return `Op_${op}`;
}

/** C++ of a dtype and its operators. */
export function elementSource(dtype: DType, ops: readonly KernelOp[], numRanks: number): string {
  const [element, wide] = TYPES[dtype];
  const conversions =
    CONVERSIONS[dtype] ??
    `__device__ __forceinline__ Wide widen(Element x) { return (Wide)x; }
__device__ __forceinline__ Element narrow(Wide x) { return (Element)x; }`;
  const isNegative = wide === "float" ? "floatToBits(x) >> 31" : "*(const u64*)&x >> 63";
  const isFloat = wide === "float" || wide === "double";
  return [
    `// Elements: ${dtype}.`,
    `typedef ${element} Element;`,
    `typedef ${wide} Wide;`,
    ...(isFloat ? [FLOAT_BITS] : []),
    ...(dtype.startsWith("f8") ? [F8_CONVERSIONS] : []),
    conversions,
    ...(isFloat ? [`__device__ __forceinline__ bool isNegative(Wide x) { return ${isNegative}; }`] : []),
    ...ops.map((op) => operator(dtype, op, numRanks)),
  ].join("\n");
}

/** Whether results of this dtype and operator are right only when every result is combined in one operation. */
export function needsOneRounding(dtype: DType, op: KernelOp): boolean {
  return isSmallFloat(dtype) || op === "avg" || op === "preMulSum";
}
