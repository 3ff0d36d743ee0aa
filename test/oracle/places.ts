/**
 * Where the buffers of a plan lie in the oracle's memory, and which part of a range a strand handles. A place is a cell:
 * every unit of a loop is a whole number of them, and so is every part of a group.
 */

import type {
  BufferKind,
  ExecutionPlan,
  PipelineOp,
  Range,
  SimpleOp,
} from "../../src/authoring/plan/execution-plan.ts";
import { placeOf } from "../../src/authoring/plan/plan-conditions.ts";

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

export class Places {
  /** Cells of a chunk. */
  readonly cells: number;
  /** Places in all. */
  readonly size: number;
  readonly #plan: ExecutionPlan;
  readonly #chunkBytes: number;
  readonly #offset = new Map<string, number>();

  constructor(plan: ExecutionPlan, unitsPerChunk: number, launches: number) {
    this.#plan = plan;
    let cells = 1;
    let unit = 0;
    let finest = 0;
    for (const rank of plan.ranks) {
      for (const strand of rank.strands) {
        for (const op of strand.ops) {
          if (op.kind === "pipeline") {
            unit = Math.max(unit, op.unitBytes);
            finest = gcd(finest, op.unitBytes);
          }
          for (const inner of op.kind === "pipeline" ? op.body : [op]) {
            const size = "tbg" in inner && inner.tbg !== undefined ? inner.tbg.size : 1;
            cells = (cells / gcd(cells, size)) * size;
          }
        }
      }
    }
    const units = unit === 0 ? 1 : unitsPerChunk;
    // Every unit is a whole number of cells, and so is every chunk and every part of a group.
    finest = gcd(finest, unit * units);
    const perChunk = unit === 0 ? 1 : (unit * units) / finest;
    this.cells = (cells / gcd(cells, perChunk)) * perChunk;
    this.#chunkBytes = unit === 0 ? 1 : unit * units;
    let size = 0;
    for (const rank of plan.ranks) {
      // Every launch has an input and an output of its own; scratch is one, or two halves that take turns.
      const halves = plan.options.useDoubleScratchBuffer ? 2 : 1;
      for (let launch = 0; launch < launches; launch++) {
        for (const buffer of ["input", "output", "scratch"] as const) {
          const shared = buffer === "scratch" && launch >= halves;
          this.#offset.set(`${launch} ${rank.rank} ${buffer}`, size);
          if (shared)
            this.#offset.set(
              `${launch} ${rank.rank} scratch`,
              this.#offset.get(`${launch % halves} ${rank.rank} scratch`)!,
            );
          else size += Math.max(rank[buffer].chunks, rank.input.chunks, rank.output.chunks) * this.cells;
        }
      }
    }
    this.size = size;
  }

  place(launch: number, rank: number, buffer: BufferKind, chunk: number, cell: number): number {
    const at = placeOf(this.#plan, rank, buffer, chunk);
    return this.#offset.get(`${launch} ${rank} ${at.buffer}`)! + at.index * this.cells + cell;
  }

  /** Places of cells [begin, begin + count) of a range. */
  span(launch: number, rank: number, range: Range, begin: number, count: number): number[] {
    return Array.from({ length: count }, (_, p) => {
      const at = begin + p;
      return this.place(launch, rank, range.buffer, range.index + Math.floor(at / this.cells), at % this.cells);
    });
  }

  /** Which cells of a range of `size` chunks the strand handles now. */
  share(iteration: number, op: SimpleOp, size: number, pipeline: PipelineOp | undefined, packets: boolean) {
    let begin = 0;
    let end = size * this.cells;
    if ("tbg" in op && op.tbg !== undefined) {
      const part = end / op.tbg.size;
      begin = part * op.tbg.index;
      end = begin + part;
    }
    if (pipeline !== undefined && !packets) {
      const unit = (pipeline.unitBytes * this.cells) / this.#chunkBytes;
      begin += iteration * unit;
      end = Math.min(end, begin + unit);
    }
    return { begin, count: Math.max(0, end - begin) };
  }

  /** Times a loop runs its body. */
  iterations(op: PipelineOp): number {
    return Math.ceil((op.numChunks * this.#chunkBytes) / op.unitBytes);
  }
}
