/** The strand machine's operations as data, before they have addresses: what `lower.ts` makes of a plan's. */
import type { BufferKind, GroupSlice, PlanReduceOp } from "../../../authoring/plan/index.ts";
import type { FarForm } from "../transport.ts";
import type { Code } from "./image.ts";
import type { CounterRef } from "./leading-sync.ts";

/** One stretch of a buffer: chunks from `chunk` of part `segment` on. */
export interface Stretch {
  readonly rank: number;
  readonly buffer: BufferKind;
  readonly packets: boolean;
  readonly segment: number;
  readonly chunk: number;
}

/** A data operation, or the part of one whose ranges are each one stretch. */
export interface DataRecord {
  readonly code: Extract<Code, "copy" | "move" | "pack" | "unpack" | "forward" | "reducePackets">;
  readonly ins: readonly Stretch[];
  readonly outs: readonly Stretch[];
  readonly op: PlanReduceOp | undefined;
  /** Chunks of the whole operation, and which of them this record handles. */
  readonly chunks: number;
  readonly from: number;
  readonly to: number;
  readonly tbg: GroupSlice | undefined;
  readonly windowed: boolean;
  readonly raw: boolean;
}
/**
 * Data from or for ranks whose memory is not this one, which the machine leaves to `far-run.ts`. `packets`: plain data
 * arrives as packets; `raw`: packets arrive as they lie here, with the number of the launch, which all ranks count alike.
 */
export interface FarRecord extends Omit<DataRecord, "code"> {
  readonly code: "far";
  readonly form: FarForm;
}
/** Waits until all plain data that this rank put at `ranks` is there. */
export interface FenceRecord {
  readonly code: "fence";
  readonly ranks: readonly number[];
}
export type SyncRecord =
  | { readonly code: "signal"; readonly counters: readonly CounterRef[]; readonly relaxed: boolean }
  | { readonly code: "wait"; readonly counters: readonly Counted[]; readonly relaxed: boolean }
  | { readonly code: "barrier"; readonly barrier: number; readonly numStrands: number }
  | { readonly code: "acquire"; readonly semaphores: readonly Counted[] }
  | { readonly code: "release"; readonly semaphores: readonly number[] }
  | { readonly code: "loop"; readonly numChunks: number; readonly unitBytes: number; readonly length: number }
  | { readonly code: "repeat"; readonly length: number }
  | { readonly code: "end" };
/** A counter or semaphore, and how often one operation names it. */
export interface Counted {
  readonly id: number;
  readonly times: number;
}

export interface StrandRecord {
  readonly record: DataRecord | SyncRecord;
  /** Index of the operation in the strand, and in the pipeline's body: for reports. */
  readonly op: number;
  readonly body: number | undefined;
}

/** A strand's record where some ranks are far. */
export interface PartedRecord extends Omit<StrandRecord, "record"> {
  readonly record: StrandRecord["record"] | FarRecord | FenceRecord;
}
