/**
 * What holds before and after a collective, at chunk granularity, independent of any algorithm: a verifier fills the
 * input buffers as `precondition` says, runs a schedule symbolically, and compares with `postcondition`. The idea that
 * a collective owns its first buffers and its final check is that of microsoft/msccl-tools.
 *
 * A part is cut into `chunksPerPart` chunks. Chunk `c` of part `p` has the index `p * chunksPerPart + c`.
 */
import { InvalidArgumentError, InvariantError } from "../core/index.ts";
import { type OperationInfo, type OperationName, operationInfo } from "./operation-table.ts";

/** A chunk of a rank's input buffer. */
export interface ChunkRef {
  readonly rank: number;
  readonly chunk: number;
}

/** What an output chunk must hold: a copy of one input chunk, or the reduction of several, in any order. */
export type ChunkValue =
  | { readonly kind: "copy"; readonly from: ChunkRef }
  | { readonly kind: "reduce"; readonly from: readonly ChunkRef[] };

export interface ConditionOptions {
  readonly numRanks: number;
  /** 1 by default. */
  readonly chunksPerPart?: number;
  /** Root of rooted operations, sender of a point-to-point operation; 0 by default. */
  readonly root?: number;
  /** Receiver of a point-to-point operation; rank 1 by default. */
  readonly peer?: number;
  /** Chunks of every rank's part, for operations with parts of different sizes. Replaces `chunksPerPart`. */
  readonly counts?: readonly number[];
  /** `sendCounts[i][j]`: chunks that rank i sends to rank j, for `all_to_all_v`. */
  readonly sendCounts?: readonly (readonly number[])[];
}

/** One rank's buffers, in chunks. Absent buffers have 0. */
export interface BufferChunks {
  readonly input: number;
  readonly output: number;
}

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

interface Geometry {
  readonly info: OperationInfo;
  readonly n: number;
  readonly root: number;
  readonly peer: number;
  /** Chunks of part `p`. */
  readonly part: (p: number) => number;
  /** Index of the first chunk of part `p` in a buffer of parts. */
  readonly start: (p: number) => number;
}

function geometry(op: OperationName, options: ConditionOptions): Geometry {
  const info = operationInfo(op);
  const { numRanks: n, chunksPerPart = 1, root = 0, peer = 1 } = options;
  if (!Number.isInteger(n) || n < 1) throw new InvalidArgumentError("numRanks", n, "an integer, 1 or more");
  if (!Number.isInteger(chunksPerPart) || chunksPerPart < 1) {
    throw new InvalidArgumentError("chunksPerPart", chunksPerPart, "an integer, 1 or more");
  }
  if (info.variable && op !== "all_to_all_v" && options.counts?.length !== n) {
    throw new InvalidArgumentError("counts", options.counts, `${n} chunk counts, one per rank`);
  }
  if (op === "all_to_all_v" && (options.sendCounts?.length !== n || options.sendCounts.some((c) => c.length !== n))) {
    throw new InvalidArgumentError("sendCounts", options.sendCounts, `${n} rows of ${n} chunk counts`);
  }
  const counts = info.variable && op !== "all_to_all_v" ? options.counts : undefined;
  const part = (p: number) => counts?.[p] ?? chunksPerPart;
  const start = (p: number) => (counts === undefined ? p * chunksPerPart : sum(counts.slice(0, p)));
  return { info, n, root, peer, part, start };
}

/**
 * The buffers of every rank, in chunks, by rank.
 * @example
 * bufferChunks("all_gather", { numRanks: 2, chunksPerPart: 3 }) // [{ input: 3, output: 6 }, { input: 3, output: 6 }]
 */
export function bufferChunks(op: OperationName, options: ConditionOptions): readonly BufferChunks[] {
  const { info, n, root, peer, part, start } = geometry(op, options);
  return Array.from({ length: n }, (_, rank) => {
    if (op === "all_to_all_v") {
      const rows = options.sendCounts as readonly (readonly number[])[];
      return { input: sum(rows[rank] ?? []), output: sum(rows.map((row) => row[rank] ?? 0)) };
    }
    if (op === "send" || op === "recv") {
      return { input: rank === root ? part(0) : 0, output: rank === peer ? part(0) : 0 };
    }
    const size = (extent: OperationInfo["input"], at: OperationInfo["inputAt"]) =>
      extent === "none" || (at === "root" && rank !== root) ? 0 : extent === "parts" ? start(n) : part(rank);
    return { input: size(info.input, info.inputAt), output: size(info.output, info.outputAt) };
  });
}

/** The input chunks that hold data before the operation, by rank: all of those that `bufferChunks` counts. */
export function precondition(op: OperationName, options: ConditionOptions): readonly (readonly ChunkRef[])[] {
  return bufferChunks(op, options).map(({ input }, rank) =>
    Array.from({ length: input }, (_, chunk) => ({ rank, chunk })),
  );
}

/**
 * What every output chunk holds after the operation, by rank and chunk.
 * @throws InvalidArgumentError when counts are missing or the sizes are not positive integers
 * @example
 * postcondition("broadcast", { numRanks: 2 })[1] // [{ kind: "copy", from: { rank: 0, chunk: 0 } }]
 */
export function postcondition(op: OperationName, options: ConditionOptions): readonly (readonly ChunkValue[])[] {
  const geo = geometry(op, options);
  const { n, root, start } = geo;
  const copy = (rank: number, chunk: number): ChunkValue => ({ kind: "copy", from: { rank, chunk } });
  const reduced = (chunk: number): ChunkValue => ({
    kind: "reduce",
    from: Array.from({ length: n }, (_, rank) => ({ rank, chunk })),
  });
  const outputChunk = (rank: number, chunk: number): ChunkValue => {
    switch (op) {
      case "all_reduce":
      case "reduce":
        return reduced(chunk);
      case "broadcast":
      case "send":
      case "recv":
        return copy(root, chunk);
      case "reduce_scatter":
      case "reduce_scatter_v":
        return reduced(start(rank) + chunk);
      case "scatter":
        return copy(root, start(rank) + chunk);
      case "all_gather":
      case "all_gather_v":
      case "gather": {
        const from = partOf(chunk, n, start);
        return copy(from, chunk - start(from));
      }
      case "all_to_all": {
        const from = partOf(chunk, n, start);
        return copy(from, start(rank) + (chunk - start(from)));
      }
      case "all_to_all_v":
        return allToAllVChunk(options.sendCounts as readonly (readonly number[])[], rank, chunk);
      case "barrier":
        throw new InvariantError("a barrier has no output chunks");
    }
  };
  return bufferChunks(op, options).map(({ output }, rank) =>
    Array.from({ length: output }, (_, chunk) => outputChunk(rank, chunk)),
  );
}

/** The part that a chunk of a buffer of parts belongs to. */
function partOf(chunk: number, n: number, start: (p: number) => number): number {
  let p = 0;
  while (p < n - 1 && start(p + 1) <= chunk) p++;
  return p;
}

function allToAllVChunk(rows: readonly (readonly number[])[], rank: number, chunk: number): ChunkValue {
  let from = 0;
  let base = 0;
  while (chunk >= base + (rows[from]?.[rank] ?? 0)) {
    base += rows[from]?.[rank] ?? 0;
    from++;
  }
  const offset = sum((rows[from] ?? []).slice(0, rank));
  return { kind: "copy", from: { rank: from, chunk: offset + chunk - base } };
}

/**
 * Says how `actual` differs from the postcondition, in words, or `undefined` when it does not. `actual` is what a
 * schedule left in one output chunk: the multiset of input chunks that were combined there.
 */
export function explainChunk(expected: ChunkValue, actual: readonly ChunkRef[]): string | undefined {
  const key = (ref: ChunkRef) => `${ref.rank}:${ref.chunk}`;
  const wanted = (expected.kind === "copy" ? [expected.from] : expected.from).map(key).sort();
  const got = actual.map(key).sort();
  if (wanted.length === got.length && wanted.every((k, i) => k === got[i])) return undefined;
  return `holds {${got.join(", ")}}, expected {${wanted.join(", ")}} (rank:chunk of the inputs combined)`;
}
