/**
 * Cheap spanning trees of a limited height. The cheapest one is NP-hard to find (height 2 is facility location), so trees are
 * improved move by move: a node gets a cheaper parent where neither it nor what hangs below it comes to lie too deep.
 */
import { depthsOf } from "./cheapest-tree.ts";

/** By node, how far its deepest descendant is below it. */
function heightsOf(parent: Int32Array, order: readonly number[]): Int32Array {
  const height = new Int32Array(parent.length);
  for (let i = order.length - 1; i > 0; i--) {
    const node = order[i] as number;
    const above = parent[node] as number;
    height[above] = Math.max(height[above] as number, (height[node] as number) + 1);
  }
  return height;
}

const isBelow = (parent: Int32Array, node: number, top: number): boolean => {
  for (let at = node; at !== -1; at = parent[at] as number) if (at === top) return true;
  return false;
};

/** The tree of the fewest steps, each node hung to the cheapest parent that is nearer to the root. Undefined: too deep. */
function fewestStepsTree(n: number, cost: Float64Array, root: number, most: number): Int32Array | undefined {
  const parent = new Int32Array(n).fill(-1);
  const depth = new Int32Array(n).fill(-1);
  depth[root] = 0;
  let level = [root];
  const near = [root];
  for (let step = 1; level.length > 0 && step <= most; step++) {
    const next: number[] = [];
    for (let node = 0; node < n; node++) {
      if (depth[node] !== -1) continue;
      let best = -1;
      for (const other of near) {
        const value = cost[other * n + node] as number;
        if (value < Number.POSITIVE_INFINITY && (best === -1 || value < (cost[best * n + node] as number)))
          best = other;
      }
      if (best === -1) continue;
      parent[node] = best;
      next.push(node);
    }
    for (const node of next) depth[node] = step;
    near.push(...next);
    level = next;
  }
  return near.length === n ? parent : undefined;
}

/** Hangs what is too deep nearer to the root, at the least extra cost each time. In place. @returns whether all fits */
function lift(parent: Int32Array, cost: Float64Array, root: number, most: number): boolean {
  const n = parent.length;
  for (let moves = 0; moves <= n; moves++) {
    const { depth, order } = depthsOf(parent, root);
    const deepest = order[order.length - 1] as number;
    if ((depth[deepest] as number) <= most) return true;
    const height = heightsOf(parent, order);
    let best: { node: number; to: number; extra: number } | undefined;
    for (let node = deepest; node !== root; node = parent[node] as number) {
      const own = cost[(parent[node] as number) * n + node] as number;
      for (const to of order) {
        if ((depth[to] as number) + 1 + (height[node] as number) > most) break;
        const extra = (cost[to * n + node] as number) - own;
        if (extra < (best?.extra ?? Number.POSITIVE_INFINITY) && !isBelow(parent, to, node)) best = { node, to, extra };
      }
    }
    if (best === undefined) return false;
    parent[best.node] = best.to;
  }
  return false;
}

/** Gives nodes cheaper parents, the greatest saving first, as long as the height allows. In place. */
function cheapen(parent: Int32Array, cost: Float64Array, root: number, most: number): void {
  const n = parent.length;
  // Each move saves something, so there is an end; the number is for costs that differ by rounding only.
  for (let moves = 0; moves < 4 * n; moves++) {
    const { depth, order } = depthsOf(parent, root);
    const height = heightsOf(parent, order);
    let best: { node: number; to: number; saving: number } | undefined;
    for (const node of order) {
      if (node === root) continue;
      const own = cost[(parent[node] as number) * n + node] as number;
      for (const to of order) {
        if ((depth[to] as number) + 1 + (height[node] as number) > most) break;
        const saving = own - (cost[to * n + node] as number);
        if (saving > (best?.saving ?? 1e-12) && !isBelow(parent, to, node)) best = { node, to, saving };
      }
    }
    if (best === undefined) return;
    parent[best.node] = best.to;
  }
}

/**
 * Finds cheap trees no higher than `most`: from the tree of the fewest steps, and from a cheap tree of any height.
 * @param cost n x n, from row to column; infinite where there is no way
 */
export function lowTrees(cost: Float64Array, root: number, most: number, cheapest: Int32Array): Int32Array[] {
  const trees: Int32Array[] = [];
  const lifted = cheapest.slice();
  if (lift(lifted, cost, root, most)) trees.push(lifted);
  const fewest = fewestStepsTree(cheapest.length, cost, root, most);
  if (fewest !== undefined) trees.push(fewest);
  for (const tree of trees) cheapen(tree, cost, root, most);
  return trees;
}
