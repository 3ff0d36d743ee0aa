/** Which links bind: how the optimum moves when one link, both ways, is a little narrower or wider. */
import { checkNetwork, type Network, Rational } from "../certificate/index.ts";
import { gatherBound } from "./cut-bounds.ts";
import { scaleNetwork } from "./scaled-graph.ts";

export interface EdgeSensitivity {
  readonly from: string;
  readonly to: string;
  /** Time with the link at 9/10 of its capacity, over the time as it is: 1 when it does not bind. */
  readonly narrower: number;
  /** Time with the link at 11/10, over the time as it is. */
  readonly wider: number;
}

function gatherTime(network: Network): Rational {
  const graph = scaleNetwork(checkNetwork(network));
  const { above, below } = gatherBound(graph);
  return new Rational(BigInt(above), BigInt(below)).over(graph.unit);
}

/**
 * Finds what changes the optimum of an all-gather (and, on symmetric networks, of a reduce-scatter), the most binding
 * links first; links that change nothing are left out.
 */
export function sensitivity(network: Network): EdgeSensitivity[] {
  const now = gatherTime(network);
  const pairs = new Map<string, readonly [string, string]>();
  for (const { from, to } of network.edges) {
    const key = JSON.stringify(from < to ? [from, to] : [to, from]);
    if (!pairs.has(key)) pairs.set(key, [from, to]);
  }
  const scaled = ([a, b]: readonly [string, string], by: Rational): number => {
    const edges = network.edges.map((edge) =>
      (edge.from === a && edge.to === b) || (edge.from === b && edge.to === a)
        ? { ...edge, capacity: Rational.parse(edge.capacity).times(by).toString() }
        : edge,
    );
    return gatherTime({ ...network, edges })
      .over(now)
      .toNumber();
  };
  return [...pairs.values()]
    .map((pair) => ({
      from: pair[0],
      to: pair[1],
      narrower: scaled(pair, new Rational(9n, 10n)),
      wider: scaled(pair, new Rational(11n, 10n)),
    }))
    .filter(({ narrower, wider }) => narrower !== 1 || wider !== 1)
    .sort((a, b) => b.narrower - a.narrower || a.wider - b.wider);
}
