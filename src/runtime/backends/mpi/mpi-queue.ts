/**
 * A group's queue over MPI. A call is given to MPI when every member has published the same call (runtime/memory), so
 * that MPI never holds half a collective because of a mismatch or a rank that does not come; its requests are tested from
 * the event loop, or by the thread that waits. Everything ends with one cause when something fails.
 */
import { overlaps } from "../../../collectives/index.ts";
import { AbortedError, ChoraleError, MismatchError, type RankActivity } from "../../../core/index.ts";
import { errorOf, failureOf } from "../../comm/index.ts";
import { COLLECTIVE, type GroupControl } from "../../memory/index.ts";
import {
  Agreement,
  type Arrival,
  CallPublication,
  CallRecorder,
  CallSettlement,
  FINISH_MS,
  JOIN_SEQ,
  mayOvertake,
  type Pollable,
  type Poller,
  type QueuedWork,
  QueueWatchdog,
  type WorkDriver,
} from "../../progress/index.ts";
import type { CallTarget, MpiEntry } from "./mpi-entry.ts";
import type { MpiProcess } from "./mpi-process.ts";

/** How long a waiting thread tests without a pause while data moves, ms; while members are still missing. */
const SPIN_MS = { moving: 20, waiting: 0.3 } as const;
/** How long `then`, and a turn of the event loop, look for the end themselves. */
const AWAIT_SPIN_MS = 0.04;
const TURN_SPIN_MS = 1;
/** Tests between two looks at the clock. */
const TESTS = 16;
/** First word of the members' joining, call 0 of every group. */
const JOIN_CALL = 0x3f;

export interface MpiQueueOptions {
  readonly mpi: MpiProcess;
  readonly control: GroupControl;
  readonly poller: Poller;
  readonly group: string;
  readonly ranks: readonly number[];
  readonly generation: number;
  /** The communicator, where it is there already; otherwise it is made when all members have joined. */
  readonly comm: number | undefined;
}

/** Whether two calls use the same memory: MPI runs what it is given side by side, and calls have an order. */
function touches({ regions: earlier }: MpiEntry, { regions: later }: MpiEntry): boolean {
  for (const a of earlier) for (const b of later) if (overlaps(a, b)) return true;
  return false;
}

export class MpiQueue implements Pollable, WorkDriver {
  readonly options: MpiQueueOptions;
  readonly settling: CallSettlement<MpiEntry>;
  readonly #agreement: Agreement;
  readonly #publishing: CallPublication;
  readonly #recorder: CallRecorder;
  readonly #watchdog: QueueWatchdog;
  readonly #waiting: MpiEntry[] = [];
  readonly #running: MpiEntry[] = [];
  #target: CallTarget | undefined;
  #numTaken = 0;
  #cause: ChoraleError | undefined;
  #pumping = false;
  #finishing = false;
  #closed = false;

  constructor(options: MpiQueueOptions) {
    const { control, group } = options;
    this.options = options;
    this.#agreement = new Agreement(options);
    this.#publishing = new CallPublication(this.#agreement);
    this.#recorder = new CallRecorder(control);
    this.settling = new CallSettlement<MpiEntry>(this, this.#recorder, () => {});
    this.#watchdog = new QueueWatchdog({ agreement: this.#agreement, group, ask: () => {} });
    if (options.comm !== undefined) this.#target = this.#targetOf(options.comm);
    control.publish(COLLECTIVE, JOIN_SEQ, { call: JOIN_CALL, count: 0, hash: 0 });
  }

  get poller(): Poller {
    return this.options.poller;
  }
  get pending(): number {
    return this.#waiting.length + this.#running.length;
  }
  get cause(): ChoraleError | undefined {
    return this.#cause;
  }

  /** Whether all who take part in these calls have published the same. A disagreement ends the group. */
  allAgree(arrivals: readonly Arrival[]): boolean {
    if (!this.#agreement.complete(arrivals)) return false;
    const mismatch = this.#agreement.disagreement(arrivals);
    if (mismatch !== undefined) this.fail(mismatch);
    return mismatch === undefined;
  }

  /** Takes a call that was checked. Never waits. @throws the group's failure, when it has failed */
  push(entry: MpiEntry): void {
    const failure = this.knownFailure();
    if (failure !== undefined) {
      this.settling.refuse(entry, failure);
      throw failure;
    }
    entry.number = ++this.#numTaken;
    const mismatch = this.#publishing.take(entry);
    this.#recorder.issued(entry);
    if (mismatch !== undefined) this.fail(mismatch);
    if (this.#cause !== undefined) {
      this.settling.settleFailed(entry, this.#cause);
      return;
    }
    this.#waiting.push(entry);
    this.#pump();
    this.options.poller.add(this, entry.issuedAt);
  }

  /** The pending call that uses memory, as text. */
  useOf(buffer: unknown): string | undefined {
    const user = [...this.#running, ...this.#waiting].find(({ regions }) =>
      regions.some(({ storage }) => storage === buffer),
    );
    return user && `${user.op} #${user.work.seq} of group ${this.options.group}`;
  }

  expectOwnDeadlines(): void {
    this.#watchdog.expectOwnDeadlines();
  }

  /** The group's failure, also one that a peer has just written. */
  knownFailure(): ChoraleError | undefined {
    if (this.#cause === undefined && this.options.control.failed) this.#adopt();
    return this.#cause;
  }

  advance(work: QueuedWork<unknown>, now: number): boolean {
    this.#look(now);
    if (!work.settled && this.#running.length > 0) this.#spin(work, TURN_SPIN_MS);
    return work.settled;
  }

  watch(work: QueuedWork<unknown>): void {
    this.#spin(work, AWAIT_SPIN_MS);
    if (!work.settled) this.options.poller.add(this);
  }

  activityOf(work: QueuedWork<unknown>): readonly RankActivity[] {
    return this.#watchdog.activityOf(work, this.#running, this.#waiting);
  }

  /** Tests until `work` has ended, for longer while its data moves: MPI goes on only while it is called. */
  spin(work: QueuedWork<unknown>): void {
    this.#spin(work, SPIN_MS.moving, SPIN_MS.waiting);
  }

  poll(now: number): boolean {
    this.#look(now);
    if (this.#running.length > 0) {
      this.options.poller.hurry();
      const until = performance.now() + TURN_SPIN_MS;
      while (this.#running.length > 0 && this.#cause === undefined && performance.now() < until) this.#step();
    }
    return this.pending > 0;
  }

  /** Ends the group, here and on its other members. */
  fail(error: unknown): void {
    if (this.#cause !== undefined) return;
    this.#keepTurn();
    this.options.control.fail(failureOf(error));
    this.#finishWhole(error instanceof MismatchError ? FINISH_MS.together : FINISH_MS.apart);
    this.#end(error instanceof ChoraleError ? error : new AbortedError(String(error)));
  }

  /** Ends the queue here, without waiting and without a word to the other members. */
  abandon(cause: ChoraleError): void {
    this.#finishing = true;
    this.#end(cause);
  }

  async drain(): Promise<void> {
    while (this.pending > 0 && this.#cause === undefined) {
      this.options.poller.add(this);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Ends the queue, for which nothing may be pending. @returns the failures that nobody looked at */
  close(): readonly unknown[] {
    if (this.#closed) return [];
    this.#closed = true;
    this.options.poller.remove(this);
    this.#recorder.close();
    const { mpi, control, comm } = this.options;
    const own = this.#target?.comm;
    if (own !== undefined && own !== comm && this.#cause === undefined && !mpi.broken) mpi.freeGroup(own);
    this.#target = undefined;
    control.leave();
    return this.settling.unseen;
  }

  /** Opens the communicator if all members are there. @returns whether it is open */
  #open(): boolean {
    if (this.#target !== undefined) return true;
    const { mpi, control, ranks, poller } = this.options;
    if (this.#closed || this.#cause !== undefined) return false;
    for (let member = 0; member < control.size; member++) {
      if (control.issued(member, COLLECTIVE) === 0) return false;
    }
    if (control.size > 1 && !control.turn(JOIN_SEQ, ranks)) {
      poller.hurry();
      return false;
    }
    try {
      this.#target = this.#targetOf(mpi.createGroup(ranks));
    } catch (error) {
      this.fail(error);
    } finally {
      control.endTurn(ranks);
    }
    return this.#target !== undefined;
  }

  #targetOf(comm: number): CallTarget {
    const { mpi, control } = this.options;
    return { mpi, comm, rank: control.member, size: control.size };
  }

  /** Gives MPI what may be given now. */
  #pump(): void {
    if (this.#waiting.length === 0 || this.#pumping) return;
    this.#pumping = true;
    try {
      if (this.#publishing.behind) this.#publish();
      if (this.#open()) this.#beginAll();
    } finally {
      this.#pumping = false;
    }
  }

  #beginAll(): void {
    const blocked: MpiEntry[] = [];
    for (let i = 0; i < this.#waiting.length && this.#cause === undefined; ) {
      const entry = this.#waiting[i];
      // In order: what is behind it is not published either.
      if (entry === undefined || !entry.announced) return;
      if (!blocked.every((earlier) => mayOvertake(entry, earlier)) || !this.#isReady(entry)) {
        // Only messages pass each other.
        if (this.#cause !== undefined || entry.ready === undefined) return;
        blocked.push(entry);
        i++;
        continue;
      }
      if (this.#cause !== undefined) return;
      this.#waiting.splice(i, 1);
      if (entry.step !== undefined) this.settling.settle(entry, performance.now());
      else this.#begin(entry);
      this.#publishing.ran(entry);
      if (this.#publishing.behind) this.#publish();
    }
  }

  #isReady(entry: MpiEntry): boolean {
    if (this.#running.some((one) => touches(one, entry))) return false;
    if (entry.ready !== undefined) return this.#guard(entry.ready) === true;
    // Those of all ranks must be in one order.
    if (this.#running.some((one) => one.blocks)) return false;
    if (!this.allAgree(entry.arrivals)) return false;
    return entry.step === undefined || this.#guard(entry.step) === true;
  }

  #begin(entry: MpiEntry): void {
    const target = this.#target;
    if (target === undefined) return;
    try {
      entry.begin(target);
    } catch (error) {
      this.fail(error);
      this.settling.settleFailed(entry, this.#cause ?? new AbortedError("the call could not be made"));
      return;
    }
    this.#recorder.started(entry);
    this.#running.push(entry);
  }

  #publish(): void {
    const mismatch = this.#publishing.goOn(this.#waiting);
    if (mismatch !== undefined) this.fail(mismatch);
  }

  #guard<T>(fn: () => T): T | undefined {
    try {
      return fn();
    } catch (error) {
      this.fail(error);
      return undefined;
    }
  }

  #spin(work: QueuedWork<unknown>, movingMs: number, waitingMs = movingMs): void {
    const start = performance.now();
    for (;;) {
      for (let i = 0; i < TESTS; i++) {
        this.#step();
        if (work.settled || this.#cause !== undefined) return;
      }
      const now = performance.now();
      if (now - start > (this.#running.length > 0 ? movingMs : waitingMs)) return;
      if (this.options.control.failed) {
        this.#adopt();
        return;
      }
      if (this.options.mpi.crowded) this.options.mpi.library.yieldCore();
    }
  }

  /** One round: tests what runs, and begins what may begin. */
  #step(): void {
    const target = this.#target;
    const running = this.#running;
    for (let i = 0; i < running.length && target !== undefined; ) {
      const entry = running[i];
      if (entry === undefined) break;
      let done: boolean;
      try {
        done = entry.advance(target);
      } catch (error) {
        this.fail(error);
        return;
      }
      if (!done) {
        i++;
        continue;
      }
      running.splice(i, 1);
      this.settling.settle(entry, performance.now());
    }
    this.#pump();
  }

  #look(now: number): void {
    if (this.#cause !== undefined) return;
    if (this.options.control.failed) {
      this.#adopt();
      return;
    }
    this.#step();
    if (this.pending === 0) return;
    try {
      this.#watchdog.look(this.#running, this.#waiting, now);
    } catch (error) {
      this.fail(error);
    }
  }

  /** Takes over a failure that a peer wrote. */
  #adopt(): void {
    const { failure } = this.options.control;
    if (failure === undefined || this.#cause !== undefined || this.#finishing) return;
    this.#keepTurn();
    this.#pump();
    this.#finishWhole(failure.code === "RANK_FAILED" ? FINISH_MS.apart : FINISH_MS.together);
    this.#end(errorOf(failure));
  }

  /** Makes the communicator if this rank's turn to do so is granted: the others may be in MPI with it already. */
  #keepTurn(): void {
    const { control } = this.options;
    if (this.#target !== undefined || control.size === 1 || control.failure?.code === "RANK_FAILED") return;
    while (this.#target === undefined && !control.withdraw()) if (!this.#open()) return;
  }

  /** Lets the calls that MPI has of all members come to their end before the group does: their results are there. */
  #finishWhole(limitMs: number): void {
    if (this.#finishing) return;
    this.#finishing = true;
    const until = performance.now() + limitMs;
    const isCollective = ({ ready }: MpiEntry) => ready === undefined;
    while (this.#running.some(isCollective) && this.#cause === undefined && performance.now() < until) this.#step();
  }

  #end(cause: ChoraleError): void {
    if (this.#cause !== undefined) return;
    this.#cause = cause;
    this.options.control.endTurn(this.options.ranks);
    const { mpi } = this.options;
    if (this.#running.length > 0) {
      // MPI cannot take back what it was given, and may write there yet.
      mpi.abandoned.push(...this.#running);
      mpi.broken = true;
    }
    for (const entry of [...this.#running, ...this.#waiting]) this.settling.settleFailed(entry, cause);
    this.#running.length = 0;
    this.#waiting.length = 0;
  }
}
