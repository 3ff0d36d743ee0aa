/**
 * Which way a collective goes on the threads backend: as messages (eager-rings.ts) up to a size, or straight between the
 * callers' buffers. All ranks must choose alike, so only what the fingerprint holds and the group's size count. The limits
 * are from 4, 8 and 16 ranks on 32 cores: bench/results/threads-one-meeting-2026-11-28.md; of two ranks from threads-small.md; of
 * their all-reduce from 16 cores, threads-16-cores-2026-11-28.md, and of their broadcast from two: plans-two-cores-2026-11-24.md.
 */
import type { WireOp } from "../../comm/index.ts";

/** Larger groups have no rings: they would hold too much memory. */
export const MAX_RING_RANKS = 32;
/** Members of larger groups meet by dissemination instead of looking at everybody's word. */
export const MAX_FLAT_RANKS = 8;

/** Room of a message for all others, bytes of data. */
export const ROOM_BYTES = 8192;
/** The largest part of which a message says the place: with two ranks plans take over at 32 KiB. */
const DIRECT_BYTES = 16 * 1024;
/** Room of a message in a lane between two: a group of `n` ranks has n * n lanes. */
export function laneRoomBytes(n: number): number {
  return n <= 8 ? 2048 : 1024;
}

/**
 * Up to how many bytes a part goes straight from the caller's buffer to the other's: messages say where they lie. Only the ranks
 * that need one wait for the end. -1: never.
 */
export function directLimitBytes(op: WireOp, n: number): number {
  return (op === "scatter" || op === "gather") && n >= 2 && n <= MAX_RING_RANKS ? DIRECT_BYTES : -1;
}

/** Up to how many bytes a part of this collective is sent eagerly in a group of `n`; -1: never. */
export function eagerLimitBytes(op: WireOp, n: number): number {
  if (n < 2 || n > MAX_RING_RANKS) return -1;
  const isPair = n === 2;
  const isFlat = n <= MAX_FLAT_RANKS;
  switch (op) {
    // Every member reads every message whole, where shares of all buffers are read once.
    case "all_reduce":
      return isPair ? 512 : n <= 4 || !isFlat ? 256 : 64;
    case "all_gather":
      return isPair ? 128 : 512;
    case "reduce_scatter":
      return isPair ? 128 : isFlat ? 64 : 256;
    case "all_to_all":
      return isPair || !isFlat ? 128 : 64;
    case "broadcast":
      return isPair ? 2048 : 4096;
    case "scatter":
      return isPair ? 1024 : Math.min(512, ROOM_BYTES / n);
    case "gather":
      return isPair ? 2048 : 1024;
    case "reduce":
      return 1024;
    default:
      return -1;
  }
}
