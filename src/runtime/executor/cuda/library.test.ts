import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { HostKernels, HostRanks, hasHostCompiler } from "../../../../test/support/host-cuda/host-kernels.ts";
import { runCollective } from "../../../../test/support/run-collective.ts";
import { isFull, spread } from "../../../../test/support/spread.ts";
import { ALGORITHMS } from "../../../authoring/algorithms/index.ts";
import { compile } from "../../../authoring/language/index.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? 1);
/** Compiling takes most of the time: CI compiles an eighth of the algorithms, for some ranks. */
const RANKS = isFull ? [2, 3, 4, 5, 8] : [3];
/** Uneven, tiny, zero, large enough for two granules; the same again, to go back to a size. */
const COUNTS = [37, 1, 0, 4096 * 3 + 5, 37];

describe.skipIf(!hasHostCompiler())("the library as CUDA, compiled by g++ for the host", () => {
  const kernels = new HostKernels();
  const cases: { name: string; ranks: HostRanks }[] = [];
  beforeAll(() => {
    for (const entry of spread(ALGORITHMS, 8)) {
      const index = ALGORITHMS.indexOf(entry);
      for (const numRanks of RANKS.map((n) => (entry.legal(n) ? n : 4)).filter((n, i, all) => all.indexOf(n) === i)) {
        for (const inPlace of isFull && entry.inPlace
          ? [false, true]
          : [entry.inPlace && entry.name.length % 2 === 0]) {
          const instances = isFull ? 2 : 1;
          const plan = compile(entry.make({ numRanks, inPlace, instances, root: numRanks - 1 }), { verify: false });
          const name = `${entry.name}, ${numRanks} ranks, inPlace ${inPlace}`;
          // Some with strands of several blocks.
          const blocksPerStrand = [1, 2, 4][(index + numRanks) % 3] as number;
          cases.push({ name, ranks: new HostRanks(plan, kernels, { dtype: "i32", seed, blocksPerStrand }) });
          if (entry.packets) {
            const packets = index % 2 === 0 ? "lines" : "sheets";
            const lines = new HostRanks(plan, kernels, {
              ...{ dtype: "i32", seed, packets, threads: 64 },
              blocksPerStrand: blocksPerStrand === 1 ? 2 : 1,
            });
            cases.push({ name: `${name}, ${packets}`, ranks: lines });
          }
        }
      }
    }
  });
  afterAll(() => {
    kernels.close();
  });

  it("computes every collective", { timeout: 3_600_000 }, () => {
    const wrong = cases.flatMap(({ name, ranks }) =>
      COUNTS.flatMap((count, i) => {
        const found = runCollective(ranks, { dtype: "i32", count, seed: seed + i, shift: i % 3 });
        return found === undefined ? [] : [`${name}, seed ${seed}, count ${count}: ${found}`];
      }),
    );
    expect(wrong).toEqual([]);
  });
});
