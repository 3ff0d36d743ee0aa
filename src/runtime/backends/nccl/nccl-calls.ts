/**
 * From one operation to NCCL calls on a stream. Operations that this NCCL lacks are composed: variants with counts from
 * grouped broadcasts, reductions or sends, all-to-all, gather and scatter (native from 2.28.3) from sends and receives.
 */
import { type ChoraleError, type DType, type NamedReduceOp, sizeOf } from "../../../core/index.ts";
import { NCCL_DTYPE, NCCL_RESULT, type NcclLibrary } from "../../../foreign/nccl/index.ts";
import type { CallEpilogue, WireOp } from "../../comm/index.ts";
import type { CudaStream } from "../../device/index.ts";
import type { LaunchEnds } from "../../executor/cuda/internal.ts";
import type { CallKind } from "../../progress/index.ts";

/** One operation with addresses, as this rank runs it. Counts in elements. */
export interface NcclCall {
  readonly op: WireOp;
  readonly dtype: DType;
  /** Elements of a part. */
  readonly count: number;
  readonly send: number;
  readonly recv: number;
  /** Root, or the other end of a send or receive. */
  readonly root: number;
  /** ncclRedOp_t */
  readonly redop: number;
  readonly counts: readonly number[];
  readonly sendCounts: readonly number[];
  readonly recvCounts: readonly number[];
  /** What serves the call in NCCL's place. */
  readonly plan?: CallServer | undefined;
  /** What is to be done behind it, on the stream; a plan that serves the call sees to it itself. */
  readonly step?: CallStep | undefined;
}

/** The epilogue of one call. */
export interface CallStep {
  readonly words: readonly bigint[];
  /** What one block must have of the result as a whole. */
  readonly unitBytes: number;
  /** Why no member can make it, once that is known: the call before it is not made either. */
  readonly refusal: ChoraleError | undefined;
  /** Puts it on the stream, as a kernel of its own. @param result address of what the call gave */
  launch(stream: CudaStream, result: number): void;
}

/** Something that may serve a call in NCCL's place. */
interface CallServer {
  /**
   * Whether members have told each other what they must know before the call may go to the stream: asked again until they have.
   * Absent: there is nothing to tell. @param isCaptured whether the call goes into a graph @throws MismatchError
   */
  readonly meets?: ((call: NcclCall, isCaptured: boolean) => boolean) | undefined;
  /** Whether other members' kernels or copies come to the call's buffers. */
  readonly reachesPeers: boolean;
  /** Puts the call on the stream. @returns false when it cannot, on no member of the group */
  launch(call: NcclCall, target: CallTarget): boolean;
}

/** A plan that serves a call; `kinds` are those of the calls that open it, its own first, then what is opened beside it. */
export interface Serving extends CallServer {
  readonly kinds: readonly CallKind[];
  /** Whether NCCL serves the call, and `kinds` are only opened with it. */
  readonly leavesToNccl?: boolean;
  /** Whether something else is to be asked for: no member can open it, which is known once they have tried. */
  readonly isRefused: boolean;
}

/** What plans are chosen by. */
export interface PlannedCall {
  readonly op: WireOp;
  readonly dtype: DType;
  /** Elements of a part. */
  readonly part: number;
  readonly redop: NamedReduceOp | undefined;
  /** Of a rooted collective; 0 of others. */
  readonly root: number;
  /** What a plan's kernel should do behind it, where it can. */
  readonly epilogue?: Pick<CallEpilogue, "kernel" | "numUnits" | "unitBytes"> | undefined;
}

/** What says which plan serves a call, if one does. All members ask the same and get the same answer. */
export interface CallPlans {
  serving(asked: PlannedCall): Serving | undefined;
  /** What the call itself names. @throws InvalidArgumentError, UnsupportedError */
  named(asked: PlannedCall, label: string): Serving | undefined;
}

/** Where a call runs. */
export interface CallTarget {
  readonly library: NcclLibrary;
  readonly comm: bigint;
  readonly stream: bigint;
  /** The stream itself. */
  readonly owner: CudaStream;
  readonly rank: number;
  readonly size: number;
  /** Where NCCL is to find memory that sends and receives use, when that is another address (see registrations.ts). */
  readonly pairAddress?: ((address: number) => number) | undefined;
  /** Where a kernel writes that it has ended, of the one launch that is the last of its call. */
  readonly ends?: LaunchEnds | undefined;
  /** Waits until NCCL has put its last call on the stream. */
  readonly untilAccepted: () => void;
  /** Copies on the stream, for the part that a rank keeps to itself. */
  readonly copy: (to: number, from: number, sizeBytes: number) => void;
}

/** Says whether a call is made of several NCCL calls, which then must stand in a group. */
export function isComposed(call: NcclCall, library: NcclLibrary): boolean {
  switch (call.op) {
    case "all_gather_v":
    case "reduce_scatter_v":
    case "all_to_all_v":
      return true;
    case "all_to_all":
      return library.optional.ncclAlltoAll === undefined;
    case "gather":
      return library.optional.ncclGather === undefined;
    case "scatter":
      return library.optional.ncclScatter === undefined;
    default:
      return false;
  }
}

/**
 * Runs `fn`, which issues calls, as one NCCL group. A throw does not leave the group open: every later call of the thread
 * would join it, and never run.
 * @returns NCCL's first status that is not success, or success
 */
export function inGroup({ api }: NcclLibrary, fn: () => number): number {
  const begun = api.ncclGroupStart();
  if (begun !== NCCL_RESULT.success) return begun;
  let status = 0;
  let ended = 0;
  try {
    status = fn();
  } finally {
    ended = api.ncclGroupEnd();
  }
  return status === 0 ? ended : status;
}

/** Operations that NCCL makes of sends and receives, by itself or here. */
const OF_PAIRS: ReadonlySet<WireOp> = new Set(["send", "recv", "all_to_all", "all_to_all_v", "gather", "scatter"]);

/** Issues the call. Nothing is issued for a count of 0, nor for a call whose step is refused. @returns NCCL's first status that is not success, or success */
export function issue(call: NcclCall, target: CallTarget): number {
  if (call.step?.refusal !== undefined) return NCCL_RESULT.success;
  if (call.plan?.launch(call, target) === true) return NCCL_RESULT.success;
  const status = issueToNccl(call, target);
  const { step } = call;
  if (step === undefined || (status !== NCCL_RESULT.success && status !== NCCL_RESULT.inProgress)) return status;
  target.untilAccepted();
  step.launch(target.owner, call.recv);
  return status;
}

function issueToNccl(given: NcclCall, target: CallTarget): number {
  const { pairAddress } = target;
  const call =
    pairAddress === undefined || !OF_PAIRS.has(given.op)
      ? given
      : { ...given, send: pairAddress(given.send), recv: pairAddress(given.recv) };
  const { library, comm, stream, rank, size } = target;
  const { api, optional } = library;
  const { count, send, recv, root, redop } = call;
  if (size === 1 && redop < FIRST_DYNAMIC_OP) return alone(call, target);
  const dtype = NCCL_DTYPE[call.dtype];
  const part = sizeOf(call.dtype) * count;
  switch (call.op) {
    case "all_reduce":
      return count === 0 ? 0 : api.ncclAllReduce(send, recv, count, dtype, redop, comm, stream);
    case "broadcast":
      return count === 0 ? 0 : api.ncclBroadcast(send, recv, count, dtype, root, comm, stream);
    case "reduce":
      return count === 0 ? 0 : api.ncclReduce(send, recv, count, dtype, redop, root, comm, stream);
    case "all_gather":
      return count === 0 ? 0 : api.ncclAllGather(send, recv, count, dtype, comm, stream);
    case "reduce_scatter":
      return count === 0 ? 0 : api.ncclReduceScatter(send, recv, count, dtype, redop, comm, stream);
    case "send":
      return count === 0 ? 0 : api.ncclSend(send, count, dtype, root, comm, stream);
    case "recv":
      return count === 0 ? 0 : api.ncclRecv(recv, count, dtype, root, comm, stream);
    case "barrier":
      return api.ncclAllReduce(send, recv, 1, dtype, 0, comm, stream);
    case "all_to_all":
      if (count === 0) return 0;
      if (optional.ncclAlltoAll !== undefined) return optional.ncclAlltoAll(send, recv, count, dtype, comm, stream);
      return first(ranks(size), (peer) =>
        exchange(target, dtype, peer, send + peer * part, count, recv + peer * part, count, part),
      );
    case "gather":
      if (count === 0) return 0;
      if (optional.ncclGather !== undefined) return optional.ncclGather(send, recv, count, dtype, root, comm, stream);
      return throughRoot(call, target, dtype, part, true);
    case "scatter":
      if (count === 0) return 0;
      if (optional.ncclScatter !== undefined) return optional.ncclScatter(send, recv, count, dtype, root, comm, stream);
      return throughRoot(call, target, dtype, part, false);
    case "all_gather_v": {
      const offsets = byteOffsets(call.counts, call.dtype);
      return first(ranks(size), (r) => {
        const to = recv + (offsets[r] ?? 0);
        const n = call.counts[r] ?? 0;
        return n === 0 ? 0 : api.ncclBroadcast(r === rank ? send : to, to, n, dtype, r, comm, stream);
      });
    }
    case "reduce_scatter_v": {
      const offsets = byteOffsets(call.counts, call.dtype);
      return first(ranks(size), (r) => {
        const from = send + (offsets[r] ?? 0);
        const n = call.counts[r] ?? 0;
        return n === 0 ? 0 : api.ncclReduce(from, r === rank ? recv : from, n, dtype, redop, r, comm, stream);
      });
    }
    case "all_to_all_v": {
      const from = byteOffsets(call.sendCounts, call.dtype);
      const to = byteOffsets(call.recvCounts, call.dtype);
      return first(ranks(size), (peer) => {
        const sends = call.sendCounts[peer] ?? 0;
        const own = sends * sizeOf(call.dtype);
        return exchange(
          target,
          dtype,
          peer,
          send + (from[peer] ?? 0),
          sends,
          recv + (to[peer] ?? 0),
          call.recvCounts[peer] ?? 0,
          own,
        );
      });
    }
    default:
      return NCCL_RESULT.invalidUsage;
  }
}

/** Operators from here on were made at run time. */
const FIRST_DYNAMIC_OP = 5;

/** In a group of one every operation is a copy. NCCL 2.28 has no kernels for some of them (fp8, averages). */
function alone(call: NcclCall, { copy }: CallTarget): number {
  const parts = call.counts.length > 0 ? call.counts : call.sendCounts;
  const total = parts.length > 0 ? parts.reduce((a, b) => a + b, 0) : call.count;
  if (call.op !== "barrier" && call.send !== call.recv && total > 0) {
    copy(call.recv, call.send, total * sizeOf(call.dtype));
  }
  return 0;
}

const ranks = (size: number) => Array.from({ length: size }, (_, rank) => rank);

/**
 * Runs all steps even after a failure, so that a group stays balanced: the peers make theirs.
 * @returns the first status that is not success @throws what the first step that threw did
 */
function first(peers: readonly number[], step: (peer: number) => number): number {
  let status = 0;
  const errors: unknown[] = [];
  for (const peer of peers) {
    try {
      const answer = step(peer);
      if (status === 0) status = answer;
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors[0];
  return status;
}

function byteOffsets(counts: readonly number[], dtype: DType): number[] {
  let offset = 0;
  return counts.map((count) => {
    const at = offset;
    offset += count * sizeOf(dtype);
    return at;
  });
}

function exchange(
  target: CallTarget,
  dtype: number,
  peer: number,
  send: number,
  sendCount: number,
  recv: number,
  recvCount: number,
  ownBytes: number,
): number {
  const { library, comm, stream, rank } = target;
  if (peer === rank) {
    if (ownBytes > 0) target.copy(recv, send, ownBytes);
    return 0;
  }
  const sent = sendCount === 0 ? 0 : library.api.ncclSend(send, sendCount, dtype, peer, comm, stream);
  const received = recvCount === 0 ? 0 : library.api.ncclRecv(recv, recvCount, dtype, peer, comm, stream);
  return sent === 0 ? received : sent;
}

/** What a root gathers of everybody, or scatters to everybody, one message for each. */
function throughRoot(call: NcclCall, target: CallTarget, dtype: number, part: number, gathers: boolean): number {
  const { library, comm, stream, rank, size } = target;
  const send = (from: number, peer: number) => library.api.ncclSend(from, call.count, dtype, peer, comm, stream);
  const receive = (to: number, peer: number) => library.api.ncclRecv(to, call.count, dtype, peer, comm, stream);
  if (rank !== call.root) return gathers ? send(call.send, call.root) : receive(call.recv, call.root);
  return first(ranks(size), (peer) => {
    const [from, to] = gathers ? [call.send, call.recv + peer * part] : [call.send + peer * part, call.recv];
    if (peer !== rank) return gathers ? receive(to, peer) : send(from, peer);
    if (to !== from) target.copy(to, from, part);
    return 0;
  });
}
