import { expect, it } from "vitest";
import { OutOfMemoryError } from "../../../core/index.ts";
import { Reducer } from "./reducer.ts";

it.each([2 ** 30, 2 ** 30 + 1, 2 ** 32, 2 ** 32 + 1, 2 ** 33 + 5])("refuses scratch of %i bytes", (sizeBytes) => {
  const reducer = new Reducer();
  expect(() => reducer.allocate(sizeBytes)).toThrow(OutOfMemoryError);
  expect(reducer.usedBytes).toBe(0);
});

it("gives a block of every size that was freed again, to calls that it is large enough for", () => {
  const reducer = new Reducer();
  for (const [sizeBytes, other] of [
    [1, 256],
    [257, 512],
    [70_000, 131_072],
  ] as const) {
    const at = reducer.allocate(sizeBytes);
    reducer.free(at, sizeBytes);
    expect(reducer.allocate(other)).toBe(at);
    expect(reducer.allocate(other + 1)).not.toBe(at);
  }
});
