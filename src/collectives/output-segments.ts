/**
 * A collective in elements: which stretch of which input each stretch of a rank's output is made of. The reference
 * result of a call is its segments, copied or reduced.
 */
import { type DType, InvalidArgumentError, type ReduceOp, type TypedArray } from "../core/index.ts";
import type { OperationName } from "./operation-table.ts";
import { type Expected, referenceCopy, referenceReduce } from "./reference-results.ts";

/** `length` elements of the output from `at`: a copy of one rank's input from `start`, or the reduction of all ranks'. */
export interface Segment {
  readonly at: number;
  readonly length: number;
  readonly start: number;
  /** The rank copied from; absent for a reduction over all ranks. */
  readonly from?: number;
}

export interface SegmentOptions {
  readonly numRanks: number;
  readonly rank: number;
  /** Elements of a part. */
  readonly count: number;
  /** Root, or the sender of a point-to-point operation; 0 by default. */
  readonly root?: number;
  readonly counts?: readonly number[];
  /** `sendCounts[i][j]`: elements that rank i sends to rank j. */
  readonly sendCounts?: readonly (readonly number[])[];
}

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

/**
 * The segments of this rank's output; none when it has no output.
 * @example
 * outputSegments("scatter", { numRanks: 2, rank: 1, count: 3 }) // [{ at: 0, length: 3, start: 3, from: 0 }]
 */
export function outputSegments(op: OperationName, options: SegmentOptions): readonly Segment[] {
  const { numRanks: n, rank, count, root = 0 } = options;
  const counts = options.counts ?? [];
  const ranks = Array.from({ length: n }, (_, r) => r);
  switch (op) {
    case "all_reduce":
      return [{ at: 0, length: count, start: 0 }];
    case "reduce":
      return rank === root ? [{ at: 0, length: count, start: 0 }] : [];
    case "broadcast":
    case "recv":
      return [{ at: 0, length: count, start: 0, from: root }];
    case "gather":
      return rank === root ? ranks.map((from) => ({ at: from * count, length: count, start: 0, from })) : [];
    case "all_gather":
      return ranks.map((from) => ({ at: from * count, length: count, start: 0, from }));
    case "all_gather_v":
      return ranks.map((from) => ({ at: sum(counts.slice(0, from)), length: counts[from] ?? 0, start: 0, from }));
    case "reduce_scatter":
      return [{ at: 0, length: count, start: rank * count }];
    case "reduce_scatter_v":
      return [{ at: 0, length: counts[rank] ?? 0, start: sum(counts.slice(0, rank)) }];
    case "scatter":
      return [{ at: 0, length: count, start: rank * count, from: root }];
    case "all_to_all":
      return ranks.map((from) => ({ at: from * count, length: count, start: rank * count, from }));
    case "all_to_all_v": {
      const rows = options.sendCounts;
      if (rows === undefined) throw new InvalidArgumentError("sendCounts", rows, `${n} rows of ${n} counts`);
      let at = 0;
      return ranks.map((from) => {
        const row = rows[from] ?? [];
        const length = row[rank] ?? 0;
        const segment = { at, length, start: sum(row.slice(0, rank)), from };
        at += length;
        return segment;
      });
    }
    case "send":
    case "barrier":
      return [];
  }
}

/** A stretch of the expected output. */
export interface ExpectedSegment {
  readonly at: number;
  readonly expected: Expected;
}

/**
 * What a rank's output must be, segment by segment.
 * @param inputs every rank's whole input, by rank (bit patterns for 16- and 8-bit floats)
 */
export function referenceOutput(
  op: OperationName,
  dtype: DType,
  redop: ReduceOp,
  inputs: readonly TypedArray[],
  options: SegmentOptions,
): readonly ExpectedSegment[] {
  return outputSegments(op, options).map(({ at, length, start, from }) => ({
    at,
    expected:
      from === undefined
        ? referenceReduce(dtype, redop, inputs, start, start + length)
        : referenceCopy(dtype, inputs[from] as TypedArray, start, start + length),
  }));
}
