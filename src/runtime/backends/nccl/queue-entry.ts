/** What a communicator's queue holds: calls that run on the stream, and tasks of the host. */
import { overlaps, type Region } from "../../../collectives/index.ts";
import type { WireOp } from "../../comm/index.ts";
import type { DeviceStorage } from "../../device/index.ts";
import type { Fingerprint, Lane } from "../../memory/index.ts";
import type { NcclCall } from "./nccl-calls.ts";
import type { NcclWork } from "./nccl-work.ts";
import type { CallKind } from "./prepare.ts";
import type { MainPoint } from "./stream-order.ts";

/** One call of a lane. */
export interface Arrival {
  readonly lane: Lane;
  readonly seq: number;
  readonly print: Fingerprint;
  /** What the fingerprint has as a hash alone, in words. */
  readonly hashed?: () => string;
}

/** What an entry says of itself: everything but its operation, its calls and where its result comes from may be left out. */
export interface EntryParts {
  readonly op: WireOp;
  readonly arrivals: readonly Arrival[];
  /** Works of a batch that settle with it, and their results. */
  readonly members?: readonly { readonly work: NcclWork<unknown>; readonly value: unknown }[];
  /** Kinds of call that NCCL may have to connect for. */
  readonly kinds?: readonly CallKind[];
  /** The only call, where there is one and nothing is staged: issued without a closure. */
  readonly single?: NcclCall;
  /** Issues on the stream. @returns NCCL's status */
  readonly run?: (comm: bigint) => number;
  /**
   * For sends and receives, which never block the stream: whether the call can be issued now. Such a call may overtake
   * others like it that cannot, unless they touch the same memory.
   */
  readonly ready?: () => boolean;
  readonly regions?: readonly Region[];
  /** Tensors' memory that it reads and writes: held until it has ended. */
  readonly source?: DeviceStorage | undefined;
  readonly target?: DeviceStorage | undefined;
  /** As `source` and `target`, of a call that has more. */
  readonly storages?: readonly DeviceStorage[];
  /** Whether it reads what other members said in their calls of its number: they must not be forgotten before. */
  readonly reads?: boolean;
  /** A task of the host: called until it says that it is done. */
  readonly step?: () => boolean;
  /** Runs when the call has ended: `ok` says whether the result is there to be copied out. */
  readonly finish?: readonly ((ok: boolean) => void)[];
  /** The result, where it is known from the start; otherwise `value` makes it. */
  readonly result?: unknown;
  readonly value?: (() => unknown) | undefined;
  readonly sizeBytes?: number;
}

const NONE: readonly never[] = Object.freeze([]);

/**
 * What the queue runs: calls on the stream, or a host task (`step`). A class, so that all entries have one shape: with
 * several, V8 compiled the queue's paths again and again while a program went from one kind of call to another.
 */
export class Entry {
  readonly op: WireOp;
  readonly work: NcclWork<unknown>;
  readonly arrivals: readonly Arrival[];
  readonly members: NonNullable<EntryParts["members"]>;
  readonly kinds: readonly CallKind[];
  readonly single: NcclCall | undefined;
  readonly run: EntryParts["run"];
  readonly ready: EntryParts["ready"];
  readonly regions: readonly Region[];
  readonly source: DeviceStorage | undefined;
  readonly target: DeviceStorage | undefined;
  readonly storages: readonly DeviceStorage[];
  readonly reads: boolean;
  readonly step: EntryParts["step"];
  readonly finish: readonly ((ok: boolean) => void)[];
  readonly result: unknown;
  readonly value: EntryParts["value"];
  readonly sizeBytes: number;
  /** Milliseconds, as `performance.now()` has them. */
  readonly issuedAt: number;
  readonly timeoutMs: number;
  readonly deadline: number;
  /** The mark behind it on the stream (see completion.ts); 0 for none. */
  marker = 0;
  /** Whether its calls were published. */
  announced = false;
  /** Where the main stream was when the call was taken, of one that was held back. */
  main: MainPoint | undefined = undefined;
  /** Its number among the calls that its queue has taken, from 1. */
  number = 0;
  /** The number of the flight note of its first send or receive; the others' follow. */
  firstPairNote = 0;

  constructor(work: NcclWork<unknown>, parts: EntryParts, timeoutMs: number) {
    this.op = parts.op;
    this.work = work;
    this.arrivals = parts.arrivals;
    this.members = parts.members ?? NONE;
    this.kinds = parts.kinds ?? NONE;
    this.single = parts.single;
    this.run = parts.run;
    this.ready = parts.ready;
    this.regions = parts.regions ?? NONE;
    this.source = parts.source;
    this.target = parts.target;
    this.storages = parts.storages ?? NONE;
    this.reads = parts.reads ?? false;
    this.step = parts.step;
    this.finish = parts.finish ?? NONE;
    this.result = parts.result;
    this.value = parts.value;
    this.sizeBytes = parts.sizeBytes ?? 0;
    this.issuedAt = performance.now();
    this.timeoutMs = timeoutMs;
    this.deadline = this.issuedAt + timeoutMs;
  }

  /**
   * Counts this call (`1`) or counts it no more (`-1`) among those that use its tensors. A call that is held back is on
   * no stream that could protect them; and as the entry refers to them, the garbage collector leaves them alone.
   */
  countUse(by: 1 | -1): void {
    if (this.source !== undefined) this.source.allocation.pendingUses += by;
    if (this.target !== undefined && this.target !== this.source) this.target.allocation.pendingUses += by;
    if (this.storages !== NONE) for (const { allocation } of this.storages) allocation.pendingUses += by;
  }
}

/** How a communicator comes to be. */
export interface Opening {
  /** NCCL's handle, also while it is not usable yet. */
  readonly handle: bigint | undefined;
  /** Goes on. @returns the handle, once it is usable */
  advance(): bigint | undefined;
}

/** Whether `entry` may run before one that was issued earlier and cannot run yet. */
export function mayOvertake(entry: Entry, earlier: Entry): boolean {
  if (entry.ready === undefined || earlier.ready === undefined) return false;
  return !entry.regions.some((a) => earlier.regions.some((b) => overlaps(a, b)));
}
