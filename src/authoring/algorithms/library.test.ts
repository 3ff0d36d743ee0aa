import { describe, expect, it } from "vitest";
import { interpret } from "../../../test/support/interpret.ts";
import { compile } from "../language/index.ts";
import { hashPlan } from "../schedule/index.ts";
import { ALGORITHMS } from "./index.ts";

const RANKS = [2, 3, 4, 5, 7, 8, 16];

describe.each(ALGORITHMS)("$name", (entry) => {
  it.each(RANKS.filter(entry.legal))("computes its collective on %i ranks under random interleavings", (numRanks) => {
    for (const inPlace of entry.inPlace ? [false, true] : [false]) {
      for (const root of ["broadcast", "reduce", "gather", "scatter"].includes(entry.collective)
        ? [0, numRanks - 1]
        : [0]) {
        const plan = compile(entry.make({ numRanks, inPlace, root }));
        const trials = numRanks <= 5 ? 10 : 2;
        for (let seed = 1; seed <= trials; seed++) {
          expect(interpret(plan, seed), `inPlace ${inPlace}, root ${root}, seed ${seed}`).toBeUndefined();
        }
      }
    }
  });

  it("computes it with instances, and over port channels where it only puts", () => {
    const numRanks = entry.legal(3) ? 3 : 4;
    const plan = compile(entry.make({ numRanks, instances: 3 }));
    for (let seed = 1; seed <= 5; seed++) expect(interpret(plan, seed), `instances, seed ${seed}`).toBeUndefined();
    if (/read|packet|switch/.test(entry.name)) return;
    const ported = compile(entry.make({ numRanks, channel: "port" }));
    for (let seed = 1; seed <= 5; seed++) expect(interpret(ported, seed), `port, seed ${seed}`).toBeUndefined();
  });

  it("compiles to the same plan again", () => {
    const numRanks = entry.legal(3) ? 3 : 4;
    const program = entry.make({ numRanks });
    expect(hashPlan(compile(program))).toBe(hashPlan(compile(program)));
    expect(hashPlan(compile(entry.make({ numRanks })))).toBe(hashPlan(compile(program)));
  });
});
