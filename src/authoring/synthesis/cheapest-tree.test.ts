import { describe, expect, it } from "vitest";
import { costOf, leastByForce, seededNumbers } from "../../../test/support/trees-by-force.ts";
import { cheapestTree } from "./cheapest-tree.ts";

function isTree(parent: ArrayLike<number>, root: number): boolean {
  return Array.from(parent).every((_, node) => {
    let at = node;
    for (let step = 0; at !== root; step++) {
      if (step > parent.length || at === -1) return false;
      at = parent[at] as number;
    }
    return true;
  });
}

describe("cheapestTree", () => {
  it("is a tree, and as cheap as the best of all trees", () => {
    const random = seededNumbers(12345);
    for (let run = 0; run < 150; run++) {
      const n = 2 + Math.floor(random() * 5);
      // Few different costs, and some ways missing: many ties and cycles within cycles.
      const cost = Float64Array.from({ length: n * n }, () =>
        random() < 0.2 ? 1000 : Math.floor(random() * (run % 2 === 0 ? 3 : 30)),
      );
      const root = Math.floor(random() * n);
      const parent = cheapestTree(n, cost, root);
      expect(parent[root]).toBe(-1);
      expect(isTree(parent, root)).toBe(true);
      expect(costOf(n, cost, parent)).toBe(leastByForce(n, cost, root));
    }
  });
});
