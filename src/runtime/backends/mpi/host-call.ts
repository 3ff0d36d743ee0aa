/** A call that may be served inside the host, and what every way of serving it needs. */
import { type DType, type ReduceOp, sizeOf } from "../../../core/index.ts";
import { type HostAddresses, overlaps, type Span } from "../../memory/index.ts";
import type { MpiCall } from "./move-calls.ts";
import type { Activity } from "./mpi-entry.ts";

/** A call that may be served inside the host. */
export type HostCall = MpiCall & { readonly redop?: ReduceOp };

/** What serves the collectives of a group beside MPI. */
export interface CallServing {
  /** What makes a call. All members come to the same answer. @param mpi makes it by MPI alone */
  activity(call: HostCall, mpi: (call: HostCall) => Activity): Activity;
  /** Which of MPI and the exchange serves an all-reduce, where that is known and nothing has to be done before. */
  serves(collective: "all_reduce", dtype: DType, sizeBytes: number): "mpi" | "exchange" | undefined;
  /** Counts a call that was served as `serves` says. */
  count(collective: "all_reduce", dtype: DType, sizeBytes: number): void;
  /** Calls that each way served. */
  counts(): Record<string, number>;
  close(): void;
}

/** A call's input; a copy of it where a piece of the result would be written where a later piece of the input is read. */
export function apartFromResult({ send, recv, count, dtype }: HostCall, addresses: HostAddresses): Span {
  const isShifted = overlaps(send, recv) && (recv.address - send.address) % (count * sizeOf(dtype)) !== 0;
  if (!isShifted) return send;
  const copy = addresses.fresh(send.bytes.length);
  copy.bytes.set(send.bytes);
  return copy;
}
