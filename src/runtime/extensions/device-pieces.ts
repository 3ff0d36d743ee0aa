/**
 * How a tensor on the device is cut into pieces, so that one piece is on the links while others are quantised and summed. Each is a
 * call of its own, of whole blocks: results are those of one piece.
 */
import { blockLayout, numParts, type QuantizedCall } from "./block-layout.ts";

/** Elements of a tensor from which on pieces are faster, and how many there are then (bench/results/quantized-all-reduce-2026-11-29.md). */
const LEAST_ELEMENTS = 64 * 1024 * 1024;
const PIECES = 4;
/** Blocks of a piece are a multiple of so many: pieces of any block size begin at whole vectors. */
const BLOCKS_TOGETHER = 64;

export interface Piece {
  /** Its first element, and how many it has. */
  readonly from: number;
  readonly count: number;
  readonly partBlocks: number;
  readonly partBytes: number;
  /** Where its parts lie among those of all pieces. */
  readonly at: number;
}

/** @param wanted how many pieces, where the caller says so */
export function cutIntoPieces(
  { count, blockSize }: QuantizedCall,
  numRanks: number,
  wanted?: number,
): readonly Piece[] {
  const most = wanted ?? (count < LEAST_ELEMENTS ? 1 : PIECES);
  const blocks = Math.ceil(count / blockSize / most);
  const length = Math.max(1, Math.ceil(blocks / BLOCKS_TOGETHER)) * BLOCKS_TOGETHER * blockSize;
  const pieces: Piece[] = [];
  let at = 0;
  for (let from = 0; from < count; from += length) {
    const own = Math.min(length, count - from);
    const { partBlocks, endAt } = blockLayout(own, blockSize, numParts(numRanks));
    pieces.push({ from, count: own, partBlocks, partBytes: endAt, at });
    at += numRanks * endAt;
  }
  return pieces;
}
