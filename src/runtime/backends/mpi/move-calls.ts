/**
 * Calls that move data and reduce nothing, as MPI makes them. Elements go as integers of their size: MPI looks into none.
 * A rank's own part is put in place first, so that MPI's in-place forms serve every call.
 */
import type { OperationName } from "../../../collectives/index.ts";
import { type DType, sizeOf, UnsupportedError } from "../../../core/index.ts";
import type { MpiHandles } from "../../../foreign/mpi/index.ts";
import { emptyAddress, type HostAddresses, part, type Span } from "../../memory/index.ts";
import { type Activity, type CallTarget, SingleCall, SteppedCall } from "./mpi-entry.ts";

/** MPI counts elements with a C int. */
const MAX_COUNT = 2 ** 31 - 1;
/**
 * Largest stretch that one call of MPI moves or reduces: within one look at a call MPI may do all the work of it, and the
 * event loop stands still meanwhile.
 */
export const PIECE_BYTES = 2 * 2 ** 20;

export const EMPTY: Span = Object.freeze({ bytes: new Uint8Array(0), address: emptyAddress });

/** One call with its memory. */
export interface MpiCall {
  readonly op: OperationName;
  readonly dtype: DType;
  /** Elements of one part. */
  readonly count: number;
  readonly root: number;
  /** This rank within the group, and how many there are. */
  readonly rank: number;
  readonly size: number;
  readonly counts: readonly number[] | undefined;
  readonly sendCounts: readonly number[];
  readonly recvCounts: readonly number[];
  /** What this rank gives; empty where it gives nothing. */
  readonly send: Span;
  /** Where its result goes; empty where it has none. */
  readonly recv: Span;
}

/** The type that moves elements of a size. */
export function moveType(handles: MpiHandles, dtype: DType): number {
  const types = { 1: "u8", 2: "u16", 4: "u32", 8: "u64" } as const;
  return handles.dtypes[types[sizeOf(dtype) as 1 | 2 | 4 | 8]];
}

/** Lists of C ints that MPI reads for as long as a call runs. */
export class CountLists {
  readonly #kept: Int32Array[] = [];
  readonly #addresses: HostAddresses;

  constructor(addresses: HostAddresses) {
    this.#addresses = addresses;
  }

  /** The addresses of counts and of where each part begins. */
  of(counts: readonly number[]): readonly [counts: number, offsets: number] {
    let at = 0;
    const offsets = counts.map((count) => {
      const start = at;
      at += count;
      return start;
    });
    refuseLarge(at);
    return [this.#add(Int32Array.from(counts)), this.#add(Int32Array.from(offsets))];
  }

  #add(list: Int32Array): number {
    this.#kept.push(list);
    return this.#addresses.of(list);
  }
}

/** @throws UnsupportedError for more elements than MPI can say in one call */
export function refuseLarge(count: number): void {
  if (count <= MAX_COUNT) return;
  throw new UnsupportedError(
    `a call of ${count} elements over all ranks on the mpi backend`,
    `MPI 3 counts with 32 bits: at most ${MAX_COUNT} elements, so cut it into several calls`,
  );
}

const sum = (counts: readonly number[]) => counts.reduce((a, b) => a + b, 0);

/** Puts a rank's own part where the result has it. */
function putOwn({ send, recv }: MpiCall, offset: number): void {
  if (send.bytes.length === 0 || send.address === recv.address + offset) return;
  recv.bytes.set(send.bytes, offset);
}

export const barrierCall = (): Activity =>
  new SingleCall("MPI_Ibarrier", ({ mpi, comm }, request) => mpi.library.api.MPI_Ibarrier(comm, request));

/** What moves the call's data. */
export function moveCall(call: MpiCall): Activity {
  const { op, count, size, rank, root, dtype, send, recv } = call;
  const width = sizeOf(dtype);
  if (op === "all_gather" || op === "all_to_all" || op === "gather" || op === "scatter") refuseLarge(count * size);
  switch (op) {
    case "broadcast":
      return broadcast(call);
    case "all_gather":
      if (count === 0) return new SingleCall("MPI_Iallgather", undefined);
      return new SingleCall("MPI_Iallgather", ({ mpi, comm }, request) => {
        const { api, abi, handles } = mpi.library;
        const type = moveType(handles, dtype);
        putOwn(call, rank * count * width);
        return api.MPI_Iallgather(abi.inPlace, 0, type, recv.address, count, type, comm, request);
      });
    case "all_gather_v": {
      const counts = call.counts ?? [];
      if (sum(counts) === 0) return new SingleCall("MPI_Iallgatherv", undefined);
      refuseLarge(sum(counts));
      return withLists("MPI_Iallgatherv", ({ mpi, comm }, request, lists) => {
        const { api, abi, handles } = mpi.library;
        const type = moveType(handles, dtype);
        putOwn(call, sum(counts.slice(0, rank)) * width);
        const [sizes, offsets] = lists.of(counts);
        return api.MPI_Iallgatherv(abi.inPlace, 0, type, recv.address, sizes, offsets, type, comm, request);
      });
    }
    case "all_to_all":
      if (count === 0) return new SingleCall("MPI_Ialltoall", undefined);
      return new SingleCall("MPI_Ialltoall", ({ mpi, comm }, request) => {
        const type = moveType(mpi.library.handles, dtype);
        return mpi.library.api.MPI_Ialltoall(send.address, count, type, recv.address, count, type, comm, request);
      });
    case "all_to_all_v":
      refuseLarge(Math.max(sum(call.sendCounts), sum(call.recvCounts)));
      return withLists("MPI_Ialltoallv", ({ mpi, comm }, request, lists) => {
        const type = moveType(mpi.library.handles, dtype);
        const [sizes, offsets] = lists.of(call.sendCounts);
        const [recvSizes, recvOffsets] = lists.of(call.recvCounts);
        const from = [send.address, sizes, offsets, type] as const;
        return mpi.library.api.MPI_Ialltoallv(...from, recv.address, recvSizes, recvOffsets, type, comm, request);
      });
    case "gather":
      if (count === 0) return new SingleCall("MPI_Igather", undefined);
      return new SingleCall("MPI_Igather", ({ mpi, comm }, request) => {
        const { api, abi, handles } = mpi.library;
        const type = moveType(handles, dtype);
        if (rank !== root) return api.MPI_Igather(send.address, count, type, 0, 0, type, root, comm, request);
        putOwn(call, rank * count * width);
        return api.MPI_Igather(abi.inPlace, 0, type, recv.address, count, type, root, comm, request);
      });
    default:
      if (count === 0) return new SingleCall("MPI_Iscatter", undefined);
      return new SingleCall("MPI_Iscatter", ({ mpi, comm }, request) => {
        const { api, abi, handles } = mpi.library;
        const type = moveType(handles, dtype);
        if (rank !== root) return api.MPI_Iscatter(0, 0, type, recv.address, count, type, root, comm, request);
        const own = part(send, rank * count * width, count * width);
        if (own.address !== recv.address) recv.bytes.set(own.bytes);
        return api.MPI_Iscatter(send.address, count, type, abi.inPlace, count, type, root, comm, request);
      });
  }
}

/** A call with lists that live as long as it does. */
function withLists(
  symbol: string,
  issue: (target: CallTarget, request: number, lists: CountLists) => number,
): Activity {
  let lists: CountLists | undefined;
  return new SingleCall(symbol, (target, request) => {
    lists = new CountLists(target.mpi.addresses);
    return issue(target, request, lists);
  });
}

/** A broadcast: large ones in pieces. */
function broadcast(call: MpiCall): Activity {
  const { dtype, count, root, rank, send, recv } = call;
  const width = sizeOf(dtype);
  if (count === 0) return new SingleCall("MPI_Ibcast", undefined);
  const data = rank === root ? send : recv;
  const issue = (span: Span) => (target: CallTarget, request: number) => {
    const type = moveType(target.mpi.library.handles, dtype);
    const elements = span.bytes.length / width;
    return target.mpi.library.api.MPI_Ibcast(span.address, elements, type, root, target.comm, request);
  };
  const ownResult = () => {
    if (rank === root && recv.address !== send.address) recv.bytes.set(send.bytes);
  };
  if (data.bytes.length <= PIECE_BYTES) {
    return new SingleCall("MPI_Ibcast", (target, request) => {
      ownResult();
      return issue(data)(target, request);
    });
  }
  return new SteppedCall(function* (steps) {
    ownResult();
    for (let at = 0; at < data.bytes.length; at += PIECE_BYTES) {
      steps.issue("MPI_Ibcast", issue(part(data, at, Math.min(PIECE_BYTES, data.bytes.length - at))));
      yield;
    }
  });
}
