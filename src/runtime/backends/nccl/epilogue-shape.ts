/**
 * Which kernel does an all-reduce with an epilogue where each block is to make whole units of the result: one-shot packets, with as
 * many strands as there are units, and no more threads than a unit's packets take. Its blocks need not meet.
 */
import type { Choice } from "../../executor/internal.ts";

/** Its strands make a chunk of the result each: see executor/cuda/owned-chunks.ts. */
const ONE_SHOT = "one-shot-packet-all-reduce";
/** Blocks of a rank. */
const MOST_STRANDS = 128;
/** Data of a packet that eight threads move: 112 bytes as lines. */
const LINE_DATA_BYTES = 112;
const THREADS_OF_LINE = 8;
const MOST_THREADS = 1024;
/** Rows that one block would take longer for are left to several. */
const MOST_ROUNDS = 2;
/** Threads are a multiple of that: few kernels serve rows of all lengths. */
const THREADS_STEP = 128;

/** A kernel of such blocks. */
interface ApartShape {
  /** As `algorithm:` would name it. */
  readonly label: string;
  readonly instances: number;
  /** The largest buffer that it must have room for: the last strands may have fewer units, or none. */
  readonly maxBytes: number;
}

const roundUp = (value: number, unit: number) => Math.ceil(value / unit) * unit;

/**
 * @param served what serves all-reduces of this size
 * @param unitBytes of what a block must have as a whole: a row
 * @returns undefined where units are too large, or lie so that packets would not be aligned, or another algorithm serves
 */
export function apartShape(
  { name, shape }: Choice["served"],
  numRanks: number,
  numUnits: number,
  unitBytes: number,
): ApartShape | undefined {
  if (name !== ONE_SHOT || unitBytes % 16 !== 0) return undefined;
  const lines = Math.ceil(unitBytes / LINE_DATA_BYTES);
  // As many in each round.
  const rounds = Math.ceil((THREADS_OF_LINE * lines) / MOST_THREADS);
  if (rounds > MOST_ROUNDS) return undefined;
  let instances = 1;
  while (numRanks * instances < Math.min(numUnits, MOST_STRANDS) && 2 * numRanks * instances <= MOST_STRANDS)
    instances *= 2;
  const threads = roundUp(THREADS_OF_LINE * Math.ceil(lines / rounds), THREADS_STEP);
  const strands = numRanks * instances;
  const label = `${ONE_SHOT}*${instances}@${threads}.${shape?.packets ?? "lines"}`;
  return { label, instances, maxBytes: strands * unitBytes * Math.ceil(numUnits / strands) };
}
