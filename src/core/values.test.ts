import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import {
  DTYPE_NAMES,
  decodeArray,
  decodeValues,
  encodeFloat,
  encodeValues,
  InvalidArgumentError,
  tensor,
} from "./index.ts";

describe("values of a tensor of any dtype", () => {
  it.each(DTYPE_NAMES)("are written, filled and read as numbers: %s", (dtype) => {
    const isWide = dtype === "i64" || dtype === "u64";
    const values = (of: readonly number[]) => of.map((x) => (isWide ? BigInt(x) : x));
    const t = tensor(dtype, [2, 3]).set([1, 2, 3, 4, 5, 6]);
    expect(t.toArray()).toEqual(values([1, 2, 3, 4, 5, 6]));
    expect([t.at(0, 0), t.at(1, -1), t.at(-2, 1)]).toEqual(values([1, 6, 2]));
    t.set([7], 5).set(new Uint8Array([0, 1]));
    expect(t.toArray()).toEqual(values([0, 1, 3, 4, 5, 7]));
    expect(
      t
        .set([
          [1, 1, 1],
          [2, 2, 2],
        ])
        .fill(3)
        .toArray(),
    ).toEqual(values([3, 3, 3, 3, 3, 3]));
    expect(decodeValues(dtype, encodeValues(dtype, [1, 2]))).toEqual(values([1, 2]));
    expect(`${t}`).toBe(`Tensor ${dtype} [2, 3] [[3, 3, 3],\n [3, 3, 3]]`);
  });

  it("are every bit pattern of f16, through Float16Array where Node has it", () => {
    const bits = Uint16Array.from({ length: 65_536 }, (_, i) => i);
    const values = decodeValues("f16", bits);
    expect(values).toEqual([...decodeArray("f16", bits)]);
    expect(values.every((value, i) => Number.isNaN(value) || encodeFloat("f16", value) === i)).toBe(true);
  });

  it("are refused whole when the dtype cannot hold one, or when there are too many", () => {
    const t = tensor("i8", [2, 2]).fill(9);
    for (const wrong of [
      [1, 128],
      [1, 0.5],
      [1, Number.NaN],
      [1, 1n],
      [1, "2"],
      [1, 2, 3, 4, 5],
      [[1, 2]],
      [[1, 2], [3]],
      "ab",
      7,
      null,
    ]) {
      expect(() => t.set(wrong as number[]), String(wrong)).toThrow(InvalidArgumentError);
    }
    expect(() => t.set([1, 300])).toThrow(/values\[1\].*300.*an integer from -128 to 127, for i8/);
    expect(() => t.set([1], 4)).toThrow(/at most 0/);
    expect(() => t.set([1], -1)).toThrow(/offset/);
    expect(() => t.fill(-129)).toThrow(InvalidArgumentError);
    expect(() => t.at(0)).toThrow(/one index for each dim of \[2, 2\]/);
    expect(() => t.at(0, 2)).toThrow(InvalidArgumentError);
    expect(t.toArray()).toEqual([9, 9, 9, 9]);
    expect(() => tensor("u64", [1]).fill(-1n)).toThrow(/a bigint, or a safe integer, from 0 to 18446744073709551615/);
    expect(() => tensor("f32", [1]).fill(1n)).toThrow(InvalidArgumentError);
  });

  it("print as NumPy prints them", () => {
    expect(`${tensor("f32", [3]).set([0.1, -2.5, 1e-9])}`).toBe("Tensor f32 [3] [ 0.1, -2.5, 1e-9]");
    expect(`${tensor("bf16", [2]).set([0.1, Number.NaN])}`).toBe("Tensor bf16 [2] [0.1, NaN]");
    expect(`${tensor("f16", [2]).set([0.1, -0])}`).toBe("Tensor f16 [2] [0.1,  -0]");
    expect(`${tensor("u64", []).fill(2n ** 64n - 1n)}`).toBe("Tensor u64 [] 18446744073709551615");
    expect(`${tensor("f32", [0])}`).toBe("Tensor f32 [0] []");
    const long = tensor("i32", [3, 1000]).set(Int32Array.from({ length: 3000 }, (_, i) => i));
    expect(inspect(long)).toBe(
      "Tensor i32 [3, 1000] [[   0,    1,    2, ...,  997,  998,  999],\n" +
        " [1000, 1001, 1002, ..., 1997, 1998, 1999],\n [2000, 2001, 2002, ..., 2997, 2998, 2999]]",
    );
    const freed = tensor("f32", [1]);
    Object.assign(freed.storage, { closed: "was freed" });
    expect(inspect({ freed })).toBe("{ freed: Tensor f32 [1] (was freed) }");
  });

  it("are in JSON, where what it cannot carry is text", () => {
    expect(JSON.stringify(tensor("f16", [1, 2]).set([0.5, Number.NaN]))).toBe(
      '{"dtype":"f16","shape":[1,2],"values":[0.5,"NaN"]}',
    );
    expect(JSON.stringify(tensor("i64", [1]).fill(-1n))).toBe('{"dtype":"i64","shape":[1],"values":["-1"]}');
  });
});
