import { describe, expect, it } from "vitest";
import { isReadableMeanwhile, type LentCall } from "./host-addresses.ts";

const SIZE = 3;
const PART = 8;
const AT = 4096;
const span = (address: number, length: number) => ({ address, bytes: new Uint8Array(length) });

/** A call of the rank in the middle, whose result begins so many bytes behind its input. */
function readable(op: LentCall["op"], shift: number): boolean {
  const given = op === "reduce_scatter" || op === "all_to_all" ? SIZE : 1;
  const got = op === "all_gather" || op === "all_to_all" ? SIZE : 1;
  const [input, output] = [span(AT, PART * given), span(AT + shift, PART * got)];
  return isReadableMeanwhile({ op, rank: 1, partBytes: PART, input, output });
}

describe("whether others can read a rank's input while it writes its result", () => {
  it.each(["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"] as const)(
    "%s: where the two are apart",
    (op) => {
      expect(readable(op, 2 * SIZE * PART)).toBe(true);
    },
  );

  it.each([
    // Each rank writes the stretches that it alone reads, in all inputs, and the rest when all have been read.
    ["all_reduce", 0, 4],
    // The part that all read is where it belongs in the result.
    ["all_gather", -PART, 0],
    // The result lies on the part that nobody else reads.
    ["reduce_scatter", PART, 0],
  ] as const)("%s in place, and not where the result begins elsewhere on the input", (op, inPlace, elsewhere) => {
    expect(readable(op, inPlace)).toBe(true);
    expect(readable(op, elsewhere)).toBe(false);
  });

  it("no all-to-all on its own input: other ranks' parts go where parts for others are", () => {
    expect(readable("all_to_all", 0)).toBe(false);
    expect(readable("all_to_all", PART)).toBe(false);
  });
});
