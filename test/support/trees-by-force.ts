/** Trees by trying every choice of parents, to compare with what finds them faster. */
import { depthsOf } from "../../src/authoring/synthesis/cheapest-tree.ts";

/** @returns the least cost of a tree over `n` nodes; where `mostHeight` is given, of one that is no higher */
export function leastByForce(n: number, cost: Float64Array, root: number, mostHeight = n): number {
  let least = Number.POSITIVE_INFINITY;
  const parent = new Int32Array(n).fill(-1);
  const choose = (node: number, sum: number): void => {
    if (sum >= least) return;
    if (node === n) {
      const { depth, order } = depthsOf(parent, root);
      if (order.length === n && order.every((at) => (depth[at] as number) <= mostHeight)) least = sum;
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

/** @returns what the edges of a tree cost, of costs from each node to each in one row */
export const costOf = (n: number, cost: Float64Array, parent: Int32Array): number =>
  parent.reduce((sum, from, node) => (from === -1 ? sum : sum + (cost[from * n + node] as number)), 0);

/** @returns numbers from 0 to 1 that are the same for the same seed */
export function seededNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) / 2 ** 24;
  };
}
