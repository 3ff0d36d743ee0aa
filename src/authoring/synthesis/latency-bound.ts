/** What latency alone proves: data has to come from the farthest rank that it comes from. */
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import type { SimulatedMachine } from "../simulator/index.ts";
import { checkNetwork } from "./network.ts";

const GATHERS: ReadonlySet<CertifiedCollective> = new Set(["reduce", "gather"]);
const ROOTED: ReadonlySet<CertifiedCollective> = new Set(["broadcast", "scatter", "reduce", "gather"]);

/**
 * The same with the latencies that a simulator counts between its ranks, which are the system's and not the links' own.
 * Ranks may pass data on.
 */
export function simulatedLatencyUs(machine: SimulatedMachine, collective: CertifiedCollective, root = 0): number {
  const numRanks = machine.devices.length;
  const us = Array.from({ length: numRanks }, (_, from) =>
    Float64Array.from({ length: numRanks }, (_, to) => (from === to ? 0 : machine.route(from, to).latencyUs)),
  );
  for (let by = 0; by < numRanks; by++) {
    for (const row of us) {
      for (let to = 0; to < numRanks; to++) row[to] = Math.min(row[to]!, row[by]! + us[by]![to]!);
    }
  }
  const ways = us.flatMap((row, from) =>
    [...row].filter((_, to) => !ROOTED.has(collective) || (GATHERS.has(collective) ? to : from) === root),
  );
  return ways.reduce((most, way) => Math.max(most, way), 0);
}

/**
 * The longest of the shortest ways that data of a collective takes, us. No schedule is faster, at any size.
 * @throws FormatError for an invalid network
 */
export function latencyBoundUs(network: Network, collective: CertifiedCollective, root = 0): number {
  const net = checkNetwork(network);
  const gathers = GATHERS.has(collective);
  const rooted = ROOTED.has(collective);
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
