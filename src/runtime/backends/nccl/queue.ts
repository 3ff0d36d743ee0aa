/**
 * A communicator's queue: calls run in the order of issue on one stream. It publishes each call's fingerprint and
 * compares it with what peers published, holds a call back where NCCL would block this thread, learns what the stream
 * has done, and ends everything with one cause when something fails.
 *
 * Nothing is published that would overwrite what a member has yet to compare (see publishing.ts): who runs far ahead of
 * the slowest member keeps its calls to itself until that one comes closer.
 *
 * Why calls are held back: NCCL connects peers inside the first call of a kind, and that call blocks until the peers
 * make it too. A call whose kind (operation, size class, peer) was not seen before therefore waits, without blocking,
 * until every member has issued it; after that NCCL only enqueues.
 */
import { AbortedError, ChoraleError, MismatchError, TimeoutError } from "../../../core/index.ts";
import { errorOf, failureOf, OpCounters, opCode } from "../../comm/index.ts";
import { sameLane } from "../control/lanes.ts";
import type { GroupControl } from "../control/segment.ts";
import type { RankDevice } from "../cuda/rank-device.ts";
import type { CudaStream } from "../cuda/stream.ts";
import { Agreement } from "./agreement.ts";
import { CallRecorder } from "./call-recorder.ts";
import { type CallTarget, issue } from "./calls.ts";
import { Completion } from "./completion.ts";
import type { Endings } from "./endings.ts";
import { type Entry, mayOvertake, type Opening } from "./entry.ts";
import type { NcclLibrary } from "./library.ts";
import { blockUntil, nap, type Pollable, type Poller } from "./poller.ts";
import { ALWAYS_COLD, type CallKind } from "./prepare.ts";
import { Publishing } from "./publishing.ts";
import { StreamOrder } from "./stream-order.ts";
import { NCCL_RESULT } from "./symbols.ts";
import type { NcclWork, WorkDriver } from "./work.ts";

/** Calls in flight on the stream; later ones wait in the queue. NCCL and the driver block at about a thousand. */
const MAX_IN_FLIGHT = 512;
/** Calls after which finished ones are looked for while issuing. */
const HARVEST_EVERY = 64;
/** How long `then` looks for the end itself before the event loop takes over: most small collectives end within it. */
const AWAIT_SPIN_MS = 0.04;
/** How long calls that are whole may take to end after the group has failed, ms: none of them ends when a rank has died. */
const FINISH_MS = 100;
/** The same when all members are there to end them: a device, or the thread that feeds it, may be late on a busy host. */
const FINISH_TOGETHER_MS = 1000;
/** How long to look for that end at every moment, ms; then this thread leaves the core to who is at it. */
const FINISH_SPIN_MS = 1;
/** How long NCCL may be at a call that was given to it, ms. */
const ACCEPT_MS = 10_000;
/** How often NCCL is asked for asynchronous errors while something is pending, ms. */
const ASYNC_ERROR_PERIOD_MS = 20;

export interface QueueOptions {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly control: GroupControl;
  readonly stream: CudaStream;
  readonly poller: Poller;
  readonly group: string;
  readonly ranks: readonly number[];
  readonly opening: Opening;
  readonly blocking: boolean;
  /** Whether calls are timed on the stream for the flight recorder. */
  readonly flightTimings: boolean;
  /** Where calls run, once the communicator is open. */
  readonly target: (comm: bigint) => CallTarget;
  readonly opened: (comm: bigint) => void;
  /** How communicators of this rank end. */
  readonly endings: Endings;
}

export class CommQueue implements Pollable, WorkDriver {
  readonly counters = new OpCounters();
  readonly options: QueueOptions;
  readonly #agreement: Agreement;
  readonly #publishing: Publishing;
  readonly #completion: Completion;
  readonly #recorder: CallRecorder;
  readonly #order: StreamOrder;
  readonly #unissued: Entry[] = [];
  readonly #issued: Entry[] = [];
  readonly #warm = new Set<CallKind>();
  readonly #failures: NcclWork<unknown>[] = [];
  #comm: bigint | undefined;
  #target: CallTarget | undefined;
  /** The call whose turn this rank has taken. */
  #turnOf: Entry | undefined;
  #markedUpTo = 0;
  #numIssued = 0;
  #numTaken = 0;
  #firstLost = Number.POSITIVE_INFINITY;
  #cause: ChoraleError | undefined;
  #lastAsyncCheck = 0;
  #closed = false;
  /** NCCL's handle was given up: nothing may be called with it any more. */
  #surrendered = false;
  #finishing = false;
  /** A call is on its way to the stream. It may wait for memory, and others be looked at meanwhile: none goes before it. */
  #issuing = false;

  constructor(options: QueueOptions) {
    this.options = options;
    this.#agreement = new Agreement(options.control, options.ranks, options.group);
    this.#publishing = new Publishing(this.#agreement);
    this.#completion = new Completion(options.at, options.stream);
    const notes = options.control.flightNotes(options.control.member);
    this.#recorder = new CallRecorder(notes, options.stream, options.flightTimings);
    this.#order = new StreamOrder(options.at, options.stream);
  }

  /** Whether a call of this kind can be issued without NCCL connecting anybody. */
  isWarm(kind: CallKind): boolean {
    return this.#warm.has(kind);
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
    let first = this.#firstLost;
    // Sends and receives overtake each other.
    for (const { number } of this.#issued) first = Math.min(first, number);
    for (const { number } of this.#unissued) first = Math.min(first, number);
    return first;
  }

  /** Whether calls of this communicator are on the stream and not known to be done. */
  get inFlight(): boolean {
    return this.#issued.length > 0;
  }

  /** NCCL's handle, once the communicator is open and as long as it is not given up. */
  get comm(): bigint | undefined {
    return this.#surrendered ? undefined : this.#comm;
  }

  get surrendered(): boolean {
    return this.#surrendered;
  }
  get cause(): ChoraleError | undefined {
    return this.#cause;
  }

  /** Takes a call that was checked. Never waits. @throws the group's failure, when it has failed */
  push(entry: Entry): void {
    entry.countUse(1);
    const failure = this.#knownFailure();
    if (failure !== undefined) {
      this.#giveBack(entry);
      throw failure;
    }
    entry.number = ++this.#numTaken;
    const mismatch = this.#publishing.take(entry);
    this.#recorder.issued(entry);
    if (mismatch !== undefined) this.fail(mismatch);
    if (this.#cause !== undefined) {
      this.#settleFailed(entry, this.#cause);
      return;
    }
    if (this.#goesAtOnce(entry)) this.#launch(entry);
    else {
      this.#unissued.push(entry);
      const { length } = this.#unissued;
      if (length === 1) this.#pump();
      else if (length % HARVEST_EVERY === 0) this.poll(entry.issuedAt);
      if (entry.step === undefined && this.#unissued.at(-1) === entry) this.#guard(() => this.#order.holdBack(entry));
    }
    if (this.#numIssued % HARVEST_EVERY === 0) this.#harvest();
    this.options.poller.add(this, entry.issuedAt);
  }

  /** @throws the group's failure */
  refuseAfterFailure(): void {
    const failure = this.#knownFailure();
    if (failure !== undefined) throw failure;
  }

  /** The group's failure, also one that a peer has just written. */
  #knownFailure(): ChoraleError | undefined {
    if (this.#cause === undefined && this.options.control.failed) this.adopt();
    return this.#cause;
  }

  /** For a call that waited in the middle of being issued: whether it may still go to NCCL. @throws the group's failure */
  stillOpen(): void {
    this.options.endings.beforeIssue();
    this.refuseAfterFailure();
    if (this.#surrendered) throw new AbortedError(`${this.options.group} was given up`);
  }

  advance(work: NcclWork<unknown>, now: number): boolean {
    this.#progress(now);
    if (!work.settled) this.#mark();
    this.#harvest();
    return work.settled;
  }

  watch(work: NcclWork<unknown>): void {
    this.spin(work);
    if (work.settled || this.advance(work, performance.now())) return;
    this.options.poller.add(this);
  }

  /** Asks the stream for a short while whether `work`, all of whose calls are on it, is done. */
  spin(work: NcclWork<unknown>): void {
    if (this.#unissued.length > 0 || this.#cause !== undefined || work.settled || !this.options.blocking) return;
    const until = performance.now() + AWAIT_SPIN_MS;
    do {
      for (let i = 0; i < 8; i++) {
        if (this.#completion.idle()) {
          this.#settleFirst(this.#issued.length);
          return;
        }
      }
    } while (performance.now() < until);
  }

  poll(now: number): boolean {
    this.#progress(now);
    this.#mark();
    this.#harvest();
    return this.#issuing || this.pending > 0;
  }

  /** Settles what is done, without waiting: also what nobody has asked for since it was issued. */
  look(): void {
    if (this.pending === 0 || this.#cause !== undefined) return;
    this.#progress(performance.now());
    if (this.#issued.length > 0 && this.accepts && this.#completion.idle()) this.#settleFirst(this.#issued.length);
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
    this.#finishWhole(error instanceof MismatchError ? FINISH_TOGETHER_MS : FINISH_MS);
    this.#keepTurn();
    this.#end(error instanceof ChoraleError ? error : new AbortedError(String(error)));
  }

  /** Takes over a failure that a peer wrote. */
  adopt(): void {
    const failure = this.options.control.failure;
    if (failure === undefined || this.#cause !== undefined) return;
    this.#pump();
    this.#finishWhole(failure.code === "RANK_FAILED" ? FINISH_MS : FINISH_TOGETHER_MS);
    this.#keepTurn();
    this.#end(errorOf(failure));
  }

  /**
   * Makes the call of a turn that was granted to this rank, or sees to it that none is granted any more: the others may be
   * in NCCL with it already, and come back from there when this rank has made it too.
   */
  #keepTurn(): void {
    const { at, control } = this.options;
    // In the middle of that call there is nothing left to make; and members that died make none.
    if (this.#issuing || this.#surrendered || at.device.poison !== undefined) return;
    if (control.failure?.code === "RANK_FAILED") return;
    while (this.#cause === undefined && !control.withdraw()) {
      const numBefore = this.#unissued.length;
      const wasOpen = this.#comm !== undefined;
      if (this.open()) this.#pump();
      const hasOpened = !wasOpen && this.#comm !== undefined;
      if (!hasOpened && this.#unissued.length === numBefore) return;
    }
  }

  /** Ends the queue here, without waiting for anything and without a word to the other members. */
  abandon(cause: ChoraleError): void {
    this.#finishing = true;
    this.#end(cause);
  }

  /** Gives NCCL's handle up, once, to be aborted or destroyed: also the handle of a communicator that is not open yet. */
  surrender(): bigint | undefined {
    if (this.#surrendered) return undefined;
    this.#surrendered = true;
    return this.#comm ?? this.options.opening.handle;
  }

  async drain(): Promise<void> {
    while (this.pending > 0 && this.#cause === undefined) {
      this.options.poller.add(this);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Makes what is issued on `stream` from now on wait for every call made here so far. */
  orderBefore(stream: CudaStream): void {
    this.refuseAfterFailure();
    // Calls that are held back (see above) are not on the stream yet.
    if (this.#unissued.length > 0 || !this.accepts) {
      blockUntil(this.poller, (now) => {
        this.poll(now);
        this.refuseAfterFailure();
        return this.#unissued.length === 0 && this.accepts;
      });
    }
    this.#order.precede(stream, this);
  }

  /** Makes calls made here from now on wait for what `stream` has been given so far. */
  orderAfter(stream: CudaStream): void {
    this.refuseAfterFailure();
    this.#order.follow(stream);
  }

  /** Blocks this thread until the stream has done everything. @throws the group's failure, TimeoutError */
  synchronize(timeoutMs: number): void {
    const until = performance.now() + timeoutMs;
    blockUntil(this.poller, (now) => {
      this.poll(now);
      this.refuseAfterFailure();
      const issued = this.#unissued.length === 0 && this.accepts;
      if (issued && this.options.stream.isDone(`work of ${this.options.group}`)) {
        // Calls that ended since the poll are over for the program too: it may capture, or free what they used.
        this.#settleFirst(this.#issued.length);
        return true;
      }
      if (now > until) throw new TimeoutError(`work on the stream of ${this.options.group}`, timeoutMs);
      return false;
    });
  }

  /** Whether NCCL takes a call on this communicator now: a non-blocking one may be busy with the last. */
  get accepts(): boolean {
    return this.options.blocking || this.#asyncState() !== NCCL_RESULT.inProgress;
  }

  /** Waits until NCCL has put the last call on the stream, so that what follows it can be put behind. */
  untilAccepted(): void {
    const until = performance.now() + ACCEPT_MS;
    while (!this.accepts && performance.now() < until) nap(0.02);
  }

  /** Ends the queue, for which nothing may be pending. @returns the failures nobody looked at */
  close(): readonly unknown[] {
    if (this.#closed) return [];
    this.#closed = true;
    const failure = this.#knownFailure();
    this.options.poller.remove(this);
    this.#order.close();
    this.#completion.close(failure === undefined);
    this.#recorder.close();
    return this.#failures.filter((work) => !work.seen).map((work) => work.error);
  }

  /** Opens the communicator if need be. @returns whether it is open */
  open(): boolean {
    if (this.#surrendered || this.#cause !== undefined) return false;
    if (this.#comm !== undefined) return true;
    this.#comm = this.#guard(() => this.options.opening.advance());
    if (this.#comm !== undefined) this.options.opened(this.#comm);
    return this.#comm !== undefined;
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
      this.#allWarm(entry.kinds) &&
      !this.options.endings.holdsBack()
    );
  }

  /** Issues from the queue what may be issued now. */
  #pump(): void {
    if (this.#unissued.length === 0 || this.#issuing) return;
    if (this.#publishing.behind) this.#publish();
    if (!this.open() || this.options.endings.holdsBack()) return;
    const blocked: Entry[] = [];
    for (let i = 0; i < this.#unissued.length; ) {
      const entry = this.#unissued[i];
      if (entry === undefined || this.#issued.length >= MAX_IN_FLIGHT || this.#cause !== undefined) return;
      // In order: what is behind it is not published either.
      if (!entry.announced) return;
      if (blocked.some((earlier) => !mayOvertake(entry, earlier)) || !this.#isReady(entry)) {
        if (entry.ready === undefined) return;
        blocked.push(entry);
        i++;
        continue;
      }
      if (this.#cause !== undefined) return;
      this.#unissued.splice(i, 1);
      if (entry.step === undefined) this.#launch(entry);
      else this.#settle(entry, performance.now());
      this.#publishing.ran(entry);
      if (this.#publishing.behind) this.#publish();
    }
  }

  /** Publishes what was held back and need not be any longer. */
  #publish(): void {
    const mismatch = this.#publishing.goOn(this.#unissued);
    if (mismatch !== undefined) this.fail(mismatch);
  }

  /** Whether the entry can be issued without blocking this thread; for a host task, whether it is done. */
  #isReady(entry: Entry): boolean {
    if (entry.ready !== undefined) return this.#guard(entry.ready) === true;
    // A communicator that is still at the last call takes no other.
    if (!this.accepts) return false;
    if (entry.step !== undefined) return this.#takesStep(entry.step);
    if (!this.options.control.failed && this.#allWarm(entry.kinds)) return true;
    if (!this.#agreement.complete(entry.arrivals)) return false;
    if (!this.#turnOfEntry(entry)) return false;
    this.#turnOf = entry;
    for (const kind of entry.kinds) if (kind !== ALWAYS_COLD) this.#warm.add(kind);
    return true;
  }

  #takesStep(step: () => boolean): boolean {
    this.#issuing = true;
    const done = this.#guard(step);
    this.#issuing = false;
    return done === true;
  }

  #allWarm(kinds: readonly CallKind[]): boolean {
    for (const kind of kinds) if (!this.#warm.has(kind)) return false;
    return true;
  }

  /** Whether it is this group's turn to make a call that blocks until all its members make it. */
  turn(seq: number): boolean {
    const { control, ranks, poller } = this.options;
    if (control.size === 1 || control.turn(seq, ranks)) return true;
    poller.hurry();
    return false;
  }

  /** A call of sends and receives alone takes its turn with the members that are in it. */
  #turnOfEntry({ arrivals, kinds }: Entry): boolean {
    const collective = arrivals.find(({ lane }) => lane.kind === "collective");
    if (collective !== undefined) return this.turn(collective.seq);
    const { control, ranks, poller } = this.options;
    if (control.size === 1) return true;
    // Peers that are connected already are not asked for: for them the call may be under way. Here a call has one kind.
    const cold = arrivals.filter((_, i) => !this.#warm.has(kinds[i] ?? ALWAYS_COLD));
    const first = cold.filter(({ lane }, i) => i === cold.findIndex((other) => sameLane(lane, other.lane)));
    if (control.turnOfPairs(first, ranks)) return true;
    poller.hurry();
    return false;
  }

  endTurn(): void {
    this.options.control.endTurn(this.options.ranks);
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
      this.fail(this.options.library.error(entry.op, status, this.comm));
    }
    if (this.#turnOf === entry) {
      this.#turnOf = undefined;
      this.endTurn();
    }
    if (this.#cause !== undefined || status === undefined) {
      this.#settleFailed(entry, this.#cause ?? new AbortedError("the call could not be issued"));
      return;
    }
    this.#issued.push(entry);
    this.#numIssued++;
    if (this.#recorder.timings) this.untilAccepted();
    if (this.#recorder.timings) this.#guard(() => this.#recorder.started(entry));
    else this.#recorder.started(entry);
    // The other end of a send waits for it to be there, not for somebody to look.
    if (entry.ready !== undefined) this.#mark();
  }

  /** Puts the entry on the stream. @returns NCCL's status */
  #issue(entry: Entry): number {
    const { at, endings } = this.options;
    endings.beforeIssue();
    at.device.activate();
    this.#order.place(entry);
    const comm = this.#comm ?? 0n;
    if (this.#recorder.timings) this.#recorder.before(entry);
    if (entry.single !== undefined) return issue(entry.single, this.#targetOf(comm));
    return entry.run?.(comm) ?? NCCL_RESULT.success;
  }

  #targetOf(comm: bigint): CallTarget {
    this.#target ??= this.options.target(comm);
    return this.#target;
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
    if (this.#markedUpTo === this.#numIssued || this.#cause !== undefined) return;
    // The last call may not be on the stream yet.
    if (!this.accepts) return;
    this.#markedUpTo = this.#numIssued;
    const marker = this.#guard(() => this.#completion.mark());
    if (marker === undefined) return;
    for (let i = this.#issued.length - 1; i >= 0 && this.#issued[i]?.marker === 0; i--) {
      const entry = this.#issued[i];
      if (entry !== undefined) entry.marker = marker;
    }
  }

  /** Settles what the stream has finished, in order. */
  #harvest(): void {
    let finished = 0;
    while (finished < this.#issued.length && this.#completion.reached(this.#issued[finished]?.marker ?? 0)) finished++;
    this.#settleFirst(finished);
  }

  #settleFirst(count: number): void {
    if (count === 0) return;
    const now = performance.now();
    if (count === 1) {
      const entry = this.#issued.shift();
      if (entry !== undefined) this.#settle(entry, now);
    } else for (const entry of this.#issued.splice(0, count)) this.#settle(entry, now);
    if (this.#issued.length === 0) this.#markedUpTo = this.#numIssued;
    if (this.#unissued.length > 0) this.#pump();
  }

  #settle(entry: Entry, now: number): void {
    entry.countUse(-1);
    if (this.#recorder.timings) this.#guard(() => this.#recorder.ended(entry, true, now));
    else this.#recorder.ended(entry, true, now);
    const counter = this.counters.byCode[opCode(entry.op)];
    if (counter !== undefined) {
      counter.calls++;
      counter.bytes += entry.sizeBytes;
      counter.time((now - entry.issuedAt) * 1000);
    }
    const { finish, members } = entry;
    if (finish.length === 0 && members.length === 0 && entry.value === undefined) {
      entry.work.complete(entry.result);
      return;
    }
    this.#guard(() => {
      for (const one of finish) one(true);
      for (const { work, value } of members) work.complete(value);
      entry.work.complete(entry.value === undefined ? entry.result : entry.value());
    });
    if (this.#cause === undefined) return;
    for (const { work } of members) work.fail(this.#cause);
    entry.work.fail(this.#cause);
  }

  #settleFailed(entry: Entry, cause: ChoraleError): void {
    this.#firstLost = Math.min(this.#firstLost, entry.number);
    this.#order.forget(entry);
    const counter = this.counters.byCode[opCode(entry.op)];
    if (counter !== undefined) counter.failures++;
    this.#recorder.ended(entry, false, performance.now());
    this.#giveBack(entry);
    for (const { work } of entry.members) work.fail(cause);
    entry.work.fail(cause);
    this.#failures.push(entry.work);
  }

  /** Gives back what a call holds that did not come to its end. */
  #giveBack(entry: Entry): void {
    entry.countUse(-1);
    for (const finish of entry.finish) {
      try {
        finish(false);
      } catch {
        // The cause is known already, and memory that cannot be given back goes with the device.
      }
    }
  }

  #progress(now: number): void {
    if (this.#cause !== undefined) return;
    if (this.options.control.failed) {
      this.adopt();
      return;
    }
    this.#pump();
    const oldest = this.#issued[0] ?? this.#unissued[0];
    if (oldest === undefined) return;
    if (now - this.#lastAsyncCheck > ASYNC_ERROR_PERIOD_MS && this.comm !== undefined) {
      this.#lastAsyncCheck = now;
      const state = this.#asyncState();
      if (state !== NCCL_RESULT.success && state !== NCCL_RESULT.inProgress) {
        this.fail(this.options.library.error("ncclCommGetAsyncError", state, this.comm));
        return;
      }
      this.#guard(() => this.#recorder.look());
      this.#guard(() => this.options.stream.isDone(`${oldest.op} #${oldest.work.seq} of ${this.options.group}`));
    }
    if (now > oldest.deadline && this.#cause === undefined) {
      const what = `${oldest.op} #${oldest.work.seq} of ${this.options.group}`;
      this.fail(new TimeoutError(what, oldest.timeoutMs, this.#agreement.activity(oldest)));
    }
  }

  #asyncState(): number {
    const { comm } = this;
    if (comm === undefined) return NCCL_RESULT.success;
    const out = new Int32Array(1);
    const status = this.options.library.api.ncclCommGetAsyncError(comm, out);
    return status === NCCL_RESULT.success ? (out[0] ?? 0) : status;
  }

  /**
   * Lets the calls that every member has issued come to their end before the group does: their results are there, this
   * rank only has not looked yet. Not once NCCL was told to abort: calls end then, and their results are not there.
   */
  #finishWhole(limitMs: number): void {
    if (this.#finishing || this.#surrendered || this.options.at.device.poison !== undefined) return;
    this.#finishing = true;
    const broken = this.#issued.findIndex((entry) => !this.#agreement.complete(entry.arrivals));
    // A mark behind a call that never ends is never reached: then only what was marked before it can be told.
    if (broken < 0) this.#mark();
    const whole = this.#issued.slice(0, broken < 0 ? undefined : broken).filter((entry) => entry.marker !== 0);
    const last = whole.at(-1);
    if (last === undefined) return;
    const start = performance.now();
    while (!this.#completion.reached(last.marker) && this.#cause === undefined) {
      const waitedMs = performance.now() - start;
      if (waitedMs > limitMs) break;
      if (waitedMs > FINISH_SPIN_MS) nap(0.05);
    }
    this.#harvest();
  }

  #end(cause: ChoraleError): void {
    if (this.#cause !== undefined) return;
    this.#cause = cause;
    this.#guard(() => this.#recorder.look());
    // NCCL may be at a call that the others are in, though nothing of it is on the stream.
    const entering = this.options.control.granted;
    this.endTurn();
    this.options.endings.failed(this, entering);
    for (const entry of [...this.#issued, ...this.#unissued]) this.#settleFailed(entry, cause);
    this.#issued.length = 0;
    this.#unissued.length = 0;
  }
}
