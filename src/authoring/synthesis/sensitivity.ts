/** Which links bind: how the optimum moves when one link, both ways, is a little narrower or wider. */
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import type { SynthesisOptions } from "./problem.ts";
import { Rational } from "./rational.ts";
import { lowerBound } from "./synthesize.ts";

export interface EdgeSensitivity {
  readonly from: string;
  readonly to: string;
  /** Time with the link at 9/10 of its capacity, over the time as it is: 1 when it does not bind. */
  readonly narrower: number;
  /** Time with the link at 11/10, over the time as it is. */
  readonly wider: number;
}

/**
 * Finds what changes the bound of a collective, the most binding links first; links that change nothing are left out.
 * @throws as `synthesize`
 * @example
 * import { networkOf, sensitivity } from "chorale/synthesis";
 * import { presetInventory } from "chorale/topology";
 * const [first] = await sensitivity(networkOf(presetInventory("mi250x-8")), "all_reduce");
 * console.log(first?.narrower); // above 1: that link binds
 */
export async function sensitivity(
  network: Network,
  collective: CertifiedCollective,
  options: SynthesisOptions = {},
): Promise<EdgeSensitivity[]> {
  const { bound: now } = await lowerBound(network, collective, options);
  const pairs = new Map<string, readonly [string, string]>();
  for (const { from, to } of network.edges) {
    const key = JSON.stringify(from < to ? [from, to] : [to, from]);
    if (!pairs.has(key)) pairs.set(key, [from, to]);
  }
  const scaled = async ([a, b]: readonly [string, string], by: Rational): Promise<number> => {
    const edges = network.edges.map((edge) =>
      (edge.from === a && edge.to === b) || (edge.from === b && edge.to === a)
        ? { ...edge, capacity: Rational.parse(edge.capacity).times(by).toString() }
        : edge,
    );
    const { bound } = await lowerBound({ ...network, edges }, collective, options);
    return bound.over(now).toNumber();
  };
  const found: EdgeSensitivity[] = [];
  for (const pair of pairs.values()) {
    const narrower = await scaled(pair, new Rational(9n, 10n));
    const wider = await scaled(pair, new Rational(11n, 10n));
    if (narrower !== 1 || wider !== 1) found.push({ from: pair[0], to: pair[1], narrower, wider });
  }
  return found.sort((a, b) => b.narrower - a.narrower || a.wider - b.wider);
}
