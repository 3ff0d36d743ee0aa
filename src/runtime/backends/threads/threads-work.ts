/** One operation of the threads backend, from its issue to its end. A plain object with fixed fields: one per call. */
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import { type DType, type RankActivity, TimeoutError } from "../../../core/index.ts";
import { callSite, checkWait, PendingWork } from "../../comm/index.ts";
import type { KernelOp } from "../../executor/internal.ts";
import type { PlanRun } from "./plan-runs.ts";
import type { Driver, Pumpable } from "./spin-then-sleep.ts";

/** Where an operation stands. Only the head of a group's queue is beyond `Queued`. */
export const PHASE = { queued: 0, arriving: 1, moving: 2, finishing: 3, strands: 4, eager: 5 } as const;

/** A run of a plan: see `PlanCall`. */
export interface RunningPlan extends PlanRun {
  readonly plan: ExecutionPlan;
  readonly partBytes: number;
  /** The ranks need not meet when one of them is done. */
  readonly endsAlone: boolean;
}

/** A plan's run of one size. Field by field: objects of one shape, however many sizes there are. */
export function runningPlan(run: PlanRun, plan: ExecutionPlan, partBytes: number, endsAlone: boolean): RunningPlan {
  const { prepared, block, hash, hashWord, op, name, use } = run;
  const alone = endsAlone && !prepared.endsTogether;
  return { prepared, block, hash, hashWord, op, name, use, plan, partBytes, endsAlone: alone };
}

/** A buffer of parts of different sizes, in bytes. */
export interface Parts {
  readonly counts: readonly number[];
  readonly elementBytes: number;
  readonly sizes: readonly number[];
  readonly offsets: readonly number[];
  readonly total: number;
  readonly hash: number;
  readonly detail: string;
}

/** What this rank sends to each rank and receives from each, in elements. */
export interface ExchangeCounts {
  readonly send: readonly number[];
  readonly receive: readonly number[];
}

/** The engine of the work's group, as far as a work uses it. */
export interface WorkEngine extends Pumpable {
  readonly name: string;
  readonly driver: Driver;
  /** Whom the work waits for, if it does not end now. */
  overdue(work: ThreadsWork<unknown>): readonly RankActivity[] | undefined;
}

export class ThreadsWork<T> extends PendingWork<T> {
  readonly engine: WorkEngine;
  readonly driver: Driver;
  /** The fingerprint: see comm/call-fingerprint.ts. */
  call = 0;
  count = 0;
  extra = 0;
  code = 0;
  /** Addresses of this rank's input and output, 0 where it has none. */
  input = 0;
  output = 0;
  /** Bytes of a part. */
  bytes = 0;
  kernel = 0;
  /** What the kernel divides or multiplies by. */
  parameter: { readonly dtype: DType; readonly op: KernelOp; readonly value: number | bigint } | undefined;
  root = 0;
  /** What serves the call, where that was chosen; it counts the calls. */
  choice: { calls: number } | undefined;
  /** The plan that this work runs, if it runs one. */
  run: RunningPlan | undefined;
  /** The other end of a point-to-point operation, a rank of the group; -1 for collectives. */
  peer = -1;
  /** Position among the messages of the pair. */
  message = -1;
  phase = 0;
  /** After its messages a call with a root waits for all others' announcements, so that a mismatch is its own error. */
  meets = false;
  timeoutMs = 0;
  /** On performance.now()'s clock; 0 until the work leaves the fast path. */
  deadline = 0;
  /** When the call was issued, if this call is timed; -1 otherwise. */
  issuedAt = -1;
  reportedBytes = 0;
  /** Where every rank's part lies, for operations with unequal parts. */
  parts: Parts | undefined;
  /** What each rank is sent and what it sends, in elements, for an all-to-all with unequal parts. */
  counts: ExchangeCounts | undefined;
  /** What a mismatch report says beyond the fingerprint. */
  detail = "";
  /** Runs when the data is there: copies staged results out, reads objects; gives the result. */
  harvest: (() => T) | undefined;
  /** Reads what peers published, before they may take it back. */
  collect: (() => void) | undefined;
  /** The caller's buffers: their memory must not be collected while peers may read it. */
  keep: unknown;
  /** Frees staging memory. Not run after a failure: a late peer may still write there. */
  release: (() => void) | undefined;
  /** The flight recorder's entry, as an index of words. */
  entry = 0;

  constructor(engine: WorkEngine, seq: number, op: string) {
    super(seq, op, engine.name);
    this.engine = engine;
    this.driver = engine.driver;
  }

  /** When this work wants to be looked at even if nobody rings: a send turns to buffering after a while. */
  nextLook(_now: number): number {
    return Number.POSITIVE_INFINITY;
  }

  wait(options?: { timeoutMs?: number }): T {
    if (options !== undefined) checkWait(options);
    if (this.state === "done") {
      this.seen = true;
      return this.value as T;
    }
    if (this.state === "failed" || this.driver.drive(this, options?.timeoutMs)) return this.result();
    const ranks = this.engine.overdue(this);
    if (ranks === undefined) return this.result();
    const what = `${this.op} #${this.seq} of group ${this.group}`;
    throw new TimeoutError(what, options?.timeoutMs ?? 0, ranks, { callSite: callSite() });
  }

  protected onAwaited(): void {
    this.driver.onAwaited(this);
  }
}
