/**
 * How elements are cut into blocks with a scale each, and where a rank's parts lie among the bytes that are exchanged. Blocks are
 * counted through the whole tensor; each rank owns as many of them, one after the other, and the last ones may be empty.
 */
import type { DType, SmallFloat } from "../../core/index.ts";

/** The 8-bit floats of the OCP specification; `docs/extensions.md` says which to take. */
export const QUANTIZED_FORMATS = ["e4m3", "e5m2"] as const;
export type QuantizedFormat = (typeof QUANTIZED_FORMATS)[number];

/** Elements of a block. */
export const BLOCK_SIZES = [32, 64, 128, 256, 512, 1024] as const;
export type BlockSize = (typeof BLOCK_SIZES)[number];

/** What can be summed in blocks. */
export const QUANTIZED_DTYPES = ["f32", "f16", "bf16"] as const satisfies readonly DType[];
export type QuantizedDType = (typeof QUANTIZED_DTYPES)[number];

export const QUANTIZED_OPS = ["sum", "avg"] as const;
export type QuantizedOp = (typeof QUANTIZED_OPS)[number];

/** What all ranks of a call must agree on. */
export interface QuantizedCall {
  readonly dtype: QuantizedDType;
  readonly format: QuantizedFormat;
  readonly blockSize: BlockSize;
  readonly op: QuantizedOp;
  readonly count: number;
}

/**
 * A block's scale is a power of two, kept as the 8 bits of its exponent (E8M0 of the OCP microscaling specification): scaling rounds
 * nothing then. The largest finite magnitude of a block comes to lie above half of the format's largest value.
 */
export interface ScaledFormat {
  readonly dtype: Extract<SmallFloat, "f8e4m3" | "f8e5m2">;
  /** Exponent of the format's largest value, which is 1.75 times a power of two. */
  readonly largestExponent: number;
  /** The largest f32 that has as few bits as the format: what is rounded up from above it would be infinite. */
  readonly mostBits: number;
}

export const SCALED_FORMATS: { readonly [F in QuantizedFormat]: ScaledFormat } = {
  e4m3: { dtype: "f8e4m3", largestExponent: 8, mostBits: 0x7f70_0000 },
  e5m2: { dtype: "f8e5m2", largestExponent: 15, mostBits: 0x7f60_0000 },
};

/** Added to the bits of an f32, it carries into the exponent for what is above 1.75 times a power of two. */
export const ABOVE_LARGEST = 0x1f_ffff;

export interface BlockLayout {
  /** Blocks of a rank's part. */
  readonly partBlocks: number;
  readonly partElements: number;
  /** In a part: one byte an element, then one for each block's scale. */
  readonly scalesAt: number;
  /** What follows the scales, at a multiple of 16. */
  readonly endAt: number;
}

const ALIGNMENT = 16;

/**
 * Into how many parts a tensor is cut, each of which one rank sums for all. Of two ranks neither does: each sends the other all of its blocks,
 * as many bytes as by parts, and both sum everything, which is rounded once less.
 */
export function numParts(numRanks: number): number {
  return numRanks === 2 ? 1 : numRanks;
}

export function blockLayout(count: number, blockSize: number, parts: number): BlockLayout {
  const partBlocks = Math.ceil(Math.ceil(count / blockSize) / parts);
  const partElements = partBlocks * blockSize;
  const endAt = Math.ceil((partElements + partBlocks) / ALIGNMENT) * ALIGNMENT;
  return { partBlocks, partElements, scalesAt: partElements, endAt };
}
