import { describe, expect, it } from "vitest";
import { ALGORITHMS, algorithm } from "../../../authoring/algorithms/index.ts";
import { PlanCopies } from "./plan-copies.ts";

const copiesOf = (
  name: string,
  numRanks: number,
  args: { instances?: number; root?: number; inPlace?: boolean } = {},
) =>
  PlanCopies.of(
    algorithm(name)
      .make({ numRanks, ...args })
      .plan(),
  );

describe("plans that are copies", () => {
  it("are those of the library that copy inputs to outputs and do nothing else", () => {
    const found = ALGORITHMS.filter(({ name, legal }) => legal(4) && copiesOf(name, 4) !== undefined);
    expect(found.map(({ name }) => name)).toEqual([
      "direct-all-gather",
      "one-pass-all-gather",
      "streaming-all-gather",
      "direct-broadcast",
      "direct-all-to-all",
      "one-pass-all-to-all",
      "pairwise-all-to-all",
      "direct-all-to-all-v",
      "direct-gather",
      "direct-scatter",
      "one-pass-scatter",
      "dissemination-barrier",
      "direct-send-recv",
    ]);
    expect(copiesOf("direct-all-gather", 2, { inPlace: true })).toBeUndefined();
  });

  it("are one copy a peer, however many instances a plan has and however its parts are cut", () => {
    for (const instances of [1, 5]) {
      const copies = copiesOf("direct-all-to-all", 3, { instances });
      for (const part of [1, 100, 12_345]) {
        expect(copies?.of(1, part)).toEqual(
          [0, 1, 2].map((to) => ({
            from: { rank: 1, offset: to * part },
            to: { rank: to, offset: part },
            sizeBytes: part,
          })),
        );
      }
    }
  });

  it("say which buffers of a rank its peers must know", () => {
    expect([0, 1].map((rank) => copiesOf("direct-scatter", 2, { root: 1 })?.reached[rank])).toEqual([
      { input: false, output: true, writesInput: false },
      { input: false, output: false, writesInput: false },
    ]);
    expect([0, 1].map((rank) => copiesOf("one-pass-scatter", 2, { root: 1 })?.reached[rank])).toEqual([
      { input: false, output: false, writesInput: false },
      { input: true, output: false, writesInput: false },
    ]);
  });
});
