/** From a checked call to what MPI is asked for: its fingerprint, its memory, and its result. Nothing is published or sent. */
import { agreedCount, type Region, reportedCount } from "../../../collectives/index.ts";
import { sizeOf, type Tensor, tensor } from "../../../core/index.ts";
import { asTensor, type BarrierCall, packCall, rolesOf, type TensorCall } from "../../comm/index.ts";
import type { HostAddresses } from "../../memory/index.ts";
import type { Arrival, CallSequence } from "../../progress/index.ts";
import type { HostCall } from "./host-call.ts";
import type { HostGroup } from "./host-plans.ts";
import { EMPTY, moveCall } from "./move-calls.ts";
import { type Activity, SingleCall } from "./mpi-entry.ts";
import { reduceCall } from "./reduce-calls.ts";
import type { ReductionKernels } from "./reduction-kernels.ts";

export interface PrepareContext {
  readonly addresses: HostAddresses;
  readonly sequence: CallSequence;
  readonly kernels: () => ReductionKernels;
  /** Where the group may run plans inside this host. */
  readonly plans: HostGroup | undefined;
  readonly rank: number;
  readonly size: number;
}

export interface Prepared {
  readonly op: TensorCall["call"]["op"];
  readonly arrivals: readonly Arrival[];
  readonly activity: Activity;
  /** The caller's memory that it reads or writes. */
  readonly regions: readonly Region[];
  readonly result: Tensor | undefined;
  readonly sizeBytes: number;
}

const NONE: readonly number[] = Object.freeze([]);

/** Prepares a collective. @throws OutOfMemoryError, UnsupportedError for more elements than MPI counts; no number is taken then */
export function prepareCollective(context: PrepareContext, checked: TensorCall): Prepared {
  const { call, input, output, outputCount } = checked;
  const { op, dtype, counts, sendCounts, recvCounts, redop } = call;
  const { addresses, sequence, rank, size } = context;
  const { reads, writes, inPlace } = rolesOf(call);
  const given = asTensor(input);
  const target = output !== undefined ? asTensor(output) : inPlace || !writes ? given : tensor(dtype, [outputCount]);
  const count = agreedCount(call);
  const { root = 0 } = call;
  const made = {
    op,
    dtype,
    count,
    root,
    rank,
    size,
    counts,
    sendCounts: sendCounts ?? NONE,
    recvCounts: recvCounts ?? NONE,
    send: reads ? addresses.span(given.data) : EMPTY,
    recv: writes ? addresses.span(target.data) : EMPTY,
  };
  const byMpi = (one: HostCall) =>
    one.redop === undefined ? moveCall(one) : reduceCall({ ...one, redop: one.redop, kernels: context.kernels });
  const whole = redop === undefined ? made : { ...made, redop };
  const activity = context.plans === undefined ? byMpi(whole) : context.plans.activity(whole, byMpi);
  const arrival = sequence.of(op, dtype, count, { redop, root, counts });
  const varies = sendCounts !== undefined && recvCounts !== undefined;
  return {
    op,
    arrivals: varies ? [arrival, ...sequence.pairs(dtype, rank, sendCounts, recvCounts)] : [arrival],
    activity,
    regions: output === undefined ? [input.region] : [input.region, output.region],
    result: target,
    sizeBytes: reportedCount(op, size, count) * sizeOf(dtype),
  };
}

/** Prepares a barrier. */
export function prepareBarrier({ sequence }: PrepareContext, _call: BarrierCall): Prepared {
  return {
    op: "barrier",
    arrivals: [sequence.collective(packCall("barrier", undefined, undefined, 0), 0, 0)],
    activity: new SingleCall("MPI_Ibarrier", ({ mpi, comm }, request) => mpi.library.api.MPI_Ibarrier(comm, request)),
    regions: [],
    result: undefined,
    sizeBytes: 0,
  };
}
