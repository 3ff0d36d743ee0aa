/** 16- and 8-bit floats in 32-bit lanes: to f32 and back, rounded once (core/float-formats). */
import { FLOAT_FORMATS } from "../../../core/index.ts";
import type { FunctionBuilder, Local } from "./assembler.ts";

export type SmallFloat = "f16" | "bf16" | "f8e4m3" | "f8e5m2";

/** Turns the bits of a small float, one per 32-bit lane on the stack, into f32. */
export function decode(f: FunctionBuilder, dtype: SmallFloat, h: Local, em: Local): void {
  const { exponentBits, mantissaBits, bias, hasInfinity } = FLOAT_FORMATS[dtype];
  if (dtype === "bf16") {
    f.i32(16).op("i32x4.shl");
    return;
  }
  const signBit = 1 << (exponentBits + mantissaBits);
  const shift = 23 - mantissaBits;
  const top = (((1 << exponentBits) - 1) << 23) | 0;
  f.tee(h)
    .splat32(signBit - 1)
    .op("v128.and")
    .i32(shift)
    .op("i32x4.shl")
    .tee(em);
  // The exponent is rebased by an exact multiplication, which also normalises subnormal numbers.
  f.splat32((254 - bias) << 23).op("f32x4.mul");
  if (hasInfinity)
    f.get(em)
      .splat32(top - 1)
      .op("i32x4.gt_s")
      .splat32(0x7f800000)
      .op("v128.and", "v128.or");
  else
    f.get(em)
      .splat32((signBit - 1) << shift)
      .op("i32x4.eq")
      .splat32(0x7fc00000)
      .op("v128.and", "v128.or");
  f.get(h)
    .splat32(signBit)
    .op("v128.and")
    .i32(31 - exponentBits - mantissaBits)
    .op("i32x4.shl", "v128.or");
}

/** Rounds `x` (f32 lanes) to the bits of a small float, one per 32-bit lane, left on the stack. */
export function encode(f: FunctionBuilder, dtype: SmallFloat, x: Local, a: Local): void {
  const { exponentBits, mantissaBits, bias, overflowBits, nanBits } = FLOAT_FORMATS[dtype];
  const shift = 23 - mantissaBits;
  f.get(x).splat32(0x7fffffff).op("v128.and").set(a);
  f.splat32(nanBits);
  if (dtype !== "bf16") {
    // Subnormal results: adding 2^(1 - bias + 23 - mantissaBits) makes the adder round at the format's smallest step.
    const magic = (127 + 1 - bias + 23 - mantissaBits) << 23;
    f.get(a).splat32(magic).op("f32x4.add").splat32(magic).op("i32x4.sub");
  }
  f.get(a).get(a).i32(shift).op("i32x4.shr_u").splat32(1).op("v128.and", "i32x4.add");
  f.splat32((1 << (shift - 1)) - 1)
    .op("i32x4.add")
    .i32(shift)
    .op("i32x4.shr_u");
  if (dtype !== "bf16") {
    f.splat32((127 - bias) << mantissaBits).op("i32x4.sub");
    f.get(a)
      .splat32((128 - bias) << 23)
      .op("i32x4.lt_s", "v128.bitselect");
  }
  f.splat32(overflowBits).op("i32x4.min_s");
  f.get(a).splat32(0x7f800000).op("i32x4.gt_s", "v128.bitselect");
  f.get(x)
    .i32(31 - exponentBits - mantissaBits)
    .op("i32x4.shr_u");
  f.splat32(1 << (exponentBits + mantissaBits)).op("v128.and", "v128.or");
}
