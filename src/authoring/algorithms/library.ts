/**
 * The library as a table: what each algorithm computes, for how many ranks it is defined, whether it can work in place.
 * The tuner, the bench and the tests walk it. Those that take more than `AlgorithmArgs` get sensible values.
 */

import type { CollectiveName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import type { Program } from "../language/index.ts";
import type { AlgorithmArgs, RootedArgs } from "./algorithm-args.ts";
import * as pairs from "./all-pairs.ts";
import * as bruck from "./bruck.ts";
import * as hierarchical from "./hierarchical.ts";
import * as mesh from "./mesh.ts";
import * as onePass from "./one-pass.ts";
import * as point from "./point-to-point.ts";
import * as recursive from "./recursive.ts";
import * as ring from "./ring.ts";
import * as staged from "./staged.ts";
import * as streaming from "./streaming.ts";
import * as multicast from "./switch-multicast.ts";
import * as tree from "./tree.ts";

export interface AlgorithmEntry {
  readonly name: string;
  readonly collective: CollectiveName | "send_recv";
  readonly make: (
    args: RootedArgs & {
      readonly ranksPerNode?: number;
      readonly chunks?: number;
      readonly unitBytes?: number;
      /** Of all-to-all-v, by rank and peer; some that differ by default. */
      readonly sendCounts?: readonly (readonly number[])[];
      /** Of send-recv, by rank; the next rank by default. */
      readonly sendTo?: readonly (number | null)[];
    },
  ) => Program;
  /** Counts of ranks that it is defined for. */
  readonly legal: (numRanks: number) => boolean;
  /** May run with `inPlace`. */
  readonly inPlace: boolean;
  /** Moves packets (small messages). */
  readonly packets: boolean;
  /** Needs a switch that reduces. */
  readonly needsSwitch: boolean;
  /** A pipeline: `chunks` says into how many its buffer is cut. */
  readonly takesChunks: boolean;
  /** One piece is best for small messages, several for large ones, whose steps then overlap: `chunks` is 1 by default. */
  readonly overlaps: boolean;
  /** Has a level within nodes and one between them: `ranksPerNode` says how large a node is. */
  readonly hasLevels: boolean;
  /** The same steps with all links of a full mesh busy at once: a strand for each peer, or edge-disjoint rings. */
  readonly meshForm?: string;
}

const twoOrMore = (n: number) => n >= 2;
const powers = (n: number) => n >= 2 && (n & (n - 1)) === 0;
const nodes = (n: number) => n >= 4 && n % 2 === 0;

type Make = AlgorithmEntry["make"];
const entry = (
  name: string,
  collective: AlgorithmEntry["collective"],
  make: Make,
  more: Partial<Omit<AlgorithmEntry, "name" | "collective" | "make">> = {},
): AlgorithmEntry => ({
  name,
  collective,
  make,
  legal: twoOrMore,
  inPlace: true,
  packets: false,
  needsSwitch: false,
  takesChunks: false,
  overlaps: false,
  hasLevels: false,
  ...more,
});

/** Algorithms of two levels, which pieces go through one after the other. */
const levels = { legal: nodes, takesChunks: true, overlaps: true, hasLevels: true };

function requireForEachRank(name: string, list: unknown, numRanks: number): void {
  if (!Array.isArray(list) || list.length !== numRanks)
    throw new InvalidArgumentError(name, list, `a list of ${numRanks}, one for each rank`);
}

/** Two nodes by default. */
const grouped =
  (make: (args: AlgorithmArgs & { readonly ranksPerNode: number; readonly chunks?: number }) => Program): Make =>
  (args) =>
    make({ ...args, ranksPerNode: args.ranksPerNode ?? args.numRanks / 2 });

export const ALGORITHMS: readonly AlgorithmEntry[] = [
  entry("one-shot-all-reduce", "all_reduce", pairs.oneShotAllReduce),
  entry("one-shot-read-all-reduce", "all_reduce", pairs.oneShotReadAllReduce, { inPlace: false }),
  entry("one-shot-packet-all-reduce", "all_reduce", pairs.oneShotPacketAllReduce, { packets: true }),
  entry("two-shot-all-reduce", "all_reduce", pairs.twoShotAllReduce, { meshForm: "mesh-all-reduce" }),
  entry("two-shot-packet-all-reduce", "all_reduce", pairs.twoShotPacketAllReduce, { packets: true }),
  entry("two-shot-read-all-reduce", "all_reduce", pairs.twoShotReadAllReduce),
  entry("two-shot-fused-read-all-reduce", "all_reduce", pairs.twoShotFusedReadAllReduce),
  entry("one-pass-all-reduce", "all_reduce", onePass.onePassAllReduce),
  entry("two-phase-all-reduce", "all_reduce", streaming.twoPhaseAllReduce),
  entry("two-phase-read-all-reduce", "all_reduce", streaming.twoPhaseReadAllReduce),
  entry("two-phase-push-all-reduce", "all_reduce", streaming.twoPhasePushAllReduce),
  entry("two-phase-packet-all-reduce", "all_reduce", streaming.twoPhasePacketAllReduce, { packets: true }),
  entry("streaming-all-reduce", "all_reduce", streaming.streamingAllReduce, { inPlace: false }),
  entry("streaming-two-phase-all-reduce", "all_reduce", streaming.streamingTwoPhaseAllReduce),
  entry("staged-all-reduce", "all_reduce", streaming.stagedAllReduce),
  entry("ring-all-reduce", "all_reduce", ring.ringAllReduce, { meshForm: "multi-ring-all-reduce" }),
  entry("bidirectional-ring-all-reduce", "all_reduce", ring.bidirectionalRingAllReduce),
  entry("multi-ring-all-reduce", "all_reduce", mesh.multiRingAllReduce),
  entry("mesh-all-reduce", "all_reduce", mesh.meshAllReduce),
  entry("recursive-doubling-all-reduce", "all_reduce", recursive.recursiveDoublingAllReduce),
  entry("halving-doubling-all-reduce", "all_reduce", recursive.halvingDoublingAllReduce),
  entry("double-binary-tree-all-reduce", "all_reduce", tree.doubleBinaryTreeAllReduce, { takesChunks: true }),
  entry("binomial-all-reduce", "all_reduce", tree.binomialAllReduce),
  entry("hierarchical-all-reduce", "all_reduce", grouped(hierarchical.hierarchicalAllReduce), levels),
  entry("switch-all-reduce", "all_reduce", multicast.switchAllReduce, {
    needsSwitch: true,
    takesChunks: true,
    overlaps: true,
  }),
  entry("direct-all-gather", "all_gather", pairs.directAllGather),
  entry("one-pass-all-gather", "all_gather", onePass.onePassAllGather),
  entry("streaming-all-gather", "all_gather", streaming.streamingAllGather),
  entry("packet-all-gather", "all_gather", pairs.packetAllGather, { packets: true }),
  entry("staged-all-gather", "all_gather", staged.stagedAllGather),
  entry("ring-all-gather", "all_gather", ring.ringAllGather),
  entry("bruck-all-gather", "all_gather", bruck.bruckAllGather),
  entry("recursive-doubling-all-gather", "all_gather", recursive.recursiveDoublingAllGather, { legal: powers }),
  entry("hierarchical-all-gather", "all_gather", grouped(hierarchical.hierarchicalAllGather), levels),
  entry("switch-all-gather", "all_gather", multicast.switchAllGather, { needsSwitch: true }),
  entry("direct-reduce-scatter", "reduce_scatter", pairs.directReduceScatter, { meshForm: "mesh-reduce-scatter" }),
  entry("one-pass-reduce-scatter", "reduce_scatter", onePass.onePassReduceScatter),
  entry("mesh-reduce-scatter", "reduce_scatter", mesh.meshReduceScatter),
  entry("packet-reduce-scatter", "reduce_scatter", pairs.packetReduceScatter, { packets: true }),
  entry("read-reduce-scatter", "reduce_scatter", streaming.readReduceScatter),
  entry("streaming-reduce-scatter", "reduce_scatter", streaming.streamingReduceScatter, { inPlace: false }),
  entry("streaming-packet-reduce-scatter", "reduce_scatter", streaming.streamingPacketReduceScatter, {
    inPlace: false,
    packets: true,
  }),
  entry("ring-reduce-scatter", "reduce_scatter", ring.ringReduceScatter),
  entry("halving-reduce-scatter", "reduce_scatter", recursive.halvingReduceScatter, { legal: powers }),
  entry("hierarchical-reduce-scatter", "reduce_scatter", grouped(hierarchical.hierarchicalReduceScatter), levels),
  entry("direct-broadcast", "broadcast", tree.directBroadcast),
  entry("one-pass-broadcast", "broadcast", onePass.onePassBroadcast),
  entry("binomial-broadcast", "broadcast", tree.binomialBroadcast),
  entry("chain-broadcast", "broadcast", tree.chainBroadcast, { takesChunks: true }),
  entry("scatter-all-gather-broadcast", "broadcast", tree.scatterAllGatherBroadcast),
  entry("packet-broadcast", "broadcast", staged.packetBroadcast, { packets: true }),
  entry("staged-broadcast", "broadcast", staged.stagedBroadcast),
  entry("binomial-reduce", "reduce", tree.binomialReduce),
  entry("chain-reduce", "reduce", tree.chainReduce, { takesChunks: true }),
  entry("scatter-gather-reduce", "reduce", tree.scatterGatherReduce),
  entry("one-pass-reduce", "reduce", onePass.onePassReduce),
  entry("packet-reduce", "reduce", staged.packetReduce, { packets: true }),
  entry("staged-reduce", "reduce", staged.stagedReduce),
  entry("direct-all-to-all", "all_to_all", pairs.directAllToAll, { inPlace: false }),
  entry("one-pass-all-to-all", "all_to_all", onePass.onePassAllToAll, { inPlace: false }),
  entry("pairwise-all-to-all", "all_to_all", point.pairwiseAllToAll, { inPlace: false }),
  entry("bruck-all-to-all", "all_to_all", bruck.bruckAllToAll, { inPlace: false }),
  entry("packet-all-to-all", "all_to_all", staged.packetAllToAll, { inPlace: false, packets: true }),
  entry("staged-all-to-all", "all_to_all", staged.stagedAllToAll, { inPlace: false }),
  entry("hierarchical-all-to-all", "all_to_all", grouped(hierarchical.hierarchicalAllToAll), {
    inPlace: false,
    legal: nodes,
    hasLevels: true,
  }),
  entry(
    "direct-all-to-all-v",
    "all_to_all_v",
    (args) => {
      const counts = Array.from({ length: args.numRanks }, (_, i) =>
        Array.from({ length: args.numRanks }, (_, j) => (i + 2 * j) % 3),
      );
      const { sendCounts = counts } = args;
      requireForEachRank("sendCounts", sendCounts, args.numRanks);
      for (const row of sendCounts) requireForEachRank("sendCounts", row, args.numRanks);
      return pairs.directAllToAllV({ ...args, sendCounts });
    },
    { inPlace: false },
  ),
  entry("direct-gather", "gather", tree.directGather),
  entry("binomial-gather", "gather", tree.binomialGather),
  entry("packet-gather", "gather", staged.packetGather, { packets: true }),
  entry("staged-gather", "gather", staged.stagedGather),
  entry("direct-scatter", "scatter", tree.directScatter),
  entry("one-pass-scatter", "scatter", onePass.onePassScatter),
  entry("binomial-scatter", "scatter", tree.binomialScatter),
  entry("packet-scatter", "scatter", staged.packetScatter, { packets: true }),
  entry("staged-scatter", "scatter", staged.stagedScatter),
  entry("dissemination-barrier", "barrier", point.disseminationBarrier, { inPlace: false }),
  entry(
    "direct-send-recv",
    "send_recv",
    (args) => {
      const { sendTo = Array.from({ length: args.numRanks }, (_, r) => (r + 1) % args.numRanks) } = args;
      requireForEachRank("sendTo", sendTo, args.numRanks);
      return point.directSendRecv({ ...args, sendTo });
    },
    { inPlace: false },
  ),
];

/**
 * Finds an algorithm of the library.
 * @throws InvalidArgumentError naming them
 * @example
 * algorithm("ring-all-reduce").collective // "all_reduce"
 */
export function algorithm(name: string): AlgorithmEntry {
  const found = ALGORITHMS.find((a) => a.name === name);
  if (found === undefined) throw new InvalidArgumentError("algorithm", name, ALGORITHMS.map((a) => a.name).join(", "));
  return found;
}
