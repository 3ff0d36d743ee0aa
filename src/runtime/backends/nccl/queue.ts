/**
 * A communicator's queue: calls run in the order of issue on one stream. It publishes each call's fingerprint and
 * compares it with what peers published, holds a call back where NCCL would block this thread (see first-calls.ts), and
 * ends everything with one cause when something fails.
 */
import { AbortedError, ChoraleError, MismatchError, type RankActivity } from "../../../core/index.ts";
import { errorOf, failureOf } from "../../comm/index.ts";
import {
  Agreement,
  CallPublication,
  CallRecorder,
  CallSettlement,
  FINISH_MS,
  FirstCalls,
  InFlight,
  mayOvertake,
  type Pollable,
  type Poller,
  type QueuedWork,
  type QueueWatchdog,
  type WorkDriver,
  wantsTimings,
} from "../../progress/index.ts";
import { CommHandle } from "./comm-handle.ts";
import { Completion } from "./completion.ts";
import { watchEngine } from "./engine-watchdog.ts";
import { type CallTarget, issue } from "./nccl-calls.ts";
import type { Entry } from "./nccl-entry.ts";
import type { QueueOptions } from "./queue-options.ts";
import { mixedRegistrations } from "./registrations.ts";
import { StreamOrder } from "./stream-order.ts";
import { StreamTimer } from "./stream-timer.ts";
import { NCCL_RESULT } from "./symbols.ts";

/** Calls in flight on the stream; later ones wait in the queue. NCCL and the driver block at about a thousand. */
const MAX_IN_FLIGHT = 512;
/** Calls after which finished ones are looked for while issuing. */
const HARVEST_EVERY = 64;
/** How long `then` looks for the end itself before the event loop takes over: most small collectives end within it. */
const AWAIT_SPIN_MS = 0.04;

export class CommQueue implements Pollable, WorkDriver {
  readonly options: QueueOptions<CommQueue>;
  readonly handle: CommHandle;
  readonly settling: CallSettlement<Entry>;
  /** What waits for all members, and for its turn. */
  readonly firstCalls: FirstCalls;
  readonly #agreement: Agreement;
  readonly #publishing: CallPublication;
  readonly #recorder: CallRecorder;
  /** Where this queue's stream stands among the others. */
  readonly order: StreamOrder;
  readonly #inFlight: InFlight<Entry>;
  readonly #watchdog: QueueWatchdog;
  readonly #unissued: Entry[] = [];
  /** Calls in flight. */
  readonly #issued: readonly Entry[];
  #target: CallTarget | undefined;
  #numTaken = 0;
  #cause: ChoraleError | undefined;
  #closed = false;
  #finishing = false;
  /** A call is on its way to the stream. It may wait for memory, and others be looked at meanwhile: none goes before it. */
  #issuing = false;

  constructor(options: QueueOptions<CommQueue>) {
    this.options = options;
    this.order = new StreamOrder(options.at, options.stream, this);
    const completion = new Completion(options.at, options.stream);
    this.handle = new CommHandle(options);
    this.#agreement = new Agreement({
      ...options,
      generation: options.at.generation,
      joinedApart: mixedRegistrations,
    });
    this.#publishing = new CallPublication(this.#agreement);
    this.firstCalls = new FirstCalls(this.#agreement, options);
    const timer = wantsTimings(options.flightTimings) ? new StreamTimer(options.stream) : undefined;
    this.#recorder = new CallRecorder(options.control, timer);
    this.settling = new CallSettlement(this, this.#recorder, (entry) => this.order.forget(entry));
    this.#inFlight = new InFlight(completion, this.settling);
    this.#issued = this.#inFlight.calls;
    this.#watchdog = watchEngine(this.handle, this.#recorder, this.#agreement, options);
  }

  get poller(): Poller {
    return this.options.poller;
  }
  get pending(): number {
    return this.#unissued.length + this.#issued.length;
  }

  /** Calls taken so far. */
  get numTaken(): number {
    return this.#numTaken;
  }

  /** The first call that has not ended well, by its number; infinite when all have. */
  get firstOpen(): number {
    let first = this.settling.firstLost;
    // Sends and receives overtake each other.
    for (const { number } of this.#issued) first = Math.min(first, number);
    for (const { number } of this.#unissued) first = Math.min(first, number);
    return first;
  }

  /** Whether all calls taken so far are on the stream: none is held back, and NCCL is not at one. */
  get launched(): boolean {
    return this.#unissued.length === 0 && !this.#issuing && this.handle.accepts;
  }

  /** Whether calls of this communicator are on the stream and not known to be done. */
  get inFlight(): boolean {
    return this.#issued.length > 0;
  }

  get cause(): ChoraleError | undefined {
    return this.#cause;
  }

  /** Takes a call that was checked. Never waits. @throws the group's failure, when it has failed */
  push(entry: Entry): void {
    entry.countUse(1);
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
    if (this.#goesAtOnce(entry)) this.#launch(entry);
    else {
      this.#unissued.push(entry);
      const { length } = this.#unissued;
      if (length === 1) this.#pump();
      if (entry.step === undefined && this.#unissued.at(-1) === entry) this.#guard(() => this.order.holdBack(entry));
      if (length % HARVEST_EVERY === 0) this.poll(entry.issuedAt);
    }
    if (this.#inFlight.numIssued % HARVEST_EVERY === 0) this.#harvest();
    this.options.poller.add(this, entry.issuedAt);
  }

  /** Says that calls are taken that have a deadline of their own. */
  expectOwnDeadlines(): void {
    this.#watchdog.expectOwnDeadlines();
  }

  /** @throws the group's failure */
  refuseAfterFailure(): void {
    const failure = this.knownFailure();
    if (failure !== undefined) throw failure;
  }

  /** The group's failure, also one that a peer has just written. */
  knownFailure(): ChoraleError | undefined {
    if (this.#cause === undefined && this.options.control.failed) this.adopt();
    return this.#cause;
  }

  /** For a call that waited in the middle of being issued: whether it may still go to NCCL. @throws the group's failure */
  stillOpen(): void {
    this.options.endings.beforeIssue();
    this.refuseAfterFailure();
    if (this.handle.surrendered) throw new AbortedError(`${this.options.group} was given up`);
  }

  advance(work: QueuedWork<unknown>, now: number): boolean {
    this.#progress(now);
    if (!work.settled) this.#mark();
    this.#harvest();
    return work.settled;
  }

  watch(work: QueuedWork<unknown>): void {
    this.spin(work);
    if (work.settled || this.advance(work, performance.now())) return;
    this.options.poller.add(this);
  }

  activityOf(work: QueuedWork<unknown>): readonly RankActivity[] {
    return this.#watchdog.activityOf(work, this.#issued, this.#unissued);
  }

  /** Asks the stream for a short while whether `work`, all of whose calls are on it, is done. */
  spin(work: QueuedWork<unknown>): void {
    if (this.#unissued.length > 0 || this.#cause !== undefined || work.settled || !this.options.blocking) return;
    if (this.#inFlight.idleWithin(AWAIT_SPIN_MS)) this.settleIssued();
  }

  poll(now: number): boolean {
    this.#progress(now);
    this.#mark();
    this.#harvest();
    // A call that waits for memory on its way to the stream stands in neither list.
    return this.#issuing || this.pending > 0;
  }

  /** Settles what is done, without waiting: also what nobody has asked for since it was issued. */
  look(): void {
    if (this.pending === 0 || this.#cause !== undefined) return;
    this.#progress(performance.now());
    if (this.#issued.length > 0 && this.handle.accepts && this.#inFlight.idle) this.settleIssued();
    else this.#harvest();
  }

  /** Ends the group, here and on its other members. */
  fail(error: unknown): void {
    this.#keepTurn();
    if (this.#cause !== undefined) return;
    const { at, control, ranks } = this.options;
    const cause = error instanceof Error ? error.message : String(error);
    // A rank that lost its context is one that died, to the others.
    const dead = { code: "RANK_FAILED", rank: ranks[control.member] ?? -1, generation: at.generation, cause } as const;
    control.fail(at.device.poison === undefined ? failureOf(error) : dead);
    // The other members are told, and end what is whole as this one does, before any of them has NCCL abort.
    this.#finishWhole(error instanceof MismatchError ? FINISH_MS.together : FINISH_MS.apart);
    this.#keepTurn();
    this.#end(error instanceof ChoraleError ? error : new AbortedError(String(error)));
  }

  /** Takes over a failure that a peer wrote. */
  adopt(): void {
    const failure = this.options.control.failure;
    if (failure === undefined || this.#cause !== undefined) return;
    this.#pump();
    this.#finishWhole(failure.code === "RANK_FAILED" ? FINISH_MS.apart : FINISH_MS.together);
    this.#keepTurn();
    this.#end(errorOf(failure));
  }

  /**
   * Makes the call of a turn that was granted to this rank, or makes sure that none is granted any more: the others may be
   * in NCCL with it already, and come back from there when this rank has made it too.
   */
  #keepTurn(): void {
    const { at, control } = this.options;
    // In the middle of that call there is nothing left to make; and members that died make none.
    if (this.#issuing || this.handle.surrendered || at.device.poison !== undefined) return;
    if (control.failure?.code === "RANK_FAILED") return;
    while (this.#cause === undefined && !control.withdraw()) {
      const numBefore = this.#unissued.length;
      const wasOpen = this.handle.comm !== undefined;
      if (this.open()) this.#pump();
      const hasOpened = !wasOpen && this.handle.comm !== undefined;
      if (!hasOpened && this.#unissued.length === numBefore) return;
    }
  }

  /** Ends the queue here, without waiting for anything and without a word to the other members. */
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

  /** Ends the queue, for which nothing may be pending. @returns the failures nobody looked at */
  close(): readonly unknown[] {
    if (this.#closed) return [];
    this.#closed = true;
    const failure = this.knownFailure();
    this.options.poller.remove(this);
    this.order.close();
    this.#inFlight.close(failure === undefined);
    this.#recorder.close();
    return this.settling.unseen;
  }

  /** Opens the communicator if need be. @returns whether it is open */
  open(): boolean {
    if (this.handle.surrendered || this.#cause !== undefined) return false;
    if (this.handle.comm !== undefined) return true;
    const comm = this.#guard(() => this.handle.open());
    if (comm === undefined) return false;
    this.#guard(() => this.options.opened(comm));
    return this.#cause === undefined;
  }

  /** Whether the entry need not stand in the queue first: what `#pump` would find for most calls, said shortly. */
  #goesAtOnce(entry: Entry): boolean {
    return (
      this.#unissued.length === 0 &&
      entry.announced &&
      this.#target !== undefined &&
      this.options.blocking &&
      entry.ready === undefined &&
      entry.step === undefined &&
      this.#issued.length < MAX_IN_FLIGHT &&
      this.firstCalls.allWarm(entry.kinds) &&
      !this.options.endings.holdsBack(this)
    );
  }

  /** Issues from the queue what may be issued now. */
  #pump(): void {
    if (this.#unissued.length === 0 || this.#issuing) return;
    if (this.#publishing.behind) this.#publish();
    if (!this.open() || this.options.endings.holdsBack(this)) return;
    const blocked: Entry[] = [];
    for (let i = 0; i < this.#unissued.length; ) {
      const entry = this.#unissued[i];
      if (entry === undefined || this.#issued.length >= MAX_IN_FLIGHT || this.#cause !== undefined) return;
      // In order: what is behind it is not published either.
      if (!entry.announced) return;
      if (!this.#mayPass(entry, blocked) || !this.#isReady(entry)) {
        if (entry.ready === undefined) return;
        blocked.push(entry);
        i++;
        continue;
      }
      if (this.#cause !== undefined) return;
      this.#unissued.splice(i, 1);
      if (entry.step === undefined) this.#launch(entry);
      else this.settling.settle(entry, performance.now());
      this.#publishing.ran(entry);
      if (this.#publishing.behind) this.#publish();
    }
  }

  /** Whether the entry may go before those that are held back. */
  #mayPass(entry: Entry, blocked: readonly Entry[]): boolean {
    const [first] = blocked;
    if (first === undefined) return true;
    return (
      blocked.every((earlier) => mayOvertake(entry, earlier)) &&
      this.#guard(() => this.order.mayPass(entry, first)) === true
    );
  }

  /** Publishes what was held back and need not be any longer. */
  #publish(): void {
    const mismatch = this.#publishing.goOn(this.#unissued);
    if (mismatch !== undefined) this.fail(mismatch);
  }

  /** Whether the entry can be issued without blocking this thread; for a host task, whether it is done. */
  #isReady(entry: Entry): boolean {
    // NCCL takes no other call while it is still at the last; and what goes on the stream otherwise would run before that.
    if (!this.handle.accepts) return false;
    if (entry.ready !== undefined) return this.#guard(entry.ready) === true;
    if (entry.step !== undefined) return this.#takesStep(entry.step);
    if (!this.options.control.failed && this.firstCalls.allWarm(entry.kinds)) return true;
    return this.firstCalls.takesTurn(entry);
  }

  #takesStep(step: () => boolean): boolean {
    this.#issuing = true;
    const done = this.#guard(step);
    this.#issuing = false;
    return done === true;
  }

  #launch(entry: Entry): void {
    let status: number | undefined;
    this.#issuing = true;
    try {
      status = this.#issue(entry);
    } catch (error) {
      this.fail(error);
    }
    this.#issuing = false;
    // Before the entry counts as issued: whoever asks whether the calls on the stream are done must not mean this one.
    if (status !== undefined && status !== NCCL_RESULT.success && status !== NCCL_RESULT.inProgress) {
      this.fail(this.options.library.error(entry.op, status, this.handle.comm));
    }
    this.firstCalls.made(entry);
    if (this.#cause !== undefined || status === undefined) {
      this.settling.settleFailed(entry, this.#cause ?? new AbortedError("the call could not be issued"));
      return;
    }
    this.#inFlight.add(entry);
    if (this.#recorder.timings) {
      this.handle.untilAccepted();
      this.#guard(() => this.#recorder.started(entry));
    } else this.#recorder.started(entry);
    // The other end of a send waits for it to be there, not for somebody to look.
    if (entry.ready !== undefined) this.#mark();
  }

  /** Puts the entry on the stream. @returns NCCL's status */
  #issue(entry: Entry): number {
    const { at, endings } = this.options;
    endings.beforeIssue();
    at.device.activate();
    this.order.place(entry);
    if (this.#recorder.timings) this.#recorder.before(entry);
    if (entry.single !== undefined) {
      this.#target ??= this.options.target(this.handle.comm ?? 0n);
      return issue(entry.single, this.#target);
    }
    return entry.run?.(this.handle.comm ?? 0n) ?? NCCL_RESULT.success;
  }

  /** Runs `fn`; what it throws ends the group. */
  #guard<T>(fn: () => T): T | undefined {
    try {
      return fn();
    } catch (error) {
      this.fail(error);
      return undefined;
    }
  }

  /** Puts a mark behind everything issued, so that its completion can be read. */
  #mark(): void {
    // The last call may not be on the stream yet.
    if (this.#inFlight.marked || this.#cause !== undefined || !this.handle.accepts) return;
    this.#guard(() => this.#inFlight.mark());
  }

  /** Settles everything on the stream, which is done with it. */
  settleIssued(): void {
    this.#settleFirst(this.#issued.length);
  }

  /** Settles what the stream has finished, in order. */
  #harvest(): void {
    this.#settleFirst(this.#inFlight.numDone);
  }

  #settleFirst(count: number): void {
    if (count === 0) return;
    this.#inFlight.settle(count);
    if (this.#unissued.length > 0) this.#pump();
  }

  #progress(now: number): void {
    if (this.#cause !== undefined) return;
    if (this.options.control.failed) {
      this.adopt();
      return;
    }
    this.#pump();
    try {
      this.order.catchUp();
      this.#watchdog.look(this.#issued, this.#unissued, now);
    } catch (error) {
      this.fail(error);
    }
  }

  /**
   * Lets the calls that every member has issued come to their end before the group does: their results are there, this
   * rank only has not looked yet. Not once NCCL was told to abort: calls end then, and their results are not there.
   */
  #finishWhole(limitMs: number): void {
    if (this.#finishing || this.handle.surrendered || this.options.at.device.poison !== undefined) return;
    this.#finishing = true;
    const whole = this.#inFlight.numWhole(this.#agreement);
    // A mark behind a call that never ends is never reached: then only what was marked before it can be told.
    if (whole === this.#issued.length) this.#mark();
    this.#inFlight.waitFor(whole, limitMs, () => this.#cause !== undefined);
    this.#harvest();
  }

  #end(cause: ChoraleError): void {
    if (this.#cause !== undefined) return;
    this.#cause = cause;
    this.#guard(() => this.#recorder.look());
    // NCCL may be at a call that the others are in, though nothing of it is on the stream.
    const entering = this.options.control.granted;
    this.firstCalls.endTurn();
    this.#guard(this.options.failed);
    this.options.endings.failed(this, entering);
    for (const entry of [...this.#issued, ...this.#unissued]) this.settling.settleFailed(entry, cause);
    this.#inFlight.clear();
    this.#unissued.length = 0;
  }
}
