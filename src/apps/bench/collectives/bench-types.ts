/** What a benchmark of one operation is asked for, and what it gives. Columns as nccl-tests have them. */
import type { OperationName } from "../../../collectives/index.ts";
import type { DType, NamedReduceOp } from "../../../core/index.ts";
import type { Isolation } from "../../../runtime/world/index.ts";

/**
 * `wait`: each call is driven to its end by `wait()`. `await`: by the event loop. `queue`: calls are issued back to back
 * and only the last one is waited for, as nccl-tests does it.
 */
export const DRIVES = ["wait", "await", "queue"] as const;
export type Drive = (typeof DRIVES)[number];

/** `preMulSum` multiplies every input by 2 before the sum; the scalar is `PRE_MUL_SCALAR`. */
export type BenchRedop = NamedReduceOp | "preMulSum";
export const PRE_MUL_SCALAR = 2;

export interface BenchJob {
  readonly op: OperationName;
  readonly dtype: DType;
  readonly redop: BenchRedop;
  readonly root: number;
  readonly isolation: Isolation;
  /** Sizes as nccl-tests prints them: the larger of a rank's two buffers, bytes. */
  readonly sizes: readonly number[];
  readonly drive: Drive;
  /** Of the world that the job is for, where hosts bring their own numbers. */
  readonly numRanks?: number;
  /** Calls per loop; chosen by time when absent. */
  readonly iterations?: number;
  /** Calls per loop, by place in `sizes`; before `iterations`. */
  readonly iterationsBySize?: readonly number[];
  /** Loops per size; the median of their means counts. */
  readonly repeats: number;
  readonly warmup?: number;
  /** Calls captured in one graph that is replayed; 0: every call is issued. */
  readonly graphCalls: number;
  /** Checks the result of one call per size and placement. */
  readonly check: boolean;
  /** Measures the in-place form too. */
  readonly inPlace: boolean;
  /** What serves the calls in place of the choice by size: see `OutputOptions`. */
  readonly algorithm?: string;
}

/** One measurement: time of a call (a loop's mean, averaged over the ranks), and bandwidths in GB/s (1e9 bytes). */
export interface Measurement {
  /** The median over the loops. */
  readonly timeUs: number;
  /** The fastest and the slowest loop. */
  readonly minUs: number;
  readonly maxUs: number;
  readonly algbwGBps: number;
  readonly busbwGBps: number;
  /** Wrong elements over all ranks; `null` when not checked. */
  readonly wrong: number | null;
  /**
   * Share of the memory roofline: `memoryTraffic` of the call per second over what as many threads copy at the same working
   * set, measured in the same run. `null` on devices, and with more ranks than cores.
   */
  readonly roofline?: number | null;
}

/** One size. The figures of the row are those of the out-of-place form. */
export interface BenchRow extends Measurement {
  readonly op: OperationName;
  readonly backend: string;
  readonly ranks: number;
  /** What a rank ran in. */
  readonly isolation: Isolation;
  readonly sizeBytes: number;
  /** Elements of a part: what nccl-tests calls count. */
  readonly count: number;
  readonly dtype: DType;
  /** `none` for operations that do not reduce. */
  readonly redop: BenchRedop | "none";
  /** -1 for operations without a root, as nccl-tests prints it. */
  readonly root: number;
  readonly drive: Drive;
  /** Calls per loop. */
  readonly iterations: number;
  readonly repeats: number;
  /** Calls per graph; 0 when every call was issued. */
  readonly graphCalls: number;
  /** `null` for operations that have no in-place form. */
  readonly inPlace: Measurement | null;
}

/** What a rank gives back: rows, or why the backend cannot do it here. */
export type BenchReport =
  | { readonly rows: readonly BenchRow[] }
  | { readonly unsupported: string; readonly accepted: string }
  | { readonly algorithm: string; readonly accepted: string }
  | { readonly numRanks: number };
