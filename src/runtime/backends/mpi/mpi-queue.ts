/**
 * A group's queue over MPI. A call is given to MPI when every member has published the same call (runtime/memory), so
 * that MPI never holds half a collective because of a mismatch or a rank that does not come; its requests are tested from
 * the event loop, or by the thread that waits. Everything ends with one cause when something fails.
 */
import { overlaps } from "../../../collectives/index.ts";
import { AbortedError } from "../../../core/index.ts";
import { COLLECTIVE, type GroupControl } from "../../memory/index.ts";
import {
  type Arrival,
  CallQueue,
  type CallQueueOptions,
  FINISH_MS,
  JOIN_SEQ,
  mayOvertake,
  type QueuedWork,
} from "../../progress/index.ts";
import type { HostArena } from "./host-arena.ts";
import type { CallTarget, MpiEntry } from "./mpi-entry.ts";
import type { MpiProcess } from "./mpi-process.ts";
import type { WorldControl } from "./world-control.ts";

/** How long a waiting thread tests without a pause while data moves, ms; while members are still missing. */
const SPIN_MS = { moving: 20, waiting: 0.3 } as const;
/** How long `then`, and a turn of the event loop, look for the end themselves. */
const AWAIT_SPIN_MS = 0.04;
const TURN_SPIN_MS = 1;
/** Tests between two looks at the clock. */
const TESTS = 16;
const NONE: readonly never[] = Object.freeze([]);
/** First word of the members' joining, call 0 of every group. */
const JOIN_CALL = 0x3f;

interface MpiQueueOptions extends CallQueueOptions {
  readonly mpi: MpiProcess;
  /** The communicator, where it is there already; otherwise it is made when all members have joined. */
  readonly comm: number | undefined;
  /** Where this host's groups run plans, if they do. */
  readonly arena?: HostArena | undefined;
  /** Where its members take turns, if not in `control`. */
  readonly turns?: GroupControl | undefined;
  /** In a world of several hosts: where the others are heard of, and whether some of them are members. */
  readonly elsewhere?: { readonly world: WorldControl; readonly spansHosts: boolean } | undefined;
}

const isCollective = ({ ready }: MpiEntry): boolean => ready === undefined;

/** Whether two calls use the same memory: MPI runs what it is given side by side, and calls have an order. */
function touches({ regions: earlier }: MpiEntry, { regions: later }: MpiEntry): boolean {
  for (const a of earlier) for (const b of later) if (overlaps(a, b)) return true;
  return false;
}

export class MpiQueue extends CallQueue<MpiEntry, MpiQueueOptions> {
  protected readonly running: MpiEntry[] = [];
  #target: CallTarget | undefined;
  #pumping = false;
  /** Looks again at once where it finds nothing. */
  #isGlancing = false;
  /** Goes on with messages that this rank has sent and nobody here waits for. @returns how many are under way */
  #sweep: () => number = () => 0;
  #sweepUntil = 0;

  constructor(options: MpiQueueOptions) {
    super(options);
    if (options.comm !== undefined) this.#target = this.#targetOf(options.comm);
    options.control.publish(COLLECTIVE, JOIN_SEQ, { call: JOIN_CALL, count: 0, hash: 0 });
  }

  /** Whether all who take part in these calls have published the same. A disagreement ends the group. */
  allAgree(arrivals: readonly Arrival[]): boolean {
    const [first] = arrivals;
    if (first !== undefined && arrivals.length === 1 && first.lane.kind === "collective") {
      const agreed = this.agreement.agreed(first);
      if (agreed !== undefined) return agreed;
    }
    if (!this.agreement.complete(arrivals)) return false;
    const mismatch = this.agreement.disagreement(arrivals);
    if (mismatch !== undefined) this.fail(mismatch);
    return mismatch === undefined;
  }

  /**
   * Has MPI go on with messages that are under way, though no call is pending here: it may need their sender for that. For
   * `forMs` at most, so that a message that nobody ever receives keeps no process alive.
   */
  goOnSending(sweep: () => number, forMs: number): void {
    this.#sweep = sweep;
    this.#sweepUntil = performance.now() + forMs;
  }

  /** Whether a call that is taken now is the only one, of a group that is open and well. */
  get isIdle(): boolean {
    return (
      this.#target !== undefined &&
      this.waiting.length === 0 &&
      this.running.length === 0 &&
      this.cause === undefined &&
      !this.options.control.failed
    );
  }

  /** Takes a call that was checked. Never waits. @throws the group's failure, when it has failed */
  push(entry: MpiEntry): void {
    if (!this.take(entry)) return;
    this.waiting.push(entry);
    if (this.options.elsewhere?.spansHosts === true) this.options.elsewhere.world.look();
    this.#isGlancing = true;
    this.pump();
    this.#isGlancing = false;
    this.options.poller.add(this, entry.issuedAt);
  }

  /** The pending call that uses memory, as text. */
  useOf(buffer: unknown): string | undefined {
    const user = [...this.running, ...this.waiting].find(({ regions }) =>
      regions.some(({ storage }) => storage === buffer),
    );
    return user && `${user.op} #${user.work.seq} of group ${this.options.group}`;
  }

  advance(work: QueuedWork<unknown>, now: number): boolean {
    this.#look(now);
    if (!work.settled && this.running.length > 0) this.#spin(work, TURN_SPIN_MS);
    return work.settled;
  }

  watch(work: QueuedWork<unknown>): void {
    this.#spin(work, AWAIT_SPIN_MS);
    if (!work.settled) this.options.poller.add(this);
  }

  /** Tests until `work` has ended, for longer while its data moves: MPI goes on only while it is called. */
  spin(work: QueuedWork<unknown>): void {
    this.#spin(work, SPIN_MS.moving, SPIN_MS.waiting);
  }

  poll(now: number): boolean {
    const { arena, poller } = this.options;
    const before = arena?.numMoved;
    this.#look(now);
    if (this.running.length > 0) {
      poller.hurry();
      const until = performance.now() + TURN_SPIN_MS;
      while (this.running.length > 0 && this.cause === undefined && performance.now() < until) this.#step();
    }
    // The ranks meet for every piece of a plan: one that naps holds up all of them, however long the call takes.
    if (arena?.numMoved !== before) poller.add(this);
    const isSending = this.cause === undefined && now < this.#sweepUntil && this.#sweep() > 0;
    return this.pending > 0 || isSending;
  }

  protected release(): void {
    const { mpi, control, comm } = this.options;
    const own = this.#target?.comm;
    if (own !== undefined && own !== comm && this.cause === undefined && !mpi.broken) mpi.freeGroup(own);
    this.#target = undefined;
    control.leave();
    this.options.turns?.leave();
  }

  get #turns(): GroupControl {
    return this.options.turns ?? this.options.control;
  }

  /** Opens the communicator if all members are there. @returns whether it is open */
  #open(): boolean {
    if (this.#target !== undefined) return true;
    const { mpi, control, ranks, poller, elsewhere } = this.options;
    if (this.closed || this.cause !== undefined) return false;
    for (let member = 0; member < control.size; member++) {
      if (control.issued(member, COLLECTIVE) === 0) return false;
    }
    if (control.size > 1 && !this.#turns.turn(JOIN_SEQ, ranks)) {
      poller.hurry();
      elsewhere?.world.look();
      if (!this.#turns.granted) return false;
    }
    try {
      this.#target = this.#targetOf(mpi.createGroup(ranks));
    } catch (error) {
      this.fail(error);
    } finally {
      this.#turns.endTurn(ranks);
    }
    poller.hurry();
    return this.#target !== undefined;
  }

  #targetOf(comm: number): CallTarget {
    const { mpi, control } = this.options;
    return { mpi, comm, rank: control.member, size: control.size };
  }

  /** Gives MPI what may be given now. */
  protected pump(): void {
    if (this.waiting.length === 0 || this.#pumping) return;
    this.#pumping = true;
    try {
      this.publishHeldBack();
      // Making a communicator takes milliseconds, and beginning its first call some more: the event loop goes on in between.
      const wasOpen = this.#target !== undefined;
      if (this.#open() && wasOpen) this.giveReady();
    } finally {
      this.#pumping = false;
    }
  }

  protected mayPass(entry: MpiEntry, blocked: readonly MpiEntry[]): boolean {
    return blocked.every((earlier) => mayOvertake(entry, earlier));
  }

  protected isReady(entry: MpiEntry): boolean {
    const isMessage = entry.ready !== undefined;
    for (const one of this.running) {
      if (touches(one, entry) || (isMessage && one.holdsMessages)) return false;
      // Those of all ranks must be in one order.
      if (!isMessage && one.blocks) return false;
      // MPI's barrier may end before what was given to it earlier; on every other backend it does not.
      if (entry.op === "barrier" && isCollective(one)) return false;
    }
    if (entry.ready !== undefined) return this.guard(entry.ready) === true;
    if (entry.comparesLater ? !this.#haveMet(entry) : !this.allAgree(entry.arrivals)) return false;
    return entry.step === undefined || this.guard(entry.step) === true;
  }

  /**
   * Whether all members have made a call whose data says so. One of them may make it in a way that does not, or another call: that
   * is in what they publish, at which a member that expects the others any moment looks seldom.
   */
  #haveMet(entry: MpiEntry): boolean {
    if (entry.activities[0]?.hasMet?.() === true) return true;
    if (this.#isGlancing) return false;
    if (this.allAgree(entry.arrivals)) return true;
    const mismatch = this.cause === undefined ? this.agreement.disagreement(entry.arrivals) : undefined;
    if (mismatch !== undefined) this.fail(mismatch);
    return false;
  }

  protected give(entry: MpiEntry): void {
    const target = this.#target;
    if (target === undefined) return;
    try {
      entry.begin(target);
    } catch (error) {
      // Before the others hear of it.
      entry.stop();
      this.fail(error);
      this.settling.settleFailed(entry, this.cause ?? new AbortedError("the call could not be made"));
      return;
    }
    this.recorder.started(entry);
    this.running.push(entry);
  }

  #spin(work: QueuedWork<unknown>, movingMs: number, waitingMs = movingMs): void {
    let start: number | undefined;
    for (;;) {
      for (let i = 1; i <= TESTS; i++) {
        this.#isGlancing = i < TESTS;
        this.#step();
        this.#isGlancing = false;
        if (work.settled || this.cause !== undefined) return;
        // A step of a large call moves megabytes: sixteen of them would hold up the event loop.
        if (this.running[0]?.blocks === true) break;
      }
      const now = performance.now();
      // Most small calls end before the first look at the clock.
      start ??= now;
      if (now - start > (this.running.length > 0 ? movingMs : waitingMs)) return;
      if (this.options.control.failed) {
        this.adopt();
        return;
      }
      this.options.elsewhere?.world.look();
      if (now < this.#sweepUntil && this.#sweep() === 0) this.#sweepUntil = 0;
      // MPI goes on with the calls of all groups; the plans of other groups are gone on with here.
      for (const call of this.options.arena?.running ?? NONE) call.advance();
      for (const call of this.options.mpi.hostActivities) call.advance();
      if (this.options.mpi.crowded) this.options.mpi.library.yieldCore();
    }
  }

  /** One round: tests what runs, and begins what may begin. */
  #step(): void {
    // While data moves, MPI is called for that.
    if (this.running.length === 0 && this.options.elsewhere?.spansHosts === true) this.options.elsewhere.world.look();
    const target = this.#target;
    const running = this.running;
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
      if (i === 0) running.shift();
      else running.splice(i, 1);
      this.settling.settle(entry, performance.now());
    }
    this.pump();
  }

  #look(now: number): void {
    if (this.cause !== undefined) return;
    if (this.options.control.failed) {
      this.adopt();
      return;
    }
    this.#step();
    if (this.pending === 0) return;
    try {
      this.watchdog.look(this.running, this.waiting, now);
    } catch (error) {
      this.fail(error);
    }
  }

  protected adopt(): void {
    const { failure } = this.options.control;
    if (failure === undefined || this.cause !== undefined || this.finishing) return;
    const error = this.errorTold(failure);
    this.keepTurn();
    this.#open();
    this.pump();
    this.finishWhole(failure.code === "RANK_FAILED" ? FINISH_MS.apart : FINISH_MS.together);
    this.end(error);
  }

  /** Makes the communicator if this rank's turn to do so is granted: the others may be in MPI with it already. */
  protected keepTurn(): void {
    const { control } = this.options;
    if (this.#target !== undefined || this.cause !== undefined || control.size === 1) return;
    if (control.failure?.code === "RANK_FAILED") return;
    while (this.#target === undefined && !this.#turns.withdraw()) if (!this.#open()) return;
  }

  protected finishWhole(limitMs: number): void {
    if (this.finishing) return;
    this.finishing = true;
    const until = performance.now() + limitMs;
    while (this.running.some(isCollective) && this.cause === undefined && performance.now() < until) this.#step();
  }

  protected stopEngine(): void {
    this.#turns.endTurn(this.options.ranks);
    const { mpi } = this.options;
    if (this.running.length > 0) {
      // MPI cannot take back what it was given, and may write there yet.
      mpi.abandoned.push(...this.running);
      mpi.gaveUp = true;
    }
  }

  protected override forget(entry: MpiEntry): void {
    entry.stop();
  }

  protected forgetRunning(): void {
    this.running.length = 0;
  }
}
