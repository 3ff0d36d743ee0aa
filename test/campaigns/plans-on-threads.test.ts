/**
 * Plans by the hundred on real threads, through `comm.run`. Short here; on a quiet machine
 *
 *   PLAN_CAMPAIGN=full npx vitest run test/campaigns/plans-on-threads.test.ts
 *
 * takes every algorithm at 2 to 8 ranks and one of each collective at 16, all of MSCCL++'s own programs that are right,
 * and 2,000 mutants (`PLAN_MUTANTS=N` for another number) that the verifier rejects as a deadlock or a race. So do, in
 * processes beside each other and without the tests, the words of `test/campaigns/plans.mjs`.
 */
import { existsSync, readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { ALGORITHMS, type AlgorithmEntry } from "../../src/authoring/algorithms/index.ts";
import { libraryOnThreads, mutantsOnThreads, oneOfEach, programsOnThreads } from "../support/plan-campaigns.ts";
import { spread } from "../support/spread.ts";

const isFull = process.env["PLAN_CAMPAIGN"] === "full";
const seed = Number(process.env["CHORALE_SEED"] ?? 1);

describe("the library's algorithms on threads", () => {
  const worlds: readonly (readonly [number, readonly AlgorithmEntry[]])[] = isFull
    ? [...[2, 3, 4, 5, 6, 7, 8].map((numRanks) => [numRanks, ALGORITHMS] as const), [16, oneOfEach()]]
    : [[3, spread(ALGORITHMS, 6)]];

  it.each(worlds)(
    "on %i ranks: every type and operator, odd sizes and places, poisoned outputs",
    {
      timeout: 900_000,
    },
    async (numRanks, entries) => {
      const { wrong } = await libraryOnThreads(numRanks, { entries, most: isFull ? 96 : 2, seed });
      expect(wrong, `seed ${seed}`).toEqual([]);
    },
  );
});

const programs = new URL("../../../shared/conformance/mscclpp/programs.jsonl.gz", import.meta.url);
describe.skipIf(!existsSync(programs))("MSCCL++'s programs on threads (needs ../shared)", () => {
  it("give what their collectives mean", { timeout: 900_000 }, async () => {
    const lines = gunzipSync(readFileSync(programs)).toString().trim().split("\n");
    const { wrong, numRun } = await programsOnThreads(lines, { isFull, seed });
    expect(wrong.join("\n"), `seed ${seed}, ${numRun} plans`).toBe("");
    if (isFull) console.log(`${numRun} of ${lines.length} programs ran`);
    expect(numRun).toBeGreaterThan(isFull ? 100 : 5);
  });
});

describe("plans that the verifier rejects as a deadlock or a race", () => {
  const wanted = Number(process.env["PLAN_MUTANTS"] ?? (isFull ? 2000 : 8));

  it(`end by their deadline when forced, and leave the world usable (${wanted} mutants)`, {
    timeout: 3_600_000,
  }, async () => {
    const { wrong, numHung } = await mutantsOnThreads(wanted, { every: isFull ? 1 : 7, seed });
    expect(wrong.join("\n"), `seed ${seed}`).toBe("");
    expect(numHung).toBeGreaterThan(0);
  });
});
