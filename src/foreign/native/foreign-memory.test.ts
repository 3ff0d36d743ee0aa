import { describe, expect, it } from "vitest";
import { emptyViews, viewMemory } from "./index.ts";
import { koffi } from "./koffi.ts";

const library = koffi().load(null);
const malloc: (sizeBytes: number) => number = library.func("malloc", "intptr_t", ["size_t"]);
const free: (address: number) => void = library.func("free", "void", ["intptr_t"]);

describe("foreign memory", () => {
  it("is read and written in place, and every view is empty before it is freed", () => {
    const address = malloc(4096);
    const buffer = viewMemory(BigInt(address), 4096);
    const views = [new Uint8Array(buffer), new Float32Array(buffer, 64, 16), Buffer.from(buffer, 8, 8)];
    new DataView(buffer).setFloat32(64, 1.5, true);
    expect(views[1]?.[0]).toBe(1.5);
    expect(new Float32Array(viewMemory(BigInt(address), 4096), 64, 1)[0]).toBe(1.5);
    expect(emptyViews(buffer)).toBe(true);
    expect([buffer.byteLength, ...views.map((view) => view.length)]).toEqual([0, 0, 0, 0]);
    free(address);
    expect(views[0]?.[0]).toBeUndefined();
  });

  it("says when a buffer was detached before, so that its memory stays", () => {
    const address = malloc(64);
    const buffer = viewMemory(BigInt(address), 64);
    expect(emptyViews(buffer)).toBe(true);
    expect(emptyViews(buffer)).toBe(false);
    free(address);
  });
});
