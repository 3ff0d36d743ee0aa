/**
 * What a switch that multicasts and reduces (NVLS, SHARP) would give: the one thing that the other bounds do not count on. Only
 * all-reduce gains: gathering and spreading reach their bounds without, where relays are balanced. In general such schedules
 * are a packing of Steiner trees; here is the template of one switch that all ranks hang on (`switch-all-reduce` of the library:
 * each rank has the switch reduce its part and store it to all), beside a bound that holds with whatever switches can do.
 */
import type { Network } from "../certificate/index.ts";
import { gatherBound, type Ratio, rationalOf } from "./cut-bounds.ts";
import { checkNetwork } from "./network.ts";
import { Rational } from "./rational.ts";
import { reversed, scaleNetwork } from "./scaled-graph.ts";

export interface MulticastTemplate {
  /** The relay that would have to multicast and reduce. */
  readonly switch: string;
  /** Seconds for 1 GB that no all-reduce is faster than, whatever the relays do: every cut passes all data once each way. */
  readonly bound: Rational;
  /** Of the template. */
  readonly time: Rational;
}

/**
 * Finds the fastest switch template of an all-reduce.
 * @param isSwitch whether a relay may be such a switch; all may by default
 * @returns undefined where no relay is joined to all ranks, both ways
 * @example
 * import { multicastTemplate, networkOf } from "chorale/synthesis";
 * import { presetInventory } from "chorale/topology";
 * const template = multicastTemplate(networkOf(presetInventory("hgx-h100-8")));
 * console.log(template?.switch, `${template?.time.over(template.bound)}`); // nvswitch0 9/8
 */
export function multicastTemplate(
  network: Network,
  isSwitch: (id: string) => boolean = () => true,
): MulticastTemplate | undefined {
  const graph = scaleNetwork(checkNetwork(network));
  const capacityOf = new Map(graph.edges.map(({ from, to, capacity }) => [from * graph.numNodes + to, capacity]));
  let widest: { node: number; capacity: number } | undefined;
  for (const [node, id] of graph.ids.entries()) {
    if (graph.isRank[node] || !isSwitch(id)) continue;
    let capacity = Number.POSITIVE_INFINITY;
    for (const rank of graph.ranks) {
      const up = capacityOf.get(rank * graph.numNodes + node) ?? 0;
      capacity = Math.min(capacity, up, capacityOf.get(node * graph.numNodes + rank) ?? 0);
    }
    if (capacity > (widest?.capacity ?? 0)) widest = { node, capacity };
  }
  if (widest === undefined) return undefined;
  const fromFirst = graph.ranks.map((_, rank) => (rank === 0 ? 1 : 0));
  const [out, back]: readonly Ratio[] = [gatherBound(graph, fromFirst), gatherBound(reversed(graph), fromFirst)];
  const [a, b] = [rationalOf(out as Ratio), rationalOf(back as Ratio)];
  const n = BigInt(graph.ranks.length);
  // All parts go up from every rank and down to their owners; the owners send theirs up, and all go down.
  const time = new Rational(n + 1n, n * BigInt(widest.capacity)).over(graph.unit);
  return { switch: graph.ids[widest.node] as string, bound: (a.compare(b) > 0 ? a : b).over(graph.unit), time };
}
