/**
 * The program of a synthesised schedule: ordinary operations of the language, to be compiled, verified, simulated, exported
 * and run. Each rank has a strand for each peer; trees and paths are cut into pieces, so that a rank passes on one while it
 * gets the next.
 */
import { InvalidArgumentError, UnsupportedError } from "../../core/index.ts";
import {
  allGather,
  allGatherV,
  allReduce,
  allToAll,
  broadcast,
  gather,
  type Program,
  type ProgramOptions,
  program,
  reduce,
  reduceScatter,
  reduceScatterV,
  scatter,
} from "../language/index.ts";
import type { PlanCollective, PlanReduceOp } from "../plan/index.ts";
import { checkNetwork } from "./network.ts";
import { pathWays, recordPaths } from "./path-program.ts";
import { numHops } from "./schedule-hops.ts";
import { amountsOf, type Context, partStarts, type StrandLayout, strandsOf } from "./schedule-layout.ts";
import type { Synthesis } from "./synthesize.ts";
import { recordTrees, treeWays } from "./tree-program.ts";

/** More pieces than make so many hops take minutes and gigabytes to compile. */
const MOST_HOPS_IN_PIECES = 2 ** 19;

/**
 * The most pieces that a schedule may be cut into: together 524,288 hops.
 * @example
 * import { mostPieces, networkOf, synthesize } from "chorale/synthesis";
 * import { presetInventory } from "chorale/topology";
 * const result = await synthesize(networkOf(presetInventory("mi300x-8")), "all_gather");
 * console.log(mostPieces(result)); // 9362
 */
export function mostPieces({ schedule }: Synthesis): number {
  return Math.max(1, Math.floor(MOST_HOPS_IN_PIECES / Math.max(1, numHops(schedule))));
}

export interface ProgramSettings {
  readonly op?: PlanReduceOp;
  /** Into how many pieces each tree's share is cut; 1 by default. More pieces hide the height of trees. */
  readonly pieces?: number;
  /** Replicas of the schedule, each on its share of every chunk: more thread blocks for wide links. 1 by default. */
  readonly instances?: number;
  /** What has a strand of its own of what leaves a rank by one link; every way (`ways`) by default. */
  readonly strands?: StrandLayout;
  /** Most strands of a rank: peers beyond share them. 64 by default. */
  readonly maxStrands?: number;
  readonly links?: ProgramOptions["links"];
}

function collectiveOf(
  result: Synthesis,
  numRanks: number,
  total: number,
  pieces: number,
  op: PlanReduceOp | undefined,
): PlanCollective {
  const root = result.options.root ?? 0;
  const reduces = op === undefined ? {} : { op };
  const parts = (total / numRanks) * pieces;
  switch (result.collective) {
    case "all_gather":
      return allGather(numRanks, { chunks: parts });
    case "reduce_scatter":
      return reduceScatter(numRanks, { chunks: parts, ...reduces });
    case "all_reduce":
      return allReduce(numRanks, { chunks: total * pieces, ...reduces });
    case "broadcast":
      return broadcast(numRanks, { chunks: total * pieces, root });
    case "reduce":
      return reduce(numRanks, { chunks: total * pieces, root, ...reduces });
    case "scatter":
      return scatter(numRanks, { chunks: parts, root });
    case "gather":
      return gather(numRanks, { chunks: parts, root });
    case "all_to_all":
      return allToAll(numRanks, { chunks: parts });
  }
}

/** All-gather and reduce-scatter of parts that differ: as many chunks as the shares say. */
function collectiveInParts(
  { collective }: Synthesis,
  starts: readonly number[],
  pieces: number,
  op: PlanReduceOp | undefined,
): PlanCollective {
  const counts = starts.slice(1).map((end, rank) => (end - (starts[rank] as number)) * pieces);
  return collective === "all_gather" ? allGatherV(counts) : reduceScatterV(counts, op === undefined ? {} : { op });
}

/**
 * Makes the program of a result, to be compiled, verified, simulated, exported and run like any other.
 * @throws UnsupportedError for unequal shares of scatter and gather, and where weights need more than 65,536 chunks;
 *   InvalidArgumentError for more pieces than make 524,288 hops
 * @example
 * import { compile } from "chorale/language";
 * import { networkOf, programOf, synthesize } from "chorale/synthesis";
 * import { presetInventory } from "chorale/topology";
 * const result = await synthesize(networkOf(presetInventory("mi250x-8")), "all_gather");
 * const plan = compile(programOf(result, { pieces: 4 }));
 * console.log(plan.ranks.length); // 8
 */
export function programOf(result: Synthesis, settings: ProgramSettings = {}): Program {
  const { shares } = result.options;
  if (shares !== undefined && result.schedule.kind === "paths") {
    throw new UnsupportedError(
      `a program for unequal shares of ${result.collective}`,
      "plans know them for all_gather and reduce_scatter; the bound and the certificate are there",
    );
  }
  const { pieces = 1, strands = "ways", maxStrands = 64, instances = 1, op, links } = settings;
  const most = mostPieces(result);
  if (!(Number.isInteger(pieces) && pieces >= 1 && pieces <= most))
    throw new InvalidArgumentError(
      "pieces",
      pieces,
      `an integer from 1 to ${most}, for a schedule of ${numHops(result.schedule)} hops`,
    );
  const net = checkNetwork(result.network);
  const numRanks = net.ranks.length;
  const numbers = new Map(net.ranks.map((node, rank) => [net.ids[node] as string, rank]));
  const { schedule, collective } = result;
  const weights = schedule.kind === "trees" ? schedule.trees : schedule.paths;
  const parts =
    schedule.kind === "trees"
      ? shares !== undefined || /all_reduce|broadcast|^reduce$/.test(collective)
        ? 1
        : numRanks
      : numRanks;
  const amounts = amountsOf(
    weights.map(({ weight }) => weight),
    parts,
  );
  const starts = partStarts(amounts, numRanks, shares);
  const rankOf = (id: string) => numbers.get(id) as number;
  const ways = schedule.kind === "trees" ? schedule.trees.map(treeWays) : pathWays(schedule.paths, rankOf);
  const loads = ways.flatMap((own, i) => own.map((way) => ({ way, part: i, amount: amounts.each[i] as number })));
  const context: Context = { rankOf, numRanks, pieces, ...strandsOf(loads, rankOf, strands, maxStrands) };
  return program(
    {
      name: `synthesised-${collective.replaceAll("_", "-")}`,
      collective:
        shares === undefined
          ? collectiveOf(result, numRanks, amounts.total, pieces, op)
          : collectiveInParts(result, starts, pieces, op),
      autoSync: "full",
      instances,
      ...(links === undefined ? {} : { links }),
    },
    (p) => {
      if (schedule.kind === "trees") recordTrees(p, result, schedule.trees, amounts, starts, context);
      else recordPaths(p, result, schedule.paths, ways, amounts, context);
    },
  );
}
