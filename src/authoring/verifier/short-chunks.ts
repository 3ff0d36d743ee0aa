/**
 * Data that may be cut. Where a message does not divide, the last chunk of a part of input or output is short, and those behind
 * it are empty (docs/semantics.md, section 1); scratch has no short chunks. So what comes from chunk h of a part has room in
 * chunk p of one at every size only where p <= h; in a later chunk its end is lost at some size, though all chunks are equal where
 * the verifier looks. The rule: no operation may read from chunk p of a part of input or output a value into which an input of
 * a chunk h < p went. One-sided: such a read is a finding also where nothing right depends on what is read.
 *
 * Custom collectives take whole numbers of chunks only, and so does MSCCL++'s executor.
 */
import type { BufferPlan, ExecutionPlan } from "../plan/index.ts";
import { placeOfSite, type Site } from "./access-log.ts";
import { type Geometry, placeOfCell } from "./cell-geometry.ts";
import type { Findings } from "./findings.ts";
import type { Values } from "./symbolic-values.ts";

/** Says whether sizes are allowed at which a chunk of input or output is shorter than another. */
export function hasShortChunks({ collective, ranks }: ExecutionPlan): boolean {
  if (collective.operation === "custom" || collective.operation === "test") return false;
  return ranks.some(({ input, output }) => chunksOfPart(input) > 1 || chunksOfPart(output) > 1);
}

function chunksOfPart({ chunks, segments }: BufferPlan): number {
  return segments === 0 ? 0 : chunks / segments;
}

export class ShortChunks {
  /** The first read of data that may be cut, and its cell. */
  #first: { readonly site: Site; readonly cell: number; readonly from: number } | undefined;
  readonly #geometry: Geometry;
  /** Of each cell, the number of its chunk in its part; 0 for scratch. */
  readonly #cells: Int32Array;
  /** The same of each cell of the inputs of one launch. */
  readonly #leaves: Int32Array;
  readonly #values: Values;

  constructor(geometry: Geometry, values: Values) {
    this.#geometry = geometry;
    this.#values = values;
    const { cellsPerChunk: per } = geometry;
    this.#cells = new Int32Array(geometry.numCells);
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

  /** Hears what an operation reads. */
  read(cell: number, value: number, site: Site): void {
    const chunk = this.#cells[cell]!;
    if (chunk === 0 || this.#first !== undefined) return;
    const from = this.#values.leastOf(value, this.#leaves);
    if (from < chunk) this.#first = { site, cell, from };
  }

  /** Reports the first such read, if there was one. */
  report(findings: Findings): void {
    if (this.#first === undefined) return;
    const { site, cell, from } = this.#first;
    const { rank, strand, op, body } = placeOfSite(this.#geometry, site);
    const chunk = placeOfCell(this.#geometry, cell);
    findings.at(this.#geometry.plan, [rank, strand, op, body], {
      code: "cut-data",
      severity: "error",
      chunk,
      message: `reads from ${chunk.buffer}[${chunk.index}] of rank ${chunk.rank} what comes from chunk ${from} of a part: where the size does not divide, the chunk is shorter than that, or empty, and the rest is lost`,
      hint: "keep it in scratch, whose chunks are all whole, or in the chunk of the same number",
    });
  }
}
