import { runConformance, SEMANTIC_CASES } from "chorale/conformance";
import { describe, expect, it } from "vitest";
import { spread } from "../support/spread.ts";
import { FEW, failuresOf } from "./failures.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
console.log(`conformance over shm: seed ${seed} (CHORALE_SEED=${seed} repeats it)`);

/** `npm run conformance:full -- --backend shm` runs everything, on 1 to 8 ranks. */
describe.skipIf(process.platform !== "linux")("shm backend (Linux)", () => {
  it("moves and reduces as the reference says, between processes", { timeout: 300_000 }, async () => {
    const result = await runConformance({ backend: "shm", seed, only: "data", ranks: [2], filter: "count=uneven" });
    expect(failuresOf(result)).toEqual([]);
    expect(result.numPassed).toBeGreaterThan(20);
  });

  it("behaves as the contract says", { timeout: 600_000 }, async () => {
    const [maxRanks = 3] = spread([2, 3], 2, 1);
    const result = await runConformance({ backend: "shm", seed, only: "behaviour", ...FEW, maxRanks });
    expect(failuresOf(result)).toEqual([]);
    const numSmall = SEMANTIC_CASES.filter(({ ranks }) => ranks <= maxRanks).length;
    expect([result.numPassed, result.numSkipped]).toEqual([numSmall, SEMANTIC_CASES.length - numSmall]);
  });
});
