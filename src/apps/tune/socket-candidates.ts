/**
 * What may serve a collective over sockets: the backend's own ways, and plans of the library that send few messages or move few bytes,
 * each for the sizes at which it can win. Nothing is simulated: which one does is measured.
 */
import { ALGORITHMS } from "../../authoring/algorithms/index.ts";
import type { CollectiveName } from "../../collectives/index.ts";
import { parseSize } from "../../core/index.ts";

const [KI, MI, ANY] = [2 ** 10, 2 ** 20, Number.POSITIVE_INFINITY];

/** Labels of plans, and the sizes that each can serve. */
const PLANS: { readonly [C in CollectiveName]?: readonly (readonly [label: string, from: number, to: number])[] } = {
  all_reduce: [
    ["recursive-doubling-all-reduce", 0, 64 * KI],
    ["halving-doubling-all-reduce", 4 * KI, ANY],
    ["ring-all-reduce", 64 * KI, ANY],
    ["ring-all-reduce*2", MI, ANY],
  ],
  all_gather: [
    ["bruck-all-gather", 0, 64 * KI],
    ["recursive-doubling-all-gather", 0, MI],
    ["ring-all-gather", 64 * KI, ANY],
  ],
  reduce_scatter: [
    ["halving-reduce-scatter", 0, MI],
    ["ring-reduce-scatter", 64 * KI, ANY],
  ],
  broadcast: [
    ["binomial-broadcast", 0, 256 * KI],
    ["scatter-all-gather-broadcast", 64 * KI, ANY],
    ["chain-broadcast/16", 256 * KI, ANY],
  ],
  reduce: [
    ["binomial-reduce", 0, 256 * KI],
    ["chain-reduce/16", 256 * KI, ANY],
  ],
  all_to_all: [
    ["bruck-all-to-all", 0, 16 * KI],
    ["pairwise-all-to-all", 4 * KI, ANY],
  ],
  gather: [["binomial-gather", 0, 64 * KI]],
  scatter: [["binomial-scatter", 0, 64 * KI]],
};

/** Schedules of few messages are not tried above this size, nor those of few bytes below the other. */
const FEW_MESSAGES_TO = 256 * KI;
const FEW_BYTES_FROM = 4 * KI;
const FEW_MESSAGES = ["bruck", "binomial", "linear"];

/** Whether one of the backend's own ways can win at a size. @param partBytes of one rank */
function isTried(way: string, sizeBytes: number, partBytes: number): boolean {
  const [name = "", unit] = way.split("@unit");
  // Pieces that are larger than half of what is cut are all of it.
  const cut = name === "hierarchical" ? sizeBytes : partBytes;
  if (unit !== undefined) return 2 * parseSize(unit) <= cut;
  if (name === "flat" || name === "hierarchical") return true;
  return FEW_MESSAGES.includes(name) ? sizeBytes <= FEW_MESSAGES_TO : sizeBytes >= FEW_BYTES_FROM;
}

/** Labels of what is worth measuring at a size. @param ways the backend's own */
export function socketCandidates(
  ways: readonly string[],
  collective: CollectiveName,
  numRanks: number,
  sizeBytes: number,
): readonly string[] {
  const partBytes = collective === "broadcast" ? sizeBytes : sizeBytes / numRanks;
  const plans = (PLANS[collective] ?? []).flatMap(([label, from, to]) => {
    const entry = ALGORITHMS.find(({ name }) => name === label.split(/[*/]/)[0]);
    return entry?.legal(numRanks) === true && sizeBytes >= from && sizeBytes <= to ? [label] : [];
  });
  return [...ways.filter((way) => isTried(way, sizeBytes, partBytes)), ...plans];
}

/** How a table names what serves by itself: the schedule that was counted is `flat`'s choice at that size alone. */
export const shippedWay = (served: string): string => (served === "hierarchical" ? served : "flat");
