/**
 * One group over sockets, as its GroupDriver: numbers calls, lets them run in turn, and settles them. Collectives run one
 * after the other; sends and receives run beside them, unless they touch the same memory.
 */
import {
  type ChoraleError,
  InvariantError,
  RankFailedError,
  type Tensor,
  TimeoutError,
  traceOfCall,
} from "../../../core/index.ts";
import {
  type ByteExchange,
  type Capabilities,
  type CommStats,
  type Communicator,
  callSite,
  departed,
  encodeFailure,
  failureOf,
  type GroupCall,
  type GroupDriver,
  type GroupOpening,
  type GroupPlace,
  OpCounters,
  opCode,
  type PendingWork,
  type PlanCall,
  runningTime,
  type SubmittedBatch,
} from "../../comm/index.ts";
import { placeOf } from "../../progress/index.ts";
import { CallMaker, type CallOwner } from "./call-maker.ts";
import { type GroupKey, type Head, KIND, LANE, MAX_CONTROL_BYTES, NO_HEAD, type Print } from "./frame.ts";
import { Inbox } from "./inbox.ts";
import { lateText, MemberNews, withStrands } from "./member-news.ts";
import { callMismatch, isSameCall, located, pairMismatch } from "./mismatch.ts";
import { PlanFrames } from "./plan-frames.ts";
import type { FrameTaker, TcpContext } from "./tcp-context.ts";
import { type CallParts, describeCall, firstToBegin, PendingCall, type TcpWork, useOf } from "./tcp-work.ts";
import { untilDelivered } from "./undelivered.ts";

/** After this long it says so to the person who runs the program, ms. */
const WARN_MS = 5_000;
/** How long collectives before one that failed elsewhere may take to end, ms: what they wait for is on its way. */
const EARLIER_MS = 500;
/** Deadlines are looked at so often, ms. */
const LOOK_MS = 5;

export class TcpGroup implements GroupDriver, FrameTaker, CallOwner {
  readonly place: GroupPlace;
  readonly key: GroupKey;
  readonly ranks: readonly number[];
  readonly strictWork: boolean;
  readonly takesAlgorithms = true;
  readonly #context: TcpContext;
  readonly #label: string;
  readonly #inboxes: readonly (Inbox | undefined)[];
  readonly #maker: CallMaker;
  readonly #plans: PlanFrames;
  readonly #news: MemberNews;
  /** What each member was last told of where this rank waits. */
  readonly #toldElsewhere: (string | undefined)[] = [];
  readonly #counters = new OpCounters();
  /** In the order of issue. */
  #pending: PendingCall[] = [];
  readonly #failures: TcpWork<unknown>[] = [];
  readonly #drained: (() => void)[] = [];
  #cause: ChoraleError | undefined;
  /** A failure of a collective that this rank has not come to. */
  #coming: { readonly seq: number; readonly error: ChoraleError; readonly untilMs: number } | undefined;
  #hasTold = false;
  /** The call whose program is in the midst of making it. */
  #issuing: PendingCall | undefined;
  #isAdvancing = false;
  #lookedAt = 0;
  readonly useOf = (buffer: ArrayBufferLike): string | undefined => useOf(this.#pending, buffer);

  constructor(context: TcpContext, group: string, ranks: readonly number[], key: GroupKey, label: string) {
    const rank = ranks.indexOf(context.options.rank);
    this.#context = context;
    this.#label = label;
    this.key = key;
    this.ranks = Object.freeze([...ranks]);
    this.place = { backend: "tcp", group, rank, ranks: this.ranks, generation: context.options.generation };
    this.strictWork = context.options.strictWork;
    this.#inboxes = ranks.map((other, member) => {
      const link = context.linkOf(other);
      return link === undefined ? undefined : new Inbox(member, link, this);
    });
    this.#plans = new PlanFrames(key, this.#inboxes, context.planMemory);
    this.#maker = new CallMaker(context, this.place, key, this.#inboxes, this.#plans, this);
    this.#news = new MemberNews(this.ranks, rank);
  }

  get failure(): ChoraleError | undefined {
    return this.#cause ?? this.#coming?.error;
  }
  get capabilities(): Capabilities {
    return this.#maker.capabilities;
  }
  get nextSeq(): number {
    return this.#maker.sequence.next;
  }

  submit(call: GroupCall): PendingWork<unknown> {
    return this.#issue(this.#maker.make(call));
  }

  submitAll(calls: readonly GroupCall[]): SubmittedBatch {
    const made = this.#maker.sequence.atomically(() => calls.map((call) => this.#maker.make(call)));
    return { works: made.map((parts) => this.#issue(parts)) };
  }

  run(call: PlanCall): PendingWork<Tensor | undefined> {
    return this.#issue(this.#maker.plan(call)) as PendingWork<Tensor | undefined>;
  }

  exchange<T>(exchange: ByteExchange<T>): PendingWork<T> {
    return this.#issue(this.#maker.exchange(exchange)) as PendingWork<T>;
  }

  open({ how, name, members, nth, color }: GroupOpening): Communicator | undefined {
    if (members.length === 0) return undefined;
    const ranks = members.map((member) => this.ranks[member] as number);
    return this.#context.open(name, ranks, `${this.#label} ${how} ${nth} ${color} ${name}`);
  }

  pending(): CommStats {
    const { usedBytes, peakBytes, limitBytes } = this.#context.reducer;
    return {
      operations: this.#counters.snapshot(),
      pending: this.#pending.length,
      choices: this.#maker.choices,
      memory: { usedBytes, peakBytes, limitBytes },
    };
  }

  fail(error: ChoraleError): void {
    this.failAt(0, error);
  }

  failAt(seq: number, found: ChoraleError): void {
    if (this.#cause !== undefined) return;
    const error = this.#located(found, seq);
    this.failHere(error);
    this.#tellFailure(seq, error);
  }

  #tellFailure(seq: number, error: ChoraleError): void {
    if (this.#hasTold) return;
    this.#hasTold = true;
    const failure = Buffer.from(encodeFailure(failureOf(error), MAX_CONTROL_BYTES / 2)).toString();
    const message = { kind: "failed", group: [this.key.low, this.key.high], seq, failure };
    for (const inbox of this.#inboxes) if (inbox?.link.isOver === false) inbox.link.control(message);
  }

  /** The first collective that has not ended here: where a send or receive fails, the members may still end those before it. */
  #firstUnended(): number {
    const oldest = this.#pending.find(({ isCollective }) => isCollective);
    return oldest?.parts.arrival.seq ?? this.#maker.sequence.next + 1;
  }

  /** Ends it once the collectives before `seq` have ended here too: their data may be on its way. */
  failFrom(seq: number, error: ChoraleError): void {
    const untilMs = performance.now() + EARLIER_MS;
    this.#coming ??= { seq, error: this.#located(error, seq), untilMs };
    this.#failIfDue(performance.now());
  }

  #located(error: ChoraleError, seq: number): ChoraleError {
    const own = this.#pending.find((call) => call.isCollective && call.parts.arrival.seq === seq);
    if (own === undefined) return error;
    const trace = own.parts.work.trace ?? (own === this.#issuing ? traceOfCall(this.submit) : {});
    const { rank } = this.#context.options;
    return located(withStrands(error, rank, own.parts.strands?.() ?? []), rank, trace);
  }

  #failIfDue(now: number): void {
    const coming = this.#coming;
    if (coming === undefined || this.#cause !== undefined) return;
    const hasEarlier = this.#pending.some(({ isCollective, parts }) => isCollective && parts.arrival.seq < coming.seq);
    if (!hasEarlier || now > coming.untilMs) this.failHere(coming.error);
  }

  failHere(error: ChoraleError): void {
    if (this.#cause !== undefined) return;
    this.#cause = error;
    const isOurs = ({ group }: Head) => group.low === this.key.low && group.high === this.key.high;
    for (const inbox of this.#inboxes) {
      for (const connection of inbox?.link.connections ?? []) connection.letGo(isOurs);
      inbox?.clear();
    }
    this.#plans.clear();
    this.#maker.hierarchy.close();
    const lost = this.#pending;
    this.#pending = [];
    for (const call of lost) {
      call.state = "ended";
      call.parts.drop?.();
      this.#note(call, false);
      this.#failures.push(call.parts.work);
      call.parts.work.fail(error);
    }
    this.#tellDrained();
  }

  async drain(): Promise<void> {
    if (this.#pending.length === 0) return;
    this.#context.pump.kick();
    await new Promise<void>((resolve) => this.#drained.push(resolve));
  }

  async close(): Promise<{ readonly error: unknown } | undefined> {
    const undelivered = await untilDelivered(this.#context, this.place, () =>
      this.#cause !== undefined
        ? -1
        : this.#inboxes.findIndex((inbox, member) => inbox?.hasLarge === true && !this.#news.hasLeft(member)),
    );
    // Whoever hears that this rank has left before it hears what the group failed of must not take that for the cause.
    if (this.#cause !== undefined) this.#tellFailure(this.#coming?.seq ?? 0, this.#cause);
    else {
      const name = { group: this.key, lane: LANE.collective, seq: this.#maker.sequence.next + 1, slot: 0 };
      for (const [member, inbox] of this.#inboxes.entries())
        if (inbox?.link.isOver === false)
          inbox.link.signal(KIND.close, name, undefined, 0, this.#maker.sent[member] ?? 0);
    }
    for (const inbox of this.#inboxes) inbox?.clear();
    this.#maker.close();
    this.#context.retire(this);
    const unseen = this.#failures.find((work) => !work.seen);
    if (unseen !== undefined) return { error: unseen.error };
    return undelivered === undefined ? undefined : { error: undelivered };
  }

  // What arrives.

  begin(member: number, head: Head): Uint8Array | undefined {
    if (this.#cause !== undefined) return undefined;
    this.#news.hear(member, head);
    if (!this.#comparesWithRunning(member, head)) return undefined;
    if (head.kind !== KIND.data) return this.#plans.place(member, head);
    return this.#inboxes[member]?.begin(head);
  }

  end(member: number, head: Head, payload: Uint8Array): void {
    if (head.kind === KIND.data) this.#inboxes[member]?.end(head);
    else if (this.#cause === undefined) this.#plans.arrived(member, head, payload);
  }

  signal(member: number, head: Head): void {
    if (this.#cause !== undefined) return;
    if (head.kind === KIND.close) {
      this.#news.leave(member, { seq: head.seq, sent: head.extra });
      this.#plans.leave(member);
      this.#refuseDeparted();
      return;
    }
    this.#news.hear(member, head);
    if (head.kind === KIND.ask) {
      this.#tellStatus(member, KIND.status);
      this.#tellElsewhere(member, head.seq);
    }
    if (head.kind === KIND.ask || head.kind === KIND.status) {
      this.#comparesWithRunning(member, head);
      return;
    }
    if (!this.#comparesWithRunning(member, head)) return;
    if (head.kind === KIND.grant) this.#inboxes[member]?.grant(head);
    else if (head.kind === KIND.offer) this.#inboxes[member]?.offer(head);
    else this.#plans.told(member, head);
  }

  /** Compares a frame of the collective that runs with this rank's own call. */
  #comparesWithRunning(member: number, head: Head): boolean {
    if (head.lane !== LANE.collective) return true;
    const running = this.#pending.find(({ isCollective }) => isCollective);
    if (running?.state !== "running" || running.parts.arrival.seq !== head.seq) return true;
    return this.compare(member, head, { print: running.parts.arrival.print, extra: head.extra, bytes: head.total });
  }

  compare(
    member: number,
    theirs: Head,
    mine: { readonly print: Print; readonly extra: number; readonly bytes: number },
  ): boolean {
    if (this.#cause !== undefined) return false;
    const fits = isSameCall(theirs, mine.print);
    const isAgreed = fits && theirs.extra === mine.extra;
    if (isAgreed && theirs.total === mine.bytes) return true;
    if (isAgreed) {
      this.fail(new InvariantError(`${theirs.total} bytes of ${mine.bytes} came from rank ${this.ranks[member]}`));
      return false;
    }
    const dispute = { group: this.place.group, ranks: this.ranks, me: this.place.rank, member, head: theirs };
    const own = this.#pending.find(({ parts }) => parts.arrival.print === mine.print);
    const error = fits
      ? pairMismatch(dispute, mine.print, mine.extra)
      : callMismatch(dispute, mine.print, own?.parts.arrival.hashed?.());
    this.failAt(theirs.lane === LANE.pair ? this.#firstUnended() : theirs.seq, error);
    return false;
  }

  // What this rank issues.

  #issue(parts: CallParts): PendingWork<unknown> {
    const call = new PendingCall(parts);
    parts.work.activity = () => this.#news.activity(call);
    const { lane, print } = parts.arrival;
    const peer = lane.kind === "collective" ? undefined : lane.peer;
    call.note = this.#context.options.flight.issue(
      this.place.group,
      placeOf(parts.arrival),
      print.call,
      print.count,
      peer,
    );
    this.#pending.push(call);
    this.#issuing = call;
    this.#advance();
    this.#issuing = undefined;
    if (parts.work.state !== "done") this.#context.pump.kick();
    return parts.work;
  }

  /** Starts what may start. A loop, for a call may end as it begins. */
  #advance(): void {
    if (this.#isAdvancing) return;
    this.#isAdvancing = true;
    try {
      while (this.#cause === undefined) {
        const call = firstToBegin(this.#pending);
        if (call === undefined) return;
        this.#start(call);
      }
    } finally {
      this.#isAdvancing = false;
    }
  }

  #start(call: PendingCall): void {
    const { arrival, start, work } = call.parts;
    call.state = "running";
    call.startedAt = performance.now();
    work.state = "running";
    this.#context.options.flight.reach(call.note, "started");
    if (call.isCollective) {
      const { seq, print } = arrival;
      this.#news.last = { seq, call: print.call, count: print.count, hash: print.hash };
      for (const inbox of this.#inboxes) inbox?.check(seq, print);
    }
    if (this.#cause !== undefined) return;
    try {
      start(() => this.#settle(call));
    } catch (error) {
      this.fail(error as ChoraleError);
      return;
    }
    if (call.state === "running") this.#refuseDeparted();
  }

  #settle(call: PendingCall): void {
    if (call.state !== "running") return;
    const { work, value } = call.parts;
    let result: unknown;
    try {
      result = value();
    } catch (error) {
      this.fail(error as ChoraleError);
      return;
    }
    call.state = "ended";
    const at = this.#pending.indexOf(call);
    if (at >= 0) this.#pending.splice(at, 1);
    this.#note(call, true);
    work.complete(result);
    this.#failIfDue(performance.now());
    this.#advance();
    this.#tellDrained();
  }

  #note({ parts, issuedAt, note }: PendingCall, ok: boolean): void {
    const counter = this.#counters.byCode[opCode(parts.op)];
    this.#context.options.flight.reach(note, ok ? "done" : "failed");
    if (counter === undefined) return;
    if (!ok) {
      counter.failures++;
      return;
    }
    counter.calls++;
    counter.bytes += parts.sizeBytes;
    counter.time((performance.now() - issuedAt) * 1000);
  }

  #tellDrained(): void {
    if (this.#pending.length > 0) return;
    for (const resolve of this.#drained.splice(0)) resolve();
  }

  // Who is late, and who has left.

  get isPending(): boolean {
    return this.#pending.length > 0;
  }

  look(now: number): boolean {
    if (this.#pending.length === 0) return false;
    if (now - this.#lookedAt < LOOK_MS) return true;
    this.#lookedAt = now;
    this.#failIfDue(now);
    const time = runningTime(now);
    for (const call of [...this.#pending]) {
      if (call.state === "running") this.#tellWaiting(call, now);
      if (time > call.deadline) {
        const { work, timeoutMs } = call.parts;
        const site = work.trace === undefined ? undefined : callSite(work.trace);
        this.failAt(
          call.seq,
          new TimeoutError(this.#nameOf(call), timeoutMs, this.#news.activity(call), { callSite: site }),
        );
        return false;
      }
    }
    return this.#pending.length > 0;
  }

  #nameOf({ parts }: PendingCall): string {
    return `${parts.op} #${parts.work.seq} of ${this.place.group}${parts.detail ?? ""}`;
  }

  #tellWaiting(call: PendingCall, now: number): void {
    const waitedMs = now - call.startedAt;
    if (waitedMs > call.nextAskMs) {
      call.nextAskMs = Math.min(4 * waitedMs, waitedMs + WARN_MS);
      for (const member of this.#inboxes.keys()) this.#tellStatus(member, KIND.ask);
    }
    if (call.hasWarned || waitedMs <= WARN_MS) return;
    call.hasWarned = true;
    const where = `rank ${this.#context.options.rank} is in ${this.#nameOf(call)}`;
    this.#context.warn(`${where} for ${Math.round(waitedMs / 1000)} s, ${lateText(this.#news.activity(call))}`);
  }

  #tellStatus(member: number, kind: typeof KIND.ask | typeof KIND.status): void {
    const inbox = this.#inboxes[member];
    const { last } = this.#news;
    const name = { group: this.key, lane: LANE.collective, seq: last?.seq ?? 0, slot: 0 };
    if (inbox === undefined || inbox.link.isOver) return;
    if (kind === KIND.ask) inbox.link.signal(kind, name, last);
    else inbox.link.answer(kind, name, { ...NO_HEAD, print: last ?? NO_HEAD.print });
  }

  /** Tells a member that waits for this rank in a collective where this rank waits meanwhile, or that it no longer does. */
  #tellElsewhere(member: number, seq: number): void {
    const link = this.#inboxes[member]?.link;
    if (link === undefined || link.isOver || (this.#news.last?.seq ?? 0) >= seq) return;
    const call = this.#context.waitsElsewhere(this);
    if (call === this.#toldElsewhere[member]) return;
    this.#toldElsewhere[member] = call;
    link.control({ kind: "elsewhere", group: [this.key.low, this.key.high], call });
  }

  hearElsewhere(member: number, call: string | undefined): void {
    if (member >= 0) this.#news.hearElsewhere(member, call);
  }

  firstRunning(pairsOnly: boolean): string | undefined {
    const call = this.#pending.find(({ state, isCollective }) => state === "running" && !(pairsOnly && isCollective));
    return call === undefined ? undefined : `${describeCall(call)} of ${this.place.group}`;
  }

  /** A rank has closed its world: what it has not closed before, it has never opened. */
  hasLeft(rank: number): void {
    const member = this.ranks.indexOf(rank);
    if (member < 0) return;
    this.#news.leave(member, { seq: 0, sent: 0 });
    this.#plans.leave(member);
    this.#refuseDeparted();
  }

  /** Refuses to wait for a member that has left, and so will never make its part of a call. */
  #refuseDeparted(): void {
    if (this.#cause !== undefined) return;
    const found = this.#news.firstInVain(this.#pending);
    if (found === undefined) return;
    const { group, generation } = this.place;
    const { op, work, arrival } = found.call.parts;
    const rank = this.ranks[found.member] ?? found.member;
    const seq = found.call.isCollective ? arrival.seq : this.#firstUnended();
    this.failAt(seq, departed(rank, generation, group, `${op} #${work.seq}`));
  }

  /** Ends the group here if one of its ranks is gone already. */
  refuseGone(): void {
    for (const error of this.ranks.map((rank) => this.#context.goneRank(rank)))
      if (error instanceof RankFailedError) this.failHere(error);
  }
}
