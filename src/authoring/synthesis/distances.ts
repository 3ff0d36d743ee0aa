/** Shortest distances by Dijkstra's algorithm over exact integer lengths. */
import type { CheckedNetwork } from "./network.ts";

const outgoing = new WeakMap<CheckedNetwork, readonly (readonly number[])[]>();

function edgesFrom(net: CheckedNetwork): readonly (readonly number[])[] {
  let known = outgoing.get(net);
  if (known === undefined) {
    const lists: number[][] = net.ids.map(() => []);
    for (const [i, { from }] of net.edges.entries()) lists[from]?.push(i);
    known = lists;
    outgoing.set(net, known);
  }
  return known;
}

/**
 * The length of the shortest way from a node to each node; undefined where there is none.
 * @param lengths of each edge, 0 or more
 */
export function distances(
  net: CheckedNetwork,
  lengths: readonly bigint[],
  source: number,
): readonly (bigint | undefined)[] {
  const edges = edgesFrom(net);
  const reached: (bigint | undefined)[] = net.ids.map(() => undefined);
  reached[source] = 0n;
  const open = new Set([source]);
  while (open.size > 0) {
    let nearest = -1;
    for (const node of open) {
      if (nearest < 0 || (reached[node] as bigint) < (reached[nearest] as bigint)) nearest = node;
    }
    open.delete(nearest);
    for (const edge of edges[nearest] ?? []) {
      const { to } = net.edges[edge] as { to: number };
      const length = (reached[nearest] as bigint) + (lengths[edge] as bigint);
      const before = reached[to];
      if (before === undefined || length < before) {
        reached[to] = length;
        open.add(to);
      }
    }
  }
  return reached;
}
