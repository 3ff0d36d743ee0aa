/**
 * A communicator's queue: calls run in the order of issue on one stream. It publishes each call's fingerprint and
 * compares it with what peers published, holds a call back where NCCL would block this thread (see first-calls.ts), and
 * ends everything with one cause when something fails.
 */
import { AbortedError, type MismatchError, type RankActivity } from "../../../core/index.ts";
import { NCCL_RESULT } from "../../../foreign/nccl/index.ts";
import { type Failure, failureOf } from "../../comm/index.ts";
import { type CallKind, CallQueue, FINISH_MS, mayOvertake, type QueuedWork } from "../../progress/index.ts";
import { CommHandle } from "./comm-handle.ts";
import { FirstCalls } from "./first-calls.ts";
import { type CallTarget, issue } from "./nccl-calls.ts";
import type { Entry } from "./nccl-entry.ts";
import type { QueueOptions } from "./queue-options.ts";
import type { StreamOrder } from "./stream-order.ts";
import { StreamTimer } from "./stream-timer.ts";
import { UnsettledCalls } from "./unsettled-calls.ts";

/** Calls and replays in flight on the stream; later ones wait in the queue. NCCL and the driver block at about a thousand. */
const MAX_IN_FLIGHT = 512;
/**
 * Calls in graphs that are in flight; a graph of more has one other behind it. A thread that the driver blocks neither notices that a
 * peer has failed nor ends what waits for it, and what is behind an ended launch is launched all the same. Some 20 ms of small calls:
 * far longer than any pause between two looks, so that the stream never runs dry.
 */
const MAX_CALLS_IN_FLIGHT = 8192;
/** Calls in graphs that share a mark: the next go to the stream as soon as so many are done. */
const CALLS_A_MARK = MAX_CALLS_IN_FLIGHT / 4;
/** Calls in flight from which on none is given whose members meet: each puts some ten copies, kernels and events on the streams. */
const MAX_MET_IN_FLIGHT = 64;
/** Calls after which finished ones are looked for while issuing. */
const HARVEST_EVERY = 64;
/** How long `then` looks for the end itself before the event loop takes over: most small collectives end within it. */
const AWAIT_SPIN_MS = 0.04;

export class CommQueue extends CallQueue<Entry, QueueOptions<CommQueue>> {
  readonly handle: CommHandle;
  /** What waits for all members, and for its turn. */
  readonly firstCalls: FirstCalls;
  /** Where this queue's stream stands among the others. */
  readonly order: StreamOrder;
  readonly #inFlight: UnsettledCalls;
  /** Calls in flight. */
  protected readonly running: readonly Entry[];
  #target: CallTarget | undefined;
  /** Calls in flight, those of graphs counted, and how many of them no mark is behind. */
  #numOnStream = 0;
  #numUnmarked = 0;
  /** Calls that failed when others could come to their buffers. */
  readonly #exposed: Entry[] = [];
  /** A call is on its way to the stream. It may wait for memory, and others be looked at meanwhile: none goes before it. */
  #issuing = false;

  constructor(options: QueueOptions<CommQueue>) {
    super(options, () => new StreamTimer(options.stream));
    this.order = options.order;
    this.order.calls = this;
    this.handle = new CommHandle(options);
    this.firstCalls = new FirstCalls(this.agreement, options);
    this.#inFlight = new UnsettledCalls(options.completion, this.settling);
    this.running = this.#inFlight.calls;
  }

  /** The first call that has not ended well, by its number; infinite when all have. */
  get firstOpen(): number {
    let first = this.settling.firstLost;
    // Sends and receives overtake each other.
    for (const { number } of this.running) first = Math.min(first, number);
    for (const { number } of this.waiting) first = Math.min(first, number);
    return first;
  }

  /** Whether all calls taken so far are on the stream: none is held back, and NCCL is not at one. */
  get launched(): boolean {
    return this.waiting.length === 0 && !this.#issuing && this.handle.accepts;
  }

  /** Whether calls of this communicator are on the stream and not known to be done. */
  get inFlight(): boolean {
    return this.running.length > 0;
  }

  /** What members did last, and which of them have come to something. */
  activityOfMembers(hasCome: (member: number) => boolean): readonly RankActivity[] {
    return this.agreement.activityOf(hasCome);
  }

  /** See `Agreement.apartFromCapture`. */
  apartFromCapture(op: string, hasCaptured: (member: number) => boolean): MismatchError | undefined {
    return this.agreement.apartFromCapture(op, hasCaptured);
  }

  /** Whether a call of a kind is taken and not on the stream yet. */
  waitsWith(kind: CallKind): boolean {
    return this.waiting.some(({ kinds }) => kinds.includes(kind));
  }

  /** Takes a call that was checked. Never waits. @throws the group's failure, when it has failed */
  push(entry: Entry): void {
    if (!this.take(entry)) return;
    if (this.#goesAtOnce(entry)) this.give(entry);
    else {
      this.waiting.push(entry);
      const { length } = this.waiting;
      if (length === 1) this.pump();
      if (entry.step === undefined && this.waiting.at(-1) === entry) this.guard(() => this.order.holdBack(entry));
      if (length % HARVEST_EVERY === 0) this.poll(entry.issuedAt);
    }
    if (this.#inFlight.numIssued % HARVEST_EVERY === 0) this.#harvest();
    this.options.poller.add(this, entry.issuedAt);
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

  /** Asks the stream for a short while whether `work`, all of whose calls are on it, is done. */
  spin(work: QueuedWork<unknown>): void {
    if (this.waiting.length > 0 || this.cause !== undefined || work.settled || !this.options.blocking) return;
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
    if (this.pending === 0 || this.cause !== undefined) return;
    this.#progress(performance.now());
    if (this.running.length > 0 && this.handle.accepts && this.#inFlight.idle) this.settleIssued();
    else this.#harvest();
  }

  protected override failureToTell(error: unknown): Failure {
    const { at, control, ranks } = this.options;
    if (at.device.poison === undefined) return failureOf(error);
    // A rank that lost its context is one that died, to the others.
    const cause = error instanceof Error ? error.message : String(error);
    return { code: "RANK_FAILED", rank: ranks[control.member] ?? -1, generation: at.generation, cause };
  }

  /** Takes over a failure that a peer wrote. */
  adopt(): void {
    const failure = this.options.control.failure;
    if (failure === undefined || this.cause !== undefined) return;
    const error = this.errorTold(failure);
    this.pump();
    this.finishWhole(failure.code === "RANK_FAILED" ? FINISH_MS.apart : FINISH_MS.together);
    this.keepTurn();
    this.end(error);
  }

  /**
   * Makes the call of a turn that was granted to this rank, or makes sure that none is granted any more: the others may be
   * in NCCL with it already, and come back from there when this rank has made it too.
   */
  protected keepTurn(): void {
    const { at, control } = this.options;
    // In the middle of that call there is nothing left to make; and members that died make none.
    if (this.#issuing || this.handle.surrendered || at.device.poison !== undefined) return;
    if (control.failure?.code === "RANK_FAILED") return;
    while (this.cause === undefined && !control.withdraw()) {
      const numBefore = this.waiting.length;
      const wasOpen = this.handle.comm !== undefined;
      if (this.open()) this.pump();
      const hasOpened = !wasOpen && this.handle.comm !== undefined;
      if (!hasOpened && this.waiting.length === numBefore) return;
    }
  }

  protected release(): void {
    const failure = this.knownFailure();
    this.order.close();
    this.#inFlight.close(failure === undefined);
  }

  /** Opens the communicator if need be. @returns whether it is open */
  open(): boolean {
    if (this.handle.surrendered || this.cause !== undefined) return false;
    if (this.handle.comm !== undefined) return true;
    const comm = this.guard(() => this.handle.open());
    if (comm === undefined) return false;
    this.guard(() => {
      this.options.completion.open();
      this.options.opened(comm);
    });
    return this.cause === undefined;
  }

  /** Whether the entry need not stand in the queue first: what `pump` would find for most calls, said shortly. */
  #goesAtOnce(entry: Entry): boolean {
    return (
      this.waiting.length === 0 &&
      entry.announced &&
      this.#target !== undefined &&
      this.options.blocking &&
      entry.ready === undefined &&
      entry.step === undefined &&
      entry.meets === undefined &&
      !this.isFull &&
      this.firstCalls.allWarm(entry.kinds) &&
      !this.options.endings.holdsBack(this)
    );
  }

  /** Issues from the queue what may be issued now. */
  protected pump(): void {
    if (this.waiting.length === 0 || this.#issuing) return;
    this.publishHeldBack();
    if (!this.open() || this.options.endings.holdsBack(this)) return;
    this.giveReady();
  }

  protected override get isFull(): boolean {
    const { length } = this.running;
    // A call that is timed has an event before and behind it.
    const most = this.recorder.timings ? MAX_IN_FLIGHT / 4 : MAX_IN_FLIGHT;
    return length >= most || (length > 1 && this.#numOnStream >= MAX_CALLS_IN_FLIGHT);
  }

  protected mayPass(entry: Entry, blocked: readonly Entry[]): boolean {
    const [first] = blocked;
    if (first === undefined) return true;
    return (
      blocked.every((earlier) => mayOvertake(entry, earlier)) &&
      this.guard(() => this.order.mayPass(entry, first)) === true
    );
  }

  /** Whether the entry can be issued without blocking this thread; for a host task, whether it is done. */
  protected isReady(entry: Entry): boolean {
    // NCCL takes no other call while it is still at the last; and what goes on the stream otherwise would run before that.
    if (!this.handle.accepts) return false;
    if (entry.ready !== undefined) return this.guard(entry.ready) === true;
    if (entry.step !== undefined) return this.#takesStep(entry.step);
    const { control, plans, poller } = this.options;
    if (!control.failed && this.firstCalls.allWarm(entry.kinds)) return this.#hasMet(entry);
    entry.kinds = plans.kindsNow(entry);
    if (!control.failed && this.firstCalls.allWarm(entry.kinds)) return this.#hasMet(entry);
    if (plans.mayOpen(entry.kinds)) {
      if (!this.firstCalls.takesTurn(entry)) return false;
      if (this.#takesStep(() => this.#opens(entry)) && this.#hasMet(entry)) return true;
      this.firstCalls.made(entry);
    }
    // Too early: others go on meanwhile.
    poller.hurry();
    return false;
  }

  /** Whether members have told each other what the call needs of them. */
  #hasMet(entry: Entry): boolean {
    const { meets } = entry;
    if (meets === undefined) return true;
    if (this.running.length < MAX_MET_IN_FLIGHT) {
      // Others copy to where this member says that its buffers are, from then on.
      entry.isExposed = true;
      if (this.guard(() => meets(false)) === true) return true;
    }
    this.options.poller.hurry();
    return false;
  }

  /** In its turn: opens the plans that a call needs. @returns whether it may be made */
  #opens(entry: Entry): boolean {
    this.#enterStream();
    const { plans } = this.options;
    if (!plans.open(entry.kinds, this.target)) return false;
    this.firstCalls.connects(plans.kindsNow(entry, true));
    return true;
  }

  /** To be called before anything is put on the stream. */
  #enterStream(): void {
    this.options.endings.beforeIssue();
    this.options.at.device.activate();
  }

  #takesStep(step: () => boolean): boolean {
    this.#issuing = true;
    const done = this.guard(step);
    this.#issuing = false;
    return done === true;
  }

  protected give(entry: Entry): void {
    let status: number | undefined;
    const { completion } = this.options;
    const { lastOfKernel } = completion;
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
    if (this.cause !== undefined || status === undefined) {
      this.settling.settleFailed(entry, this.cause ?? new AbortedError("the call could not be issued"));
      return;
    }
    // A call that is timed ends with the event behind its kernel.
    const isTold = completion.lastOfKernel !== lastOfKernel && !this.recorder.timings;
    this.#inFlight.add(entry, isTold ? completion.lastOfKernel : 0);
    this.#numOnStream += entry.numCalls;
    this.#numUnmarked += entry.numCalls;
    if (this.recorder.timings) {
      this.handle.untilAccepted();
      this.guard(() => this.recorder.started(entry));
    } else this.recorder.started(entry);
    // The other end of a send waits for it to be there, not for somebody to look.
    if (entry.ready !== undefined || this.#numUnmarked >= CALLS_A_MARK) this.#mark();
  }

  /** Where a call runs that is one launch: a kernel may tell of its end itself. */
  get target(): CallTarget {
    const { target, completion } = this.options;
    this.#target ??= { ...target(this.handle.comm ?? 0n), ends: completion.ofKernels };
    return this.#target;
  }

  /** Puts the entry on the stream. @returns NCCL's status */
  #issue(entry: Entry): number {
    this.#enterStream();
    this.order.place(entry);
    // A kernel tells those of other members where its buffers are.
    if (entry.reachesPeers) entry.isExposed = true;
    if (this.recorder.timings) this.recorder.before(entry);
    if (entry.single !== undefined) return issue(entry.single, this.target);
    return entry.run?.(this.handle.comm ?? 0n) ?? NCCL_RESULT.success;
  }

  /** Puts a mark behind everything issued, so that its completion can be read. */
  #mark(): void {
    // The last call may not be on the stream yet.
    if (this.#inFlight.marked || this.cause !== undefined || !this.handle.accepts) return;
    this.#numUnmarked = 0;
    this.guard(() => this.#inFlight.mark());
  }

  /** Settles everything on the stream, which is done with it. */
  settleIssued(): void {
    this.#settleFirst(this.running.length);
  }

  /** Settles what the stream has finished, in order. */
  #harvest(): void {
    this.#settleFirst(this.#inFlight.numDone);
  }

  /**
   * Settles the oldest `count` calls, which the stream is done with. Once a member has failed, those alone that every member
   * has made: a member that stops its plans stops everybody's, and what waited for it has ended with whatever was there. So
   * have calls that all have made, where a member could not wait for the others to settle those before it did.
   */
  #settleFirst(count: number): void {
    const { control } = this.options;
    const gaveUp = count > 0 && !control.failed ? this.options.plans.gaveUp() : undefined;
    if (gaveUp !== undefined) {
      // Results of all members are as they were then.
      control.cutShort();
      this.fail(new AbortedError(`a kernel has waited for too long: ${gaveUp}`));
      return;
    }
    const hasFailed = count > 0 && control.failed;
    if (hasFailed && control.isCutShort) return;
    const whole = hasFailed ? Math.min(count, this.#inFlight.numWhole(this.agreement)) : count;
    if (whole === 0) return;
    for (let i = 0; i < whole; i++) this.#numOnStream -= this.running[i]?.numCalls ?? 0;
    this.#inFlight.settle(whole);
    if (this.waiting.length > 0) this.pump();
  }

  #progress(now: number): void {
    if (this.cause !== undefined) return;
    if (this.options.control.failed) {
      this.adopt();
      return;
    }
    this.pump();
    try {
      this.order.catchUp();
      this.watchdog.look(this.running, this.waiting, now);
    } catch (error) {
      this.fail(error);
    }
  }

  /**
   * Lets the calls that every member has issued come to their end before the group does: their results are there, this
   * rank only has not looked yet. Not once NCCL was told to abort: calls end then, and their results are not there.
   */
  protected finishWhole(limitMs: number): void {
    if (this.finishing || this.handle.surrendered || this.options.at.device.poison !== undefined) return;
    this.finishing = true;
    const whole = this.#inFlight.numWhole(this.agreement);
    // A mark behind a call that never ends is never reached: then only what was marked before it can be told.
    if (whole === this.running.length) this.#mark();
    this.#inFlight.waitFor(whole, limitMs, () => this.cause !== undefined);
    this.#harvest();
  }

  protected stopEngine(): void {
    this.guard(() => this.recorder.look());
    // NCCL may be at a call that the others are in, though nothing of it is on the stream.
    const entering = this.options.control.granted;
    this.firstCalls.endTurn();
    this.guard(() => this.options.failed(this.abandoned ? 0 : FINISH_MS.apart));
    this.options.endings.failed(this, entering);
  }

  protected override forget(entry: Entry): void {
    this.order.forget(entry);
    if (!entry.isExposed) return;
    // Copies and kernels of other members may still come: its memory is not handed out again before all are done with the group.
    entry.countExposure(1);
    this.#exposed.push(entry);
  }

  /** Lets go of the memory of calls that failed: no member comes there any more. */
  releaseExposed(): void {
    for (const entry of this.#exposed.splice(0)) entry.countExposure(-1);
  }

  /** What NCCL and the driver know to be wrong. */
  protected override askEngine(oldest: string): void {
    if (this.handle.comm === undefined) return;
    const { failure } = this.handle;
    if (failure !== undefined) throw failure;
    this.recorder.look();
    this.options.stream.isDone(oldest);
  }

  protected forgetRunning(): void {
    this.#inFlight.clear();
    this.#numOnStream = 0;
  }
}
