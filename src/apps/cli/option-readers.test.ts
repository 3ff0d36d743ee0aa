import { describe, expect, it } from "vitest";
import { sized } from "./option-readers.ts";
import { elementSizesOf, sizesOf } from "./size-options.ts";

describe("a count on the command line", () => {
  it("may be written as a size", () => {
    expect(["32k", "64M", "1.5K", "1.5G", "7"].map(sized(1))).toEqual([32_768, 67_108_864, 1536, 1_610_612_736, 7]);
    for (const wrong of ["0", "-1", "1.5", "k", "", "4x"]) {
      expect(() => sized(1)(wrong), wrong).toThrow("an integer of 1 or more, such as 4096 or 4K");
    }
  });
});

describe("sizes on the command line", () => {
  const defaults = { min: 1024, max: 4096 };
  const sum = { op: "all_reduce", ranks: 2, dtype: "f32" } as const;
  const gather = { op: "all_gather", ranks: 300, dtype: "f64" } as const;

  it("go from -b to -e, each once and of whole elements", () => {
    expect(sizesOf({ factor: 2 }, defaults, sum)).toEqual([1024, 2048, 4096]);
    expect(sizesOf({ min: "5", max: "14", factor: 1.5 }, defaults, sum)).toEqual([4, 8]);
    expect(sizesOf({ min: "2400", max: "7300", factor: 3 }, defaults, gather)).toEqual([2400, 7200]);
    expect(elementSizesOf({ min: "9", max: "9", factor: 2 }, defaults, "f64")).toEqual([8]);
  });

  it("that are not given make room for those that are, and for one element", () => {
    expect(sizesOf({ max: "512", factor: 2 }, defaults, sum)).toEqual([512]);
    expect(sizesOf({ min: "8K", factor: 2 }, defaults, sum)).toEqual([8192]);
    expect(sizesOf({ factor: 4 }, defaults, gather)).toEqual([2400]);
  });

  it("at which nothing would move are refused", () => {
    expect(() => sizesOf({ min: "3", max: "3", factor: 2 }, defaults, sum)).toThrow(
      "-b is 3; expected at least 4 bytes, one element of f32",
    );
    expect(() => sizesOf({ max: "2399", factor: 2 }, defaults, gather)).toThrow(
      "-e is 2399; expected at least 2400 bytes, one element of f64 for each of 300 ranks",
    );
    expect(() => sizesOf({ min: "0", factor: 2 }, defaults, sum)).toThrow("-b is 0; expected at least 4 bytes");
    expect(() => sizesOf({ min: "8", factor: 2 }, defaults, { ...sum, op: "barrier" })).toThrow(
      '-b is "8"; expected none: a barrier moves no data',
    );
    expect(sizesOf({ factor: 2 }, defaults, { ...sum, op: "barrier" })).toEqual([0]);
  });
});
