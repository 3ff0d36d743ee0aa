/** Reductions that use the tables of the ranks' buffers as they are. */
import { describe, expect, it } from "vitest";
import { COPY_KERNEL } from "../wasm/reduce-kernels.ts";
import { findTables } from "./direct-tables.ts";
import { CODE, DATA, RECORD } from "./image.ts";

const AT = 5;
const KERNEL = COPY_KERNEL + 1;

/** What is found for a reduction of ranges, each an address of its base and an offset. */
function found(ins: readonly (readonly number[])[], outs: readonly (readonly number[])[], kernel = KERNEL) {
  const words = new Int32Array(AT + DATA.ranges + 2 * (ins.length + outs.length)).fill(-1);
  words[AT + RECORD.code] = CODE.move;
  words[AT + DATA.kernel] = kernel;
  words[AT + DATA.numIn] = ins.length;
  words[AT + DATA.numOut] = outs.length;
  words.set([...ins, ...outs].flat(), AT + DATA.ranges);
  findTables(words, AT);
  const [inTable, outTable, start] = [DATA.inTable, DATA.outTable, DATA.start].map((field) => words[AT + field]);
  return { inTable, outTable, start };
}

const NONE = { inTable: 0, outTable: 0, start: 0 };

describe("a reduction", () => {
  it("uses the ranks' tables where it is over all their buffers at one offset", () => {
    const ins = [
      [400, 64],
      [404, 64],
      [408, 64],
    ];
    const outs = [
      [800, 64],
      [804, 64],
      [808, 64],
    ];
    expect(found(ins, outs)).toEqual({ inTable: 400, outTable: 800, start: 64 });
    expect(found(ins, [[804, 64]])).toEqual({ inTable: 400, outTable: 804, start: 64 });
    expect(found(ins, [[804, 0]])).toEqual({ inTable: 400, outTable: 0, start: 64 });
  });

  it("puts addresses in a table of its own where ranks are left out, in another order, or at other offsets", () => {
    expect(
      found(
        [
          [400, 64],
          [408, 64],
        ],
        [[800, 64]],
      ),
    ).toEqual(NONE);
    expect(
      found(
        [
          [404, 64],
          [400, 64],
        ],
        [[800, 64]],
      ),
    ).toEqual(NONE);
    expect(
      found(
        [
          [400, 64],
          [404, 68],
        ],
        [[800, 64]],
      ),
    ).toEqual(NONE);
  });

  it("is no copy, which is not stored where it comes from", () => {
    expect(found([[400, 64]], [[800, 64]], COPY_KERNEL)).toEqual(NONE);
  });
});
