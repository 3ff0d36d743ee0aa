/**
 * Which way a collective goes on the threads backend: as messages (eager-rings.ts) up to a size, or straight between the
 * callers' buffers. All ranks must choose alike, so only what the fingerprint holds and the group's size count. The limits
 * are where the two cross on 2 and 32 cores: bench/results/threads-small.md.
 */
import type { WireOp } from "../../comm/index.ts";

/** Larger groups have no rings: they would hold too much memory. */
export const MAX_RING_RANKS = 32;
/** Members of larger groups meet by dissemination instead of looking at everybody's word. */
export const MAX_FLAT_RANKS = 8;

/** Room of a message for all others, bytes of data. */
export const ROOM_BYTES = 8192;
/** Room of a message in a lane between two: a group of `n` ranks has n * n lanes. */
export function laneRoomBytes(n: number): number {
  return n <= 8 ? 2048 : 1024;
}

/** Up to how many bytes a part of this collective is sent eagerly in a group of `n`; -1: never. */
export function eagerLimitBytes(op: WireOp, n: number): number {
  if (n < 2 || n > MAX_RING_RANKS) return -1;
  switch (op) {
    case "all_reduce":
      return n <= 2 ? 2048 : 1024;
    case "all_gather":
      return n <= 2 ? 2048 : 256;
    case "reduce_scatter":
    case "all_to_all":
      return Math.min(n <= 2 ? 2048 : 256, Math.floor(ROOM_BYTES / n));
    case "broadcast":
      return n <= 2 ? 8192 : 4096;
    case "scatter":
      return Math.floor(ROOM_BYTES / n);
    case "gather":
    case "reduce":
      return laneRoomBytes(n);
    default:
      return -1;
  }
}
