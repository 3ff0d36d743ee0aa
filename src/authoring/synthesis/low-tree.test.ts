import { describe, expect, it } from "vitest";
import { costOf, leastByForce, seededNumbers } from "../../../test/support/trees-by-force.ts";
import { cheapestTree, depthsOf } from "./cheapest-tree.ts";
import { lowTrees } from "./low-tree.ts";

describe("low trees", () => {
  it("span, keep to their height, and are mostly as cheap as the best", () => {
    const random = seededNumbers(4321);
    let [runs, best] = [0, 0];
    for (let run = 0; run < 100; run++) {
      const n = 3 + Math.floor(random() * 4);
      const most = 1 + Math.floor(random() * 3);
      const cost = Float64Array.from({ length: n * n }, () =>
        random() < 0.2 ? Number.POSITIVE_INFINITY : 1 + Math.floor(random() * 20),
      );
      const least = leastByForce(n, cost, 0, most);
      const isJoined = leastByForce(n, cost, 0, n) < Number.POSITIVE_INFINITY;
      const trees = isJoined ? lowTrees(cost, 0, most, cheapestTree(n, cost, 0)) : [];
      const costs = trees.map((parent) => {
        const { depth, order } = depthsOf(parent, 0);
        expect(order).toHaveLength(n);
        expect(Math.max(...depth)).toBeLessThanOrEqual(most);
        return costOf(n, cost, parent);
      });
      expect(trees.length > 0).toBe(least < Number.POSITIVE_INFINITY);
      for (const one of costs) expect(one).toBeGreaterThanOrEqual(least);
      if (trees.length === 0) continue;
      runs++;
      if (Math.min(...costs) === least) best++;
    }
    expect(best / runs).toBeGreaterThan(0.8);
  });
});
