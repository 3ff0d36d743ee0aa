/**
 * The bit formats of the 16- and 8-bit floats, exact in both directions, rounded to nearest, ties to even.
 * Sources: IEEE 754-2019 (binary16), the bfloat16 description of Google and Intel, OCP 8-bit Floating Point
 * Specification 1.0 (E4M3 without infinities, one NaN per sign; E5M2 with infinities).
 *
 * Encoding to f8 saturates, as the OCP table for saturating conversion says: what is larger than the largest finite
 * value, infinity included, becomes that value (448 and 57344); NaN stays NaN. All reductions use this conversion.
 * f16 and bf16 overflow to infinity. Reading an f8e5m2 infinity gives infinity: moving data never changes its bits.
 */
import type { DType } from "./dtype.ts";

/** The dtypes that JavaScript has no array for. */
export type SmallFloat = "f16" | "bf16" | "f8e4m3" | "f8e5m2";

export interface FloatFormat {
  readonly exponentBits: number;
  readonly mantissaBits: number;
  readonly bias: number;
  /** Magnitude bits that overflow becomes: infinity, or the largest finite value where the format saturates. */
  readonly overflowBits: number;
  /** Magnitude bits of the canonical quiet NaN. */
  readonly nanBits: number;
  /** The largest finite value. */
  readonly maxFinite: number;
  /** Whether the largest exponent means infinity and NaN; f8e4m3 spends it on numbers and keeps one NaN. */
  readonly hasInfinity: boolean;
}

export const FLOAT_FORMATS: { readonly [D in SmallFloat]: FloatFormat } = {
  f16: {
    exponentBits: 5,
    mantissaBits: 10,
    bias: 15,
    overflowBits: 0x7c00,
    nanBits: 0x7e00,
    maxFinite: 65504,
    hasInfinity: true,
  },
  bf16: {
    exponentBits: 8,
    mantissaBits: 7,
    bias: 127,
    overflowBits: 0x7f80,
    nanBits: 0x7fc0,
    maxFinite: 3.3895313892515355e38,
    hasInfinity: true,
  },
  f8e4m3: {
    exponentBits: 4,
    mantissaBits: 3,
    bias: 7,
    overflowBits: 0x7e,
    nanBits: 0x7f,
    maxFinite: 448,
    hasInfinity: false,
  },
  f8e5m2: {
    exponentBits: 5,
    mantissaBits: 2,
    bias: 15,
    overflowBits: 0x7b,
    nanBits: 0x7e,
    maxFinite: 57344,
    hasInfinity: true,
  },
};

/** Says whether `dtype` is kept as bit patterns in an integer array. */
export function isSmallFloat(dtype: DType): dtype is SmallFloat {
  return dtype === "f16" || dtype === "bf16" || dtype === "f8e4m3" || dtype === "f8e5m2";
}

/**
 * Reads one bit pattern. Exact: every value of these formats is a float64.
 * @example
 * decodeFloat("f16", 0x3c00) // 1
 */
export function decodeFloat(dtype: SmallFloat, bits: number): number {
  const { exponentBits, mantissaBits, bias, hasInfinity, nanBits } = FLOAT_FORMATS[dtype];
  const signShift = exponentBits + mantissaBits;
  const sign = (bits >>> signShift) & 1 ? -1 : 1;
  const magnitude = bits & ((1 << signShift) - 1);
  const exponent = magnitude >>> mantissaBits;
  const mantissa = magnitude & ((1 << mantissaBits) - 1);
  if (hasInfinity ? exponent === (1 << exponentBits) - 1 : magnitude === nanBits) {
    return hasInfinity && mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  }
  if (exponent === 0) return sign * mantissa * 2 ** (1 - bias - mantissaBits);
  return sign * (mantissa + (1 << mantissaBits)) * 2 ** (exponent - bias - mantissaBits);
}

const scratch = new DataView(new ArrayBuffer(8));

/**
 * Rounds a float64 to the nearest value of the format, ties to even, once; overflow as the format says (see above).
 * @returns the bit pattern
 * @example
 * encodeFloat("f8e4m3", 1e9) // 0x7e, which is 448
 */
export function encodeFloat(dtype: SmallFloat, value: number): number {
  const { exponentBits, mantissaBits, bias, overflowBits, nanBits } = FLOAT_FORMATS[dtype];
  scratch.setFloat64(0, value);
  const signBit = (scratch.getUint32(0) >>> 31) << (exponentBits + mantissaBits);
  if (Number.isNaN(value)) return signBit | nanBits;
  const magnitude = Math.abs(value);
  if (magnitude === Number.POSITIVE_INFINITY) return signBit | overflowBits;
  const exponent = Math.max(((scratch.getUint32(0) >>> 20) & 0x7ff) - 1023, 1 - bias);
  // Multiples of the spacing of values around `magnitude`; the scaling is by a power of two, hence exact.
  const steps = roundToEven(magnitude * 2 ** (mantissaBits - exponent));
  // For normal numbers `steps` carries the implicit bit, which adds one to the exponent field.
  const bits = (exponent + bias - 1) * (1 << mantissaBits) + steps;
  return signBit | Math.min(bits, overflowBits);
}

function roundToEven(x: number): number {
  const floor = Math.floor(x);
  const rest = x - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
}

const decodeTables = new Map<SmallFloat, Float32Array>();

/** All values of the format by bit pattern: every one of them is a float32. Built once, on first use. */
export function decodeTable(dtype: SmallFloat): Float32Array {
  let table = decodeTables.get(dtype);
  if (table === undefined) {
    const { exponentBits, mantissaBits } = FLOAT_FORMATS[dtype];
    table = Float32Array.from({ length: 2 ** (1 + exponentBits + mantissaBits) }, (_, bits) =>
      decodeFloat(dtype, bits),
    );
    decodeTables.set(dtype, table);
  }
  return table;
}

/**
 * Reads an array of bit patterns as float32, exactly.
 * @param out receives the values; a fresh array otherwise
 * @example
 * decodeArray("bf16", Uint16Array.of(0x3f80, 0x4000)) // Float32Array [1, 2]
 */
export function decodeArray(
  dtype: SmallFloat,
  bits: Uint16Array | Uint8Array,
  out: Float32Array | Float64Array = new Float32Array(bits.length),
): typeof out {
  if (dtype === "bf16") {
    const word = new Uint32Array(1);
    const float = new Float32Array(word.buffer);
    for (let i = 0; i < bits.length; i++) {
      word[0] = bits[i]! << 16;
      out[i] = float[0]!;
    }
    return out;
  }
  const table = decodeTable(dtype);
  for (let i = 0; i < bits.length; i++) out[i] = table[bits[i]!]!;
  return out;
}

/**
 * Rounds an array of numbers to bit patterns, each as `encodeFloat` does.
 * @param out receives the bits; a fresh array of the dtype otherwise
 * @example
 * encodeArray("f16", [1, 65520]) // Uint16Array [0x3c00, 0x7c00]
 */
export function encodeArray<D extends SmallFloat>(
  dtype: D,
  values: ArrayLike<number>,
  out: Uint16Array | Uint8Array = dtype === "f16" || dtype === "bf16"
    ? new Uint16Array(values.length)
    : new Uint8Array(values.length),
): D extends "f16" | "bf16" ? Uint16Array : Uint8Array {
  for (let i = 0; i < values.length; i++) out[i] = encodeFloat(dtype, values[i]!);
  return out as D extends "f16" | "bf16" ? Uint16Array : Uint8Array;
}
