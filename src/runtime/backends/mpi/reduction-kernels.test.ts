import { describe, expect, it } from "vitest";
import { type DType, encodeArray, newArray, type ReduceOp } from "../../../core/index.ts";
import { ReductionKernels } from "./reduction-kernels.ts";

const kernels = new ReductionKernels(4);
const bytesOf = (array: ArrayBufferView) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

/** Reduces arrays of one dtype. */
function reduce(dtype: DType, op: ReduceOp, inputs: readonly ArrayBufferView[], count: number) {
  const output = newArray(dtype, count);
  kernels.run(dtype, op, inputs.length, inputs.map(bytesOf), bytesOf(output));
  return output;
}

describe("the kernels of reductions that MPI lacks", () => {
  it("accumulate small floats in f32 and round once", () => {
    // 2048 + 1 is not an f16: rounding at every step would lose both ones.
    const inputs = [2048, 1, 1].map((value) => encodeArray("f16", Float32Array.of(value)));
    expect(reduce("f16", "sum", inputs, 1)).toEqual(encodeArray("f16", Float32Array.of(2050)));
  });

  it("propagate NaN in min, compare unsigned integers as such, and wrap 8-bit sums", () => {
    const floats = [Float32Array.of(1, Number.NaN), Float32Array.of(Number.NaN, 2)];
    expect(reduce("f32", "min", floats, 2)).toEqual(Float32Array.of(Number.NaN, Number.NaN));
    expect(reduce("u32", "min", [Uint32Array.of(3_009_853_207), Uint32Array.of(7)], 1)).toEqual(Uint32Array.of(7));
    expect(reduce("i8", "sum", [Int8Array.of(127), Int8Array.of(1)], 1)).toEqual(Int8Array.of(-128));
  });

  it("average and scale, with a scalar that is rounded to the dtype", () => {
    expect(reduce("i32", "avg", [Int32Array.of(-3), Int32Array.of(-4)], 1)).toEqual(Int32Array.of(-3));
    const scaled = { kind: "preMulSum", scalar: 0.1 } as const;
    const one = encodeArray("bf16", Float32Array.of(1));
    expect(reduce("bf16", scaled, [one], 1)).toEqual(encodeArray("bf16", Float32Array.of(0.1)));
  });

  it("go over more than a tile, in place, and over a part alone", () => {
    const count = 40_000;
    const [a, b] = [new Float32Array(count).map((_, i) => i), new Float32Array(count).fill(1)];
    kernels.run("f32", "sum", 2, [bytesOf(a), bytesOf(b)], bytesOf(a), 4 * 100);
    expect([a[0], a[99], a[100], a[count - 1]]).toEqual([0, 99, 101, count]);
  });
});
