/**
 * How the verifier lays a plan out: every buffer of every rank as a stretch of numbered cells. A cell is the finest
 * share of a chunk that operations touch: thread-block groups cut ranges into pieces, pipelines into units, and a cell
 * divides them all. In-place buffers lie on top of each other here, so that aliasing needs no further thought.
 */

import type { BufferKind, ExecutionPlan, GroupSlice, Op, PipelineOp, SimpleOp } from "../plan/index.ts";
import { placeOf } from "../plan/index.ts";
import type { ChunkPlace } from "./findings.ts";

/** A piece of a chunk finer than this is not modelled. */
const MAX_CELLS_PER_CHUNK = 2048;
/** Memory bound of one verification: about 60 bytes a cell that is touched. */
const MAX_CELLS = 20_000_000;
/** Time bound of one verification: dynamic operations, loops unrolled. An all-gather by a ring over 1,024 ranks has 5.2 million. */
export const MAX_STEPS = 10_000_000;

export const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));
export const lcm = (a: number, b: number): number => (a / gcd(a, b)) * b;

export interface Geometry {
  readonly plan: ExecutionPlan;
  readonly launches: number;
  readonly cellsPerChunk: number;
  /** Cells per unit, by pipeline unit size in bytes. */
  readonly unitCells: ReadonlyMap<number, number>;
  /** Bytes of a chunk, times `scale`: sizes at which a loop runs once more need not be whole. */
  readonly chunkBytes: number;
  readonly scale: number;
  /** Where parts of a strand group may differ by an element: elements to the chunk. */
  readonly elementsPerChunk: number | undefined;
  readonly numCells: number;
  /** Cells of one launch's inputs, all ranks together: leaves are numbered through them. */
  readonly numLeaves: number;
  /** First leaf of each rank. */
  readonly leafBase: readonly number[];
  /** First cell of a buffer. */
  base(launch: number, rank: number, buffer: BufferKind): number;
  /** Global number of each rank's first strand, and the total at the end. */
  readonly strandBase: readonly number[];
  readonly strandRank: Int32Array;
  /** Number of each strand's first operation, counting bodies of pipelines one by one; and the total at the end. */
  readonly opBase: readonly (readonly number[])[];
  readonly numOps: number;
}

/** Times a pipeline runs its body. Of whole numbers, so that a quotient that is whole comes out so. */
export function iterationsOf(op: PipelineOp, { chunkBytes, scale }: Pick<Geometry, "chunkBytes" | "scale">): number {
  return Math.ceil((op.numChunks * chunkBytes) / (op.unitBytes * scale));
}

/** Part `index` of `size` of a number of elements: the first parts have one more where they do not divide it. */
function partOf(elements: number, { index, size }: GroupSlice): { readonly begin: number; readonly count: number } {
  const each = Math.floor(elements / size);
  const longer = elements % size;
  return { begin: index * each + Math.min(index, longer), count: each + (index < longer ? 1 : 0) };
}

/** The cells of a range of `chunks` chunks that one part of a strand group handles. */
export function shareOf(
  { cellsPerChunk, elementsPerChunk = cellsPerChunk }: Pick<Geometry, "cellsPerChunk" | "elementsPerChunk">,
  chunks: number,
  group: GroupSlice,
): { readonly begin: number; readonly count: number } {
  const cells = cellsPerChunk / elementsPerChunk;
  const { begin, count } = partOf(chunks * elementsPerChunk, group);
  return { begin: begin * cells, count: count * cells };
}

/** Denominators of sizes that are looked for. */
const MAX_SCALE = 4096;

/** The least whole number of times that a size has to be taken to become whole; sizes are quotients of small numbers. */
function scaleOf(bytes: number): number | undefined {
  for (let scale = 1; scale <= MAX_SCALE; scale++)
    if (Math.abs(bytes * scale - Math.round(bytes * scale)) <= 1e-9 * bytes * scale) return scale;
  return undefined;
}

/** Calls `visit` with every operation, those in loops one by one: a list of all of them would be as large as the plan. */
export function forEachOp(plan: ExecutionPlan, visit: (op: SimpleOp, pipeline: PipelineOp | undefined) => void): void {
  for (const rank of plan.ranks) {
    for (const strand of rank.strands) {
      for (const op of strand.ops) {
        if (op.kind === "pipeline") for (const inner of op.body) visit(inner, op);
        else visit(op, undefined);
      }
    }
  }
}

const groupOf = (op: Op): GroupSlice | undefined => ("tbg" in op ? op.tbg : undefined);

/** Chunks of the ranges that the parts of a strand group share out. */
export function rangeSizes(op: SimpleOp): readonly number[] {
  switch (op.kind) {
    case "copy":
      return [op.src.size];
    case "get":
    case "put":
      return op.src.map((range) => range.size);
    case "switch-broadcast":
      return [op.src.size];
    case "reduce":
    case "switch-reduce":
    case "switch-reduce-broadcast":
      return [op.dst.size];
    default:
      return [];
  }
}

/**
 * Lays out `launches` launches of a plan for one size of chunk. Launches have inputs and outputs of their own and
 * share scratch (by halves where the plan asks for it).
 * @returns a sentence instead, when the plan needs finer cells or more of them than are modelled
 */
export function layOut(
  plan: ExecutionPlan,
  { chunkBytes: bytes, elementsPerChunk }: { readonly chunkBytes: number; readonly elementsPerChunk?: number },
  launches: number,
): Geometry | string {
  const units = new Set<number>();
  const scale = scaleOf(bytes);
  if (scale === undefined) return `a chunk of ${bytes} bytes is no quotient of small numbers`;
  const chunkBytes = Math.round(bytes * scale);
  let factor = elementsPerChunk ?? 1;
  forEachOp(plan, (op, pipeline) => {
    if (pipeline !== undefined) units.add(pipeline.unitBytes);
    const group = groupOf(op);
    if (group === undefined || elementsPerChunk !== undefined || factor > MAX_CELLS_PER_CHUNK) return;
    for (const size of rangeSizes(op))
      factor = lcm(factor, group.size / gcd(group.size, size === 0 ? group.size : size));
  });
  let cellsPerChunk = factor;
  const unitCells = new Map<number, number>();
  if (units.size > 0) {
    let common = chunkBytes;
    for (const unit of units) common = gcd(common, unit * scale);
    cellsPerChunk = lcm(factor, chunkBytes / common);
    for (const unit of units) unitCells.set(unit, (unit * scale * cellsPerChunk) / chunkBytes);
  }
  if (cellsPerChunk > MAX_CELLS_PER_CHUNK) {
    return `its thread-block groups and pipeline units cut a chunk into ${cellsPerChunk} different pieces (at most ${MAX_CELLS_PER_CHUNK} are modelled)`;
  }
  const halves = plan.options.useDoubleScratchBuffer && launches > 1 ? 2 : 1;
  let numCells = 0;
  let numLeaves = 0;
  const leafBase: number[] = [];
  const scratch: { base: number; half: number }[] = [];
  for (const rank of plan.ranks) {
    leafBase.push(numLeaves);
    numLeaves += rank.input.chunks * cellsPerChunk;
    const half = rank.scratch.chunks * cellsPerChunk;
    scratch.push({ base: numCells, half });
    numCells += half * halves;
  }
  const inputs: Int32Array[] = [];
  const outputs: Int32Array[] = [];
  for (let launch = 0; launch < launches; launch++) {
    const input = new Int32Array(plan.ranks.length);
    const output = new Int32Array(plan.ranks.length);
    for (const rank of plan.ranks) {
      // Where the first chunk of each buffer really lies: the rest follows (but for custom aliases, see `aliases`).
      const i = linearPlace(plan, rank.rank, "input");
      const o = linearPlace(plan, rank.rank, "output");
      const size = { input: 0, output: 0 };
      size[i.buffer] = (i.index + rank.input.chunks) * cellsPerChunk;
      size[o.buffer] = Math.max(size[o.buffer], (o.index + rank.output.chunks) * cellsPerChunk);
      const begin = { input: numCells, output: numCells + size.input };
      input[rank.rank] = begin[i.buffer] + i.index * cellsPerChunk;
      output[rank.rank] = begin[o.buffer] + o.index * cellsPerChunk;
      numCells += size.input + size.output;
    }
    inputs.push(input);
    outputs.push(output);
  }
  if (numCells > MAX_CELLS) return `its buffers have ${numCells} cells (at most ${MAX_CELLS} are modelled)`;
  const strandBase = [0];
  for (const rank of plan.ranks) strandBase.push(strandBase.at(-1)! + rank.strands.length);
  const strandRank = new Int32Array(strandBase.at(-1)!);
  for (const rank of plan.ranks) strandRank.fill(rank.rank, strandBase[rank.rank]!, strandBase[rank.rank + 1]!);
  let numOps = 0;
  const opBase: number[][] = [];
  for (const rank of plan.ranks) {
    for (const strand of rank.strands) {
      opBase.push(
        strand.ops.map((op) => {
          const first = numOps;
          numOps += op.kind === "pipeline" ? op.body.length : 1;
          return first;
        }),
      );
    }
  }
  return {
    plan,
    launches,
    cellsPerChunk,
    unitCells,
    chunkBytes,
    scale,
    elementsPerChunk,
    numCells,
    numLeaves,
    leafBase,
    base(launch, rank, buffer) {
      if (buffer === "input") return inputs[launch]![rank]!;
      if (buffer === "output") return outputs[launch]![rank]!;
      const own = scratch[rank]!;
      return own.base + (halves === 2 ? (launch % 2) * own.half : 0);
    },
    strandBase,
    strandRank,
    opBase,
    numOps,
  };
}

function linearPlace(plan: ExecutionPlan, rank: number, buffer: "input" | "output") {
  if (plan.collective.operation === "custom") return { buffer, index: 0 };
  const place = placeOf(plan, rank, buffer, 0);
  return { buffer: place.buffer === "scratch" ? buffer : place.buffer, index: place.index };
}

/** Cells of custom collectives that are the same memory as others; undefined when there are none. */
export function aliasesOf(geometry: Geometry): Int32Array | undefined {
  const { plan, cellsPerChunk: per } = geometry;
  const custom = plan.collective.custom;
  if (!plan.collective.inPlace || custom?.aliases === undefined || custom.aliases.length === 0) return undefined;
  const map = Int32Array.from({ length: geometry.numCells }, (_, cell) => cell);
  for (let launch = 0; launch < geometry.launches; launch++) {
    for (const rank of plan.ranks) {
      for (let index = 0; index < rank.output.chunks; index++) {
        const place = placeOf(plan, rank.rank, "output", index);
        if (place.buffer !== "input" || place.index >= rank.input.chunks) continue;
        for (let i = 0; i < per; i++) {
          map[geometry.base(launch, rank.rank, "output") + index * per + i] =
            geometry.base(launch, rank.rank, "input") + place.index * per + i;
        }
      }
    }
  }
  return map;
}

/** Which place a cell is, for messages: the name that programs use where two buffers share memory. */
export function placeOfCell(geometry: Geometry, cell: number): ChunkPlace {
  const per = geometry.cellsPerChunk;
  const order: readonly BufferKind[] = /gather/.test(geometry.plan.collective.operation)
    ? ["output", "input", "scratch"]
    : ["input", "output", "scratch"];
  for (let launch = 0; launch < geometry.launches; launch++) {
    for (const rank of geometry.plan.ranks) {
      for (const buffer of order) {
        const begin = geometry.base(launch, rank.rank, buffer);
        if (cell >= begin && cell < begin + rank[buffer].chunks * per) {
          return { rank: rank.rank, buffer, index: Math.floor((cell - begin) / per) };
        }
      }
    }
  }
  return { rank: 0, buffer: "scratch", index: cell };
}
