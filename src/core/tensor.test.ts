import { describe, expect, it } from "vitest";
import { checkValues, InvalidArgumentError, newArray, parseSize, Tensor, tensor } from "./index.ts";

describe("tensors of a storage", () => {
  it("lie within it, at both ends", () => {
    const whole = new Float32Array(16);
    const part = tensor("f32", [4], whole.subarray(4, 8));
    expect(new Tensor("f32", [2], part.storage, 24).data.length).toBe(2);
    for (const [shape, at] of [
      [[4], 0],
      [[1], 12],
      [[5], 16],
      [[1], 32],
      [[1], -4],
      [[1], 17],
      [[1], Number.NaN],
      [[0], 0],
    ] as const) {
      expect(() => new Tensor("f32", shape, part.storage, at), `${shape} at ${at}`).toThrow(
        /within the storage, bytes 16 to 32/,
      );
    }
  });
});

describe("words of programs without types", () => {
  it("are refused with what is accepted", () => {
    expect(() => newArray("f33" as never, 4)).toThrow(/dtype is "f33"; expected one of f32, f64/);
    expect(() => newArray("toString" as never, 4)).toThrow(/dtype is "toString"; expected one of f32, f64/);
    expect(() => parseSize(undefined as never)).toThrow(/size is undefined; expected a size such as 512/);
  });
});

describe("values of a tensor", () => {
  it("are refused with their size where no memory holds them", () => {
    expect(() => tensor("f32", [2 ** 50])).toThrow(
      expect.objectContaining({ code: "OUT_OF_MEMORY", requestedBytes: 2 ** 52 }),
    );
  });

  it("are of its dtype's class, and as many as it has elements", () => {
    const t = tensor("f16", [4]);
    expect(() => checkValues(t, new Uint16Array(4))).not.toThrow();
    const wrong = [new Uint16Array(3), new Float32Array(4), new Int16Array(4), [0, 0, 0, 0], undefined, "abcd"];
    for (const values of wrong) {
      expect(() => checkValues(t, values as Uint16Array)).toThrow(InvalidArgumentError);
    }
    expect(() => checkValues(t, new Float32Array(4))).toThrow(/Float32Array.*a Uint16Array, which holds f16/);
    expect(() => checkValues(undefined as unknown as typeof t, new Uint16Array(4))).toThrow(InvalidArgumentError);
  });
});
