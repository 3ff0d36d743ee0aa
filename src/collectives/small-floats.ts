/**
 * 16- and 8-bit floats for the reference evaluator: decoded by the formula of their format, and for every bit pattern
 * the interval of real numbers that rounds to it. Deliberately another way than core's conversions, so that one checks
 * the other. Formats: IEEE 754 binary16, bfloat16, and OCP OFP8 E4M3 (finite and NaN only) and E5M2, which saturate.
 */
import type { SmallFloat } from "../core/index.ts";

interface Format {
  readonly exponentBits: number;
  readonly mantissaBits: number;
  readonly bias: number;
  /** Infinities exist, and every NaN has the largest exponent. False: only the all-ones pattern is NaN (E4M3). */
  readonly ieeeSpecials: boolean;
  /** Values beyond the largest become the largest; otherwise infinity. */
  readonly saturates: boolean;
}

const FORMATS: Readonly<Record<SmallFloat, Format>> = {
  f16: { exponentBits: 5, mantissaBits: 10, bias: 15, ieeeSpecials: true, saturates: false },
  bf16: { exponentBits: 8, mantissaBits: 7, bias: 127, ieeeSpecials: true, saturates: false },
  f8e4m3: { exponentBits: 4, mantissaBits: 3, bias: 7, ieeeSpecials: false, saturates: true },
  f8e5m2: { exponentBits: 5, mantissaBits: 2, bias: 15, ieeeSpecials: true, saturates: true },
};

/** Everything there is to know about a small float: tables indexed by bit pattern. */
export interface SmallFloatTables {
  readonly values: Float64Array;
  /** A real x rounds to the pattern when low <= x <= high. NaN patterns have NaN there, E5M2 infinities too. */
  readonly low: Float64Array;
  readonly high: Float64Array;
}

const cache = new Map<SmallFloat, SmallFloatTables>();

/** One double, as a number and by its bits: one pair for all, as the tables of a format take 65,000 steps. */
const double = new Float64Array(1);
const doubleBits = new BigInt64Array(double.buffer);

/** Next double towards +infinity or -infinity, from a finite non-zero double. */
function nudge(x: number, up: boolean): number {
  double[0] = x;
  doubleBits[0]! += x > 0 === up ? 1n : -1n;
  return double[0];
}

function magnitude(bits: number, format: Format): number {
  const exponent = bits >> format.mantissaBits;
  const mantissa = bits & ((1 << format.mantissaBits) - 1);
  const top = (1 << format.exponentBits) - 1;
  if (format.ieeeSpecials ? exponent === top : bits === (1 << (format.exponentBits + format.mantissaBits)) - 1) {
    return format.ieeeSpecials && mantissa === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
  }
  const scale = 2 ** -format.mantissaBits;
  return exponent === 0
    ? 2 ** (1 - format.bias) * mantissa * scale
    : 2 ** (exponent - format.bias) * (1 + mantissa * scale);
}

/** Builds (once) the tables of a format. */
export function smallFloatTables(dtype: SmallFloat): SmallFloatTables {
  const known = cache.get(dtype);
  if (known !== undefined) return known;
  const format = FORMATS[dtype];
  const signBit = 1 << (format.exponentBits + format.mantissaBits);
  const values = new Float64Array(2 * signBit);
  const low = new Float64Array(2 * signBit).fill(Number.NaN);
  const high = new Float64Array(2 * signBit).fill(Number.NaN);
  for (let bits = 0; bits < signBit; bits++) {
    const value = magnitude(bits, format);
    values[bits] = value;
    values[bits | signBit] = -value;
  }
  for (let bits = 0; bits < signBit; bits++) {
    const value = values[bits] ?? Number.NaN;
    if (Number.isNaN(value)) continue;
    // The value one step above the largest finite one, were the exponent unbounded: overflow begins half-way to it.
    const above = (b: number) => {
      const v = values[b + 1] ?? Number.NaN;
      if (Number.isFinite(v)) return v;
      const here = values[b] ?? Number.NaN;
      return here + (here - (values[b - 1] ?? Number.NaN));
    };
    const even = bits % 2 === 0;
    const edge = (a: number, b: number, upper: boolean, inclusive: boolean) => {
      const middle = (a + b) / 2;
      return inclusive || middle === 0 ? middle : nudge(middle, !upper);
    };
    if (value === Number.POSITIVE_INFINITY) {
      if (format.saturates) continue;
      low[bits] = edge(values[bits - 1] ?? 0, above(bits - 1), false, even);
      high[bits] = Number.POSITIVE_INFINITY;
    } else {
      const isLargest = !Number.isFinite(values[bits + 1] ?? Number.NaN);
      high[bits] = isLargest && format.saturates ? Number.POSITIVE_INFINITY : edge(value, above(bits), true, even);
      low[bits] = bits === 0 ? -(high[0] ?? 0) : edge(values[bits - 1] ?? 0, value, false, even);
    }
    low[bits | signBit] = -(high[bits] ?? 0);
    high[bits | signBit] = -(low[bits] ?? 0);
  }
  const tables = { values, low, high };
  cache.set(dtype, tables);
  return tables;
}

/** The bit pattern that `x` rounds to (nearest, ties to even), by search: for few values, not for arrays. */
export function encodeSmallFloat(dtype: SmallFloat, x: number): number {
  const { values, low, high } = smallFloatTables(dtype);
  if (Number.isNaN(x)) return values.findIndex((v) => Number.isNaN(v));
  const half = values.length / 2;
  const magnitudeOf = Math.abs(x);
  for (let bits = 0; bits < half; bits++) {
    if (magnitudeOf >= (low[bits] ?? Number.NaN) && magnitudeOf <= (high[bits] ?? Number.NaN)) {
      return x < 0 || Object.is(x, -0) ? bits | half : bits;
    }
  }
  return half - 1;
}
