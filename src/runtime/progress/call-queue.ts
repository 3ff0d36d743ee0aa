/**
 * A group's queue of calls, whatever engine runs them. It takes calls in the order of issue, publishes their fingerprints,
 * notes them for the flight recorder, and refuses everything once the group has failed. How calls reach the engine and how
 * their ends are noticed is up to the engine's own queue, which extends this one.
 */
import { AbortedError, ChoraleError, MismatchError, type RankActivity } from "../../core/index.ts";
import { errorOf, type Failure, failureOf } from "../comm/index.ts";
import { Agreement, type AgreementOptions } from "./agreement.ts";
import { inOwnWords } from "./call-disagreement.ts";
import { CallPublication } from "./call-publication.ts";
import { CallRecorder, type CallTimer, wantsTimings } from "./call-recorder.ts";
import { CallSequence } from "./call-sequence.ts";
import { CallSettlement } from "./call-settlement.ts";
import type { Pollable, Poller } from "./poller.ts";
import type { QueueEntry } from "./queue-entry.ts";
import { QueueWatchdog } from "./queue-watchdog.ts";
import type { QueuedWork, WorkDriver } from "./queued-work.ts";

export interface CallQueueOptions extends AgreementOptions {
  readonly poller: Poller;
  /** Whether calls are timed for the flight recorder; as the environment says by default. */
  readonly flightTimings?: boolean | undefined;
}

/**
 * How long calls that every member has made may take to end after their group has failed, ms: `apart` when a member may
 * be dead, for then none of them ends; `together` when all are there, but a device or its thread may be late.
 */
export const FINISH_MS = { apart: 100, together: 1000 } as const;

export abstract class CallQueue<E extends QueueEntry, O extends CallQueueOptions> implements Pollable, WorkDriver {
  readonly options: O;
  readonly sequence: CallSequence;
  readonly settling: CallSettlement<E>;
  protected readonly agreement: Agreement;
  protected readonly publishing: CallPublication;
  protected readonly recorder: CallRecorder;
  protected readonly watchdog: QueueWatchdog;
  /** Calls that the engine does not have yet, in order. */
  protected readonly waiting: E[] = [];
  /** Calls that it has, oldest first. */
  protected abstract readonly running: readonly E[];
  /** The group is ending: calls that all members have made are waited for once. */
  protected finishing = false;
  /** This member has left without finishing anything. */
  protected abandoned = false;
  /** Its program is done with it. */
  closed = false;
  #numTaken = 0;
  #cause: ChoraleError | undefined;

  /** @param timer makes what times calls, where the engine has it */
  constructor(options: O, timer?: () => CallTimer) {
    this.options = options;
    this.sequence = new CallSequence(options.ranks.length);
    this.agreement = new Agreement(options);
    this.publishing = new CallPublication(this.agreement);
    this.recorder = new CallRecorder(options.control, wantsTimings(options.flightTimings) ? timer?.() : undefined);
    this.settling = new CallSettlement<E>(this, this.recorder, (entry) => this.forget(entry));
    const ask = (oldest: string) => this.askEngine(oldest);
    this.watchdog = new QueueWatchdog({ agreement: this.agreement, group: options.group, ask });
  }

  /** Gives the engine what it may be given now. */
  protected abstract pump(): void;
  /** Whether an entry may go before those that cannot go yet. */
  protected abstract mayPass(entry: E, blocked: readonly E[]): boolean;
  /** Whether an entry can be given to the engine now; for a task of the host, whether it is done. */
  protected abstract isReady(entry: E): boolean;
  /** Gives the engine a call. */
  protected abstract give(entry: E): void;
  /** Takes over a failure that a peer wrote. */
  protected abstract adopt(): void;
  /** Makes the call of a turn that was granted to this rank, or makes sure that none is granted any more. */
  protected abstract keepTurn(): void;
  /** Lets the calls that every member has made come to their end before the group does: their results are there. */
  protected abstract finishWhole(limitMs: number): void;
  /** Ends the engine's part of a group that has failed. */
  protected abstract stopEngine(): void;
  /** Forgets the running calls, which were settled. */
  protected abstract forgetRunning(): void;
  /** Frees what the engine holds for the group. */
  protected abstract release(): void;
  /** Gives up what the engine keeps for a call that never reaches it. */
  protected forget(_entry: E): void {}
  /** Asks the engine for failures that it only tells when asked. @throws what ends the group */
  protected askEngine(_oldest: string): void {}
  /** Whether the engine takes no further call now. */
  protected get isFull(): boolean {
    return false;
  }

  abstract advance(work: QueuedWork<unknown>, now: number): boolean;
  abstract spin(work: QueuedWork<unknown>): void;
  abstract watch(work: QueuedWork<unknown>): void;
  abstract poll(now: number): boolean;

  get poller(): Poller {
    return this.options.poller;
  }
  get pending(): number {
    return this.waiting.length + this.running.length;
  }
  /** Calls taken so far. */
  get numTaken(): number {
    return this.#numTaken;
  }
  get cause(): ChoraleError | undefined {
    return this.#cause;
  }

  /**
   * Takes a call that was checked: numbers it, publishes it and notes it.
   * @returns whether it is to go on; it has failed otherwise
   * @throws the group's failure, when it has failed
   */
  protected take(entry: E): boolean {
    entry.countUse(1);
    const failure = this.knownFailure();
    if (failure !== undefined) {
      this.settling.refuse(entry, failure);
      throw failure;
    }
    entry.number = ++this.#numTaken;
    const mismatch = this.publishing.take(entry);
    this.recorder.issued(entry);
    if (mismatch !== undefined) this.fail(mismatch);
    if (this.#cause === undefined) return true;
    this.settling.settleFailed(entry, this.#cause);
    return false;
  }

  /** Gives the engine the calls that wait, in order, as far as they are ready: sends and receives may overtake each other. */
  protected giveReady(): void {
    const { waiting } = this;
    let blocked: E[] | undefined;
    for (let i = 0; i < waiting.length; ) {
      const entry = waiting[i];
      if (entry === undefined || this.isFull || this.#cause !== undefined) return;
      // In order: what is behind it is not published either.
      if (!entry.announced) return;
      if ((blocked !== undefined && !this.mayPass(entry, blocked)) || !this.isReady(entry)) {
        if (entry.ready === undefined) return;
        blocked ??= [];
        blocked.push(entry);
        i++;
        continue;
      }
      if (this.#cause !== undefined) return;
      if (i === 0) waiting.shift();
      else waiting.splice(i, 1);
      if (entry.step === undefined) this.give(entry);
      else this.settling.settle(entry, performance.now());
      this.publishing.ran(entry);
      this.publishHeldBack();
    }
  }

  /** Publishes what was held back and need not be any longer. */
  protected publishHeldBack(): void {
    if (!this.publishing.behind) return;
    const mismatch = this.publishing.goOn(this.waiting);
    if (mismatch !== undefined) this.fail(mismatch);
  }

  /** Says that calls are taken that have a deadline of their own. */
  expectOwnDeadlines(): void {
    this.watchdog.expectOwnDeadlines();
  }

  /** The group's failure, also one that a peer has just written. */
  knownFailure(): ChoraleError | undefined {
    if (this.#cause === undefined && this.options.control.failed) this.adopt();
    return this.#cause;
  }

  /** @throws the group's failure */
  refuseAfterFailure(): void {
    const failure = this.knownFailure();
    if (failure !== undefined) throw failure;
  }

  activityOf(work: QueuedWork<unknown>): readonly RankActivity[] {
    return this.watchdog.activityOf(work, this.running, this.waiting);
  }

  /** Runs `fn`; what it throws ends the group. */
  protected guard<T>(fn: () => T): T | undefined {
    try {
      return fn();
    } catch (error) {
      this.fail(error);
      return undefined;
    }
  }

  /** The error of a failure that another member has told: to be asked before calls settle that it may be about. */
  protected errorTold(failure: Failure): ChoraleError {
    const { control, ranks } = this.options;
    const arrivals = [...this.running, ...this.waiting].flatMap((entry) => entry.arrivals);
    return inOwnWords(errorOf(failure), ranks[control.member] ?? -1, arrivals);
  }

  /** What the other members are told of a failure. */
  protected failureToTell(error: unknown): Failure {
    return failureOf(error);
  }

  /** Ends the group, here and on its other members. */
  fail(error: unknown): void {
    this.keepTurn();
    if (this.#cause !== undefined) return;
    this.options.control.fail(this.failureToTell(error));
    // The other members are told, and end what is whole as this one does, before any of them stops its engine.
    this.finishWhole(error instanceof MismatchError ? FINISH_MS.together : FINISH_MS.apart);
    this.keepTurn();
    this.end(error instanceof ChoraleError ? error : new AbortedError(String(error)));
  }

  /** Ends the queue here, without waiting for anything and without a word to the other members. */
  abandon(cause: ChoraleError): void {
    this.finishing = true;
    this.abandoned = true;
    this.end(cause);
  }

  protected end(cause: ChoraleError): void {
    if (this.#cause !== undefined) return;
    this.#cause = cause;
    this.stopEngine();
    for (const entry of [...this.running, ...this.waiting]) this.settling.settleFailed(entry, cause);
    this.forgetRunning();
    this.waiting.length = 0;
  }

  async drain(): Promise<void> {
    while (this.pending > 0 && this.#cause === undefined) {
      this.options.poller.add(this);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Ends the queue, for which nothing may be pending. @returns the failures that nobody looked at */
  close(): readonly unknown[] {
    if (this.closed) return [];
    this.closed = true;
    this.release();
    this.options.poller.remove(this);
    this.recorder.close();
    return this.settling.unseen;
  }
}
