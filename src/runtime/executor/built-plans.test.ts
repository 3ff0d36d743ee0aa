/** Plans that come compiled with the package: that they are the library's, and what is served without them. */
import { beforeAll, describe, expect, it } from "vitest";
import { hashPlan, proofOf } from "../../authoring/plan/index.ts";
import { provePlan } from "../../authoring/verifier/index.ts";
import { loadLibraryPlans } from "./algorithm-names.ts";
import { builtPlan, builtPlanText, hasBuiltPlans, isBuilt, MOST_BUILT_RANKS } from "./built-plans.ts";
import { parseServed } from "./served.ts";
import { builtUses, SHIPPED_CHOICES } from "./shipped-choices.ts";

let library: Awaited<ReturnType<typeof loadLibraryPlans>>;
beforeAll(async () => {
  library = await loadLibraryPlans();
});

const NUM_RANKS = process.env["CHORALE_FULL"] === undefined ? [2, 3] : [2, 3, 4, 5, 6, 7, 8];
const builtTables = SHIPPED_CHOICES.tables.filter(({ built }) => built === true);

describe("plans that come with the package", () => {
  it.each(NUM_RANKS)("are byte by byte what the library compiles now, for %i ranks", (numRanks) => {
    const text = builtPlanText(numRanks);
    expect(text).toBe(library.builtPlansText(numRanks, builtUses(numRanks)));
    expect(text.length).toBeGreaterThan(10_000);
  });

  it("have the hash, the verdicts and the root of the plan that the library proves", () => {
    const wrong: string[] = [];
    for (const { collective, rows } of builtTables) {
      for (const { use } of rows.filter(({ use }) => !use.endsWith("-kernel"))) {
        const request = { served: parseServed(use, []), collective, numRanks: 3, root: 0 };
        for (const root of [0, 2]) {
          const built = builtPlan({ ...request, root });
          const isRooted = ["broadcast", "reduce", "gather", "scatter"].includes(collective);
          if (built === undefined) {
            if (root === 0 || isRooted) wrong.push(`${use} with root ${root} is missing`);
            continue;
          }
          const fresh = library.servingPlan({ ...request, root }, undefined);
          // A copy that nobody has proved is hashed and proved for itself.
          const copy = structuredClone(built.plan);
          if (hashPlan(copy) !== built.hash || built.hash !== fresh.hash) wrong.push(`${use}: hash`);
          if (!provePlan(copy).ok || proofOf(built.plan)?.ok !== true) wrong.push(`${use}: proof`);
          if ((copy.collective.root ?? 0) !== root) wrong.push(`${use}: root ${copy.collective.root}`);
          if (built.endsAlone !== fresh.endsAlone || built.worksInPlace() !== fresh.worksInPlace()) {
            wrong.push(`${use}: verdicts`);
          }
        }
      }
    }
    expect(wrong).toEqual([]);
    expect(builtTables.length).toBe(16);
  });

  it("are there for groups of 2 to 8 ranks, and for no others", () => {
    const has = (n: number) => hasBuiltPlans(n) && isBuilt("all_reduce", "two-shot-fused-read-all-reduce", n);
    expect([1, 2, 3, 4, 5, 6, 7, 8, 9].filter(has)).toEqual([2, 3, 4, 5, 6, 7, 8]);
    expect(MOST_BUILT_RANKS).toBe(8);
    expect(isBuilt("all_reduce", "ring-all-reduce", 2)).toBe(false);
    expect(isBuilt("reduce", "two-shot-fused-read-all-reduce", 2)).toBe(false);
  });
});
