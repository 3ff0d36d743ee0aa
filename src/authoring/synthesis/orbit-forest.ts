/**
 * Forests of low trees, and forests of large networks: column generation by symmetry (orbit-program.ts), then exact integers
 * (exact-mix.ts). Each tree of the result is the image of a tree of one root of each orbit.
 */
import type { Ratio } from "./cut-bounds.ts";
import { MixSearch, roundedMix } from "./exact-mix.ts";
import { type Forest, heightOf, type RoutedTree } from "./forest.ts";
import { type OrbitMode, OrbitProgram } from "./orbit-program.ts";
import type { ScaledGraph } from "./scaled-graph.ts";
import { noSymmetry, symmetryOf } from "./symmetry.ts";

/** Up to so many ranks, trees of a single root are sought with a constraint for each edge. */
const MOST_APART = 8;
/** Up to so many ranks lower trees are sought: each round of it takes the third power of their number. */
const MOST_LOWERED = 128;
/** Finer units than this leave less to pack, of trees that are no lower. */
const UNITS_WITH_REST = [1, 2];

export interface OrbitForestOptions {
  readonly mode?: OrbitMode;
  /** At most so many trees for each unit of weight; the forest may then take longer than the bound. */
  readonly trees?: number;
  /** Lower trees than those that reach the bound are sought down to this height. */
  readonly least?: number;
  /** An exact forest or none: the amounts of all trees together, in units of one, are at most this. Each becomes a chunk. */
  readonly mostParts?: number;
  /** How long trees that reach the bound are sought. */
  readonly seconds?: number;
}

export interface OrbitForest extends Forest {
  /** It takes no longer than the bound that was asked for. */
  readonly isExact: boolean;
}

/**
 * The forest that takes exactly `bound` for a unit of weight, mapped from trees of one root of each orbit. Where weights of
 * few digits do not reach it, the forest takes a little longer.
 * @returns undefined when the trees that were tried do not come near the bound
 */
export async function orbitForest(
  graph: ScaledGraph,
  weights: readonly number[],
  bound: Ratio,
  options: OrbitForestOptions = {},
): Promise<OrbitForest | undefined> {
  const {
    mode = "spread",
    trees: most = Number.POSITIVE_INFINITY,
    least = Number.POSITIVE_INFINITY,
    mostParts = Number.POSITIVE_INFINITY,
    seconds,
  } = options;
  // Trees of a single root need no images: the symmetries that keep it would only multiply them.
  const isRooted = mode === "spread" && weights.filter((weight) => weight > 0).length === 1;
  const symmetry =
    isRooted && graph.ranks.length <= MOST_APART ? noSymmetry(graph, weights) : symmetryOf(graph, weights);
  const program = new OrbitProgram(graph, symmetry, weights, mode);
  const reached = await program.generate(bound.above / bound.below, undefined, seconds);
  if (reached === undefined) return undefined;
  const isReached = reached <= (bound.above / bound.below) * (1 + 1e-9);
  const search = new MixSearch(program, bound, mostParts);
  const first = isReached ? await search.exact() : undefined;
  const isSmall = graph.ranks.length <= MOST_LOWERED;
  const exact = first !== undefined && isSmall ? await search.lowered(first, least) : first;
  if (exact !== undefined && program.treesOf(exact) <= most) return forestOf(program.images(exact), true);
  if (Number.isFinite(mostParts)) {
    if (!isReached || mode !== "spread") return undefined;
    let best: OrbitForest | undefined;
    for (const multiple of UNITS_WITH_REST) {
      const trees = await search.withPackedRest(multiple);
      const forest = trees === undefined ? undefined : forestOf(trees, true);
      if (forest !== undefined && (best === undefined || forest.height < best.height)) best = forest;
    }
    return best;
  }
  const rounded = await roundedMix(program, reached, most);
  return rounded === undefined ? undefined : forestOf(program.images(rounded), false);
}

function forestOf(trees: readonly RoutedTree[], isExact: boolean): OrbitForest {
  const total = trees.reduce((sum, { amount }) => sum + amount, 0);
  return { trees, total, height: trees.reduce((most, tree) => Math.max(most, heightOf(tree)), 0), isExact };
}
