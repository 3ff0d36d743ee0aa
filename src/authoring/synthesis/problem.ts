/** What is asked of a synthesis, checked and in integers. */
import { InvalidArgumentError } from "../../core/index.ts";
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import { Deadline } from "./deadline.ts";
import { type CheckedNetwork, checkNetwork } from "./network.ts";
import { Rational } from "./rational.ts";
import { commonIntegerWeights } from "./round.ts";
import { LARGEST_TOTAL, type ScaledGraph, scaleNetwork, totalCapacity } from "./scaled-graph.ts";

export interface SynthesisOptions {
  /** Rank that a rooted collective starts from or ends at, by its place among the ranks; 0 by default. */
  readonly root?: number;
  /** What share of the data is each rank's, as fractions that sum to 1; equal by default. */
  readonly shares?: readonly string[];
  /** At most this many trees for each rank's share (or for the payload): coarser chunks, a little slower. */
  readonly treesPerRoot?: number;
  /** The schedule of the fewest steps instead of the one of the highest bandwidth: for small data. */
  readonly fewestSteps?: boolean;
  /** Seconds by the wall's clock after which the best schedule that was found by then is taken; none by default. */
  readonly timeLimitSeconds?: number;
}

/** Routes of a schedule: more fill the memory, and no certificate of so many could be read. */
const MOST_ROUTES = 2 ** 23;

/** Collectives whose data starts or ends at one rank: a route for each rank is enough. */
const ROOTED: ReadonlySet<CertifiedCollective> = new Set(["broadcast", "reduce", "scatter", "gather"]);

/**
 * Refuses more ranks than a schedule is found for, before anything is sought.
 * @throws InvalidArgumentError
 */
export function requireRanks(numRanks: number, collective: CertifiedCollective): void {
  const most = Math.floor(Math.sqrt(MOST_ROUTES));
  if (ROOTED.has(collective) || numRanks <= most) return;
  throw new InvalidArgumentError(
    "ranks",
    numRanks,
    `at most ${most} for ${collective}, whose schedule has a route for every two ranks: name fewer devices, or a smaller machine of the same kind`,
  );
}

export interface Problem {
  readonly net: CheckedNetwork;
  readonly graph: ScaledGraph;
  readonly collective: CertifiedCollective;
  readonly root: number;
  /** Integers in the ratio of the shares, by rank. */
  readonly weights: readonly number[];
  readonly treesPerRoot: number | undefined;
  readonly fewestSteps: boolean;
}

/** Collectives whose data belongs to ranks, which may own different parts of it. */
const SHARED: ReadonlySet<CertifiedCollective> = new Set(["all_gather", "reduce_scatter", "scatter", "gather"]);

function fractionOf(share: string): Rational {
  try {
    return Rational.parse(share);
  } catch {
    throw new InvalidArgumentError("shares", share, 'fractions of 0 or more such as "1/3" or "0.25"');
  }
}

/** Checks what was asked for. @throws as `synthesize` */
export function problemOf(network: Network, collective: CertifiedCollective, options: SynthesisOptions): Problem {
  const { root = 0, shares, treesPerRoot, fewestSteps = false, timeLimitSeconds } = options;
  const deadline = timeLimitSeconds === undefined ? undefined : new Deadline(timeLimitSeconds);
  const net = checkNetwork(network);
  const graph = scaleNetwork(net, deadline);
  const rootNode = graph.ranks[root];
  if (rootNode === undefined)
    throw new InvalidArgumentError("root", root, `a rank from 0 to ${graph.ranks.length - 1}`);
  if (treesPerRoot !== undefined && !(Number.isInteger(treesPerRoot) && treesPerRoot >= 1)) {
    throw new InvalidArgumentError("treesPerRoot", treesPerRoot, "an integer, 1 or more");
  }
  if (fewestSteps && treesPerRoot !== undefined) {
    throw new InvalidArgumentError("treesPerRoot", treesPerRoot, "nothing beside fewestSteps, which fixes the trees");
  }
  if (shares !== undefined && !SHARED.has(collective)) {
    throw new InvalidArgumentError(
      "shares",
      shares,
      `none for ${collective}: only ${[...SHARED].join(", ")} have them`,
    );
  }
  const fractions = shares?.map(fractionOf);
  if (fractions !== undefined) {
    const total = fractions.reduce((a, b) => a.plus(b), Rational.ZERO);
    if (
      fractions.length !== graph.ranks.length ||
      !total.equals(Rational.ONE) ||
      fractions.some(({ numerator }) => numerator < 0n)
    ) {
      throw new InvalidArgumentError("shares", shares, `${graph.ranks.length} fractions of 0 or more that sum to 1`);
    }
  }
  const isRooted = collective === "scatter" || collective === "gather";
  if (isRooted && fractions?.every(({ numerator }, rank) => rank === root || numerator === 0n)) {
    throw new InvalidArgumentError("shares", shares, "a share for some rank besides the root: otherwise nothing moves");
  }
  const weights = fractions === undefined ? graph.ranks.map(() => 1) : commonIntegerWeights(fractions);
  const common = weights.reduce((sum, weight) => sum + weight, 0);
  if (!(common * totalCapacity(graph) <= LARGEST_TOTAL)) {
    throw new InvalidArgumentError(
      "shares",
      shares,
      `fractions with fewer digits: their common denominator times all capacities is ${(common * totalCapacity(graph)).toExponential(1)}, of at most ${LARGEST_TOTAL.toExponential(1)}`,
    );
  }
  return { net, graph, collective, root: rootNode, weights, treesPerRoot, fewestSteps };
}

/** By rank, what it starts with in a collective whose data spreads from its owners or from the root. */
export function weightsOf({ collective, graph, root, weights }: Problem): readonly number[] {
  const rooted = collective === "broadcast" || collective === "reduce";
  return rooted ? graph.ranks.map((node) => (node === root ? 1 : 0)) : weights;
}
