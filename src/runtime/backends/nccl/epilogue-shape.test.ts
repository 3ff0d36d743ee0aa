/** Which kernel makes whole rows in each block. */
import { describe, expect, it } from "vitest";
import { parseServed } from "../../executor/index.ts";
import { apartShape } from "./epilogue-shape.ts";

const ONE_SHOT = parseServed("one-shot-packet-all-reduce*16@256.lines", []);
const labelOf = (numRanks: number, numUnits: number, unitBytes: number) =>
  apartShape(ONE_SHOT, numRanks, numUnits, unitBytes)?.label;

describe("kernels whose blocks make whole units", () => {
  it("have as many strands as units, up to 128", () => {
    const instances = (numRanks: number, numUnits: number) => apartShape(ONE_SHOT, numRanks, numUnits, 8192)?.instances;
    expect([1, 2, 3, 4, 5, 64, 65, 4096].map((rows) => instances(2, rows))).toEqual([1, 1, 2, 2, 4, 32, 64, 64]);
    // Three ranks have three strands an instance, and may not have more than 128 in all.
    expect([1, 3, 4, 4096].map((rows) => instances(3, rows))).toEqual([1, 1, 2, 32]);
  });

  it("have as many threads as a unit's lines take, in as few rounds as 1,024 allow", () => {
    // 8192 bytes are 74 lines; 16,384 are 147, which take two rounds.
    expect(labelOf(2, 1, 8192)).toBe("one-shot-packet-all-reduce*1@640.lines");
    expect(labelOf(2, 1, 16_384)).toBe("one-shot-packet-all-reduce*1@640.lines");
    expect(labelOf(2, 1, 128)).toBe("one-shot-packet-all-reduce*1@128.lines");
    for (let bytes = 16; bytes < 28_672; bytes += 4080) {
      const threads = Number(/@(\d+)/.exec(labelOf(4, 7, bytes) ?? "")?.[1]);
      expect(threads % 128).toBe(0);
      expect(threads).toBeLessThanOrEqual(1024);
    }
  });

  it("have room for units that are shared out unevenly, and keep the form of packets", () => {
    const sheets = parseServed("one-shot-packet-all-reduce*64@512.sheets", []);
    const shape = apartShape(sheets, 2, 129, 8192);
    expect(shape).toEqual({
      label: "one-shot-packet-all-reduce*64@640.sheets",
      instances: 64,
      maxBytes: 2 * 128 * 8192,
    });
  });

  it("are none where another algorithm serves, or units are not aligned, or too large for a block", () => {
    expect(apartShape(parseServed("two-phase-all-reduce*64@256", []), 2, 4, 8192)).toBeUndefined();
    expect(labelOf(2, 4, 8200)).toBeUndefined();
    expect(labelOf(2, 4, 28_672)).toBeDefined();
    expect(labelOf(2, 4, 28_688)).toBeUndefined();
  });
});
