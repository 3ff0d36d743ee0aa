/** What a communicator's queue holds: calls that run on the stream, and tasks of the host. */
import type { Allocation, DeviceStorage } from "../../device/index.ts";
import {
  type Arrival,
  type CallKind,
  type EntryParts as CommonParts,
  type QueuedWork,
  QueueEntry,
} from "../../progress/index.ts";
import type { NcclCall } from "./nccl-calls.ts";
import type { MainPoint } from "./stream-order.ts";

export interface EntryParts extends CommonParts {
  /** The only call, where there is one and nothing is staged: issued without a closure. */
  readonly single?: NcclCall;
  /** Issues on the stream. @returns NCCL's status */
  readonly run?: (comm: bigint) => number;
  /** Tensors' memory that it reads and writes: held until it has ended. */
  readonly source?: DeviceStorage | undefined;
  readonly target?: DeviceStorage | undefined;
  /** As `source` and `target`, of a call that has more. */
  readonly storages?: readonly DeviceStorage[];
  /** Collectives that go onto the stream with it: 1, but for graphs. */
  readonly numCalls?: number;
  /** Whether members have told each other what the call needs; of a `single` call, its plan's `meets`. */
  readonly meets?: ((isCaptured: boolean) => boolean) | undefined;
  /** Whether other members' kernels or copies come to the call's buffers; of a `single` call, what its plan says. */
  readonly reachesPeers?: boolean;
}

const NONE: readonly never[] = Object.freeze([]);

/**
 * What one call says of itself that stages nothing. All that make such calls write it here: objects of one shape, so that a barrier
 * among calls like each other has V8 compile nothing anew.
 */
export function partsOfCall(
  single: NcclCall,
  arrival: Arrival,
  kinds: readonly CallKind[],
  source: DeviceStorage | undefined,
  target: DeviceStorage | undefined,
  result: unknown,
  sizeBytes: number,
): EntryParts {
  return { op: single.op, arrivals: [arrival], kinds, single, source, target, result, sizeBytes };
}

export class Entry extends QueueEntry {
  readonly single: NcclCall | undefined;
  readonly run: EntryParts["run"];
  readonly source: DeviceStorage | undefined;
  readonly target: DeviceStorage | undefined;
  readonly storages: readonly DeviceStorage[];
  readonly numCalls: number;
  readonly meets: EntryParts["meets"];
  readonly reachesPeers: boolean;
  /** Others may come to the call's buffers by now, whatever becomes of it here. */
  isExposed = false;
  /** Where the main stream was when the call was taken, of one that was held back. */
  main: MainPoint | undefined = undefined;

  constructor(work: QueuedWork<unknown>, parts: EntryParts, timeoutMs: number) {
    super(work, parts, timeoutMs);
    this.single = parts.single;
    this.run = parts.run;
    this.source = parts.source;
    this.target = parts.target;
    this.storages = parts.storages ?? NONE;
    this.numCalls = parts.numCalls ?? 1;
    this.reachesPeers = parts.reachesPeers ?? parts.single?.plan?.reachesPeers ?? false;
    this.meets = parts.meets ?? (parts.single === undefined ? undefined : meetingOf(parts.single));
  }

  override countUse(by: 1 | -1): void {
    this.#eachAllocation(addUses, by);
  }

  /** Counts the call among those to whose memory others may come, though it is over. */
  countExposure(by: 1 | -1): void {
    this.#eachAllocation(addExposures, by);
  }

  /** Of each tensor that the call reads or writes, once. */
  #eachAllocation(count: (allocation: Allocation, by: 1 | -1) => void, by: 1 | -1): void {
    const { source, target, storages } = this;
    if (source !== undefined) count(source.allocation, by);
    if (target !== undefined && target !== source) count(target.allocation, by);
    if (storages !== NONE) for (const { allocation } of storages) count(allocation, by);
  }
}

function addUses(allocation: Allocation, by: 1 | -1): void {
  allocation.pendingUses += by;
}

function addExposures(allocation: Allocation, by: 1 | -1): void {
  allocation.exposures += by;
}

/** What a call asks before it goes to the stream, or into a graph, if anything. */
export function meetingOf(call: NcclCall): EntryParts["meets"] {
  const { plan, step } = call;
  if (plan?.meets === undefined) return undefined;
  // What is refused is not made.
  return (isCaptured) => step?.refusal !== undefined || plan.meets?.(call, isCaptured) === true;
}

/** How a communicator is made. */
export interface Opening {
  /** NCCL's handle, also while it is not usable yet. */
  readonly handle: bigint | undefined;
  /** Goes on. @returns the handle, once it is usable */
  advance(): bigint | undefined;
}
