/** What a communicator's queue holds: calls that run on the stream, and tasks of the host. */
import { overlaps, type Region } from "../../../authoring/collectives/index.ts";
import type { WireOp } from "../../comm/index.ts";
import type { Fingerprint, Lane } from "../control/segment.ts";
import type { NcclCall } from "./calls.ts";
import type { CallKind } from "./prepare.ts";
import type { NcclWork } from "./work.ts";

/** One call of a lane. */
export interface Arrival {
  readonly lane: Lane;
  readonly seq: number;
  readonly print: Fingerprint;
}

/** What the queue runs: calls on the stream, or a host task (`step`). */
export interface Entry {
  readonly op: WireOp;
  readonly work: NcclWork<unknown>;
  /** Works of a batch that settle with it, and their results. */
  readonly members: readonly { readonly work: NcclWork<unknown>; readonly value: unknown }[];
  readonly arrivals: readonly Arrival[];
  /** Kinds of call that NCCL may have to connect for. */
  readonly kinds: readonly CallKind[];
  /** The only call, where there is one and nothing is staged: issued without a closure. */
  readonly single: NcclCall | undefined;
  /** Issues on the stream. @returns NCCL's status */
  readonly run: ((comm: bigint) => number) | undefined;
  /**
   * For sends and receives, which never block the stream: whether the call can be issued now. Such a call may overtake
   * others like it that cannot, unless they touch the same memory.
   */
  readonly ready: (() => boolean) | undefined;
  readonly regions: readonly Region[];
  /** A task of the host: called until it says that it is done. */
  readonly step: (() => boolean) | undefined;
  /** Runs when the call has ended: `ok` says whether the result is there to be copied out. */
  readonly finish: readonly ((ok: boolean) => void)[];
  /** The result, where it is known from the start; otherwise `value` makes it. */
  readonly result: unknown;
  readonly value: (() => unknown) | undefined;
  readonly sizeBytes: number;
  readonly deadline: number;
  readonly timeoutMs: number;
  issuedAt: number;
  marker: number;
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
