import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  decodeArray,
  decodeFloat,
  decodeTable,
  encodeArray,
  encodeFloat,
  FLOAT_FORMATS,
  isSmallFloat,
  type SmallFloat,
} from "./float-formats.ts";

const SIZES = { f16: 16, bf16: 16, f8e4m3: 8, f8e5m2: 8 } as const;
const NAMES = Object.keys(SIZES) as SmallFloat[];
const patterns = (dtype: SmallFloat) => 2 ** SIZES[dtype];

/** Written from the formats' tables, without the code under test: sign, exponent and mantissa as text of bits. */
function meaning(dtype: SmallFloat, bits: number): number {
  const e = { f16: 5, bf16: 8, f8e4m3: 4, f8e5m2: 5 }[dtype];
  const bias = { f16: 15, bf16: 127, f8e4m3: 7, f8e5m2: 15 }[dtype];
  const text = bits.toString(2).padStart(SIZES[dtype], "0");
  const sign = text[0] === "1" ? -1 : 1;
  const exponent = Number.parseInt(text.slice(1, 1 + e), 2);
  const fraction = [...text.slice(1 + e)].reduce((sum, bit, i) => sum + Number(bit) * 2 ** -(i + 1), 0);
  if (dtype === "f8e4m3") {
    if (/^.1{7}$/.test(text)) return Number.NaN;
  } else if (/^1+$/.test(text.slice(1, 1 + e))) {
    return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  }
  return exponent === 0 ? sign * fraction * 2 ** (1 - bias) : sign * (1 + fraction) * 2 ** (exponent - bias);
}

/** The finite values that are not negative, by pattern: they stand in their order. */
const FINITE = new Map(
  NAMES.map((dtype) => {
    const values = Array.from({ length: patterns(dtype) / 2 }, (_, bits) => meaning(dtype, bits));
    return [dtype, values.filter(Number.isFinite)];
  }),
);

/** Nearest by search over all finite values; a tie goes to the even pattern. */
function nearest(dtype: SmallFloat, x: number): number {
  const values = FINITE.get(dtype)!;
  let low = 0;
  let high = values.length - 1;
  const magnitude = Math.abs(x);
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle]! <= magnitude) low = middle;
    else high = middle;
  }
  const below = magnitude - values[low]!;
  const above = values[high]! - magnitude;
  const bits = below < above ? low : above < below ? high : low % 2 === 0 ? low : high;
  return bits + (x < 0 || Object.is(x, -0) ? patterns(dtype) / 2 : 0);
}

describe.each(NAMES)("%s", (dtype) => {
  it("reads every bit pattern", () => {
    for (let bits = 0; bits < patterns(dtype); bits++) {
      const got = decodeFloat(dtype, bits);
      if (!Object.is(got, meaning(dtype, bits))) expect.fail(`pattern ${bits}: ${got}`);
      if (!Object.is(decodeTable(dtype)[bits], got)) expect.fail(`pattern ${bits} is no float32`);
    }
  });

  it("writes every value back to its pattern", () => {
    for (let bits = 0; bits < patterns(dtype); bits++) {
      const value = meaning(dtype, bits);
      const got = encodeFloat(dtype, value);
      if (Number.isNaN(value)) expect(decodeFloat(dtype, got)).toBeNaN();
      else if (dtype === "f8e5m2" && !Number.isFinite(value)) expect(got & 0x7f).toBe(0x7b);
      else if (got !== bits) expect.fail(`pattern ${bits} (${value}) became ${got}`);
    }
  });

  it("rounds to nearest, ties to even, between every two neighbours", () => {
    const half = patterns(dtype) / 2;
    for (let bits = 0; bits + 1 < half; bits++) {
      const [low, high] = [meaning(dtype, bits), meaning(dtype, bits + 1)];
      if (!Number.isFinite(high)) break;
      const middle = (low + high) / 2;
      const nudge = (high - low) * 2 ** -30;
      const even = bits % 2 === 0 ? bits : bits + 1;
      for (const [x, expected] of [
        [middle, even],
        [middle - nudge, bits],
        [middle + nudge, bits + 1],
        [-middle, even + half],
      ] as const) {
        if (encodeFloat(dtype, x) !== expected) expect.fail(`${x}: ${encodeFloat(dtype, x)}, not ${expected}`);
      }
    }
  });

  it("overflows as the format says", () => {
    const { maxFinite, overflowBits, mantissaBits } = FLOAT_FORMATS[dtype];
    expect(maxFinite).toBe(
      Math.max(...Array.from({ length: patterns(dtype) }, (_, bits) => meaning(dtype, bits)).filter(Number.isFinite)),
    );
    const spacing = 2 ** (Math.floor(Math.log2(maxFinite)) - mantissaBits);
    const overflow = dtype.startsWith("f8") ? maxFinite : Number.POSITIVE_INFINITY;
    for (const x of [maxFinite + spacing / 2, maxFinite * 4, Number.MAX_VALUE, Number.POSITIVE_INFINITY]) {
      expect(decodeFloat(dtype, encodeFloat(dtype, x))).toBe(overflow);
      expect(decodeFloat(dtype, encodeFloat(dtype, -x))).toBe(-overflow);
    }
    expect(decodeFloat(dtype, encodeFloat(dtype, maxFinite + spacing / 4))).toBe(maxFinite);
    expect(decodeFloat(dtype, overflowBits)).toBe(overflow);
  });

  it("agrees with a search over all values, on random numbers of every magnitude", () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, min: -500, max: 500 }), fc.integer({ min: -60, max: 7 }), (x, exponent) => {
        const value = x * 2 ** exponent;
        if (Math.abs(value) > FLOAT_FORMATS[dtype].maxFinite) return;
        expect(encodeFloat(dtype, value)).toBe(nearest(dtype, value));
      }),
      { numRuns: dtype.startsWith("f8") ? 2000 : 60 },
    );
  });

  it("converts arrays as it converts scalars", () => {
    const bits = dtype.startsWith("f8")
      ? Uint8Array.from({ length: 256 }, (_, i) => i)
      : Uint16Array.from({ length: 65536 }, (_, i) => i);
    const values = decodeArray(dtype, bits);
    expect(values.every((value, i) => Object.is(value, decodeFloat(dtype, i)))).toBe(true);
    const back = encodeArray(dtype, values);
    expect(back.every((got, i) => got === encodeFloat(dtype, values[i] ?? 0))).toBe(true);
    expect(back.constructor).toBe(bits.constructor);
  });
});

it("keeps the sign of zero and of NaN patterns apart from magnitudes", () => {
  expect(encodeFloat("f16", -0)).toBe(0x8000);
  expect(Object.is(decodeFloat("f8e4m3", 0x80), -0)).toBe(true);
  expect(isSmallFloat("f16")).toBe(true);
  expect(isSmallFloat("f32")).toBe(false);
});
