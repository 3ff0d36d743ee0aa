/**
 * A communicator's queue: calls run in the order of issue on one stream. It publishes each call's fingerprint and
 * compares it with what peers published, holds a call back where NCCL would block this thread, marks the stream so that
 * completion is one read of pinned memory, and ends everything with one cause when something fails.
 *
 * Why calls are held back: NCCL connects peers inside the first call of a kind, and that call blocks until the peers
 * make it too. A call whose kind (operation, size class, peer) was not seen before therefore waits, without blocking,
 * until every member has issued it; after that NCCL only enqueues.
 */

import { overlaps, type Region } from "../../../authoring/collectives/index.ts";
import { AbortedError, ChoraleError, MismatchError, type RankActivity, TimeoutError } from "../../../core/index.ts";
import { describeWords, errorOf, failureOf, OpCounters, opCode, unpackCall, type WireOp } from "../../comm/index.ts";
import type { Fingerprint, GroupControl, Lane } from "../control/segment.ts";
import type { PinnedBuffer } from "../cuda/pinned.ts";
import type { RankDevice } from "../cuda/rank-device.ts";
import { CudaEvent, type CudaStream } from "../cuda/stream.ts";
import { type CallTarget, issue, type NcclCall } from "./calls.ts";
import type { NcclLibrary } from "./library.ts";
import { blockUntil, type Pollable, type Poller } from "./poller.ts";
import type { CallKind } from "./prepare.ts";
import { NCCL_RESULT } from "./symbols.ts";
import type { NcclWork, WorkDriver } from "./work.ts";

/** Calls in flight on the stream; later ones wait in the queue. NCCL and the driver block at about a thousand. */
const MAX_IN_FLIGHT = 512;
/** Calls after which finished ones are looked for while issuing. */
const HARVEST_EVERY = 64;
/** Polls of the completion word inside `then`, about 30 us: most small collectives end within it. */
const AWAIT_SPINS = 1200;
/** Call 0 of a group is its opening. */
export const OPENING_SEQ = 0;
/** The number of a group's last call, its destruction, where turns are taken. */
export const CLOSING_SEQ = 2 ** 20 - 1;

/** How long calls that are whole may take to end after the group has failed, ms. */
const FINISH_MS = 100;
/** How often NCCL is asked for asynchronous errors while something is pending, ms. */
const ASYNC_ERROR_PERIOD_MS = 20;

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

/** How a communicator comes to be: called until it gives NCCL's handle. */
export type Opening = () => bigint | undefined;

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
  /** Where calls run, once the communicator is open. */
  readonly target: (comm: bigint) => CallTarget;
  /** Aborts every communicator of the device that has failed. */
  readonly abortFailed: () => void;
}

/** Operations whose other two words carry data that may differ: lengths, color and key. */
const OPEN_OPS: ReadonlySet<WireOp> = new Set(["broadcast_object", "gather_objects", "split"]);

/** Where `packCall` keeps the element type. */
const dtypeBits = (call: number) => (call >>> 6) & 15;

function mayOvertake(entry: Entry, earlier: Entry): boolean {
  if (entry.ready === undefined || earlier.ready === undefined) return false;
  return !entry.regions.some((a) => earlier.regions.some((b) => overlaps(a, b)));
}

export class CommQueue implements Pollable, WorkDriver {
  readonly counters = new OpCounters();
  readonly options: QueueOptions;
  readonly #flag: PinnedBuffer;
  readonly #done: Uint32Array;
  readonly #mainDone: CudaEvent;
  readonly #order: CudaEvent;
  readonly #unissued: Entry[] = [];
  readonly #issued: Entry[] = [];
  readonly #warm = new Set<CallKind>();
  readonly #failures: NcclWork<unknown>[] = [];
  #comm: bigint | undefined;
  #target: CallTarget | undefined;
  /** The call whose turn this rank has taken. */
  #turnOf: Entry | undefined;
  #marker = 0;
  #markedUpTo = 0;
  #numIssued = 0;
  #cause: ChoraleError | undefined;
  #lastAsyncCheck = 0;
  #closed = false;
  #surrendered = false;
  #finishing = false;

  constructor(options: QueueOptions) {
    this.options = options;
    this.#flag = options.at.pinned.take(4);
    this.#done = new Uint32Array(this.#flag.buffer, 0, 1);
    this.#done[0] = 0;
    this.#mainDone = CudaEvent.create(options.at.device);
    this.#order = CudaEvent.create(options.at.device);
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

  /** NCCL's handle, once the communicator is open. */
  get comm(): bigint | undefined {
    return this.#comm;
  }

  get cause(): ChoraleError | undefined {
    return this.#cause;
  }

  /** Takes a call that was checked. Never waits. @throws the group's failure, when it has failed */
  push(entry: Entry): void {
    this.refuseAfterFailure();
    this.#announce(entry);
    if (this.#cause !== undefined) {
      this.#settleFailed(entry, this.#cause);
      return;
    }
    this.#unissued.push(entry);
    if (this.#unissued.length === 1) this.#pump();
    if (this.#numIssued % HARVEST_EVERY === 0) this.#harvest();
    this.options.poller.add(this);
  }

  /** @throws the original cause, when the group has failed */
  refuseAfterFailure(): void {
    if (this.#cause === undefined && this.options.control.failed) this.#adopt();
    if (this.#cause !== undefined) throw this.#cause;
  }

  advance(work: NcclWork<unknown>, now: number): boolean {
    this.#progress(now);
    if (!work.settled) this.#mark();
    this.#harvest();
    return work.settled;
  }

  watch(work: NcclWork<unknown>): void {
    if (this.advance(work, performance.now())) return;
    const { marker } = this.#issued.find((entry) => entry.work === work) ?? { marker: 0 };
    if (marker !== 0) {
      for (let i = 0; i < AWAIT_SPINS && !this.#reached(marker); i++);
      this.#harvest();
    }
    if (!work.settled) this.options.poller.add(this);
  }

  poll(now: number): boolean {
    this.#progress(now);
    this.#mark();
    this.#harvest();
    return this.pending > 0;
  }

  /** Ends the group, here and on its other members. */
  fail(error: unknown): void {
    if (this.#cause !== undefined) return;
    this.options.control.fail(failureOf(error));
    this.#finishWhole();
    this.#end(error instanceof ChoraleError ? error : new AbortedError(String(error)));
  }

  /** Gives NCCL's handle up to be aborted, once, if the group has failed. */
  surrender(): bigint | undefined {
    if (!this.options.control.failed || this.#surrendered) return undefined;
    this.#surrendered = true;
    return this.#comm;
  }

  /** Waits until nothing is pending. */
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
    if (this.#unissued.length > 0) {
      blockUntil(this.poller, (now) => {
        this.poll(now);
        this.refuseAfterFailure();
        return this.#unissued.length === 0;
      });
    }
    if (stream === this.options.stream) return;
    this.#order.record(this.options.stream);
    stream.waitFor(this.#order);
  }

  /** Makes calls made here from now on wait for what `stream` has been given so far. */
  orderAfter(stream: CudaStream): void {
    this.refuseAfterFailure();
    if (stream === this.options.stream) return;
    this.#order.record(stream);
    this.options.stream.waitFor(this.#order);
  }

  /** Blocks this thread until the stream has done everything. @throws the group's failure, TimeoutError */
  synchronize(timeoutMs: number): void {
    const until = performance.now() + timeoutMs;
    blockUntil(this.poller, (now) => {
      this.poll(now);
      this.refuseAfterFailure();
      if (this.#unissued.length === 0 && this.options.stream.isDone(`work of ${this.options.group}`)) return true;
      if (now > until) throw new TimeoutError(`work on the stream of ${this.options.group}`, timeoutMs);
      return false;
    });
  }

  /** Ends the queue, for which nothing may be pending. @returns the failures nobody looked at */
  close(): readonly unknown[] {
    if (this.#closed) return [];
    this.#closed = true;
    if (this.#cause === undefined && this.options.control.failed) this.#adopt();
    this.options.poller.remove(this);
    this.#mainDone.close();
    this.options.at.pinned.giveBack(this.#flag);
    this.options.control.announceClose();
    return this.#failures.filter((work) => !work.seen).map((work) => work.error);
  }

  /** Opens the communicator if need be. @returns whether it is open */
  open(): boolean {
    if (this.#comm === undefined && this.#cause === undefined) this.#comm = this.#guard(this.options.opening);
    return this.#comm !== undefined;
  }

  /** Publishes the entry's calls and compares them with those of peers that came earlier. */
  #announce(entry: Entry): void {
    const { control } = this.options;
    for (const { lane, seq, print } of entry.arrivals) {
      control.publish(lane, seq, print);
      if (lane.kind === "collective") {
        for (let member = 0; member < control.size; member++) {
          if (member !== control.member) this.#compare(member, lane, seq, print);
        }
      } else {
        const opposite = lane.kind === "send" ? "recv" : "send";
        this.#compare(lane.peer, { kind: opposite, peer: control.member }, seq, print);
      }
    }
  }

  #compare(member: number, lane: Lane, seq: number, mine: Fingerprint): void {
    const { control, ranks, group } = this.options;
    const theirs = control.read(member, lane, seq);
    if (theirs === undefined) return;
    // A send and its receive agree on the element type alone; a collective on everything in the word.
    const collective = lane.kind === "collective";
    const differs = collective ? theirs.call !== mine.call : dtypeBits(theirs.call) !== dtypeBits(mine.call);
    const open = collective && OPEN_OPS.has(unpackCall(mine.call).op);
    if (!differs && (open || (theirs.count === mine.count && theirs.hash === mine.hash))) return;
    const side = (of: number, print: Fingerprint) => ({
      rank: ranks[of] ?? of,
      call: describeWords(print.call, print.count >>> 0),
    });
    const sides = [side(control.member, mine), side(member, theirs)].sort((a, b) => a.rank - b.rank);
    this.fail(new MismatchError(`ranks of ${group} disagree on operation #${seq}`, sides));
  }

  #arrived({ lane, seq }: Arrival): boolean {
    const { control } = this.options;
    if (lane.kind !== "collective") {
      const opposite = lane.kind === "send" ? "recv" : "send";
      return control.issued(lane.peer, { kind: opposite, peer: control.member }) > seq;
    }
    for (let member = 0; member < control.size; member++) {
      if (control.issued(member, lane) <= seq) return false;
    }
    return true;
  }

  /** Issues from the queue what may be issued now. */
  #pump(): void {
    if (this.#unissued.length === 0 || !this.open()) return;
    const blocked: Entry[] = [];
    for (let i = 0; i < this.#unissued.length; ) {
      const entry = this.#unissued[i];
      if (entry === undefined || this.#issued.length >= MAX_IN_FLIGHT || this.#cause !== undefined) return;
      if (blocked.some((earlier) => !mayOvertake(entry, earlier)) || !this.#isReady(entry)) {
        if (entry.ready === undefined) return;
        blocked.push(entry);
        i++;
        continue;
      }
      if (this.#cause !== undefined) return;
      this.#unissued.splice(i, 1);
      if (entry.step === undefined) this.#launch(entry);
      else this.#settle(entry);
    }
  }

  /** Whether the entry can be issued without blocking this thread; for a host task, whether it is done. */
  #isReady(entry: Entry): boolean {
    if (entry.step !== undefined) return this.#guard(entry.step) === true;
    if (entry.ready !== undefined) return this.#guard(entry.ready) === true;
    if (!this.options.blocking && this.#asyncState() === NCCL_RESULT.inProgress) return false;
    const failed = this.options.control.failed;
    if (!failed && entry.kinds.every((kind) => this.#warm.has(kind))) return true;
    if (!entry.arrivals.every((arrival) => this.#arrived(arrival))) return false;
    if (!this.turn(entry.work.seq)) return false;
    this.#turnOf = entry;
    for (const kind of entry.kinds) this.#warm.add(kind);
    return true;
  }

  /** Whether it is this group's turn to make a call that blocks until all its members make it. */
  turn(seq: number): boolean {
    return this.options.control.size === 1 || this.options.control.turn(seq, this.options.ranks);
  }

  endTurn(seq: number): void {
    this.options.control.endTurn(seq, this.options.ranks);
  }

  #launch(entry: Entry): void {
    const { at, stream, library } = this.options;
    const status = this.#guard(() => {
      at.device.activate();
      if (at.main.touched && at.main !== stream) {
        this.#mainDone.record(at.main);
        stream.waitFor(this.#mainDone);
        at.main.touched = false;
      }
      const comm = this.#comm ?? 0n;
      if (entry.single !== undefined) return issue(entry.single, this.#targetOf(comm));
      return entry.run?.(comm) ?? NCCL_RESULT.success;
    });
    if (this.#turnOf === entry) {
      this.#turnOf = undefined;
      this.endTurn(entry.work.seq);
    }
    this.#issued.push(entry);
    this.#numIssued++;
    if (this.#cause !== undefined || status === undefined) return;
    if (status !== NCCL_RESULT.success && status !== NCCL_RESULT.inProgress) {
      this.fail(library.error(entry.op, status, this.#comm));
      return;
    }
    // The other end of a send waits for it to be there, not for somebody to look.
    if (entry.ready !== undefined) this.#mark();
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
    this.#markedUpTo = this.#numIssued;
    const marker = ++this.#marker;
    const { at, stream } = this.options;
    this.#guard(() => {
      const { device } = at;
      device.activate();
      const write = device.driver.api.cuStreamWriteValue32_v2;
      const status = write(stream.handle, this.#flag.deviceAddress, marker >>> 0, 0);
      if (status !== 0) device.fail("cuStreamWriteValue32_v2", status, "completion");
    });
    for (let i = this.#issued.length - 1; i >= 0 && this.#issued[i]?.marker === 0; i--) {
      const entry = this.#issued[i];
      if (entry !== undefined) entry.marker = marker;
    }
  }

  #reached(marker: number): boolean {
    return marker !== 0 && (((this.#done[0] ?? 0) - marker) | 0) >= 0;
  }

  /** Settles what the stream has finished, in order. */
  #harvest(): void {
    let finished = 0;
    while (finished < this.#issued.length && this.#reached(this.#issued[finished]?.marker ?? 0)) finished++;
    if (finished === 0) return;
    for (const entry of this.#issued.splice(0, finished)) this.#settle(entry);
    if (this.#unissued.length > 0) this.#pump();
  }

  #settle(entry: Entry): void {
    const counter = this.counters.byCode[opCode(entry.op)];
    if (counter !== undefined) {
      counter.calls++;
      counter.bytes += entry.sizeBytes;
      counter.time((performance.now() - entry.issuedAt) * 1000);
    }
    this.#guard(() => {
      for (const finish of entry.finish) finish(true);
      for (const { work, value } of entry.members) work.complete(value);
      entry.work.complete(entry.value === undefined ? entry.result : entry.value());
    });
  }

  #settleFailed(entry: Entry, cause: ChoraleError): void {
    const counter = this.counters.byCode[opCode(entry.op)];
    if (counter !== undefined) counter.failures++;
    for (const finish of entry.finish) finish(false);
    for (const { work } of entry.members) work.fail(cause);
    entry.work.fail(cause);
    this.#failures.push(entry.work);
  }

  #progress(now: number): void {
    if (this.#cause !== undefined) return;
    if (this.options.control.failed) {
      this.#adopt();
      return;
    }
    this.#pump();
    const oldest = this.#issued[0] ?? this.#unissued[0];
    if (oldest === undefined) return;
    if (now - this.#lastAsyncCheck > ASYNC_ERROR_PERIOD_MS && this.#comm !== undefined) {
      this.#lastAsyncCheck = now;
      const state = this.#asyncState();
      if (state !== NCCL_RESULT.success && state !== NCCL_RESULT.inProgress) {
        this.fail(this.options.library.error("ncclCommGetAsyncError", state, this.#comm));
        return;
      }
      this.#guard(() => this.options.stream.isDone(`${oldest.op} #${oldest.work.seq} of ${this.options.group}`));
    }
    if (now > oldest.deadline) {
      this.fail(
        new TimeoutError(
          `${oldest.op} #${oldest.work.seq} of ${this.options.group}`,
          oldest.timeoutMs,
          this.activity(oldest),
        ),
      );
    }
  }

  /** Which members have issued the entry's calls, and what each did last. */
  activity(entry: Entry): readonly RankActivity[] {
    const { control, ranks } = this.options;
    const arrival = entry.arrivals[0];
    return ranks.map((rank, member) => {
      const lane: Lane = { kind: "collective" };
      const last = control.last(member, lane);
      const lastOp =
        last === undefined ? {} : { lastOp: describeWords(last.print.call, last.print.count >>> 0), lastSeq: last.seq };
      return { rank, arrived: arrival === undefined || this.#memberArrived(member, arrival), ...lastOp };
    });
  }

  #memberArrived(member: number, { lane, seq }: Arrival): boolean {
    const { control } = this.options;
    if (lane.kind === "collective") return control.issued(member, lane) > seq;
    if (member !== lane.peer) return true;
    return control.issued(member, { kind: lane.kind === "send" ? "recv" : "send", peer: control.member }) > seq;
  }

  #asyncState(): number {
    const out = new Int32Array(1);
    const status = this.options.library.api.ncclCommGetAsyncError(this.#comm ?? 0n, out);
    return status === NCCL_RESULT.success ? (out[0] ?? 0) : status;
  }

  /** Takes over a failure that a peer wrote. */
  #adopt(): void {
    const failure = this.options.control.failure;
    if (failure === undefined || this.#cause !== undefined) return;
    this.#pump();
    this.#finishWhole();
    this.#end(errorOf(failure));
  }

  /**
   * Lets the calls that every member has issued come to their end before the group does: their results are there, this
   * rank only has not looked yet.
   */
  #finishWhole(): void {
    if (this.#finishing || this.options.at.device.poison !== undefined) return;
    this.#finishing = true;
    const broken = this.#issued.findIndex((entry) => !entry.arrivals.every((arrival) => this.#arrived(arrival)));
    // A mark behind a call that never ends is never reached: then only what was marked before it can be told.
    if (broken < 0) this.#mark();
    const whole = this.#issued.slice(0, broken < 0 ? undefined : broken).filter((entry) => entry.marker !== 0);
    const last = whole.at(-1);
    if (last === undefined) return;
    const until = performance.now() + FINISH_MS;
    while (!this.#reached(last.marker) && this.#cause === undefined && performance.now() < until);
    this.#harvest();
  }

  #end(cause: ChoraleError): void {
    if (this.#cause !== undefined) return;
    this.#cause = cause;
    for (const { work } of this.#unissued) this.endTurn(work.seq);
    this.endTurn(OPENING_SEQ);
    this.options.abortFailed();
    for (const entry of [...this.#issued, ...this.#unissued]) this.#settleFailed(entry, cause);
    this.#issued.length = 0;
    this.#unissued.length = 0;
  }
}
