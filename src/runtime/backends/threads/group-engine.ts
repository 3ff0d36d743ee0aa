/**
 * What one rank does in one group: announce calls in order, wait for the peers, move its share, report failures.
 * `threads-group.ts` turns checked calls into work for it.
 */
import {
  type ChoraleError,
  type DType,
  MismatchError,
  type RankActivity,
  RankFailedError,
  TimeoutError,
  traceOfCall,
} from "../../../core/index.ts";
import {
  callSite,
  decodeFailure,
  departed,
  describeWords,
  encodeFailure,
  errorOf,
  failureOf,
  OpCounters,
} from "../../comm/index.ts";
import { type Choices, CONTEXT, initContext, type KernelOp, setParameter } from "../../executor/internal.ts";
import { CallSteps } from "./call-steps.ts";
import { MAX_FLAT_RANKS } from "./collective-path.ts";
import { EagerRings } from "./eager-rings.ts";
import { type FlightRing, groupName } from "./flight-ring.ts";
import type { Heap } from "./heap.ts";
import { causeOf, deathOf, markFailure, rankBlock, wake } from "./host.ts";
import { DONE, GROUP, groupLayout, LINE, MEMBER, memberLayout, SLOT, stampOf } from "./layout.ts";
import { meetingTable } from "./meeting-code.ts";
import { PairChannels } from "./pair-channels.ts";
import { PeerCalls } from "./peer-calls.ts";
import { PlanRuns } from "./plan-runs.ts";
import type { ProtocolExports } from "./protocol.ts";
import type { Drivable, Driver, Pumpable } from "./spin-then-sleep.ts";
import { type ExchangeCounts, PHASE, type ThreadsWork } from "./threads-work.ts";

/** From when on, and how often, the flight recorder is told where the strands of a plan stand. */
const LONG_MS = 500;

interface EngineParts {
  readonly name: string;
  readonly ranks: readonly number[];
  readonly me: number;
  readonly generation: number;
  /** Address of the group block. */
  readonly block: number;
  readonly keyBytes: number;
  readonly heap: Heap;
  readonly wasm: ProtocolExports;
  readonly driver: Driver;
  readonly flight: FlightRing;
  /** See `ThreadsBackend`'s constructor. */
  readonly firstCall: number;
  readonly choices: Choices;
}

export class GroupEngine implements Pumpable {
  readonly name: string;
  readonly ranks: readonly number[];
  readonly me: number;
  readonly size: number;
  readonly generation: number;
  readonly block: number;
  readonly heap: Heap;
  readonly wasm: ProtocolExports;
  readonly driver: Driver;
  readonly flight: FlightRing;
  readonly counters = new OpCounters();
  readonly pairs: PairChannels;
  readonly plans: PlanRuns;
  readonly choices: Choices;
  readonly rings: EagerRings;
  readonly peerCalls: PeerCalls;
  readonly #steps: CallSteps;
  /** Address of this member's private block, and of what lies in it. */
  readonly member: number;
  readonly context: number;
  readonly fromTable: number;
  readonly toTable: number;
  readonly inWords: number;
  readonly outWords: number;
  readonly fromWords: number;
  readonly toWords: number;
  /** Views that cover both blocks; a grown memory has longer ones, these stay good. */
  readonly words: Int32Array;
  readonly stateWord: number;
  readonly #numLeftWord: number;
  readonly layout: ReturnType<typeof groupLayout>;
  nextSeq: number;
  nextPairSeq: number;
  failure: ChoraleError | undefined;
  #queue: ThreadsWork<unknown>[] = [];
  #head = 0;
  #parameter: number | bigint = 0;
  #parameterType: DType | undefined;
  #parameterOp: KernelOp | undefined;
  readonly #failed: ThreadsWork<unknown>[] = [];
  /** When strands were noted last. */
  #notedAt = 0;

  constructor(parts: EngineParts) {
    this.name = parts.name;
    this.ranks = parts.ranks;
    this.me = parts.me;
    this.size = parts.ranks.length;
    this.generation = parts.generation;
    this.block = parts.block;
    this.heap = parts.heap;
    this.wasm = parts.wasm;
    this.driver = parts.driver;
    this.flight = parts.flight;
    this.choices = parts.choices;
    const n = this.size;
    this.layout = groupLayout(n, parts.keyBytes);
    const inner = memberLayout(n, CONTEXT.sizeBytes);
    this.member = this.heap.allocate(inner.sizeBytes);
    this.words = this.heap.words(Math.max(this.member + inner.sizeBytes, this.block + this.layout.sizeBytes));
    this.stateWord = (this.block + GROUP.state) / 4;
    this.#numLeftWord = (this.block + GROUP.numLeft) / 4;
    this.context = this.member + inner.context;
    this.fromTable = this.member + inner.fromTable;
    this.toTable = this.member + inner.toTable;
    this.inWords = (this.member + inner.inTable) / 4;
    this.outWords = (this.member + inner.outTable) / 4;
    this.fromWords = this.fromTable / 4;
    this.toWords = this.toTable / 4;
    initContext(this.words.buffer, this.context);
    const set = (field: number, value: number) => {
      this.words[(this.member + field) / 4] = value;
    };
    set(MEMBER.size, n);
    set(MEMBER.me, this.me);
    set(MEMBER.slots, this.block + this.layout.slots);
    set(MEMBER.slots + 4, this.block + this.layout.slots + n * SLOT.sizeBytes);
    set(MEMBER.done, this.block + this.layout.done);
    set(MEMBER.sleepers, this.driver.sleepersAddress);
    set(MEMBER.group, this.block);
    set(MEMBER.rank, rankBlock(this.ranks[this.me] as number));
    set(MEMBER.context, this.context);
    set(MEMBER.inTable, this.member + inner.inTable);
    set(MEMBER.outTable, this.member + inner.outTable);
    set(MEMBER.doorTable, this.member + inner.doorTable);
    for (let r = 0; r < n; r++) {
      this.words[(this.member + inner.doorTable) / 4 + r] = rankBlock(this.ranks[r] as number);
    }
    this.nextSeq = parts.firstCall;
    this.nextPairSeq = parts.firstCall;
    this.pairs = new PairChannels(this, parts.firstCall);
    this.plans = new PlanRuns(this);
    this.rings = new EagerRings(this, inner);
    this.peerCalls = new PeerCalls(this);
    this.#steps = new CallSteps(this);
    if (n > MAX_FLAT_RANKS && this.words[(this.block + GROUP.spread) / 4] === 1) {
      const table = meetingTable(this.block + this.layout.links, this.me, n);
      this.words.set(table, (this.member + inner.meetings) / 4);
      set(MEMBER.meetings, this.member + inner.meetings);
    }
  }

  get hasPending(): boolean {
    return this.#head < this.#queue.length || this.pairs.hasPending;
  }
  get numPending(): number {
    return this.#queue.length - this.#head + this.pairs.numPending;
  }
  /** The pending work whose buffers begin in [start, end) of the shared memory, if any. */
  pendingIn(start: number, end: number): ThreadsWork<unknown> | undefined {
    const within = (address: number) => address >= start && address < end;
    // Work that keeps no buffer of a caller carries objects: its fields are no addresses of tensors.
    const uses = (work: ThreadsWork<unknown>) => work.keep !== undefined && (within(work.input) || within(work.output));
    for (let i = this.#head; i < this.#queue.length; i++) {
      const work = this.#queue[i] as ThreadsWork<unknown>;
      if (uses(work)) return work;
    }
    return this.pairs.hasPending ? this.pairs.all().find(uses) : undefined;
  }
  /** Whether a new collective may start at once. */
  get isIdle(): boolean {
    return this.#head === this.#queue.length;
  }

  /** The group's failure, made known by a peer or found here. */
  knownFailure(): ChoraleError | undefined {
    if (this.failure === undefined && this.words[this.stateWord] !== 0) this.#meetFailure();
    return this.failure;
  }

  /** Whether a member has closed the group. */
  get hasLeavers(): boolean {
    return this.words[this.#numLeftWord] !== 0;
  }

  /** Whether nothing ends the group: no failure that is known here, nor a member that has closed it. */
  get isSound(): boolean {
    return this.failure === undefined && !this.hasLeavers && this.words[this.stateWord] === 0;
  }

  /** Sets what the next `avg` or `preMulSum` kernel divides or multiplies by. */
  useParameter(dtype: DType, op: KernelOp, value: number | bigint): void {
    if (dtype === this.#parameterType && op === this.#parameterOp && Object.is(value, this.#parameter)) return;
    setParameter(this.words.buffer, this.context, dtype, op, value);
    this.#parameterType = dtype;
    this.#parameterOp = op;
    this.#parameter = value;
  }

  /** Queues a collective, and starts it if it is first. `spins`: how long to stay for it. */
  submit(work: ThreadsWork<unknown>, spins: number): void {
    this.flight.issue(work, this.block);
    this.driver.count(work.seq);
    this.#queue.push(work);
    if (this.#queue.length - this.#head === 1) this.pump(spins);
    if (work.settled) return;
    work.trace ??= traceOfCall();
    this.driver.activate(this);
  }

  /** Takes over a collective that the fast path began and could not end. */
  adopt(work: ThreadsWork<unknown>, phase: number): void {
    this.flight.issue(work, this.block);
    work.state = "running";
    work.phase = phase;
    if (!this.driver.isBlocking) work.trace ??= traceOfCall(this.adopt);
    this.#queue.push(work);
    this.driver.activate(this);
  }

  pump(spins: number, buffering = false): boolean {
    const progressed = this.#advance(spins, buffering);
    if (this.failure !== undefined || !this.hasPending) return progressed;
    if (this.words[this.stateWord] === 0) {
      return (this.words[this.#numLeftWord] !== 0 && this.#refuseDeparted()) || progressed;
    }
    this.#meetFailure();
    return true;
  }

  /** As `pump`, without a look at failures. */
  #advance(spins: number, buffering: boolean): boolean {
    let progressed = this.pairs.pump(buffering);
    let budget = spins;
    while (this.#head < this.#queue.length) {
      const work = this.#queue[this.#head] as ThreadsWork<unknown>;
      const before = work.phase;
      this.#steps.advance(work, budget);
      budget = 0;
      if (work.phase !== before || work.settled) progressed = true;
      if (!work.settled) break;
      this.#head++;
    }
    if (this.#head === this.#queue.length && this.#head > 0) {
      this.#queue.length = 0;
      this.#head = 0;
    }
    return progressed;
  }

  /**
   * Ends what a peer's failure left unfinished, but first what the peer still took part in: it may have come to a call, and
   * died, since this rank looked whether it had.
   */
  #meetFailure(): void {
    this.#advance(0, false);
    this.learnFailure();
  }

  /** Says that this rank will make no more calls of the group, and wakes the ranks that wait for one. */
  leave(): void {
    if (this.failure !== undefined || this.size === 1) return;
    const line = this.#doneWord(this.me);
    this.words[line + DONE.leftBefore / 4] = stampOf(this.nextSeq);
    Atomics.store(this.words, line + DONE.left / 4, 1);
    Atomics.add(this.words, this.#numLeftWord, 1);
    for (const [r, rank] of this.ranks.entries()) if (r !== this.me) wake(this.heap, rank);
  }

  /** Fails the group when what comes next needs a member that has closed it. @returns whether it did */
  #refuseDeparted(): boolean {
    for (let r = 0; r < this.size; r++) {
      const line = this.#doneWord(r);
      if (r === this.me || Atomics.load(this.words, line + DONE.left / 4) === 0) continue;
      const work = this.#waitingFor(r, this.words[line + DONE.leftBefore / 4]!);
      if (work === undefined) continue;
      this.failGroup(departed(this.ranks[r] as number, this.generation, this.name, this.#nameOf(work)));
      return true;
    }
    return false;
  }

  /** The call of this rank in which member `r` will never take part: it left before its call of stamp `before`. */
  #waitingFor(r: number, before: number): ThreadsWork<unknown> | undefined {
    const head = this.#queue[this.#head];
    const isWaiting = head?.phase === PHASE.arriving || head?.phase === PHASE.eager;
    const isLate = isWaiting && ((stampOf(head.seq) - before) | 0) >= 0;
    return isLate ? head : this.pairs.waitingFor(r);
  }

  #doneWord(r: number): number {
    return (this.block + this.layout.done + r * LINE) / 4;
  }

  spin(work: Drivable, spins: number): void {
    this.pump(spins);
    // A look at the messages takes as long as some forty polls of the peers' slots.
    for (let left = spins; !work.settled && left > 0 && this.pairs.hasPending; left -= 40) this.pairs.pump(false);
  }

  /** Ends a work with its result, and counts it. */
  finishWork(work: ThreadsWork<unknown>): void {
    const counter = this.counters.byCode[work.code]!;
    counter.calls++;
    counter.bytes += work.reportedBytes;
    if (work.choice !== undefined) work.choice.calls++;
    if (work.issuedAt >= 0) counter.time((performance.now() - work.issuedAt) * 1000);
    this.flight.settle(work.entry, true);
    try {
      work.complete(work.harvest?.());
    } catch (error) {
      this.failWork(work, error);
    }
    work.keep = undefined;
    work.release?.();
  }

  /** Ends a work with an error. */
  failWork(work: ThreadsWork<unknown>, error: unknown): void {
    if (work.settled) return;
    this.counters.byCode[work.code]!.failures++;
    this.flight.settle(work.entry, false);
    work.fail(error);
    if (this.#failed.length < 64) this.#failed.push(work);
  }

  /** Resolves when nothing is pending any more. */
  async drained(): Promise<void> {
    while (this.hasPending) {
      const work = this.#queue[this.#head] ?? this.pairs.heads()[0];
      if (work === undefined) return;
      const { seen } = work;
      await work.then(
        () => {},
        () => {},
      );
      work.seen = seen;
    }
  }

  /** The first failure that nobody waited for; among them a peer's report that this rank's calls did not match. */
  unseenFailure(): unknown {
    const unseen = this.#failed.find((work) => !work.seen)?.error;
    if (unseen !== undefined || this.failure !== undefined || this.words[this.stateWord] === 0) return unseen;
    const failure = this.learnFailure();
    return failure instanceof MismatchError ? failure : undefined;
  }

  /** Fails this rank's pending work and everything after it. */
  failAll(error: ChoraleError): ChoraleError {
    this.failure ??= error;
    const pending = this.#queue.slice(this.#head);
    if (pending[0] !== undefined) this.#noteStrands(pending[0]);
    this.#queue.length = 0;
    this.#head = 0;
    for (const work of [...pending, ...this.pairs.takePending()]) this.failWork(work, this.failure);
    return this.failure;
  }

  /** For the flight recorder: where the strands of a call stand that fails or takes long, here and on dead ranks. */
  #noteStrands({ run, phase, seq }: ThreadsWork<unknown>): void {
    if (run === undefined || phase !== PHASE.strands) return;
    for (const [r, rank] of this.ranks.entries()) {
      if (r !== this.me && causeOf(this.words, rank) === undefined) continue;
      this.peerCalls.noteStrands(r, seq, this.plans.waiting(run.plan, run.block, r));
    }
  }

  /** Fails the group on all ranks, unless it failed already: then the first cause counts, here too. */
  failGroup(error: ChoraleError): ChoraleError {
    if (this.failure !== undefined) return this.failure;
    const text = encodeFailure(failureOf(error), GROUP.maxFailureBytes);
    if (!markFailure(this.heap, this.block, text)) {
      // A peer was first. Of two reports of one event, our own says more.
      const theirs = this.#readFailure();
      if (theirs !== undefined && theirs.code !== error.code) return this.failAll(theirs);
    }
    const failure = this.failAll(error);
    for (const rank of this.ranks) wake(this.heap, rank);
    return failure;
  }

  /** Makes the failure that a peer, or the launcher, wrote into the group ours. */
  learnFailure(): ChoraleError {
    const error = this.#readFailure();
    return error === undefined ? new RankFailedError(-1, this.generation, "unknown") : this.failAll(error);
  }

  #readFailure(): ChoraleError | undefined {
    for (let tries = 0; tries < 100_000 && Atomics.load(this.words, this.stateWord) === -1; tries++);
    const dead = this.ranks.map((rank) => deathOf(this.words, rank)).find((death) => death !== undefined);
    const length = this.words[(this.block + GROUP.failureBytes) / 4]!;
    if (length > 0) {
      return errorOf(decodeFailure(new Uint8Array(this.words.buffer, this.block + GROUP.failure, length)));
    }
    return dead === undefined ? undefined : new RankFailedError(dead.blamed, this.generation, dead.cause);
  }

  checkDeadlines(now: number): number {
    let next = Number.POSITIVE_INFINITY;
    const head = this.#queue[this.#head];
    const pending = head === undefined ? this.pairs.heads() : [head, ...this.pairs.heads()];
    for (const work of pending) {
      if (work.deadline === 0) work.deadline = now + work.timeoutMs;
      if (now >= work.deadline) {
        const ranks = this.overdue(work);
        if (ranks === undefined) return now;
        // Where it was called, or else where the program waits: on the event loop's turns nothing of it is on the stack.
        const site = callSite(work.trace);
        this.failGroup(new TimeoutError(this.#nameOf(work), work.timeoutMs, ranks, { callSite: site }));
        return Number.POSITIVE_INFINITY;
      }
      // The launcher writes its dump as soon as a rank dies, before the others hear of it.
      if (now - Math.max(work.deadline - work.timeoutMs, this.#notedAt) >= LONG_MS) {
        this.#notedAt = now;
        this.#noteStrands(work);
      }
      next = Math.min(next, work.deadline, work.nextLook(now));
    }
    return next;
  }

  #nameOf(work: ThreadsWork<unknown>): string {
    const plan = work.run === undefined ? "" : work.detail;
    return `${describeWords(work.call, work.count)}${plan} #${work.seq} of group ${this.name}`;
  }

  /**
   * Whom a work waits for that took too long, if it does not end now. On a busy machine this thread may have been held up since
   * it last looked, and all others have come: an error would name nobody.
   */
  overdue(work: ThreadsWork<unknown>): readonly RankActivity[] | undefined {
    let ranks: readonly RankActivity[] = [];
    // The last one may come between a look and what is noted of it; then the next look sees it.
    for (let looks = 0; looks < 2 && ranks.every(({ arrived }) => arrived); looks++) {
      this.#advance(0, false);
      if (work.settled) return undefined;
      ranks = this.#activity(work);
    }
    return ranks;
  }

  /** Which ranks have arrived and which have not. */
  #activity(work: ThreadsWork<unknown>): RankActivity[] {
    return this.ranks.map((rank, r) => {
      const last = this.flight.lastOf(rank);
      if (work.run !== undefined && work.phase >= PHASE.finishing) {
        const strands = this.plans.waiting(work.run.plan, work.run.block, r);
        if (strands.length > 0) return { rank, arrived: true, strands };
      }
      const arrived = r === this.me || (work.peer === -1 ? this.#arrived(r, work) : work.peer !== r);
      if (last === undefined) return { rank, arrived };
      const isElsewhere = !arrived && last.waits && last.group !== (this.block | 0);
      const waitsIn = isElsewhere ? `${last.text} of ${groupName(this.heap, last.group)}` : undefined;
      return { rank, arrived, lastOp: last.op, lastSeq: last.seq, ...(waitsIn === undefined ? {} : { waitsIn }) };
    });
  }

  #arrived(r: number, work: ThreadsWork<unknown>): boolean {
    if (work.phase !== PHASE.finishing) return this.peerCalls.hasCome(r, work.seq);
    return ((Atomics.load(this.words, this.#doneWord(r)) - stampOf(work.seq)) | 0) >= 0;
  }

  /** Fails the group with what every rank that came asked for. */
  mismatch(work: ThreadsWork<unknown>, problem?: string): void {
    // Who sleeps in this call sees the difference too, and writes what it called for our report.
    for (const rank of this.ranks) wake(this.heap, rank);
    this.failGroup(this.peerCalls.report(work, problem));
  }

  /** Shows the peers what this rank sends and receives, before it announces an all-to-all. */
  publishCounts({ send, receive }: ExchangeCounts): void {
    const at = this.countsAt(this.me);
    for (let r = 0; r < this.size; r++) {
      this.words[at + r] = send[r]!;
      this.words[at + this.size + r] = receive[r]!;
    }
  }

  /** Where rank `r` publishes its counts, as an index of words: what it sends to each, then what it receives. */
  countsAt(r: number): number {
    return (this.block + this.layout.counts + r * this.layout.countsStride) / 4;
  }

  /** Word index of rank `r`'s slot for the running operation. */
  slotWord(r: number, seq: number): number {
    return this.peerCalls.slot(r, seq);
  }
}
