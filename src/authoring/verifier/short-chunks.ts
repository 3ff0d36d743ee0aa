/**
 * Data that may be cut. Where a message does not divide, the last chunk of a part of input or output is short, and those behind
 * it are empty (docs/semantics.md, section 1); scratch has no short chunks. So what comes from chunk h of a part has room in
 * chunk p of one at every size only where p <= h; in a later chunk its end is lost at some size, though all chunks are equal where
 * the verifier looks. The rule: no operation may read from chunk p of a part of input or output a value into which an input of
 * a chunk h < p went. One-sided: such a read is a finding also where nothing right depends on what is read.
 *
 * An operation does of a chunk what all its ranges have of it. Its *level* there is the highest number in a part of a chunk of input or
 * output that it touches, 0 where all is scratch: the higher, the less it may do. So it cuts what it writes elsewhere, too: a value
 * into which an input of a chunk below the level went must not go to a place in a chunk below the level. And it sends as few packets
 * as it does elements. Where it sends none, the arrival of packets proves nothing: reads that are over because packets came are so
 * only for writes of their level at least (`performed-reads.ts`).
 *
 * Custom collectives and those with counts take whole numbers of chunks only, and so do plans in which somebody waits for more packets than a short chunk
 * has (`whole-chunks.ts` of plan/), and MSCCL++'s executor.
 */
import { type BufferPlan, type ExecutionPlan, needsWholeChunks, takesWholeChunks } from "../plan/index.ts";
import { placeOfSite, type Site } from "./access-log.ts";
import { type Geometry, placeOfCell } from "./cell-geometry.ts";
import type { Findings } from "./findings.ts";
import type { Values } from "./symbolic-values.ts";

/** Says whether sizes are allowed at which a chunk of input or output is shorter than another. */
export function hasShortChunks(plan: ExecutionPlan): boolean {
  const { collective, ranks } = plan;
  if (takesWholeChunks(collective)) return false;
  return (
    ranks.some(({ input, output }) => chunksOfPart(input) > 1 || chunksOfPart(output) > 1) && !needsWholeChunks(plan)
  );
}

function chunksOfPart({ chunks, segments }: BufferPlan): number {
  return segments === 0 ? 0 : chunks / segments;
}

/** Something that goes wrong where chunk `level` of a part is short. */
interface Cut {
  /** Data read from it, or written no further than it reaches. */
  readonly kind: "read" | "written";
  readonly site: Site;
  readonly cell: number;
  /** The chunk that the data come from. */
  readonly from: number;
  readonly level: number;
}

export class ShortChunks {
  #first: Cut | undefined;
  readonly #geometry: Geometry;
  /** Of each cell, the number of its chunk in its part; 0 for scratch. */
  readonly #cells: Int32Array;
  /** The same of each cell of the inputs of one launch. */
  readonly #leaves: Int32Array;
  readonly #values: Values;
  /** Of each cell, the highest level of packets that were written there. */
  readonly #packets: Int32Array;

  constructor(geometry: Geometry, values: Values) {
    this.#geometry = geometry;
    this.#values = values;
    const { cellsPerChunk: per } = geometry;
    this.#cells = new Int32Array(geometry.numCells);
    this.#packets = new Int32Array(geometry.numCells);
    this.#leaves = new Int32Array(geometry.numLeaves);
    for (const rank of geometry.plan.ranks) {
      for (const buffer of ["input", "output"] as const) {
        const part = chunksOfPart(rank[buffer]);
        for (let i = 0; i < rank[buffer].chunks * per; i++) {
          const chunk = Math.floor(i / per) % part;
          if (buffer === "input") this.#leaves[geometry.leafBase[rank.rank]! + i] = chunk;
          for (let launch = 0; launch < geometry.launches; launch++)
            this.#cells[geometry.base(launch, rank.rank, buffer) + i] = chunk;
        }
      }
    }
  }

  /** The level of an operation at place `p` of its ranges, of which `bases` are the first cells. */
  levelAt(bases: readonly number[], p: number): number {
    let level = 0;
    for (const base of bases) level = Math.max(level, this.#cells[base + p]!);
    return level;
  }

  /** Hears what an operation writes. */
  write(cell: number, value: number, level: number, site: Site): void {
    if (level === 0 || this.#first !== undefined || this.#cells[cell]! >= level) return;
    const from = this.#values.leastOf(value, this.#leaves);
    if (from < level) this.#first = { kind: "written", site, cell, from, level };
  }

  /** Hears of packets that an operation writes. */
  send(cell: number, level: number): void {
    if (level > this.#packets[cell]!) this.#packets[cell] = level;
  }

  /** The level of the packets that lie in a cell. */
  levelOfPackets(cell: number): number {
    return this.#packets[cell]!;
  }

  /** Hears what an operation reads. */
  read(cell: number, value: number, site: Site): void {
    const chunk = this.#cells[cell]!;
    if (chunk === 0 || this.#first !== undefined) return;
    const from = this.#values.leastOf(value, this.#leaves);
    if (from < chunk) this.#first = { kind: "read", site, cell, from, level: chunk };
  }

  /** Reports the first of these, if there was one. */
  report(findings: Findings): void {
    if (this.#first === undefined) return;
    const { kind, site, cell, from, level } = this.#first;
    const { rank, strand, op, body } = placeOfSite(this.#geometry, site);
    const chunk = placeOfCell(this.#geometry, cell);
    const place = `${chunk.buffer}[${chunk.index}] of rank ${chunk.rank}`;
    findings.at(this.#geometry.plan, [rank, strand, op, body], {
      code: "cut-data",
      severity: "error",
      chunk,
      ...TEXTS[kind](place, from, level),
    });
  }
}

const TEXTS: Readonly<
  Record<Cut["kind"], (place: string, from: number, level: number) => { message: string; hint: string }>
> = {
  read: (place, from) => ({
    message: `reads from ${place} what comes from chunk ${from} of a part: where the size does not divide, the chunk is shorter than that, or empty, and the rest is lost`,
    hint: "keep it in scratch, whose chunks are all whole, or in the chunk of the same number",
  }),
  written: (place, from, level) => ({
    message: `writes to ${place} what comes from chunk ${from} of a part, but only as much as its range in chunk ${level} has: where the size does not divide, that is shorter, or empty, and the rest is lost`,
    hint: "move chunks of unlike numbers by operations of their own",
  }),
};
