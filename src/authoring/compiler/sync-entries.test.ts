import { describe, expect, it } from "vitest";
import { ringAllReduce } from "../algorithms/index.ts";
import { compile } from "../language/index.ts";
import { type DraftOp, SYNC } from "./draft-ops.ts";
import { Insertions } from "./sync-entries.ts";

const wait = (id: number): DraftOp => ({
  kind: "wait",
  relaxed: false,
  channelKind: "memory",
  channels: [id],
  sync: SYNC.none,
  source: undefined,
});
const nop = (source: number): DraftOp => ({ kind: "nop", source });
const at = (strand: number, index: number) => ({ strand, index, base: undefined });

describe("what is inserted into strands", () => {
  it("stands around operations and at the end, in the order in which it was given", () => {
    const inserted = new Insertions();
    const [a, b, c, d, e] = [wait(0), wait(1), wait(2), wait(3), wait(4)];
    inserted.addBefore(at(1, 1), a);
    inserted.addBefore(at(1, 1), b);
    inserted.addAfter(at(1, 2), c);
    inserted.addAfter(at(1, 2), d, true);
    inserted.addBefore(at(1, 3), e);
    const [first, second] = [nop(1), nop(2)];
    expect(inserted.apply(1, [first, second])).toEqual([a, b, first, second, d, c, e]);
    expect(inserted.apply(0, [first, second])).toEqual([first, second]);
  });

  it("is one operation for each channel and line, however often it stands there", () => {
    const { ranks } = compile(ringAllReduce({ numRanks: 24 }), { verify: false });
    for (const { strands } of ranks) {
      const waits = strands.flatMap(({ ops }) => ops.filter(({ kind }) => kind === "wait" || kind === "signal"));
      expect(waits.length).toBeGreaterThan(80);
      expect(new Set(waits).size).toBeLessThan(10);
    }
  });
});
