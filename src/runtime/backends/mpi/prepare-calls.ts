/** From a checked call to what MPI is asked for: its fingerprint, its memory, and its result. Nothing is published or sent. */
import { agreedCount, type Region, reportedCount } from "../../../collectives/index.ts";
import { invariant, sizeOf, type Tensor, tensor } from "../../../core/index.ts";
import { asTensor, type BarrierCall, packCall, rolesOf, type TensorCall } from "../../comm/index.ts";
import { deviceTensor, type RankDevice } from "../../device/index.ts";
import type { HostAddresses, Span } from "../../memory/index.ts";
import type { Arrival, CallSequence } from "../../progress/index.ts";
import type { CallServing, HostCall } from "./host-call.ts";
import { barrierCall, EMPTY, moveCall } from "./move-calls.ts";
import type { Activity } from "./mpi-entry.ts";
import { reduceCall } from "./reduce-calls.ts";
import type { ReductionKernels } from "./reduction-kernels.ts";
import { givingBack, StagedCall, StagedTensor } from "./staged-calls.ts";

export interface PrepareContext {
  readonly addresses: HostAddresses;
  readonly sequence: CallSequence;
  readonly kernels: () => ReductionKernels;
  /** Where the rank's tensors are, if they are on a device. */
  readonly at: RankDevice | undefined;
  /** What serves calls in place of MPI, if anything may. */
  readonly plans: CallServing | undefined;
  readonly rank: number;
  readonly size: number;
}

export interface Prepared {
  readonly op: TensorCall["call"]["op"];
  readonly arrivals: readonly Arrival[];
  readonly activity: Activity;
  /** Makes another activity for the same call, where its memory is the host's. */
  readonly make: (() => Activity) | undefined;
  /** The caller's memory that it reads or writes. */
  readonly regions: readonly Region[];
  readonly result: Tensor | undefined;
  readonly sizeBytes: number;
  /** Run when the call has ended. */
  readonly finish: readonly (() => void)[];
}

const NONE: readonly number[] = Object.freeze([]);

/** What stands for the tensors of one call. */
class CallMemory {
  readonly #context: PrepareContext;
  readonly #staged = new Map<Tensor, StagedTensor>();

  constructor(context: PrepareContext) {
    this.#context = context;
  }

  /** The tensor's own memory, or page-locked memory in its place. @throws what `StagedTensor` does */
  span(one: Tensor): Span {
    if (one.storage.kind !== "device") return this.#context.addresses.span(one.data);
    return this.#stage(one).span;
  }

  /** What stands for a tensor on the device. */
  of(one: Tensor): StagedTensor | undefined {
    return this.#staged.get(one);
  }

  get all(): readonly StagedTensor[] {
    return [...this.#staged.values()];
  }

  #stage(one: Tensor): StagedTensor {
    const { at } = this.#context;
    invariant(at !== undefined, "a device tensor on a rank without a device");
    let staged = this.#staged.get(one);
    if (staged === undefined) {
      staged = new StagedTensor(at, one);
      this.#staged.set(one, staged);
    }
    return staged;
  }
}

/** Prepares a collective. @throws OutOfMemoryError, UnsupportedError for more elements than MPI counts; no number is taken then */
export function prepareCollective(context: PrepareContext, checked: TensorCall): Prepared {
  const memory = new CallMemory(context);
  try {
    return prepareIn(memory, context, checked);
  } catch (error) {
    for (const one of memory.all) one.giveBack(true);
    throw error;
  }
}

function prepareIn(memory: CallMemory, context: PrepareContext, checked: TensorCall): Prepared {
  const { call, input, output, outputCount } = checked;
  const { op, dtype, counts, sendCounts, recvCounts, redop } = call;
  const { sequence, rank, size } = context;
  const { reads, writes, inPlace } = rolesOf(call);
  const given = asTensor(input);
  const target =
    output !== undefined ? asTensor(output) : inPlace || !writes ? given : freshTensor(context, given, outputCount);
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
    send: reads ? memory.span(given) : EMPTY,
    recv: writes ? memory.span(target) : EMPTY,
  };
  const byMpi = (one: HostCall) =>
    one.redop === undefined ? moveCall(one) : reduceCall({ ...one, redop: one.redop, kernels: context.kernels });
  const whole = redop === undefined ? made : { ...made, redop };
  const make = () => context.plans?.activity(whole, byMpi) ?? byMpi(whole);
  const inner = make();
  const [read, written] = [reads ? memory.of(given) : undefined, writes ? memory.of(target) : undefined];
  const arrival = sequence.of(op, dtype, count, { redop, root, counts, epilogue: checked.epilogue });
  const varies = sendCounts !== undefined && recvCounts !== undefined;
  const isStaged = read !== undefined || written !== undefined;
  return {
    op,
    arrivals: varies ? [arrival, ...sequence.pairs(dtype, rank, sendCounts, recvCounts)] : [arrival],
    activity: isStaged ? new StagedCall(inner, read, written) : inner,
    make: isStaged ? undefined : make,
    regions: output === undefined ? [input.region] : [input.region, output.region],
    result: target,
    sizeBytes: reportedCount(op, size, count) * sizeOf(dtype),
    finish: givingBack(memory.all),
  };
}

/** A result that the caller gave no memory for: on the device where the input is. */
function freshTensor({ at }: PrepareContext, input: Tensor, count: number): Tensor {
  if (at === undefined || input.storage.kind !== "device") return tensor(input.dtype, [count]);
  return deviceTensor(at.pool, at.main, input.dtype, [count], { generation: at.generation });
}

/** Prepares a barrier. */
export function prepareBarrier({ sequence }: PrepareContext, _call: BarrierCall): Prepared {
  return {
    op: "barrier",
    arrivals: [sequence.collective(packCall("barrier", undefined, undefined, 0), 0, 0)],
    activity: barrierCall(),
    make: undefined,
    regions: [],
    result: undefined,
    sizeBytes: 0,
    finish: [],
  };
}
