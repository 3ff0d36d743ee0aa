/** What a benchmark of one operation is asked for, and what it gives. Columns as nccl-tests have them. */
import type { OperationName } from "../../../authoring/collectives/index.ts";
import type { DType, NamedReduceOp } from "../../../core/index.ts";

/** `wait`: each call is driven to its end by `wait()`. `await`: by the event loop. */
export type Drive = "wait" | "await";

export interface BenchJob {
  readonly op: OperationName;
  readonly dtype: DType;
  readonly redop: NamedReduceOp;
  readonly root: number;
  /** Sizes as nccl-tests prints them: the larger of a rank's two buffers, bytes. */
  readonly sizes: readonly number[];
  readonly drive: Drive;
  /** Calls per size; chosen by time when absent. */
  readonly iterations?: number;
  /** Calls per size, by place in `sizes`; before `iterations`. */
  readonly iterationsBySize?: readonly number[];
  readonly warmup?: number;
  /** Checks the result of one call per size and placement. */
  readonly check: boolean;
  /** Measures the in-place form too. */
  readonly inPlace: boolean;
}

/** One measurement: mean time of a call over the ranks, and bandwidths in GB/s (1e9 bytes). */
export interface Measurement {
  readonly timeUs: number;
  readonly algbwGBps: number;
  readonly busbwGBps: number;
  /** Wrong elements over all ranks; `null` when not checked. */
  readonly wrong: number | null;
}

/** One size. The figures of the row are those of the out-of-place form. */
export interface BenchRow extends Measurement {
  readonly op: OperationName;
  readonly backend: string;
  readonly ranks: number;
  readonly sizeBytes: number;
  /** Elements of a part: what nccl-tests calls count. */
  readonly count: number;
  readonly dtype: DType;
  /** `none` for operations that do not reduce. */
  readonly redop: NamedReduceOp | "none";
  /** -1 for operations without a root, as nccl-tests prints it. */
  readonly root: number;
  readonly drive: Drive;
  readonly iterations: number;
  /** `null` for operations that have no in-place form. */
  readonly inPlace: Measurement | null;
}
