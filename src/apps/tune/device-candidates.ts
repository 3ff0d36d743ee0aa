/**
 * What may serve a collective on devices: algorithms that have shown to be fast there, as kernels of several shapes, each for
 * the sizes at which a kernel like it can win. Nothing is simulated: which one does is measured.
 */
import { ALGORITHMS } from "../../authoring/algorithms/index.ts";
import type { CollectiveName } from "../../collectives/index.ts";

const [KI, MI, GI] = [2 ** 10, 2 ** 20, 2 ** 30];

/** Threads and instances of kernels, and the sizes that each can serve. More blocks pay off with more bytes. */
interface Shapes {
  readonly algorithm: string;
  /** Fewest and most ranks that it is for: from two on unless told. */
  readonly ranks?: readonly [least: number, most: number];
  readonly shapes: readonly (readonly [instances: number, shape: string, fromBytes: number, toBytes: number])[];
}

/** What two phases are for: in one step each of many ranks sends its input to all others. */
const OF_MANY = [3, Number.POSITIVE_INFINITY] as const;

/** A strand of packets sends and receives; of an all-reduce in packets there are two an instance. */
const packets = (algorithm: string): Shapes => ({
  algorithm,
  shapes: [
    [1, "256.lines", 0, 8 * KI],
    [2, "256.lines", 0, 32 * KI],
    [2, "256.words", 0, 16 * KI],
    [4, "256.lines", 0, 64 * KI],
    [8, "256.lines", 4 * KI, 256 * KI],
    [16, "256.lines", 4 * KI, 512 * KI],
    [32, "256.lines", 32 * KI, MI],
    [64, "256.lines", 64 * KI, 2 * MI],
    [64, "512.lines", 128 * KI, 16 * MI],
    [64, "512.sheets", 512 * KI, 16 * MI],
    [128, "512.lines", 512 * KI, 32 * MI],
  ],
});
const streaming = (algorithm: string): Shapes => ({
  algorithm,
  shapes: [
    [66, "512.unit32K", 2 * MI, 32 * MI],
    [66, "512.unit128K", 8 * MI, 512 * MI],
    [66, "512.unit256K", 64 * MI, 512 * MI],
    [100, "512.unit64K", 8 * MI, 256 * MI],
  ],
});
/** Where a chunk is a share of the message, so are its units; strands that add are more than those that send. */
const streamingShares = (algorithm: string, instances: number): Shapes => ({
  algorithm,
  ranks: OF_MANY,
  shapes: [
    [instances, "256.unit16K", 8 * MI, 64 * MI],
    [instances, "256.unit32K", 32 * MI, 512 * MI],
    [instances, "256.unit64K", 128 * MI, 4 * GI],
  ],
});
/** Ranks meet before and after: worth it when there is something to move. */
const direct = (algorithm: string): Shapes => ({
  algorithm,
  shapes: [
    [32, "256", 512 * KI, 8 * MI],
    [64, "256", MI, GI],
    [64, "256.u8", 4 * MI, GI],
    [132, "512", 8 * MI, 4 * GI],
    [132, "1024", 16 * MI, 4 * GI],
  ],
});

/** By copy engines, what a rank keeps by a kernel: some 20 us more than the copies take. */
const copied = (algorithm: string): Shapes => ({ algorithm, shapes: [[16, "copies.512", 16 * MI, 4 * GI]] });

const ofMany = (shapes: Shapes): Shapes => ({ ...shapes, ranks: OF_MANY });

const SHAPES: { readonly [C in CollectiveName]?: readonly Shapes[] } = {
  all_reduce: [
    packets("one-shot-packet-all-reduce"),
    direct("two-phase-all-reduce"),
    { ...streaming("streaming-all-reduce"), ranks: [2, 2] },
    ofMany(packets("two-phase-packet-all-reduce")),
    ofMany(direct("one-pass-all-reduce")),
    ofMany(direct("two-phase-push-all-reduce")),
    streamingShares("streaming-two-phase-all-reduce", 132),
    streamingShares("staged-all-reduce", 88),
  ],
  all_gather: [
    packets("packet-all-gather"),
    direct("streaming-all-gather"),
    ofMany(direct("one-pass-all-gather")),
    streaming("staged-all-gather"),
    copied("direct-all-gather"),
  ],
  reduce_scatter: [
    packets("packet-reduce-scatter"),
    direct("read-reduce-scatter"),
    ofMany(direct("one-pass-reduce-scatter")),
    streaming("streaming-reduce-scatter"),
  ],
  all_to_all: [
    packets("packet-all-to-all"),
    direct("direct-all-to-all"),
    streaming("staged-all-to-all"),
    copied("direct-all-to-all"),
  ],
  broadcast: [
    packets("packet-broadcast"),
    direct("binomial-broadcast"),
    streaming("staged-broadcast"),
    copied("direct-broadcast"),
  ],
  reduce: [packets("packet-reduce"), streaming("staged-reduce")],
  gather: [packets("packet-gather"), direct("direct-gather"), streaming("staged-gather"), copied("direct-gather")],
  scatter: [packets("packet-scatter"), direct("direct-scatter"), streaming("staged-scatter"), copied("direct-scatter")],
};

/** Labels of what is worth measuring at a size: `NAME*INSTANCES@SHAPE`. */
export function deviceCandidates(collective: CollectiveName, numRanks: number, sizeBytes: number): readonly string[] {
  return (SHAPES[collective] ?? []).flatMap(({ algorithm, shapes, ranks: [least, most] = [2, numRanks] }) => {
    const entry = ALGORITHMS.find(({ name }) => name === algorithm);
    if (entry === undefined || !entry.legal(numRanks) || numRanks < least || numRanks > most) return [];
    return shapes.flatMap(([instances, shape, from, to]) =>
      sizeBytes >= from && sizeBytes <= to ? [`${algorithm}*${instances}@${shape}`] : [],
    );
  });
}

/** Calls of a graph whose replay is timed: enough to take some hundred microseconds. */
export function graphCallsOf(sizeBytes: number): number {
  return sizeBytes <= MI ? 100 : sizeBytes <= 64 * MI ? 20 : 5;
}
