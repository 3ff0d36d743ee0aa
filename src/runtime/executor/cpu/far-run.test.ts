import { describe, expect, it } from "vitest";
import { FarRanks } from "../../../../test/support/far-ranks.ts";
import { randomPlansOnCpu } from "../../../../test/support/random-plans-on-cpu.ts";
import { runCollective } from "../../../../test/support/run-collective.ts";
import { isFull, spread } from "../../../../test/support/spread.ts";
import { ALGORITHMS } from "../../../authoring/algorithms/index.ts";
import { broadcast, compile, program } from "../../../authoring/language/index.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? 1);
/** All counts of ranks take minutes: CI runs the first of these that an algorithm has. */
const RANKS = isFull ? [2, 3, 4, 5, 6, 7, 8] : [3, 4, 2];
const COUNTS = [37, 0, 4096 * 3 + 5];

describe("plans whose ranks share nothing", () => {
  it.each(spread(ALGORITHMS, 3).map((entry) => [entry.name, entry] as const))(
    "%s computes its collective",
    (_, entry) => {
      for (const numRanks of RANKS.filter(entry.legal).slice(0, isFull ? RANKS.length : 1)) {
        for (const inPlace of entry.inPlace ? [false, true] : [false]) {
          const plan = compile(entry.make({ numRanks, inPlace, root: numRanks - 1 }), { verify: false });
          const ranks = new FarRanks(plan, { dtype: "i32", seed });
          for (const [i, count] of COUNTS.entries()) {
            const what = `seed ${seed}, ${numRanks} ranks, inPlace ${inPlace}, count ${count}`;
            expect(runCollective(ranks, { dtype: "i32", count, seed: seed + i, shift: i % 3 }), what).toBeUndefined();
          }
        }
      }
    },
  );

  it("make data visible to whom a signal reaches by way of another rank", () => {
    // Rank 0 puts at rank 2, and tells rank 1, which tells rank 2: only a fence makes the data come before the news.
    const relayed = program({ name: "relayed", collective: broadcast(3, { root: 0 }), autoSync: "strand" }, (p) => {
      const [a, b, c] = [p.rank(0), p.rank(1), p.rank(2)];
      const [inB, inC] = [b.scratch(1), c.scratch(1)];
      const [ac, ab, ba] = [p.memoryChannel(a, c), p.memoryChannel(a, b), p.memoryChannel(b, a)];
      const [bc, cb] = [p.memoryChannel(b, c), p.memoryChannel(c, b)];
      ac.put(inC.at(0), a.input.at(0));
      ab.put(inB.at(0), a.input.at(0));
      ab.signal();
      a.copy(a.output.at(0), a.input.at(0));
      ba.wait();
      b.copy(b.output.at(0), inB.at(0));
      bc.signal();
      cb.wait();
      c.copy(c.output.at(0), inC.at(0));
    });
    const plan = compile(relayed);
    for (let run = 0; run < 40; run++) {
      const ranks = new FarRanks(plan, { dtype: "i32", seed: seed + run });
      expect(runCollective(ranks, { dtype: "i32", count: 5, seed: run }), `seed ${seed + run}`).toBeUndefined();
      expect(ranks.numFences).toBe(1);
    }
  });

  it("ends random plans as the oracle's runs do (20 verified ones here; EXECUTOR_PLANS=2000 for more)", {
    timeout: 3_600_000,
  }, () => {
    const wanted = Number(process.env["EXECUTOR_PLANS"] ?? 20);
    const { wrong } = randomPlansOnCpu(wanted, seed, (plan, at) => new FarRanks(plan, { dtype: "u32", seed: at }));
    expect(wrong).toEqual([]);
  });
});
