/**
 * The cheapest spanning tree away from a root, where each pair of ranks has a cost (Chu, Liu 1965; Edmonds 1967): a path of
 * cheapest edges grows backwards, and each cycle that it closes becomes one node, in place (Gabow, Galil, Spencer, Tarjan
 * 1986). n^2 operations and one copy of the costs.
 */

/** Nodes that were contracted: numbers from n on stand for cycles. */
interface Contraction {
  /** The cycle that a node or cycle is part of; -1 for none. */
  readonly within: Int32Array;
  /** The edge by which each node or cycle is entered. */
  readonly from: Int32Array;
  readonly to: Int32Array;
  readonly count: number;
}

/**
 * @param cost n x n, from row to column; infinite where there is no way
 * @returns the parent of each node; -1 for the root
 */
export function cheapestTree(n: number, cost: Float64Array, root: number): Int32Array {
  const { within, from, to, count } = contracted(n, cost, root);
  // From the outermost cycle in: whoever is entered in the place of a cycle gives up its own edge on it.
  for (let cycle = count - 1; cycle >= n; cycle--) {
    let part = to[cycle] as number;
    while (within[part] !== cycle) part = within[part] as number;
    from[part] = from[cycle] as number;
    to[part] = to[cycle] as number;
  }
  return from.slice(0, n);
}

function contracted(n: number, cost: Float64Array, root: number): Contraction {
  const within = new Int32Array(2 * n).fill(-1);
  const from = new Int32Array(2 * n).fill(-1);
  const to = Int32Array.from({ length: 2 * n }, (_, node) => node);
  const paid = new Float64Array(2 * n);
  /** By node: the outermost cycle around it. By node or cycle: its row among `into`. */
  const around = Int32Array.from({ length: n }, (_, node) => node);
  const rowOf = Int32Array.from({ length: 2 * n }, (_, node) => node);
  /** Rows by target, columns by source: the cost of the cheapest edge, less what its cycles paid; and where it leads. */
  const into = new Float64Array(n * n);
  const target = new Int32Array(n * n);
  for (let a = 0; a < n; a++) {
    for (let b = 0; b < n; b++) {
      into[b * n + a] = cost[a * n + b] as number;
      target[b * n + a] = b;
    }
  }
  const isReached = new Uint8Array(2 * n);
  isReached[root] = 1;
  let count = n;

  /** Chooses the cheapest edge into a node or cycle. @returns where it comes from; -1 when there is none */
  const enter = (part: number): number => {
    const row = (rowOf[part] as number) * n;
    let best = -1;
    let least = Number.POSITIVE_INFINITY;
    for (let source = 0; source < n; source++) {
      const value = into[row + source] as number;
      if (!(value < least) || around[source] === part) continue;
      least = value;
      best = source;
    }
    if (best === -1) return -1;
    from[part] = best;
    to[part] = target[row + best] as number;
    paid[part] = least;
    return around[best] as number;
  };

  /** Makes one of the parts of a cycle. The first one's row becomes the cycle's. */
  const contract = (parts: readonly number[]): number => {
    const cycle = count++;
    const row = rowOf[parts[0] as number] as number;
    rowOf[cycle] = row;
    for (const part of parts) {
      within[part] = cycle;
      const other = rowOf[part] as number;
      for (let source = 0; source < n; source++) {
        const value = (into[other * n + source] as number) - (paid[part] as number);
        if (other !== row && !(value < (into[row * n + source] as number))) continue;
        into[row * n + source] = value;
        target[row * n + source] = target[other * n + source] as number;
      }
    }
    const members = new Set(parts);
    for (let node = 0; node < n; node++) if (members.has(around[node] as number)) around[node] = cycle;
    return cycle;
  };

  for (let start = 0; start < n; start++) {
    const path: number[] = [];
    const isOnPath = new Set<number>();
    for (let at = around[start] as number; at !== -1 && isReached[at] === 0; ) {
      path.push(at);
      isOnPath.add(at);
      const next = enter(at);
      if (next === -1 || !isOnPath.has(next)) {
        at = next;
        continue;
      }
      const parts = path.splice(path.indexOf(next));
      for (const part of parts) isOnPath.delete(part);
      at = contract(parts);
    }
    for (const part of path) isReached[part] = 1;
  }
  return { within, from, to, count };
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
