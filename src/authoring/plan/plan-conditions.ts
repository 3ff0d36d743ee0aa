/**
 * What a plan's collective asks of it: sizes of buffers, the value of every output chunk, and which memory input and
 * output share. All indices are those of the plan, after replication to instances: chunk c of the program is chunks
 * [c * I, (c + 1) * I) of the plan.
 */
import {
  type BufferChunks,
  bufferChunks,
  type ChunkValue,
  type Extent,
  type Holder,
  OPERATIONS,
  type OperationInfo,
  type OperationName,
  postcondition,
} from "../../collectives/index.ts";
import type { BufferKind, ExecutionPlan, PlanCollective } from "./execution-plan.ts";

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

function conditionOptions(c: PlanCollective, instances: number) {
  return {
    numRanks: c.numRanks,
    chunksPerPart: c.chunksPerPart * instances,
    ...(c.root === undefined ? {} : { root: c.root }),
    ...(c.counts === undefined ? {} : { counts: c.counts.map((n) => n * instances) }),
    ...(c.sendCounts === undefined ? {} : { sendCounts: c.sendCounts.map((row) => row.map((n) => n * instances)) }),
  };
}

/** Chunks of input and output of every rank; `undefined` for MSCCL++'s test collective, whose plan alone knows. */
export function collectiveChunks(c: PlanCollective, instances = 1): readonly BufferChunks[] | undefined {
  switch (c.operation) {
    case "test":
      if (c.custom === undefined) return undefined;
      return collectiveChunks({ ...c, operation: "custom" }, instances);
    case "send_recv":
      return Array.from({ length: c.numRanks }, () => ({
        input: c.chunksPerPart * instances,
        output: c.chunksPerPart * instances,
      }));
    case "custom":
      return Array.from({ length: c.numRanks }, (_, r) => ({
        input: (c.custom?.inputChunks[r] ?? 0) * instances,
        output: (c.custom?.outputChunks[r] ?? 0) * instances,
      }));
    default:
      return bufferChunks(c.operation, conditionOptions(c, instances));
  }
}

/** In how many parts a rank's buffers are cut into chunks (see `plan-layout.ts`): one, or one for each rank. */
export function segmentsOf(c: PlanCollective, rank: number): { readonly input: number; readonly output: number } {
  const operations: Readonly<Record<string, OperationInfo>> = OPERATIONS;
  const info = Object.hasOwn(operations, c.operation) ? operations[c.operation] : undefined;
  // Parts of the variants with counts differ in size: their chunks are counted through the whole buffer.
  if (info === undefined || info.variable) return { input: 1, output: 1 };
  const atRoot = rank === (c.root ?? 0);
  const segments = (extent: Extent, at: Holder) =>
    extent === "parts" && (at === "every" || (at === "root" && atRoot)) ? c.numRanks : 1;
  return { input: segments(info.input, info.inputAt), output: segments(info.output, info.outputAt) };
}

/**
 * What every output chunk must hold at the end, by rank and chunk; null: anything. `undefined` when the collective has
 * no meaning (`test`, `send_recv` without `sendTo`).
 */
export function planPostcondition(plan: ExecutionPlan): readonly (readonly (ChunkValue | null)[])[] | undefined {
  const c = plan.collective;
  const I = plan.options.instances;
  switch (c.operation) {
    case "test":
      return undefined;
    case "send_recv": {
      const sendTo = c.sendTo;
      if (sendTo === undefined) return undefined;
      return Array.from({ length: c.numRanks }, (_, rank) => {
        const from = sendTo.indexOf(rank);
        return Array.from({ length: c.chunksPerPart * I }, (_, chunk) =>
          from < 0 ? null : { kind: "copy" as const, from: { rank: from, chunk } },
        );
      });
    }
    case "custom":
      return (c.custom?.post ?? []).map((chunks) => chunks.flatMap((value) => replicateValue(value, I)));
    default:
      return postcondition(c.operation as OperationName, conditionOptions(c, I));
  }
}

function replicateValue(value: ChunkValue | null, instances: number): (ChunkValue | null)[] {
  return Array.from({ length: instances }, (_, i) => {
    if (value === null) return null;
    return value.kind === "copy"
      ? { kind: "copy", from: { rank: value.from.rank, chunk: value.from.chunk * instances + i } }
      : { kind: "reduce", from: value.from.map(({ rank, chunk }) => ({ rank, chunk: chunk * instances + i })) };
  });
}

/** A place in memory: two chunks are the same memory exactly when their places are equal. */
export interface Place {
  readonly buffer: BufferKind;
  readonly index: number;
}

/** What `placeOf` needs to know of a plan. */
export interface PlaceContext {
  readonly collective: PlanCollective;
  readonly options: { readonly instances: number };
}

/**
 * Where a chunk of a rank really lies when the collective is in place: all-reduce, broadcast, reduce and all-to-all have
 * output = input; all-gather and gather have input = the rank's own part of output; reduce-scatter and scatter have
 * output = the rank's own part of input.
 */
export function placeOf(
  { collective: c, options: { instances: I } }: PlaceContext,
  rank: number,
  buffer: BufferKind,
  index: number,
): Place {
  if (buffer === "scratch" || !c.inPlace) return { buffer, index };
  const start = (c.counts === undefined ? rank * c.chunksPerPart : sum(c.counts.slice(0, rank))) * I;
  switch (c.operation) {
    case "all_gather":
    case "all_gather_v":
      return buffer === "input" ? { buffer: "output", index: start + index } : { buffer, index };
    case "gather":
      return buffer === "input" && rank === (c.root ?? 0)
        ? { buffer: "output", index: start + index }
        : { buffer, index };
    case "reduce_scatter":
    case "reduce_scatter_v":
      return buffer === "output" ? { buffer: "input", index: start + index } : { buffer, index };
    case "scatter":
      return buffer === "output" && rank === (c.root ?? 0)
        ? { buffer: "input", index: start + index }
        : { buffer, index };
    case "reduce":
    case "broadcast":
      return rank === (c.root ?? 0) && buffer === "output" ? { buffer: "input", index } : { buffer, index };
    case "all_reduce":
    case "all_to_all":
      return buffer === "output" ? { buffer: "input", index } : { buffer, index };
    case "custom": {
      if (buffer !== "output") return { buffer, index };
      const chunk = Math.floor(index / I);
      const alias = c.custom?.aliases?.find((a) => a.rank === rank && a.output === chunk);
      return alias === undefined ? { buffer, index } : { buffer: "input", index: alias.input * I + (index % I) };
    }
    default:
      return { buffer, index };
  }
}
