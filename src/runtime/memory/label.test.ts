import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { controlBytes, LABEL_BYTES } from "./control-layout.ts";
import { ControlSegment } from "./control-segment.ts";
import { decodeLabel, encodeLabel } from "./label.ts";

const ALL = Array.from({ length: 16 }, (_, rank) => rank);
/** What a group's label says when it is read from the segment. */
function readBack(name: string, ranks = ALL) {
  const segment = new ControlSegment(new SharedArrayBuffer(controlBytes(ALL.length)), ALL.length);
  segment.group(name, ranks, 0, 0);
  return segment.groups().map(({ name, ranks, control }) => ({ name, ranks, size: control.size }));
}

describe("a group's label", () => {
  it.each([
    ["100 letters of three bytes", "界".repeat(100)],
    ["400 plain ones", "x".repeat(400)],
  ])("is whole when it fits: %s", (_, name) => {
    expect(readBack(name, [3, 1])).toEqual([{ name, ranks: [3, 1], size: 2 }]);
  });

  it.each([
    ["100 control characters, of six bytes in JSON", "\u0001".repeat(100), "\u0001"],
    ["letters of two words", "𝔾".repeat(130), "𝔾"],
    ["letters of two words behind one of one", `x${"𝔾".repeat(100_000)}`, "𝔾"],
    ["halves of letters", "\ud835".repeat(100), "\ud835"],
    ["more plain ones than the segment holds", "x".repeat(5000), "x"],
  ])("is there, shortened, when it does not: %s", (_, name, character) => {
    const [label, ...others] = readBack(name);
    expect(others).toEqual([]);
    expect(label?.ranks).toEqual(ALL);
    const shown = label?.name ?? "";
    expect(shown.endsWith(`${character}…`)).toBe(true);
    expect(name.startsWith(shown.slice(0, -1))).toBe(true);
    expect(shown.length).toBeGreaterThan(60);
  });

  it("keeps as much of any name as there is room for, in whole characters", () => {
    const bytesOf = (name: string) => Buffer.byteLength(JSON.stringify({ name, ranks: ALL }));
    const name = fc.oneof(
      fc.string({ unit: "binary", maxLength: 600, size: "max" }),
      fc.string({ unit: fc.constantFrom("a", "\n", "\u0007", "é", "界", "𝔾", "\udc00"), maxLength: 600, size: "max" }),
    );
    let numShortened = 0;
    fc.assert(
      fc.property(name, (name) => {
        const bytes = encodeLabel({ name, ranks: ALL }, LABEL_BYTES);
        expect(bytes.length).toBeLessThanOrEqual(LABEL_BYTES);
        const label = decodeLabel(bytes);
        expect(label?.ranks).toEqual(ALL);
        if (bytesOf(name) <= LABEL_BYTES) {
          expect(label?.name).toBe(name);
          return;
        }
        numShortened++;
        const kept = label?.name.slice(0, -1) ?? "";
        const next = [...name].slice(0, [...kept].length + 1).join("");
        expect(label?.name).toBe(`${kept}…`);
        expect(next.startsWith(kept)).toBe(true);
        expect(bytesOf(`${next}…`)).toBeGreaterThan(LABEL_BYTES);
      }),
      { seed: 20261120, verbose: 1 },
    );
    expect(numShortened).toBeGreaterThan(20);
  });
});
