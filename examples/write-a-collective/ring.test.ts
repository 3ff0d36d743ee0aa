import { compile } from "chorale/language";
import { verifyPlan } from "chorale/verifier";
import { describe, expect, it } from "vitest";
import ring from "./ring.ts";

describe("the example's ring", () => {
  it.each([2, 3, 4, 8])("is proved right on %i ranks", (numRanks) => {
    expect(verifyPlan(compile(ring({ numRanks }))).findings).toEqual([]);
  });

  it("keeps every rank to its neighbours", () => {
    const plan = compile(ring({ numRanks: 5 }));
    for (const rank of plan.ranks) {
      const neighbours = [(rank.rank + 4) % 5, (rank.rank + 1) % 5];
      expect(rank.channels.memory.every((peer) => neighbours.includes(peer))).toBe(true);
    }
  });
});
