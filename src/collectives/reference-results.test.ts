import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { encodeSmallFloat, findWrong, referenceReduce, smallFloatTables } from "./index.ts";

const NAN = Number.NaN;

describe("small floats of the reference", () => {
  it.each([
    ["f16", 0x3c00, 1],
    ["f16", 0x7bff, 65504],
    ["f16", 0x0001, 2 ** -24],
    ["f16", 0x7c00, Number.POSITIVE_INFINITY],
    ["bf16", 0x3f80, 1],
    ["bf16", 0x4049, 3.140625],
    ["f8e4m3", 0x38, 1],
    ["f8e4m3", 0x7e, 448],
    ["f8e4m3", 0x7f, NAN],
    ["f8e4m3", 0x01, 2 ** -9],
    ["f8e5m2", 0x7b, 57344],
    ["f8e5m2", 0xfc, Number.NEGATIVE_INFINITY],
  ] as const)("%s 0x%s is %d", (dtype, bits, value) => {
    expect(smallFloatTables(dtype).values[bits]).toBe(value);
  });

  it.each([
    ["f16", 1 + 2 ** -11, 0x3c00], // tie to even
    ["f16", 1 + 3 * 2 ** -11, 0x3c02],
    ["f16", 65519.99, 0x7bff],
    ["f16", 65520, 0x7c00], // half-way to 65536 goes to infinity
    ["f16", 2 ** -25, 0x0000],
    ["f16", 2 ** -25 * 1.0001, 0x0001],
    ["bf16", -1.00390625, 0xbf80],
    ["f8e4m3", 1e9, 0x7e], // saturates
    ["f8e4m3", 464, 0x7e],
    ["f8e4m3", Number.NEGATIVE_INFINITY, 0xfe],
    ["f8e5m2", 1e9, 0x7b],
  ] as const)("%s of %d is 0x%s", (dtype, value, bits) => {
    expect(encodeSmallFloat(dtype, value)).toBe(bits);
  });

  it("gives every bf16 the interval that truncating and rounding f32 bits gives", () => {
    const f32 = new Float32Array(1);
    const u32 = new Uint32Array(f32.buffer);
    fc.assert(
      fc.property(fc.float({ noNaN: true }), (x) => {
        f32[0] = x;
        const bits = u32[0] ?? 0;
        const rounded = (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
        expect(encodeSmallFloat("bf16", x)).toBe(rounded & 0xffff);
      }),
      { numRuns: 60 },
    );
  });
});

describe("reference reductions", () => {
  it("wrap integers and truncate averages towards zero", () => {
    const wrong = (dtype: "i8" | "u8", op: "sum" | "avg" | "prod", a: number[], b: number[], out: number[]) =>
      findWrong(
        referenceReduce(
          dtype,
          op,
          [a, b].map((v) => (dtype === "i8" ? new Int8Array(v) : new Uint8Array(v))),
        ),
        dtype === "i8" ? new Int8Array(out) : new Uint8Array(out),
      );
    expect(wrong("i8", "sum", [100, -100], [100, -100], [-56, 56])).toBeUndefined();
    expect(wrong("i8", "avg", [-3, 3], [0, 0], [-1, 1])).toBeUndefined();
    expect(wrong("i8", "avg", [-3], [0], [-2])).toMatchObject({ count: 1, index: 0 });
    expect(wrong("u8", "prod", [16, 3], [17, 5], [16, 15])).toBeUndefined();
  });

  it("use all 64 bits", () => {
    const big = new BigInt64Array([2n ** 62n, -7n]);
    const expected = referenceReduce("i64", "sum", [big, big]);
    expect(findWrong(expected, new BigInt64Array([-(2n ** 63n), -14n]))).toBeUndefined();
    expect(
      findWrong(referenceReduce("i64", "avg", [big, new BigInt64Array([0n, 0n])]), new BigInt64Array([2n ** 61n, -3n])),
    ).toBeUndefined();
    const unsigned = new BigUint64Array([2n ** 63n]);
    expect(findWrong(referenceReduce("u64", "prod", [unsigned, unsigned]), new BigUint64Array([0n]))).toBeUndefined();
  });

  it("pass NaN on in min and max", () => {
    const expected = referenceReduce("f32", "max", [new Float32Array([NAN, 1]), new Float32Array([2, NAN])]);
    expect(findWrong(expected, new Float32Array([NAN, NAN]))).toBeUndefined();
    expect(findWrong(expected, new Float32Array([2, 1]))).toMatchObject({ count: 2 });
  });

  it("leave f32 of two ranks no room beyond one rounding", () => {
    const a = new Float32Array([0.1]);
    const b = new Float32Array([0.2]);
    const expected = referenceReduce("f32", "sum", [a, b]);
    const right = Math.fround(Math.fround(0.1) + Math.fround(0.2));
    expect(findWrong(expected, new Float32Array([right]))).toBeUndefined();
    expect(findWrong(expected, new Float32Array([right + 2 ** -25]))).toMatchObject({ count: 1 });
  });

  it("let averages of the smallest numbers be halved before they are added or after, and nothing else", () => {
    const tiny = 2 ** -1074;
    const inputs = [Float64Array.of(3 * tiny), Float64Array.of(5 * tiny)];
    const expected = referenceReduce("f64", "avg", inputs);
    for (const [units, right] of [
      [3, true], // 1.5 and 2.5 may each be rounded either way
      [4, true],
      [5, true],
      [1, false],
      [7, false],
    ] as const) {
      expect([units, findWrong(expected, Float64Array.of(units * tiny)) === undefined]).toEqual([units, right]);
    }
    const sum = referenceReduce("f64", "sum", inputs);
    expect(findWrong(sum, Float64Array.of(9 * tiny))).toBeDefined();
  });

  it("notice a bf16 sum that was rounded after every addition", () => {
    // 256 + 1 + 1 + 1: each single step ties back to 256, f32 then one rounding gives 260 (259 ties between 258 and 260).
    const inputs = [256, 1, 1, 1].map((v) => new Uint16Array([encodeSmallFloat("bf16", v)]));
    const expected = referenceReduce("bf16", "sum", inputs);
    expect(findWrong(expected, new Uint16Array([encodeSmallFloat("bf16", 260)]))).toBeUndefined();
    expect(findWrong(expected, new Uint16Array([encodeSmallFloat("bf16", 256)]))).toMatchObject({ count: 1 });
  });

  it("saturate f8, and notice infinities there", () => {
    const top = new Uint8Array([0x7b]);
    const expected = referenceReduce("f8e5m2", "sum", [top, top]);
    expect(findWrong(expected, new Uint8Array([0x7b]))).toBeUndefined();
    expect(findWrong(expected, new Uint8Array([0x7c]))).toMatchObject({ count: 1 });
  });

  it("multiply by the scalar in the dtype before the sum", () => {
    const a = new Uint16Array([encodeSmallFloat("f16", 3)]);
    const scalar = smallFloatTables("f16").values[encodeSmallFloat("f16", 0.3)] ?? 0;
    const expected = referenceReduce("f16", { kind: "preMulSum", scalar: 0.3 }, [a, a]);
    expect(findWrong(expected, new Uint16Array([encodeSmallFloat("f16", 6 * scalar)]))).toBeUndefined();
    const ints = referenceReduce("u8", { kind: "preMulSum", scalar: 3 }, [new Uint8Array([100]), new Uint8Array([1])]);
    expect(findWrong(ints, new Uint8Array([(300 + 3) % 256]))).toBeUndefined();
  });
});
