import { describe, expect, it } from "vitest";
import { checkValues, InvalidArgumentError, tensor } from "./index.ts";

describe("values of a tensor", () => {
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
