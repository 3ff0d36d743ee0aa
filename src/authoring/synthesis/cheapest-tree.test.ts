import { describe, expect, it } from "vitest";
import { cheapestTree } from "./cheapest-tree.ts";

/** The cost of the cheapest tree by trying every choice of parents. */
function leastByForce(n: number, cost: Float64Array, root: number): number {
  let least = Number.POSITIVE_INFINITY;
  const parent = new Array<number>(n).fill(-1);
  const choose = (node: number, sum: number): void => {
    if (sum >= least) return;
    if (node === n) {
      if (isTree(parent, root)) least = sum;
      return;
    }
    if (node === root) {
      choose(node + 1, sum);
      return;
    }
    for (let from = 0; from < n; from++) {
      if (from === node) continue;
      parent[node] = from;
      choose(node + 1, sum + (cost[from * n + node] as number));
    }
  };
  choose(0, 0);
  return least;
}

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

const costOf = (n: number, cost: Float64Array, parent: Int32Array): number =>
  parent.reduce((sum, from, node) => (from === -1 ? sum : sum + (cost[from * n + node] as number)), 0);

describe("cheapestTree", () => {
  it("is a tree, and as cheap as the best of all trees", () => {
    let state = 12345;
    const random = () => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) / 2 ** 24;
    };
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
