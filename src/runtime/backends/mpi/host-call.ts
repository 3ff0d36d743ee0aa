/** A call that may be served inside the host, and what every way of serving it needs. */
import { type ReduceOp, sizeOf } from "../../../core/index.ts";
import { type HostAddresses, overlaps, type Span } from "../../memory/index.ts";
import type { MpiCall } from "./move-calls.ts";

/** A call that may be served inside the host. */
export type HostCall = MpiCall & { readonly redop?: ReduceOp };

/** A call's input; a copy of it where a piece of the result would be written where a later piece of the input is read. */
export function apartFromResult({ send, recv, count, dtype }: HostCall, addresses: HostAddresses): Span {
  const isShifted = overlaps(send, recv) && (recv.address - send.address) % (count * sizeOf(dtype)) !== 0;
  if (!isShifted) return send;
  const copy = addresses.fresh(send.bytes.length);
  copy.bytes.set(send.bytes);
  return copy;
}
