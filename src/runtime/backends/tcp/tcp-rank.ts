/**
 * One rank's end of all connections: sorts frames to groups, keeps those of groups that are not open yet, serves sockets
 * from the event loop or for a thread that waits, and knows which ranks are gone.
 */
import { createHash } from "node:crypto";
import { AbortedError, type ChoraleError, FormatError, RankFailedError } from "../../../core/index.ts";
import { POLL_BROKEN, POLL_IN, POLL_OUT } from "../../../foreign/native/index.ts";
import {
  type Communicator,
  decodeFailure,
  errorOf,
  type Failure,
  failureOf,
  GroupCommunicator,
  refuseCalls,
  runningTime,
} from "../../comm/index.ts";
import { Connection, type ConnectionListener } from "./connection.ts";
import { EAGER_BYTES, type GroupKey, HEAD_BYTES, type Head, KIND, keyOf, NO_HEAD } from "./frame.ts";
import { HostTurns } from "./host-turns.ts";
import { GrantHolds, Link, WINDOW_BYTES } from "./link.ts";
import type { PeerSockets } from "./meet.ts";
import { PlanMemory } from "./plan-memory.ts";
import { Reducer } from "./reducer.ts";
import { WAKE_EVENTS } from "./send-thread.ts";
import { forLarge, MOST_THREADS, Sender } from "./sender.ts";
import { SpinBudget } from "./spin.ts";
import type { FrameTaker, TcpContext, TcpRankOptions } from "./tcp-context.ts";
import { TcpGroup } from "./tcp-group.ts";

/** How long turns of the event loop follow each other after something has arrived, ms; then timers, ever longer. */
const EAGER_MS = 3;
const MAX_PAUSE_MS = 10;
/** How long a turn of the event loop may block for a frame, ms: less than any timer of a program notices. */
const TURN_WAIT_MS = 1;
/** What is kept for groups which are not open yet, from each rank: small messages, which have the window, and as much of all else. */
const MAX_ORPHAN_BYTES = 2 * WINDOW_BYTES;
/** Groups that were closed and may still get frames. */
const MAX_RETIRED = 4_096;
/** Of why a frame is refused, when its sender is told. */
const MAX_VERDICT_CHARS = 1_000;
/** How long the others may take to close their ends, once their systems have all that this rank has said, ms. */
const FAREWELL_MS = 1_000;

const NOTHING = new Uint8Array(0);

interface OpenGroup {
  readonly driver: TcpGroup;
  readonly communicator: GroupCommunicator<TcpGroup>;
}

interface Orphan {
  readonly from: number;
  readonly head: Head;
  readonly payload: Uint8Array;
  readonly failure?: Failure;
  /** Of the payload, or of what the failure was told in. */
  readonly bytes: number;
}

export class TcpRank implements TcpContext {
  readonly options: TcpRankOptions;
  readonly reducer = new Reducer();
  readonly planMemory = new PlanMemory(this.reducer);
  readonly hosts = new HostTurns();
  readonly grants = new GrantHolds();
  readonly spins = new SpinBudget();
  readonly world: GroupCommunicator<TcpGroup>;
  readonly #links: readonly (Link | undefined)[];
  readonly #connections: readonly Connection[];
  readonly #table: Int32Array;
  readonly #sender: Sender;
  readonly #groups = new Map<number, OpenGroup>();
  readonly #retired = new Set<number>();
  readonly #orphans = new Map<number, Orphan[]>();
  readonly #orphanBytes: number[];
  /** Payloads that were begun for groups which were not open. */
  readonly #adrift = new Set<Uint8Array>();
  readonly #gone = new Map<number, RankFailedError>();
  #first: RankFailedError | undefined;
  #activeAt = 0;
  #isScheduled = false;
  #isTurning = false;
  #isOver = false;

  constructor(options: TcpRankOptions) {
    const { worldSize, peers } = options;
    this.options = options;
    this.#orphanBytes = Array(worldSize).fill(0);
    this.#sender = new Sender(options);
    this.#links = peers.map((peer, other) => (peer === undefined ? undefined : this.#linkTo(other, peer)));
    this.#connections = this.#links.flatMap((link) => link?.connections ?? []);
    this.#table = new Int32Array(2 * (this.#connections.length + MOST_THREADS));
    const everybody = Array.from({ length: worldSize }, (_, i) => i);
    this.world = this.#open("world", everybody, "world");
    for (const [other, peer] of peers.entries()) {
      for (const [i, { rest }] of (peer?.sockets ?? []).entries()) {
        this.#links[other]?.connections[i]?.open(rest);
      }
    }
  }

  get helper(): Sender {
    return this.#sender;
  }
  get pump(): this {
    return this;
  }
  /** What the world failed of first, as far as this rank knows. */
  get failure(): Failure | undefined {
    return this.#first === undefined ? undefined : failureOf(this.#first);
  }
  get groups(): readonly GroupCommunicator<TcpGroup>[] {
    return [...this.#groups.values()].map(({ communicator }) => communicator);
  }

  linkOf(rank: number): Link | undefined {
    return this.#links[rank];
  }
  goneRank(rank: number): ChoraleError | undefined {
    return this.#gone.get(rank);
  }
  warn(text: string): void {
    process.stderr.write(`chorale: ${text}\n`);
  }

  open(group: string, ranks: readonly number[], label: string): Communicator {
    return this.#open(group, ranks, label);
  }

  #open(group: string, ranks: readonly number[], label: string): GroupCommunicator<TcpGroup> {
    const key = keyFor(`${this.options.generation} ${label} [${ranks.join(",")}]`);
    const driver = new TcpGroup(this, group, ranks, key, label);
    const communicator = new GroupCommunicator(driver);
    this.#groups.set(keyOf(key), { driver, communicator });
    driver.refuseGone();
    const orphans = this.#orphans.get(keyOf(key)) ?? [];
    this.#orphans.delete(keyOf(key));
    for (const orphan of orphans) {
      this.#orphanBytes[orphan.from]! -= HEAD_BYTES + orphan.bytes;
      this.#deliver(driver, orphan);
    }
    return communicator;
  }

  waitsElsewhere(but: FrameTaker): string | undefined {
    for (const { driver } of this.#groups.values()) {
      const call = driver.firstRunning(driver === but);
      if (call !== undefined) return call;
    }
    return undefined;
  }

  /** Which pending call uses a buffer, if any. */
  useOf(buffer: ArrayBufferLike): string | undefined {
    return [...this.#groups.values()].map(({ driver }) => driver.useOf(buffer)).find((use) => use !== undefined);
  }

  retire(group: FrameTaker): void {
    const key = keyOf(group.key);
    this.#groups.delete(key);
    this.#retired.add(key);
    const [oldest] = this.#retired;
    if (this.#retired.size > MAX_RETIRED && oldest !== undefined) this.#retired.delete(oldest);
  }

  // Frames.

  #linkTo(rank: number, { sockets, address, keys }: PeerSockets): Link {
    const connections = sockets.map(({ socket }, index) => {
      const listener: ConnectionListener = {
        begin: (head) => this.#begin(link, head),
        end: (head, payload) => this.#end(link, head, payload),
        refuse: (error) => this.#tellVerdict(link, error),
        over: (error) => this.#over(link, index === 0, error),
      };
      return new Connection(socket, {
        peer: `rank ${rank} (${address})`,
        calls: this.options.calls,
        listener,
        writer: this.#sender.writer(),
        hasSums: this.options.checksum === "on",
      });
    });
    const large = forLarge(connections, this.options.rank < rank);
    const link: Link = new Link(rank, address, connections, keys, this.grants, large);
    return link;
  }

  #begin(link: Link, head: Head): Uint8Array {
    this.#activeAt = performance.now();
    const isPlanned = head.kind === KIND.put || head.kind === KIND.got;
    if (head.kind !== KIND.data && !isPlanned) return head.bytes === 0 ? NOTHING : new Uint8Array(head.bytes);
    const isSmall = !isPlanned && head.total <= EAGER_BYTES;
    if (isSmall && head.bytes !== head.total)
      throw new FormatError(`rank ${link.rank}`, `sent ${head.bytes} of ${head.total} bytes; expected all of them`);
    if (isSmall) link.arrives(head.bytes);
    const key = keyOf(head.group);
    const group = this.#groups.get(key)?.driver;
    if (group !== undefined) return group.begin(group.ranks.indexOf(link.rank), head) ?? new Uint8Array(head.bytes);
    const isRetired = this.#retired.has(key);
    if (!isSmall && !isRetired)
      throw new FormatError(`rank ${link.rank}`, "sent data to a group that this rank has not opened");
    const payload = new Uint8Array(head.bytes);
    if (!isRetired) this.#adrift.add(payload);
    return payload;
  }

  #end(link: Link, head: Head, payload: Uint8Array): void {
    if (head.kind === KIND.control) this.#control(link, link.readControl(payload));
    else if (head.kind === KIND.credit) link.refill(head.total);
    else if (head.kind === KIND.wake) this.hosts.rest(TURN_WAIT_MS);
    else {
      const group = this.#groups.get(keyOf(head.group))?.driver;
      const wasAdrift = this.#adrift.size > 0 && this.#adrift.delete(payload);
      const orphan = { from: link.rank, head, payload, bytes: head.bytes };
      if (group === undefined) this.#keep(link, orphan);
      else if (wasAdrift) this.#deliver(group, orphan);
      else if (head.bytes > 0 || head.kind === KIND.data) group.end(group.ranks.indexOf(link.rank), head, payload);
      else group.signal(group.ranks.indexOf(link.rank), head);
    }
  }

  #keep(link: Link, orphan: Orphan): void {
    const { kind, total, group } = orphan.head;
    const key = keyOf(group);
    if (this.#retired.has(key)) {
      if (kind === KIND.data && total <= EAGER_BYTES) link.took(total);
      return;
    }
    const bytes = (this.#orphanBytes[link.rank] ?? 0) + HEAD_BYTES + orphan.bytes;
    if (bytes > MAX_ORPHAN_BYTES)
      throw new FormatError(
        `rank ${link.rank}`,
        `sent ${bytes} bytes for groups that this rank has not opened; expected at most ${MAX_ORPHAN_BYTES}`,
      );
    this.#orphanBytes[link.rank] = bytes;
    const list = this.#orphans.get(key);
    if (list === undefined) this.#orphans.set(key, [orphan]);
    else list.push(orphan);
  }

  #deliver(group: TcpGroup, { from, head, payload, failure }: Orphan): void {
    const member = group.ranks.indexOf(from);
    if (failure !== undefined) group.failFrom(head.seq, errorOf(failure));
    else if (head.kind === KIND.data) {
      group.begin(member, head)?.set(payload);
      group.end(member, head, payload);
    } else group.signal(member, head);
  }

  #control(link: Link, message: Readonly<Record<string, unknown>>): void {
    const { kind, group, failure, seq, rank, cause, call, blamed } = message;
    if (kind === "bye") link.saidBye = true;
    else if (kind === "refused") {
      const what = `rank ${link.rank} (${link.address}) refused what it received of this one: ${String(cause)}`;
      this.markGone(link.rank, what, true, this.options.rank);
    } else if (kind === "rank-failed") {
      if (!this.#isRank(rank) || !(blamed === undefined || this.#isRank(blamed)))
        throw new FormatError(
          `rank ${link.rank}`,
          `said that rank ${blamed ?? rank} failed, which is none of this world`,
        );
      this.markGone(rank, String(cause), false, blamed ?? rank);
    } else if (kind === "elsewhere" && Array.isArray(group)) {
      const known = this.#groups.get(keyOf(keyFrom(group)))?.driver;
      known?.hearElsewhere(known.ranks.indexOf(link.rank), typeof call === "string" ? call : undefined);
    } else if (kind === "failed" && Array.isArray(group) && typeof failure === "string") {
      const key = keyFrom(group);
      const told = decodeFailure(Buffer.from(failure));
      const known = this.#groups.get(keyOf(key))?.driver;
      const head = { ...NO_HEAD, group: key, seq: Number(seq) || 0 };
      if (known !== undefined) known.failFrom(head.seq, errorOf(told));
      else this.#keep(link, { from: link.rank, head, payload: NOTHING, failure: told, bytes: failure.length });
    }
  }

  #isRank(value: unknown): value is number {
    return typeof value === "number" && Number.isInteger(value) && value >= 0 && value < this.options.worldSize;
  }

  /** Tells a rank why what it sent is refused: it would take the end of its connections for the end of this rank. */
  #tellVerdict(link: Link, { message }: FormatError): void {
    if (link.isOver || this.#isOver) return;
    link.control({ kind: "refused", cause: message.slice(0, MAX_VERDICT_CHARS) });
    link.flush();
  }

  // Ranks that are gone.

  #over(link: Link, isFirst: boolean, error: Error | undefined): void {
    if (this.#isOver) return;
    // The farewell comes over the first connection, and the others may still have data.
    if (!isFirst) {
      if (error === undefined) return;
      link.receiveFirst();
    }
    if (link.saidBye) {
      for (const { driver } of [...this.#groups.values()]) driver.hasLeft(link.rank);
      this.#gone.set(
        link.rank,
        new RankFailedError(link.rank, this.options.generation, new Error("it has closed its world")),
      );
      return;
    }
    link.finish();
    // What it sent was no frame, or damaged: it is there.
    if (error instanceof FormatError) {
      this.markGone(link.rank, error.message, true);
      return;
    }
    const why = error === undefined ? "its connection ended without a farewell" : error.message;
    this.markGone(link.rank, `${why} (${link.address}): its process is gone, or the way to it`, true);
  }

  /**
   * Ends every group that has `rank`.
   * @param tells whether this rank may be the only one that knows
   * @param blamed the rank that is named: another one where `rank` ends because that one died
   */
  markGone(rank: number, cause: string, tells: boolean, blamed = rank): void {
    // Whoever leaves waits for it no longer.
    if (this.#isOver) this.#links[rank]?.finish();
    if (this.#gone.has(rank) || this.#isOver) return;
    const error = new RankFailedError(blamed, this.options.generation, new Error(cause));
    this.#gone.set(rank, error);
    this.#first ??= error;
    for (const { driver } of [...this.#groups.values()]) {
      if (!driver.ranks.includes(rank)) continue;
      if (tells) driver.fail(error);
      else driver.failHere(error);
    }
  }

  /** Says on all connections that `rank` is dead, and which rank is to blame. */
  tellGone(rank: number, cause: string, blamed: number): void {
    const message = { kind: "rank-failed", rank, cause, ...(blamed === rank ? {} : { blamed }) };
    for (const link of this.#links) {
      if (link !== undefined && !link.isOver && link.rank !== rank) link.control(message);
    }
    this.markGone(rank, cause, false, blamed);
  }

  /** Leaves at once: its groups fail here, and the others are told why. */
  abandon(cause: Error, why: string): void {
    if (this.#isOver) return;
    const first = this.failure;
    const told =
      first?.code === "RANK_FAILED"
        ? { rank: first.rank, cause: first.cause }
        : { rank: this.options.rank, cause: cause instanceof AbortedError ? cause.reason : cause.message };
    for (const link of this.#links) {
      if (link === undefined || link.isOver) continue;
      link.control({ kind: "rank-failed", ...told });
      link.flush();
    }
    this.#isOver = true;
    const error = cause instanceof AbortedError ? cause : new AbortedError(cause.message, { cause });
    for (const { driver, communicator } of [...this.#groups.values()]) {
      refuseCalls(communicator, why);
      driver.failHere(error);
    }
    for (const link of this.#links) link?.finish();
    void this.#sender.close();
  }

  /** Says goodbye, and waits until the others' systems have it, and what was sent before, and for a while until they close too. */
  async leave(): Promise<void> {
    if (this.#isOver) return;
    for (const link of this.#links) if (link?.isOver === false) link.control({ kind: "bye" });
    this.#isOver = true;
    const open = () => this.#connections.filter(({ isOver }) => !isOver);
    let fewestBytes = Number.POSITIVE_INFINITY;
    let until = 0;
    // As long as they take anything: nobody is to blame for a slow machine.
    await this.#turnWhile((now) => {
      const bytes = open().reduce((sum, { backlogBytes }) => sum + backlogBytes, 0);
      if (bytes < fewestBytes) until = now + this.options.timeoutMs;
      fewestBytes = Math.min(fewestBytes, bytes);
      return bytes > 0 && now < until;
    });
    for (const { socket } of open()) socket.end();
    const closedBy = runningTime() + FAREWELL_MS;
    await this.#turnWhile((now) => open().length > 0 && now < closedBy);
    for (const link of this.#links) link?.finish();
    await this.#sender.close();
  }

  /** @param holds is given the running time */
  async #turnWhile(holds: (now: number) => boolean): Promise<void> {
    while (holds(runningTime())) {
      this.turn(0);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  // Progress.

  kick(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const waitedMs = performance.now() - this.#activeAt;
    if (waitedMs < EAGER_MS) setImmediate(this.#onTurn);
    else setTimeout(this.#onTurn, Math.min(MAX_PAUSE_MS, 1 + waitedMs / 100));
  }

  readonly #onTurn = (): void => {
    this.#isScheduled = false;
    const isEager = performance.now() - this.#activeAt < EAGER_MS;
    this.turn(isEager ? TURN_WAIT_MS : 0);
    if (!this.#isBusy) return;
    // The event loop does something else now, and is woken by a frame.
    this.hosts.rest(TURN_WAIT_MS);
    this.kick();
  };

  get #isBusy(): boolean {
    if (this.#connections.some(({ isBlocked }) => isBlocked)) return true;
    for (const { driver } of this.#groups.values()) if (driver.isPending) return true;
    return false;
  }

  turn(waitMs: number): boolean {
    if (this.#isTurning) return false;
    const { numMoves } = this.hosts;
    this.#isTurning = true;
    try {
      let count = 0;
      for (const connection of this.#connections) {
        if (connection.isOver) continue;
        this.#table[2 * count] = connection.fd;
        const waits = connection.isBlocked && !connection.isLent;
        this.#table[2 * count + 1] = waits ? POLL_IN | POLL_OUT : POLL_IN;
        count++;
      }
      const firstWatched = count;
      for (const fd of this.#sender.watched) {
        this.#table[2 * count] = fd;
        this.#table[2 * count + 1] = WAKE_EVENTS;
        count++;
      }
      let moved = this.#flushLent();
      const mayHelp = this.#sender.hasWork;
      const restMs = moved || mayHelp ? 0 : this.#sender.rest(this.hosts.rest(waitMs));
      const ready = this.options.calls.poll(this.#table, count, restMs);
      if (ready > 0) this.#serve();
      moved ||= ready > 0;
      if (!moved && mayHelp && this.#sender.help()) moved = true;
      const numPolled = count - firstWatched;
      this.#sender.rise((nth) => nth < numPolled && (this.#table[2 * (firstWatched + nth) + 1] ?? 0) >>> 16 !== 0);
      if (this.#flushLent()) moved = true;
      this.hosts.rise();
      const now = performance.now();
      for (const { driver } of this.#groups.values()) driver.look(now);
      return moved || this.hosts.numMoves !== numMoves;
    } finally {
      this.#isTurning = false;
    }
  }

  /** Hears what another thread has written. @returns whether it was anything */
  #flushLent(): boolean {
    if (!this.#sender.hasNews) return false;
    this.#activeAt = performance.now();
    for (const connection of this.#connections) if (connection.isLent) connection.flush();
    this.#sender.settle();
    return true;
  }

  #serve(): void {
    let at = 0;
    for (const connection of this.#connections) {
      // Those that end meanwhile have their place in the table all the same.
      if (this.#table[2 * at] !== connection.fd) continue;
      const events = (this.#table[2 * at + 1] ?? 0) >>> 16;
      at++;
      if ((events & POLL_OUT) !== 0) connection.flush();
      if ((events & (POLL_IN | POLL_BROKEN)) !== 0) connection.receive();
    }
  }
}

/** As a control frame has it. */
function keyFrom([low, high]: readonly unknown[]): GroupKey {
  return { low: Number(low), high: Number(high) };
}

function keyFor(label: string): GroupKey {
  const hash = createHash("sha256").update(label).digest();
  return { low: hash.readInt32LE(0), high: hash.readInt32LE(4) };
}
