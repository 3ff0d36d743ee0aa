/**
 * How often each cell is written in a whole run. A read needs to be remembered only while a write may still come: in most
 * plans most cells are written once, and the memory of a large verification halves.
 */
import type { BufferKind, SimpleOp } from "../plan/index.ts";
import { type Geometry, shareOf } from "./cell-geometry.ts";

/**
 * Counts writes by cell, 255 standing for that many or more.
 * @returns undefined where it would not be simple: loops, several launches, custom aliases
 */
export function countWrites(geometry: Geometry): Uint8Array | undefined {
  const { plan, cellsPerChunk: per } = geometry;
  if (geometry.launches > 1 || plan.collective.custom?.aliases !== undefined) return undefined;
  const counts = new Uint8Array(geometry.numCells);
  const add = (rank: number, range: { buffer: BufferKind; index: number; size: number }, op: SimpleOp) => {
    const share =
      "tbg" in op && op.tbg !== undefined
        ? shareOf(geometry, range.size, op.tbg)
        : { begin: 0, count: range.size * per };
    const begin = geometry.base(0, rank, range.buffer) + range.index * per + share.begin;
    for (let cell = begin; cell < begin + share.count; cell++)
      if (counts[cell]! < 255) counts[cell] = counts[cell]! + 1;
  };
  for (const rank of plan.ranks) {
    for (const strand of rank.strands) {
      for (const op of strand.ops) {
        switch (op.kind) {
          case "pipeline":
            return undefined;
          case "copy":
            add(rank.rank, op.dst, op);
            break;
          case "get":
            for (const range of op.dst) add(rank.rank, range, op);
            break;
          case "put":
            for (const range of op.dst) add(range.rank, range, op);
            break;
          case "reduce":
            add(rank.rank, op.dst, op);
            if (op.packetDst !== undefined) add(rank.rank, op.packetDst, op);
            for (const range of op.remoteDst) add(range.rank, range, op);
            break;
          case "switch-reduce":
            add(rank.rank, op.dst, op);
            break;
          case "switch-broadcast":
          case "switch-reduce-broadcast": {
            const channel = rank.channels.switch[op.dst.channel]!;
            for (const member of channel.ranks)
              add(member, { buffer: channel.buffer, index: op.dst.index, size: op.dst.size }, op);
            break;
          }
          default:
        }
      }
    }
  }
  return counts;
}
