/** The cheapest spanning tree away from a root, where each pair of ranks has a cost (Chu, Liu 1965; Edmonds 1967). */

/**
 * Finds it by contracting cycles of cheapest edges, in n^2 operations a round.
 * @param cost n x n, from row to column; infinite where there is no way
 * @returns the parent of each node; -1 for the root
 */
export function cheapestTree(n: number, cost: Float64Array, root: number): Int32Array {
  const parent = new Int32Array(n).fill(-1);
  const least = new Float64Array(n).fill(Number.POSITIVE_INFINITY);
  for (let from = 0; from < n; from++) {
    for (let to = 0; to < n; to++) {
      const value = cost[from * n + to] as number;
      if (to === from || to === root || !(value < (least[to] as number))) continue;
      least[to] = value;
      parent[to] = from;
    }
  }
  const { group, numGroups, onCycle } = cyclesOf(parent);
  if (numGroups === n) return parent;
  // Each cycle becomes one node; whoever enters it replaces the cycle's own edge there.
  const smaller = new Float64Array(numGroups * numGroups).fill(Number.POSITIVE_INFINITY);
  const chosen = new Int32Array(numGroups * numGroups);
  for (let from = 0; from < n; from++) {
    const row = (group[from] as number) * numGroups;
    for (let to = 0; to < n; to++) {
      const at = row + (group[to] as number);
      if (group[from] === group[to] || to === root) continue;
      const value = (cost[from * n + to] as number) - (onCycle[to] === 1 ? (least[to] as number) : 0);
      if (!(value < (smaller[at] as number))) continue;
      smaller[at] = value;
      chosen[at] = from * n + to;
    }
  }
  const above = cheapestTree(numGroups, smaller, group[root] as number);
  for (const [to, from] of above.entries()) {
    if (from === -1) continue;
    const edge = chosen[from * numGroups + to] as number;
    parent[edge % n] = Math.floor(edge / n);
  }
  return parent;
}

/** Numbers the nodes anew: those of a cycle of parents get one number together. */
function cyclesOf(parent: Int32Array): { group: Int32Array; numGroups: number; onCycle: Uint8Array } {
  const n = parent.length;
  const group = new Int32Array(n).fill(-1);
  const onCycle = new Uint8Array(n);
  const visit = new Int32Array(n).fill(-1);
  let numGroups = 0;
  for (let start = 0; start < n; start++) {
    let at = start;
    for (; at !== -1 && visit[at] === -1; at = parent[at] as number) visit[at] = start;
    if (at === -1 || visit[at] !== start || onCycle[at] === 1) continue;
    for (let node = at; onCycle[node] === 0; node = parent[node] as number) {
      onCycle[node] = 1;
      group[node] = numGroups;
    }
    numGroups++;
  }
  for (let node = 0; node < n; node++) if (group[node] === -1) group[node] = numGroups++;
  return { group, numGroups, onCycle };
}

/** How many edges each node is away from the root; nodes in the order of that. */
export function depthsOf(parent: Int32Array, root: number): { depth: Int32Array; order: number[] } {
  const children = new Map<number, number[]>();
  for (const [node, above] of parent.entries()) {
    if (above === -1) continue;
    const known = children.get(above);
    if (known === undefined) children.set(above, [node]);
    else known.push(node);
  }
  const depth = new Int32Array(parent.length);
  const order = [root];
  for (const node of order) {
    for (const child of children.get(node) ?? []) {
      depth[child] = (depth[node] as number) + 1;
      order.push(child);
    }
  }
  return { depth, order };
}

/**
 * Hangs nodes nearer to the root where that costs no more than a part `slack` of their edge, until nothing changes. In
 * place; the tree stays a tree, for a node's new parent is never below it.
 */
export function flattenTree(parent: Int32Array, cost: Float64Array, root: number, slack: number): void {
  const n = parent.length;
  for (let round = 0; round < n; round++) {
    const { depth, order } = depthsOf(parent, root);
    let changed = false;
    for (const node of order) {
      if (node === root) continue;
      // Depths only fall in a pass, and those of nodes below are too large by then: a parent is strictly nearer.
      let best = parent[node] as number;
      const most = (cost[best * n + node] as number) + slack;
      for (const other of order) {
        if ((depth[other] as number) >= (depth[best] as number)) break;
        if ((cost[other * n + node] as number) > most) continue;
        best = other;
        break;
      }
      if (best === parent[node]) continue;
      parent[node] = best;
      changed = true;
    }
    if (!changed) return;
  }
}
