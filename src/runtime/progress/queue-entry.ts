/** What a queue of calls holds, whatever engine runs them: an engine's own entries extend this one. */

import { overlaps, type Region } from "../../collectives/index.ts";
import type { ChoraleError } from "../../core/index.ts";
import { runningTime, type WireOp } from "../comm/index.ts";
import type { Arrival } from "./call-sequence.ts";
import type { QueuedWork } from "./queued-work.ts";

/** Calls that the engine connects together have one kind. */
export type CallKind = number;

/** Kind of a call that waits for all members each time. */
export const ALWAYS_COLD: CallKind = -1;

/** What an entry says of itself: everything but its operation and its calls may be left out. */
export interface EntryParts {
  readonly op: WireOp;
  readonly arrivals: readonly Arrival[];
  /** Works of a batch that settle with it, and their results. */
  readonly members?: readonly { readonly work: QueuedWork<unknown>; readonly value: unknown }[];
  /** Kinds of call that the engine may have to connect for. */
  readonly kinds?: readonly CallKind[];
  /**
   * For sends and receives that never block: whether the call can be issued now. Such a call may overtake others like
   * it that cannot, unless they touch the same memory.
   */
  readonly ready?: () => boolean;
  readonly regions?: readonly Region[];
  /** Whether it reads what other members said in their calls of its number: they must not be forgotten before. */
  readonly reads?: boolean;
  /** The queue compares it with other members' calls later: publishing it looks at none of theirs, which costs a small call much. */
  readonly comparesLater?: boolean;
  /** A task of the host: called until it says that it is done. */
  readonly step?: () => boolean;
  /** Runs when the call has ended: `ok` says whether the result is there to be copied out. */
  readonly finish?: readonly ((ok: boolean) => void)[];
  /** The result, where it is known from the start; otherwise `value` makes it. */
  readonly result?: unknown;
  readonly value?: (() => unknown) | undefined;
  /** Why the call itself did not happen, though the group is well: on all members alike. */
  readonly refusal?: () => ChoraleError | undefined;
  readonly sizeBytes?: number;
}

const NONE: readonly never[] = Object.freeze([]);

/**
 * What the queue runs: calls of the engine, or a host task (`step`). A class, so that all entries have one shape: with
 * several, V8 compiled the queue's paths again and again while a program went from one kind of call to another.
 */
export class QueueEntry {
  readonly op: WireOp;
  readonly work: QueuedWork<unknown>;
  readonly arrivals: readonly Arrival[];
  readonly members: NonNullable<EntryParts["members"]>;
  kinds: readonly CallKind[];
  readonly ready: EntryParts["ready"];
  readonly regions: readonly Region[];
  readonly reads: boolean;
  readonly comparesLater: boolean;
  readonly step: EntryParts["step"];
  readonly finish: readonly ((ok: boolean) => void)[];
  readonly result: unknown;
  readonly value: EntryParts["value"];
  readonly refusal: EntryParts["refusal"];
  readonly sizeBytes: number;
  /** Milliseconds, as `performance.now()` has them. */
  readonly issuedAt: number;
  readonly timeoutMs: number;
  /** As `runningTime()` has it. */
  readonly deadline: number;
  /** The completion mark behind it; 0 for none. */
  marker = 0;
  /** Whether its calls were published. */
  announced = false;
  /** Its number among the calls that its queue has taken, from 1. */
  number = 0;
  /** The number of the flight note of its first send or receive; the others' follow. */
  firstPairNote = 0;

  constructor(work: QueuedWork<unknown>, parts: EntryParts, timeoutMs: number) {
    this.op = parts.op;
    this.work = work;
    this.arrivals = parts.arrivals;
    this.members = parts.members ?? NONE;
    this.kinds = parts.kinds ?? NONE;
    this.ready = parts.ready;
    this.regions = parts.regions ?? NONE;
    this.reads = parts.reads ?? false;
    this.comparesLater = parts.comparesLater ?? false;
    this.step = parts.step;
    this.finish = parts.finish ?? NONE;
    this.result = parts.result;
    this.value = parts.value;
    this.refusal = parts.refusal;
    this.sizeBytes = parts.sizeBytes ?? 0;
    this.issuedAt = performance.now();
    this.timeoutMs = timeoutMs;
    this.deadline = runningTime(this.issuedAt) + timeoutMs;
  }

  /**
   * Counts this call (`1`) among the users of its tensors, or no longer (`-1`). A call that is held back is
   * not with the engine yet, so nothing else protects their memory; the entry itself keeps them from being collected.
   */
  countUse(_by: 1 | -1): void {}
}

/** Whether `entry` may run before one that was issued earlier and cannot run yet. */
export function mayOvertake(entry: QueueEntry, earlier: QueueEntry): boolean {
  if (entry.ready === undefined || earlier.ready === undefined) return false;
  return !entry.regions.some((a) => earlier.regions.some((b) => overlaps(a, b)));
}
