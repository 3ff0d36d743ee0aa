/**
 * From the size of a call to the sizes of chunks, and which sizes a plan can do. All parts of all buffers of a collective
 * have one size, so one number says everything: the bytes of a part. `plan-layout.ts` has the rule in general.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { ExecutionPlan, PlanCollective } from "./execution-plan.ts";
import { needsWholeChunks } from "./whole-chunks.ts";

/**
 * What chunks are whole multiples of: a SIMD vector, and two cache lines from chunks of 4 KiB on, so that ranks do not
 * write to one line.
 */
const SMALL_GRANULE = 16;
const LARGE_GRANULE = 128;
const LARGE_CHUNK = 4096;

/** Says whether a collective takes sizes of whole chunks only: chunks of different places meet, or parts differ. */
export function takesWholeChunks({ operation }: Pick<PlanCollective, "operation">): boolean {
  return operation === "custom" || operation === "test" || operation.endsWith("_v");
}

/** How a plan cuts what it is given. */
export interface PlanShape {
  /** Chunks of a part. With `exact`, of the rank's larger buffer: sizes must be whole chunks. */
  readonly chunksPerPart: number;
  /**
   * Chunks of different places meet in one operation, or parts have different numbers of chunks: no chunk may be short.
   */
  readonly exact: boolean;
  /** Somebody waits for packets of whole chunks (`whole-chunks.ts`): sizes must divide. */
  readonly needsWhole: boolean;
  /** Parts of the largest buffer of any rank, at least 1. With `exact`, chunks. */
  readonly mostParts: number;
}

const shapes = new WeakMap<ExecutionPlan, PlanShape>();

/** Looks at every operation: what it finds of a frozen plan is kept. */
export function shapeOf(plan: ExecutionPlan): PlanShape {
  const known = shapes.get(plan);
  if (known !== undefined) return known;
  const shape = findShape(plan);
  // Whoever freezes a plan freezes all of it: see `deepFreeze`.
  if (Object.isFrozen(plan) && Object.isFrozen(plan.ranks)) shapes.set(plan, shape);
  return shape;
}

function findShape(plan: ExecutionPlan): PlanShape {
  const exact = takesWholeChunks(plan.collective);
  let chunksPerPart = 0;
  let mostParts = 1;
  for (const rank of plan.ranks) {
    for (const { chunks, segments } of [rank.input, rank.output]) {
      if (chunks > 0) mostParts = Math.max(mostParts, exact ? chunks : segments);
      if (segments > 0) chunksPerPart = Math.max(chunksPerPart, exact ? chunks : chunks / segments);
    }
  }
  return { chunksPerPart, exact, needsWhole: !exact && needsWholeChunks(plan), mostParts };
}

/** Bytes of a chunk when a part has `partBytes`. With `exact`, `partBytes` is one chunk's. */
export function chunkBytesOf(shape: PlanShape, partBytes: number): number {
  if (shape.exact || shape.chunksPerPart === 0) return partBytes;
  const even = partBytes / shape.chunksPerPart;
  const granule = even >= LARGE_CHUNK ? LARGE_GRANULE : SMALL_GRANULE;
  return Math.ceil(even / granule) * granule;
}

/** Checks that a plan can do a part of `partBytes`. @throws InvalidArgumentError where it would have short chunks and can have none */
export function checkPartBytes(shape: PlanShape, partBytes: number): void {
  const { needsWhole, chunksPerPart } = shape;
  if (needsWhole && chunksPerPart > 0 && chunkBytesOf(shape, partBytes) * chunksPerPart !== partBytes) {
    throw new InvalidArgumentError(
      "part",
      described(`${partBytes} bytes`),
      `${chunksPerPart} whole chunks of ${SMALL_GRANULE} bytes (of ${LARGE_GRANULE} from ${LARGE_CHUNK} on): the plan waits for the packets of whole chunks`,
    );
  }
}

/**
 * The bytes of a part (with `exact`: of a chunk) of a call whose rank gives `inputBytes` and takes `outputBytes`.
 * @throws InvalidArgumentError when the two do not fit the plan
 */
export function partBytesOf(plan: ExecutionPlan, rank: number, inputBytes: number, outputBytes: number): number {
  const own = plan.ranks[rank]!;
  const shape = shapeOf(plan);
  const { exact } = shape;
  let found: number | undefined;
  for (const [name, buffer, bytes] of [
    ["input", own.input, inputBytes],
    ["output", own.output, outputBytes],
  ] as const) {
    const parts = exact ? buffer.chunks : buffer.segments;
    if (buffer.chunks === 0 || parts === 0) continue;
    const what = exact ? "chunks" : "parts";
    if (bytes % parts !== 0) {
      throw new InvalidArgumentError(
        `${name} of rank ${rank}`,
        described(`${bytes} bytes`),
        `a multiple of ${parts} ${what}`,
      );
    }
    const part = bytes / parts;
    if (found !== undefined && part !== found) {
      throw new InvalidArgumentError(
        `${name} of rank ${rank}`,
        described(`${bytes} bytes`),
        `${found * parts} bytes, ${parts === 1 ? "" : `${parts} ${what} of ${found}, `}as the plan's input has`,
      );
    }
    found = part;
  }
  checkPartBytes(shape, found ?? 0);
  return found ?? 0;
}
