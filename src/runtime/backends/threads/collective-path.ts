/**
 * Which way a collective goes on the threads backend: as messages (eager-rings.ts) up to a size, or straight between the
 * callers' buffers. All ranks must choose alike, so only what the fingerprint holds and the group's size count. The limits
 * are from 2, 4, 8 and 16 ranks on 32 cores: bench/results/threads-small.md, threads-32-cores-2026-11-23.md; of two ranks'
 * all-reduce from 16 cores, threads-16-cores-2026-11-28.md, and of their broadcast from two: plans-two-cores-2026-11-24.md.
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
  const isPair = n === 2;
  switch (op) {
    // With 4 and 8 ranks the two ways were even at 64 bytes, and messages slower above; with 16 they took 12 to 15 us where
    // shares of all buffers took 4 to 9: everybody polls everybody's message, and one meeting is cheaper than that.
    case "all_reduce":
      return isPair ? 512 : -1;
    case "all_gather":
      return isPair ? 128 : -1;
    case "reduce_scatter":
    case "all_to_all":
      return isPair ? 64 : -1;
    case "broadcast":
      return 2048;
    case "scatter":
      return isPair ? 1024 : 256;
    case "gather":
      return isPair ? 2048 : 1024;
    case "reduce":
      return isPair ? 1024 : 256;
    default:
      return -1;
  }
}
