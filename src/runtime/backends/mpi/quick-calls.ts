/**
 * The short way for what programs call in their inner loops: an all-reduce of tensors in host memory by a named operator, with
 * no options but the output, in a group that has nothing pending. It checks the same things with fewer objects. What is
 * not of that form, or wrong, goes the long way (prepare-calls.ts), which gives it the same number and the same bytes.
 */
import { isLegal, REDUCE_OPS, type ReduceOp, type Storage, Tensor } from "../../../core/index.ts";
import type { MpiDType } from "../../../foreign/mpi/index.ts";
import type { Data, OutputOptions } from "../../comm/index.ts";
import { ExchangeCall } from "./host-exchange.ts";
import { PIECE_BYTES } from "./move-calls.ts";
import { type Activity, type EntryParts, SingleCall } from "./mpi-entry.ts";
import type { MpiProcess } from "./mpi-process.ts";
import { isOneRound, OneRoundReduction } from "./one-round-reduction.ts";
import type { PrepareContext } from "./prepare-calls.ts";
import { isPlain, nativeOp } from "./reduce-calls.ts";

const NAMED_OPS: ReadonlySet<unknown> = new Set(REDUCE_OPS);

const NONE: readonly number[] = Object.freeze([]);
const NO_COUNTS = { root: 0, counts: undefined, sendCounts: NONE, recvCounts: NONE } as const;

/** Whether a call may use this memory as it is: host memory of this generation that is not freed. */
function isUsable({ closed, generation, buffer, kind }: Storage, own: number): boolean {
  return closed === undefined && buffer !== undefined && kind !== "device" && (generation === 0 || generation === own);
}

/** @param generation of the world @returns undefined where the long way has to look */
export function quickAllReduce(
  { addresses, sequence, plans, rank, size }: PrepareContext,
  mpi: MpiProcess,
  generation: number,
  input: Data | undefined,
  options: OutputOptions & { readonly op?: ReduceOp },
): EntryParts | undefined {
  const { output = input, dtype: told, signal, timeoutMs, algorithm, op: redop = "sum" } = options;
  if (algorithm !== undefined || told !== undefined || signal !== undefined || timeoutMs !== undefined)
    return undefined;
  if (!(input instanceof Tensor) || !(output instanceof Tensor)) return undefined;
  if (typeof redop !== "string" || !NAMED_OPS.has(redop)) return undefined;
  const { dtype, sizeBytes, storage } = input;
  if (output.dtype !== dtype || output.size !== input.size || sizeBytes === 0 || sizeBytes > PIECE_BYTES)
    return undefined;
  if (!isUsable(storage, generation) || !isUsable(output.storage, generation) || !isLegal(redop, dtype))
    return undefined;
  const isInPlace = input.byteOffset === output.byteOffset;
  if (storage.buffer === output.storage.buffer && !isInPlace) return undefined;
  const addressOf = (one: Tensor) => addresses.at(one.storage.buffer as ArrayBufferLike, one.byteOffset);
  const by = plans === undefined ? "mpi" : plans.serves("all_reduce", dtype, sizeBytes);
  const native = by === "mpi" && isPlain(redop) ? nativeOp(dtype, redop) : undefined;
  let activity: Activity;
  if (by === "exchange" && plans !== undefined) {
    if (isOneRound(sizeBytes, size)) {
      const one = new OneRoundReduction(plans, {
        dtype,
        redop,
        send: addressOf(input),
        recv: addressOf(output),
        sizeBytes,
      });
      one.bring(mpi.library.copy);
      activity = one;
    } else {
      const [send, recv] = [addresses.span(input.data), addresses.span(output.data)];
      activity = new ExchangeCall(plans, {
        op: "all_reduce",
        dtype,
        count: input.size,
        redop,
        rank,
        size,
        send,
        recv,
        ...NO_COUNTS,
      });
    }
  } else {
    if (native === undefined || (isInPlace && storage.buffer === output.storage.buffer)) return undefined;
    const { dtypes, ops } = mpi.library.handles;
    const [send, recv, type, operator] = [addressOf(input), addressOf(output), dtypes[dtype as MpiDType], ops[native]];
    activity = new SingleCall("MPI_Iallreduce", ({ mpi: { library }, comm }, request) =>
      library.api.MPI_Iallreduce(send, recv, input.size, type, operator, comm, request),
    );
  }
  plans?.count("all_reduce", dtype, sizeBytes);
  return {
    op: "all_reduce",
    arrivals: [sequence.plain("all_reduce", dtype, input.size, redop, 0)],
    activities: [activity],
    regions: output === input ? [regionOf(input)] : [regionOf(input), regionOf(output)],
    result: output,
    sizeBytes,
  };
}

const regionOf = ({ storage, byteOffset, sizeBytes }: Tensor) => ({
  storage: storage.buffer ?? storage,
  byteOffset,
  sizeBytes,
});
