/**
 * Reductions. MPI's own operators serve where their meaning is chorale's; otherwise MPI moves the bytes and the kernels
 * reduce them (reduction-kernels.ts): each rank reduces a share of every piece, and the shares are brought together.
 */
import { type DType, type ReduceOp, sizeOf } from "../../../core/index.ts";
import type { MpiDType, MpiOpName } from "../../../foreign/mpi/index.ts";
import { overlaps, part, type Span } from "../../memory/index.ts";
import { CountLists, EMPTY, type MpiCall, moveType, PIECE_BYTES, refuseLarge } from "./move-calls.ts";
import { type Activity, type CallTarget, SingleCall, SteppedCall, type Steps } from "./mpi-entry.ts";
import type { ReductionKernels } from "./reduction-kernels.ts";

/**
 * Operators of MPI that mean what chorale's do, by element type. Not here: min and max of floats, which drop NaN; those of
 * unsigned integers, which MPICH 4.0.2 compares as signed (also from C); 8-bit integers, which Open MPI may saturate.
 */
const INTEGER_OPS: readonly MpiOpName[] = ["sum", "prod", "band", "bor", "bxor"];
const SIGNED_OPS: readonly MpiOpName[] = [...INTEGER_OPS, "min", "max"];
const NATIVE: { readonly [D in DType]?: readonly MpiOpName[] } = {
  f32: ["sum", "prod"],
  f64: ["sum", "prod"],
  i32: SIGNED_OPS,
  u32: INTEGER_OPS,
  i64: SIGNED_OPS,
  u64: INTEGER_OPS,
};

interface Reduction extends MpiCall {
  readonly redop: ReduceOp;
  /** Made when they are first needed. */
  readonly kernels: () => ReductionKernels;
}

/** The operator that MPI applies, if it has one for this call; averages and scaled sums are sums to it. */
export function nativeOp(dtype: DType, redop: ReduceOp): MpiOpName | undefined {
  const name = typeof redop === "object" || redop === "avg" ? "sum" : redop;
  return NATIVE[dtype]?.find((one) => one === name);
}

/** Whether the result is MPI's own, with nothing to do before or after. */
export const isPlain = (redop: ReduceOp) => typeof redop === "string" && redop !== "avg";

/** What reduces. */
export function reduceCall(call: Reduction): Activity {
  const op = nativeOp(call.dtype, call.redop);
  const total = call.counts === undefined ? call.count : call.counts.reduce((a, b) => a + b, 0);
  if (total === 0) return new SingleCall("MPI_Iallreduce", undefined);
  if (call.op === "reduce_scatter" || call.op === "reduce_scatter_v") {
    refuseLarge(call.counts === undefined ? total * call.size : total);
  }
  if (op === undefined) return new SteppedCall((steps) => reduceByKernels(call, steps));
  const isElementwise = call.op === "all_reduce" || call.op === "reduce";
  const isLarge = isElementwise && call.count * sizeOf(call.dtype) > PIECE_BYTES;
  // The result of a scattered reduction may lie in its own input, of which MPI's in-place form knows another place.
  const liesInInput = !isElementwise && overlaps(call.recv, call.send);
  if (isPlain(call.redop) && !isLarge && !liesInInput) return plainCall(call, op, call.send, call.recv);
  return new SteppedCall((steps) => reduceByMpi(call, op, steps));
}

/** One call of MPI's reduction. */
function plainCall(call: Reduction, op: MpiOpName, send: Span, recv: Span): Activity {
  const lists: CountLists[] = [];
  if (!isInPlace(call, send, recv)) {
    return new SingleCall(symbolOf(call), (target, request) =>
      issueReduction(call, op, send, recv, lists)(target, request),
    );
  }
  let giveBack = () => {};
  return new SingleCall(
    symbolOf(call),
    (target, request) => {
      const { staging } = target.mpi;
      const copy = staging.copyOf(send.bytes);
      giveBack = () => staging.give(copy);
      return issueReduction(call, op, copy.span, recv, lists)(target, request);
    },
    () => giveBack(),
  );
}

/**
 * Whether an all-reduce's input must be copied. MPI has MPI_IN_PLACE for calls that are in place on all ranks (MPI 3.1, 5.9.6):
 * chorale leaves that to each of them, and Open MPI 4.1 then runs different algorithms on them, which hang. A copy costs less
 * than it seems: Open MPI's own calls in place take as long.
 */
const isInPlace = ({ op }: Reduction, send: Span, recv: Span) => op === "all_reduce" && send.address === recv.address;

const symbolOf = ({ op }: Reduction) =>
  op === "all_reduce" ? "MPI_Iallreduce" : op === "reduce" ? "MPI_Ireduce" : "MPI_Ireduce_scatter";

/** @param keep holds lists that MPI reads for as long as the call runs */
function issueReduction(call: Reduction, op: MpiOpName, send: Span, recv: Span, keep: CountLists[]) {
  return ({ mpi, comm, rank }: CallTarget, request: number): number => {
    const { api, abi, handles } = mpi.library;
    const type = handles.dtypes[call.dtype as MpiDType];
    const operator = handles.ops[op];
    const count = send.bytes.length / sizeOf(call.dtype);
    switch (call.op) {
      case "all_reduce":
        return api.MPI_Iallreduce(send.address, recv.address, count, type, operator, comm, request);
      case "reduce": {
        const from = rank === call.root && send.address === recv.address ? abi.inPlace : send.address;
        const to = rank === call.root ? recv.address : 0;
        return api.MPI_Ireduce(from, to, count, type, operator, call.root, comm, request);
      }
      case "reduce_scatter_v": {
        const lists = new CountLists(mpi.addresses);
        keep.push(lists);
        const [counts] = lists.of(call.counts ?? []);
        return api.MPI_Ireduce_scatter(send.address, recv.address, counts, type, operator, comm, request);
      }
      default:
        return api.MPI_Ireduce_scatter_block(send.address, recv.address, call.count, type, operator, comm, request);
    }
  };
}

/** MPI's reduction with what goes before it (scaling) and behind it (averages), large ones in pieces. */
function* reduceByMpi(call: Reduction, op: MpiOpName, steps: Steps): Generator<void> {
  const { dtype, redop, size, recv } = call;
  const isElementwise = call.op === "all_reduce" || call.op === "reduce";
  const kernels = isPlain(redop) ? undefined : call.kernels();
  const length = call.send.bytes.length;
  const pieceBytes = isElementwise ? PIECE_BYTES : length;
  // Fresh memory where the result must not be written yet: it lies in the input, or this rank has none.
  const isApart = !isElementwise && overlaps(recv, call.send);
  const target = isApart ? steps.mpi.addresses.fresh(recv.bytes.length) : recv;
  const scaled = typeof redop === "object" ? steps.mpi.addresses.fresh(Math.min(pieceBytes, length)) : undefined;
  const keep: CountLists[] = [];
  for (let at = 0; at < length; at += pieceBytes) {
    const bytes = Math.min(pieceBytes, length - at);
    let from = part(call.send, at, bytes);
    const to = isElementwise ? (target.bytes.length === 0 ? EMPTY : part(target, at, bytes)) : target;
    if (scaled !== undefined) {
      from = part(scaled, 0, bytes);
      const input = [call.send.bytes.subarray(at, at + bytes)];
      for (const [start, end] of tiles(bytes)) {
        kernels?.run(dtype, redop, size, input, from.bytes, start, end);
        if (end < bytes) yield;
      }
    }
    const copy = isInPlace(call, from, to) ? steps.mpi.staging.copyOf(from.bytes) : undefined;
    steps.issue(symbolOf(call), issueReduction(call, op, copy?.span ?? from, to, keep));
    yield;
    if (copy !== undefined) steps.mpi.staging.give(copy);
    if (redop === "avg" && to.bytes.length > 0) {
      for (const [start, end] of tiles(to.bytes.length)) {
        kernels?.run(dtype, "avg", size, [to.bytes], to.bytes, start, end);
        if (end < to.bytes.length) yield;
      }
    }
  }
  if (isApart) recv.bytes.set(target.bytes);
}

/** Stretches of work that a thread does between two looks at everything else. */
function tiles(length: number): readonly (readonly [start: number, end: number])[] {
  const found: [number, number][] = [];
  for (let at = 0; at < length; at += PIECE_BYTES / 4) found.push([at, Math.min(length, at + PIECE_BYTES / 4)]);
  return found;
}

function* reduceByKernels(call: Reduction, steps: Steps): Generator<void> {
  if (call.op === "all_reduce" || call.op === "reduce") yield* reducePieces(call, steps);
  else yield* reduceParts(call, steps);
}

/** Element ranges of the shares of `count` elements, one per rank. */
function shares(count: number, size: number): readonly number[] {
  return Array.from({ length: size }, (_, r) => Math.floor((count * (r + 1)) / size) - Math.floor((count * r) / size));
}

const sumOf = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

/** An all-reduce or a reduce: of every piece each rank gets its share of all, reduces it, and passes it on. */
function* reducePieces(call: Reduction, steps: Steps): Generator<void> {
  const { dtype, redop, size, rank, root } = call;
  const width = sizeOf(dtype);
  const { addresses, library } = steps.mpi;
  const type = moveType(library.handles, dtype);
  const length = call.send.bytes.length;
  const keep: CountLists[] = [];
  for (let at = 0; at < length; at += PIECE_BYTES) {
    const bytes = Math.min(PIECE_BYTES, length - at);
    const sizes = shares(bytes / width, size);
    const mine = sizes[rank] ?? 0;
    const given = Array.from({ length: size }, () => mine);
    const from = part(call.send, at, bytes);
    const all = addresses.fresh(mine * size * width);
    const lists = new CountLists(addresses);
    keep.push(lists);
    const [sendSizes, sendOffsets] = lists.of(sizes);
    const [recvSizes, recvOffsets] = lists.of(given);
    steps.issue("MPI_Ialltoallv", ({ comm }, request) =>
      library.api.MPI_Ialltoallv(
        ...[from.address, sendSizes, sendOffsets, type, all.address, recvSizes, recvOffsets, type, comm, request],
      ),
    );
    yield;
    const inputs = Array.from({ length: size }, (_, r) => part(all, r * mine * width, mine * width).bytes);
    const offset = sumOf(sizes.slice(0, rank)) * width;
    const isEverywhere = call.op === "all_reduce";
    const hasResult = isEverywhere || rank === root;
    const share = hasResult ? part(call.recv, at + offset, mine * width) : addresses.fresh(mine * width);
    call.kernels().run(dtype, redop, size, inputs, share.bytes);
    const to = hasResult ? part(call.recv, at, bytes) : EMPTY;
    const { api, abi } = library;
    if (isEverywhere) {
      steps.issue("MPI_Iallgatherv", ({ comm }, request) =>
        api.MPI_Iallgatherv(abi.inPlace, 0, type, to.address, sendSizes, sendOffsets, type, comm, request),
      );
    } else {
      const own = rank === root ? abi.inPlace : share.address;
      const target = [to.address, sendSizes, sendOffsets, type, root] as const;
      steps.issue("MPI_Igatherv", ({ comm }, request) => api.MPI_Igatherv(own, mine, type, ...target, comm, request));
    }
    yield;
  }
}

/** A scattered reduction: each rank gets its part of all, and reduces it. */
function* reduceParts(call: Reduction, steps: Steps): Generator<void> {
  const { dtype, redop, size, rank, recv, send } = call;
  const width = sizeOf(dtype);
  const { addresses, library } = steps.mpi;
  const type = moveType(library.handles, dtype);
  const sizes = call.counts ?? Array.from({ length: size }, () => call.count);
  const mine = sizes[rank] ?? 0;
  const all = addresses.fresh(mine * size * width);
  const lists = new CountLists(addresses);
  const [sendSizes, sendOffsets] = lists.of(sizes);
  const [recvSizes, recvOffsets] = lists.of(Array.from({ length: size }, () => mine));
  steps.issue("MPI_Ialltoallv", ({ comm }, request) =>
    library.api.MPI_Ialltoallv(
      ...[send.address, sendSizes, sendOffsets, type, all.address, recvSizes, recvOffsets, type, comm, request],
    ),
  );
  yield;
  const inputs = Array.from({ length: size }, (_, r) => part(all, r * mine * width, mine * width).bytes);
  for (const [start, end] of tiles(mine * width)) {
    call.kernels().run(dtype, redop, size, inputs, recv.bytes, start, end);
    if (end < mine * width) yield;
  }
}
