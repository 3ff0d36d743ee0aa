/** What latency alone proves: data has to come from the farthest rank that it comes from. */
import { type CertifiedCollective, checkNetwork, type Network } from "../certificate/index.ts";

/**
 * The longest of the shortest ways that data of a collective takes, us. No schedule is faster, at any size.
 * @throws FormatError for an invalid network
 */
export function latencyBoundUs(network: Network, collective: CertifiedCollective, root = 0): number {
  const net = checkNetwork(network);
  const gathers = collective === "reduce" || collective === "gather";
  const rooted = gathers || collective === "broadcast" || collective === "scatter";
  const outgoing: { to: number; us: number }[][] = net.ids.map(() => []);
  for (const { from, to, latencyUs } of net.edges) {
    if (gathers) outgoing[to]?.push({ to: from, us: latencyUs });
    else outgoing[from]?.push({ to, us: latencyUs });
  }
  let longest = 0;
  for (const source of rooted ? [net.ranks[root] as number] : net.ranks) {
    const reached = new Float64Array(net.ids.length).fill(Number.POSITIVE_INFINITY);
    reached[source] = 0;
    const open = new Set([source]);
    while (open.size > 0) {
      let nearest = -1;
      for (const node of open)
        if (nearest < 0 || (reached[node] as number) < (reached[nearest] as number)) nearest = node;
      open.delete(nearest);
      for (const { to, us } of outgoing[nearest] as { to: number; us: number }[]) {
        const distance = (reached[nearest] as number) + us;
        if (distance >= (reached[to] as number)) continue;
        reached[to] = distance;
        open.add(to);
      }
    }
    for (const rank of net.ranks) longest = Math.max(longest, reached[rank] as number);
  }
  return longest;
}
