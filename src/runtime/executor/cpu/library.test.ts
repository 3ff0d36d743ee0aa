import { describe, expect, it } from "vitest";
import { LocalRanks } from "../../../../test/support/local-ranks.ts";
import { runCollective } from "../../../../test/support/run-collective.ts";
import { isFull } from "../../../../test/support/spread.ts";
import { ALGORITHMS } from "../../../authoring/algorithms/index.ts";
import { compile } from "../../../authoring/language/index.ts";
import { noteProof } from "../../../authoring/plan/index.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? 1);
/** All counts of ranks take 40 s: CI runs one or two of each algorithm, eight for every eighth, and instances on three. */
const TURNS = [[8, 4], [2], [3, 4], [4], [3, 4], [2], [3, 4], [4]] as const;
const ranksOf = (index: number, legal: (numRanks: number) => boolean) => {
  if (isFull) return [2, 3, 4, 5, 6, 7, 8].filter(legal);
  // Some take even numbers alone.
  return [TURNS[(index + seed) % TURNS.length]!.find(legal) ?? 4];
};
/** Uneven, tiny, zero, large enough for two granules; the same again, to go back to a size. */
const COUNTS = [37, 1, 0, 4096 * 3 + 5, 64, 37];

describe.each(ALGORITHMS.map((entry, index) => ({ name: entry.name, entry, index })))(
  "$name on the CPU",
  ({ entry, index }) => {
    it.each(ranksOf(index, entry.legal))("computes its collective on %i ranks", (numRanks) => {
      for (const inPlace of entry.inPlace ? [false, true] : [false]) {
        for (const instances of numRanks === 3 || (isFull && numRanks === 2) ? [1, 2] : [1]) {
          const plan = compile(entry.make({ numRanks, inPlace, instances, root: numRanks - 1 }), { verify: false });
          // Those of one pass are executed without their own meeting where they are proved, and the ranks meet.
          noteProof(plan, { ok: true, hash: "", endsAlone: () => false, relaunches: () => false });
          const local = new LocalRanks(plan, { dtype: "i32", seed, meets: !inPlace });
          for (const [i, count] of COUNTS.entries()) {
            const what = `seed ${seed}, ${numRanks} ranks, inPlace ${inPlace}, ${instances} instances, count ${count}`;
            expect(runCollective(local, { dtype: "i32", count, seed: seed + i, shift: i % 3 }), what).toBeUndefined();
          }
        }
      }
    });
  },
);
