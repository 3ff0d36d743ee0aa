/** The network of a problem, with capacities as fractions and the latencies that its file may give. */
import { type Network, readNetwork } from "../certificate/index.ts";
import { Rational } from "./rational.ts";

/** A network whose text was checked: nodes by number. */
export interface CheckedNetwork {
  readonly ids: readonly string[];
  readonly indexOf: ReadonlyMap<string, number>;
  /** Node numbers of the ranks, in rank order. */
  readonly ranks: readonly number[];
  readonly isRank: readonly boolean[];
  readonly edges: readonly {
    readonly from: number;
    readonly to: number;
    readonly capacity: Rational;
    readonly latencyUs: number;
  }[];
}

/**
 * Checks a network that came from anywhere.
 * @throws FormatError naming the place: unknown or repeated nodes, edges from a node to itself, repeated edges,
 *   capacities that are not positive fractions, fewer than 2 ranks
 */
export function checkNetwork(value: unknown): CheckedNetwork {
  const { ids, numberOf, ranks, isRank, edges, below } = readNetwork(value);
  const given = (value as Network).edges;
  return {
    ids,
    indexOf: numberOf,
    ranks,
    isRank,
    edges: edges.map(({ from, to, capacity }, i) => ({
      from,
      to,
      capacity: new Rational(capacity, below),
      latencyUs: given[i]?.latencyUs ?? 0,
    })),
  };
}
