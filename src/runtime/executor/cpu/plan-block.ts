/** Where the parts of a prepared plan lie in its block of a rank's memory. What stands in them is in `image.ts`. */
import { CONTEXT } from "../wasm/reduce-kernels.ts";
import { BASE, RUN, STRAND, TILE_BYTES } from "./image.ts";
import type { LoweredRank } from "./lower.ts";
import { wordsOf } from "./record-writer.ts";
import type { PartedRecord } from "./records.ts";

export const roundUp = (value: number, unit: number) => Math.ceil(value / unit) * unit;

export type PlanBlock = ReturnType<typeof blockOf>;

/**
 * Of each part, bytes from the beginning of the block; and of all of them.
 * @param records of the strands, as they will run
 */
export function blockOf(lowered: LoweredRank, records: readonly (readonly PartedRecord[])[], numRanks: number) {
  let bytes = 0;
  const place = (size: number) => {
    const at = bytes;
    bytes += roundUp(size, 16);
    return at;
  };
  const tableBytes = 4 * lowered.mostRanges;
  const places = {
    run: place(4 * RUN.words),
    strands: place(4 * STRAND.words * lowered.strands.length),
    inTable: place(tableBytes),
    outTable: place(tableBytes),
    context: place(CONTEXT.sizeBytes),
    tiles: place(TILE_BYTES * lowered.mostPackets),
    semaphores: place(4 * lowered.semaphores.length),
    initial: place(4 * lowered.semaphores.length),
    barriers: place(8 * lowered.barriers.length),
    /** This rank's own copies of the ranks' scratch bases, two words each; the half of the launch added. */
    bases: place(8 * numRanks),
    entries: place(4 * BASE.words * numRanks),
    code: place(4 * records.flat().reduce((sum, { record }) => sum + wordsOf(record), 0)),
  };
  return { ...places, bytes };
}
