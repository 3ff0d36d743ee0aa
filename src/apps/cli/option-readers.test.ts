import { describe, expect, it } from "vitest";
import { sized } from "./option-readers.ts";

describe("a count on the command line", () => {
  it("may be written as a size", () => {
    expect(["32k", "64M", "1.5K", "1.5G", "7"].map(sized(1))).toEqual([32_768, 67_108_864, 1536, 1_610_612_736, 7]);
    for (const wrong of ["0", "-1", "1.5", "k", "", "4x"]) {
      expect(() => sized(1)(wrong), wrong).toThrow("an integer of 1 or more, such as 4096 or 4K");
    }
  });
});
