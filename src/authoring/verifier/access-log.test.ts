import fc from "fast-check";
import { expect, it } from "vitest";
import { lastAtMost } from "./access-log.ts";

it("finds the operation of a number as a search one by one does, where loops without a body share theirs", () => {
  const rising = fc.array(fc.nat(3), { maxLength: 40 }).map((steps) => {
    let at = 0;
    return steps.map((step) => {
      at += step;
      return at;
    });
  });
  fc.assert(
    fc.property(rising, fc.integer({ min: -1, max: 130 }), (numbers, value) => {
      expect(lastAtMost(numbers, value)).toBe(numbers.findLastIndex((first) => first <= value));
    }),
  );
});
