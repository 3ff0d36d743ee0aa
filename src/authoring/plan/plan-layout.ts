/**
 * From chunks to bytes. One size of chunk holds in all buffers of all ranks of a run. A buffer is `segments` parts
 * (all-gather's output: one per rank); a part is cut into chunks/segments chunks of that size, and the last of them may
 * be short or empty: sizes need not divide. A range that crosses a short chunk is several pieces. When sizes divide,
 * this is MSCCL++'s formula (`src/core/executor`): offset = index * (bytes / chunks). Scratch has no short chunks.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { BufferPlan, ExecutionPlan } from "./execution-plan.ts";
import { needsWholeChunks } from "./whole-chunks.ts";

/** Bytes of the caller's buffers of one rank: a number, or one per segment (the v-collectives). */
export interface RankBytes {
  readonly input: number | readonly number[];
  readonly output: number | readonly number[];
}

/** A contiguous part of a buffer. `skew` is its distance from the range's beginning in whole-chunk bytes. */
export interface Piece {
  readonly offset: number;
  readonly length: number;
  readonly skew: number;
}

export interface BufferLayout {
  readonly chunks: number;
  readonly chunksPerSegment: number;
  readonly chunkBytes: number;
  /** Where each segment begins, and one more entry: the end. */
  readonly segmentOffsets: readonly number[];
  readonly totalBytes: number;
}

export interface RankLayout {
  readonly input: BufferLayout;
  readonly output: BufferLayout;
  readonly scratch: BufferLayout;
}

function segmentBytes(bytes: number | readonly number[], buffer: BufferPlan, argument: string): readonly number[] {
  if (typeof bytes !== "number") {
    if (bytes.length !== buffer.segments) {
      throw new InvalidArgumentError(argument, bytes.length, `sizes of ${buffer.segments} segments`);
    }
    return bytes;
  }
  if (buffer.segments === 0 || buffer.chunks === 0) {
    return [];
  }
  if (bytes % buffer.segments !== 0) {
    throw new InvalidArgumentError(argument, bytes, `a multiple of ${buffer.segments}, the number of parts`);
  }
  return new Array<number>(buffer.segments).fill(bytes / buffer.segments);
}

function chunksPerSegment(buffer: BufferPlan): number {
  return buffer.segments === 0 ? 0 : buffer.chunks / buffer.segments;
}

function layoutOf(buffer: BufferPlan, sizes: readonly number[], chunkBytes: number): BufferLayout {
  const segmentOffsets = [0];
  for (const size of sizes) segmentOffsets.push((segmentOffsets.at(-1) ?? 0) + size);
  return {
    chunks: buffer.chunks,
    chunksPerSegment: chunksPerSegment(buffer),
    chunkBytes,
    segmentOffsets,
    totalBytes: segmentOffsets.at(-1) ?? 0,
  };
}

/**
 * Lays out the buffers of every rank of a plan for given sizes.
 * @param sizes bytes of each rank's input and output
 * @param granule bytes that are never cut: the element, or 16 where kernels want it. Chunk sizes are its multiples
 * @throws InvalidArgumentError when a size does not fit the collective's number of parts, or a custom collective's chunks
 */
export function layoutPlan(plan: ExecutionPlan, sizes: readonly RankBytes[], granule: number): readonly RankLayout[] {
  let chunkBytes = 0;
  const isWhole = plan.collective.operation === "custom" || needsWholeChunks(plan);
  const parts = plan.ranks.map((rank) => {
    const own = sizes[rank.rank];
    if (own === undefined)
      throw new InvalidArgumentError("sizes", sizes.length, `one entry for each of ${plan.ranks.length} ranks`);
    const input = segmentBytes(own.input, rank.input, `sizes[${rank.rank}].input`);
    const output = segmentBytes(own.output, rank.output, `sizes[${rank.rank}].output`);
    for (const [buffer, list] of [
      [rank.input, input],
      [rank.output, output],
    ] as const) {
      const per = chunksPerSegment(buffer);
      for (const size of list) {
        if (isWhole && per > 0 && size % (per * granule) !== 0)
          throw new InvalidArgumentError(
            `sizes[${rank.rank}]`,
            described(`${size} bytes`),
            `a multiple of ${per} chunks of ${granule} bytes: the chunks of this plan are of equal size`,
          );
        if (per > 0) chunkBytes = Math.max(chunkBytes, Math.ceil(size / per / granule) * granule);
      }
    }
    return { rank, input, output };
  });
  return parts.map(({ rank, input, output }) => ({
    input: layoutOf(rank.input, input, chunkBytes),
    output: layoutOf(rank.output, output, chunkBytes),
    scratch: layoutOf({ chunks: rank.scratch.chunks, segments: 1 }, [rank.scratch.chunks * chunkBytes], chunkBytes),
  }));
}

/** The contiguous pieces of chunks [index, index + size) of a buffer; neighbouring ones are joined. */
export function pieces(layout: BufferLayout, index: number, size: number): readonly Piece[] {
  const result: { offset: number; length: number; skew: number }[] = [];
  const per = layout.chunksPerSegment;
  for (let chunk = index; chunk < index + size; chunk++) {
    const segment = Math.floor(chunk / per);
    const begin = layout.segmentOffsets[segment] ?? 0;
    const end = layout.segmentOffsets[segment + 1] ?? begin;
    const offset = Math.min(begin + (chunk - segment * per) * layout.chunkBytes, end);
    const length = Math.min(layout.chunkBytes, end - offset);
    if (length <= 0) continue;
    const skew = (chunk - index) * layout.chunkBytes;
    const last = result.at(-1);
    if (last !== undefined && last.offset + last.length === offset && last.skew + last.length === skew)
      last.length += length;
    else result.push({ offset, length, skew });
  }
  return result;
}
