import { describe, expect, it } from "vitest";
import { cheapestTree, depthsOf } from "./cheapest-tree.ts";
import { lowTrees } from "./low-tree.ts";

/** The least cost of a tree of at most some height, by trying every choice of parents. */
function leastByForce(n: number, cost: Float64Array, root: number, most: number): number {
  let least = Number.POSITIVE_INFINITY;
  const parent = new Int32Array(n).fill(-1);
  const choose = (node: number, sum: number): void => {
    if (sum >= least) return;
    if (node === n) {
      const { depth, order } = depthsOf(parent, root);
      if (order.length === n && order.every((at) => (depth[at] as number) <= most)) least = sum;
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

describe("low trees", () => {
  it("span, keep to their height, and are mostly as cheap as the best", () => {
    let state = 4321;
    const random = () => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) / 2 ** 24;
    };
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
        return parent.reduce((sum, from, node) => (from === -1 ? sum : sum + (cost[from * n + node] as number)), 0);
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
