/**
 * Runs a plan once, symbolically, and says what holds in every interleaving.
 *
 * Why one run decides for all of them. A plan has no branches: what an operation does never depends on data, and
 * whether it may run depends only on counters that grow, on barriers, and on packets that arrive. As long as no two
 * strands compete for the same token, an operation that may run stays so until it runs (the system is persistent), so
 * every maximal run executes the same operations: one run gets stuck if and only if all do, at the same place (this is
 * the argument for Kahn networks and marked graphs). The orders that synchronisation enforces are then the same in all
 * runs, they are a partial order (vector clocks compute it), and two accesses can meet in both orders exactly when it
 * leaves them unordered. If no unordered pair conflicts, every read sees the same write in every run, also on a weakly
 * ordered memory (data-race freedom), and the symbolic values of this run are those of all runs. Where a pair does
 * conflict, the value is marked as depending on timing, and so is everything computed from it.
 *
 * Where strands do compete (a counter with several waiting strands, a semaphore used as a lock), `verify.ts` first tries
 * a pessimistic run, in which a wait passes only if it would pass behind all its rivals: if that run ends, every run
 * does. Otherwise it enumerates who goes first, and gives up, with a finding, when there are too many ways.
 */
import type { ExecutionPlan, PipelineOp, Range, RemoteRange, SimpleOp, SwitchRange } from "../ir.ts";
import { acquire, type Clock, join, type Snapshot, withStrand } from "./clocks.ts";
import { type Counter, type CounterTable, counterUse, type SignalEvent, type WaitEvent } from "./counters.ts";
import { aliasesOf, type Geometry, iterationsOf } from "./geometry.ts";
import { type Accessor, type Link, Memory, type Site } from "./memory.ts";
import { allLinks, learn, past, type StrandState, separate, usesPackets } from "./strand-state.ts";
import type { Values } from "./values.ts";
import { countWrites } from "./write-counts.ts";

/** How waits on contested counters are admitted. */
export type Policy =
  | { readonly kind: "greedy" }
  /** A wait passes when the counter reaches `needed(counter, strand, ordinal)`. */
  | { readonly kind: "pessimistic"; readonly needed: (counter: Counter, strand: number, ordinal: number) => number }
  /** At the i-th moment when only contested waits can go on, number choices[i] of them goes first. */
  | { readonly kind: "choices"; readonly contested: ReadonlySet<number>; readonly choices: readonly number[] };

export interface ExploreInput {
  readonly geometry: Geometry;
  readonly table: CounterTable;
  readonly values: Values;
  readonly policy: Policy;
  /** For counters shared by several strands: signals that precede a wait, by `counter:strand:ordinal`. */
  readonly derived: ReadonlyMap<string, readonly string[]>;
  readonly marked: ReadonlyMap<number, number>;
  /** Reads are wanted at the end, also of places that nobody writes any more. */
  readonly keepReads: boolean;
}

export interface Blocked {
  readonly site: Site;
  readonly simple: SimpleOp;
  /** What it waits for. */
  readonly on:
    | { readonly kind: "counter"; readonly counter: Counter }
    | { readonly kind: "barrier"; readonly barrier: number }
    | { readonly kind: "packet"; readonly cell: number; readonly tag: number }
    | { readonly kind: "launch" };
}

export interface Exploration {
  readonly blocked: readonly Blocked[];
  readonly memory: Memory;
  readonly signals: ReadonlyMap<number, readonly SignalEvent[]>;
  readonly waits: ReadonlyMap<number, readonly WaitEvent[]>;
  /** `counter:strand:ordinal` of each signal, in the order of `signals`. */
  readonly signalKeys: ReadonlyMap<number, readonly string[]>;
  /** Of each decision under `choices`, how many ways there were. */
  readonly decisions: readonly number[];
  /** Segments of each lane that some strand has waited for at the end. */
  readonly finished: (lane: number) => number;
  /** What each strand knows at its end: clock and own segments, by launch. */
  readonly ends: readonly (readonly { clock: Clock; segments: number }[])[];
  readonly barrierClashes: readonly { rank: number; barrier: number; site: Site }[];
  readonly steps: number;
}

interface Lane {
  segment: number;
  clock: Clock;
  /** Issue segment and clock of every request, to order requests of other strands behind it. */
  readonly requests: { readonly strandSegment: number; readonly laneSegment: number; readonly clock: Clock }[];
}

export function explore(input: ExploreInput): Exploration {
  return new Explorer(input).run();
}

class Explorer {
  readonly #in: ExploreInput;
  readonly #plan: ExecutionPlan;
  readonly #geo: Geometry;
  readonly #strands: StrandState[] = [];
  readonly #lanes: (Lane | undefined)[];
  readonly #hasPorts: boolean;
  readonly #hasPackets: boolean;
  readonly #size: number;
  readonly #memory: Memory;
  readonly #values: Values;
  readonly #queue: StrandState[] = [];
  readonly #count: Int32Array;
  readonly #taken: Int32Array;
  readonly #signals = new Map<number, SignalEvent[]>();
  readonly #signalKeys = new Map<number, string[]>();
  readonly #waits = new Map<number, WaitEvent[]>();
  readonly #lastSnapshot: (Snapshot | undefined)[][];
  readonly #counterWaiters = new Map<number, Set<StrandState>>();
  readonly #packetWaiters = new Map<number, Set<StrandState>>();
  readonly #barriers = new Map<string, StrandState[]>();
  readonly #atBarrier = new Set<StrandState>();
  readonly #launchWaiters: StrandState[][];
  readonly #contestedReady = new Set<StrandState>();
  readonly #decisions: number[] = [];
  readonly #ordinals = new Map<string, number>();
  readonly #clashes: { rank: number; barrier: number; site: Site }[] = [];
  readonly #snapshotsByKey = new Map<string, Snapshot | undefined>();
  readonly #ends: { clock: Clock; segments: number }[][] = [];
  #steps = 0;

  constructor(input: ExploreInput) {
    this.#in = input;
    this.#geo = input.geometry;
    this.#plan = input.geometry.plan;
    this.#values = input.values;
    const numStrands = this.#geo.strandRank.length;
    this.#hasPorts = this.#plan.ranks.some((rank) => rank.channels.port.length > 0);
    this.#hasPackets = usesPackets(this.#plan);
    this.#size = numStrands * (this.#hasPorts ? 2 : 1);
    this.#lanes = new Array<Lane | undefined>(numStrands);
    const initial = new Int32Array(this.#geo.numCells);
    for (let launch = 0; launch < this.#geo.launches; launch++) {
      for (const rank of this.#plan.ranks) {
        const base = this.#geo.base(launch, rank.rank, "input");
        const leaf = this.#geo.leafBase[rank.rank]! + launch * this.#geo.numLeaves;
        for (let i = 0; i < rank.input.chunks * this.#geo.cellsPerChunk; i++) {
          initial[base + i] = this.#values.leaf(leaf + i);
        }
      }
    }
    this.#memory = new Memory(
      this.#values,
      this.#geo,
      initial,
      input.marked,
      aliasesOf(this.#geo),
      input.keepReads ? undefined : countWrites(this.#geo),
    );
    const counters = input.table.counters.length;
    this.#count = new Int32Array(counters);
    this.#taken = new Int32Array(counters);
    this.#lastSnapshot = input.table.counters.map(() => []);
    this.#launchWaiters = this.#plan.ranks.map(() => []);
    for (let g = 0; g < numStrands; g++) {
      this.#strands.push({
        g,
        rank: this.#geo.strandRank[g]!,
        segment: 0,
        phase: 0,
        clock: undefined,
        parked: false,
        known: undefined,
        phaseStart: 0,
        base: undefined,
        links: new Map(),
        seq: 0,
        launch: 0,
        op: 0,
        body: 0,
        iteration: 0,
        done: false,
        queued: true,
      });
      this.#ends.push([]);
    }
    this.#queue.push(...this.#strands);
  }

  run(): Exploration {
    for (;;) {
      for (let head = 0; head < this.#queue.length; head++) {
        const strand = this.#queue[head]!;
        strand.queued = false;
        this.#advance(strand);
        if (head > 4096 && head * 2 > this.#queue.length) {
          this.#queue.splice(0, head + 1);
          head = -1;
        }
      }
      this.#queue.length = 0;
      if (!this.#decide()) break;
    }
    const blocked = this.#strands.filter((strand) => !strand.done).map((strand) => this.#why(strand));
    const finished = new Int32Array(this.#size);
    for (const strand of this.#strands) {
      for (let i = 0; i < this.#size; i++) finished[i] = Math.max(finished[i]!, strand.clock?.[i] ?? 0);
    }
    const numStrands = this.#strands.length;
    return {
      blocked,
      memory: this.#memory,
      signals: this.#signals,
      waits: this.#waits,
      signalKeys: this.#signalKeys,
      decisions: this.#decisions,
      finished: (lane) => (lane < numStrands ? Number.MAX_SAFE_INTEGER : finished[lane]!),
      ends: this.#ends,
      barrierClashes: this.#clashes,
      steps: this.#steps,
    };
  }

  /** Under `choices`: lets one of the contested waits that could go on do so. */
  #decide(): boolean {
    const { policy } = this.#in;
    if (policy.kind !== "choices") return false;
    const ready = [...this.#contestedReady].filter((strand) => this.#tokens(strand)).sort((a, b) => a.g - b.g);
    if (ready.length === 0) return false;
    const choice = policy.choices[this.#decisions.length] ?? 0;
    this.#decisions.push(ready.length);
    const chosen = ready[choice]!;
    this.#contestedReady.delete(chosen);
    this.#take(chosen, this.#current(chosen)!);
    this.#step(chosen);
    this.#wake(chosen);
    return true;
  }

  #tokens(strand: StrandState): boolean {
    const op = this.#current(strand);
    return (op?.kind === "wait" || op?.kind === "acquire") && this.#canTake(strand, op, false);
  }

  #current(strand: StrandState): SimpleOp | undefined {
    const op = this.#plan.ranks[strand.rank]!.strands[strand.g - this.#geo.strandBase[strand.rank]!]!.ops[strand.op];
    return op?.kind === "pipeline" ? op.body[strand.body] : op;
  }

  #pipeline(strand: StrandState): PipelineOp | undefined {
    const op = this.#plan.ranks[strand.rank]!.strands[strand.g - this.#geo.strandBase[strand.rank]!]!.ops[strand.op];
    return op?.kind === "pipeline" ? op : undefined;
  }

  #site(strand: StrandState): Site {
    const inPipeline = this.#pipeline(strand) !== undefined;
    return {
      strand: strand.g,
      op: strand.op,
      body: inPipeline ? strand.body : -1,
      iteration: strand.iteration,
      launch: strand.launch,
      id: (this.#geo.opBase[strand.g]![strand.op] ?? 0) + (inPipeline ? strand.body : 0),
    };
  }

  #wake(strand: StrandState): void {
    if (!strand.queued && !strand.done) {
      strand.queued = true;
      this.#queue.push(strand);
    }
  }

  /** Moves past the current operation. */
  #step(strand: StrandState): void {
    this.#steps++;
    strand.seq++;
    const pipeline = this.#pipeline(strand);
    if (pipeline !== undefined) {
      strand.body++;
      if (strand.body < pipeline.body.length) return;
      strand.body = 0;
      strand.iteration++;
      if (strand.iteration < iterationsOf(pipeline, this.#geo.chunkBytes)) return;
      strand.iteration = 0;
    }
    strand.op++;
  }

  #advance(strand: StrandState): void {
    const ops = this.#plan.ranks[strand.rank]!.strands[strand.g - this.#geo.strandBase[strand.rank]!]!.ops;
    if (strand.done || strand.parked || this.#atBarrier.has(strand)) return;
    for (;;) {
      const op = ops[strand.op];
      if (op === undefined) {
        this.#endLaunch(strand);
        return;
      }
      if (op.kind === "pipeline") {
        if (op.body.length === 0 || iterationsOf(op, this.#geo.chunkBytes) < 1) {
          strand.op++;
          continue;
        }
        if (!this.#execute(strand, op.body[strand.body]!, op)) return;
      } else if (!this.#execute(strand, op, undefined)) return;
      this.#step(strand);
    }
  }

  /** Ends a launch of a rank when all its strands have; the next one begins behind it. */
  #endLaunch(strand: StrandState): void {
    separate(strand, this.#size, this.#hasPackets);
    this.#ends[strand.g]!.push({ clock: strand.clock, segments: strand.segment });
    if (strand.launch + 1 >= this.#geo.launches) {
      strand.done = true;
      return;
    }
    const waiting = this.#launchWaiters[strand.rank]!;
    waiting.push(strand);
    strand.parked = true;
    const all = this.#plan.ranks[strand.rank]!.strands.length;
    if (waiting.length < all) return;
    this.#launchWaiters[strand.rank] = [];
    this.#meet(waiting);
    for (const member of waiting) {
      member.parked = false;
      member.launch++;
      member.op = member.body = member.iteration = 0;
      this.#wake(member);
    }
  }

  /** All members learn what each of them knows. */
  #meet(members: readonly StrandState[]): void {
    let clock: Clock;
    let known: Clock;
    for (const member of members) {
      separate(member, this.#size, this.#hasPackets);
      clock = join(clock, member.clock);
      known = join(known, member.known);
    }
    const bases = new Set(members.flatMap((member) => (member.base === undefined ? [] : [member.base])));
    const link: Link | undefined =
      bases.size === 0 ? undefined : { from: undefined, next: undefined, more: [...bases] };
    const shared = clock === undefined ? new Int32Array(this.#size) : clock.slice();
    for (const member of members) shared[member.g] = Math.max(shared[member.g]!, member.segment);
    for (const member of members) {
      member.clock = shared;
      learn(member, known, link, this.#hasPackets);
    }
  }

  /** Executes one operation. @returns false when it must wait; it will be tried again */
  #execute(strand: StrandState, op: SimpleOp, pipeline: PipelineOp | undefined): boolean {
    switch (op.kind) {
      case "nop":
        separate(strand, this.#size, this.#hasPackets);
        return true;
      case "barrier":
        return this.#barrier(strand, op.barrier, op.numStrands);
      case "signal":
        this.#raise(strand, op);
        return true;
      case "release":
        this.#raise(strand, op);
        return true;
      case "wait":
      case "acquire":
        if (!this.#canTake(strand, op, true)) return false;
        this.#take(strand, op);
        return true;
      case "flush":
        separate(strand, this.#size, this.#hasPackets);
        this.#joinLane(strand);
        return true;
      default:
        return this.#data(strand, op, pipeline);
    }
  }

  #barrier(strand: StrandState, barrier: number, numStrands: number): boolean {
    const key = `${strand.rank} ${barrier}`;
    const arrived = this.#barriers.get(key) ?? [];
    arrived.push(strand);
    this.#barriers.set(key, arrived);
    this.#atBarrier.add(strand);
    if (arrived.length > 1) {
      const other = this.#current(arrived[0]!);
      if (other?.kind === "barrier" && other.numStrands !== numStrands) {
        this.#clashes.push({ rank: strand.rank, barrier, site: this.#site(strand) });
      }
    }
    if (arrived.length < numStrands) return false;
    this.#barriers.delete(key);
    this.#meet(arrived);
    for (const member of arrived) {
      this.#atBarrier.delete(member);
      if (member !== strand) {
        this.#step(member);
        this.#wake(member);
      }
    }
    return true;
  }

  #ordinal(kind: string, counter: Counter, strand: StrandState): number {
    return this.#ordinals.get(`${kind}${counter.id}:${strand.g}`) ?? 0;
  }

  #bump(kind: string, counter: Counter, strand: StrandState): number {
    const key = `${kind}${counter.id}:${strand.g}`;
    const ordinal = this.#ordinals.get(key) ?? 0;
    this.#ordinals.set(key, ordinal + 1);
    return ordinal;
  }

  /** Raises the counters of a signal, a release, or a put that notifies. */
  #raise(strand: StrandState, op: SimpleOp): void {
    const { raise } = counterUse(this.#in.table, strand.rank, op);
    const relaxed = op.kind === "signal" && op.relaxed;
    const byProxy = (op.kind === "signal" || op.kind === "put") && op.channelKind === "port";
    const separates = !relaxed && op.kind !== "put";
    const segmentEnded = strand.segment;
    let snapshot: Snapshot | undefined;
    if (!relaxed) {
      let base = strand.clock;
      if (byProxy) {
        const lane = this.#request(strand);
        base = withStrand(join(lane.clock, base), this.#laneId(strand), lane.segment, this.#size);
      }
      snapshot = {
        strand: strand.g,
        segments: strand.segment + 1,
        base,
        known: strand.known,
        link: allLinks(strand),
      };
    } else if (byProxy) this.#request(strand);
    for (const counter of raise) {
      this.#count[counter.id] = this.#count[counter.id]! + 1;
      const snapshots = this.#lastSnapshot[counter.id]!;
      if (simple(counter)) snapshots.push(snapshot ?? snapshots.at(-1));
      else {
        const ordinal = this.#bump("s", counter, strand);
        const key = `${counter.id}:${strand.g}:${ordinal}`;
        this.#snapshotsByKey.set(key, snapshot);
        push(this.#signals, counter.id, { strand: strand.g, segment: segmentEnded, clock: strand.clock, snapshot });
        push(this.#signalKeys, counter.id, key);
      }
      for (const waiter of this.#counterWaiters.get(counter.id) ?? []) this.#wake(waiter);
      this.#counterWaiters.delete(counter.id);
    }
    // Relaxed signals and notifying puts are no block-wide synchronisation, but what follows comes after them.
    if (separates) separate(strand, this.#size, this.#hasPackets);
    else strand.segment++;
  }

  #canTake(strand: StrandState, op: SimpleOp, register: boolean): boolean {
    const { take } = counterUse(this.#in.table, strand.rank, op);
    const { policy } = this.#in;
    const wanted = new Map<Counter, number>();
    for (const counter of take) wanted.set(counter, (wanted.get(counter) ?? 0) + 1);
    for (const [counter, number] of wanted) {
      let available = counter.initial + this.#count[counter.id]! - this.#taken[counter.id]! >= number;
      if (policy.kind === "pessimistic" && counter.waiters.size > 1) {
        const ordinal = this.#ordinal("w", counter, strand) + number - 1;
        available = counter.initial + this.#count[counter.id]! >= policy.needed(counter, strand.g, ordinal);
      }
      if (available && register && policy.kind === "choices" && policy.contested.has(counter.id)) {
        const left = counter.totalWaits - this.#taken[counter.id]!;
        if (counter.initial + this.#count[counter.id]! - this.#taken[counter.id]! < left) {
          this.#contestedReady.add(strand);
          return false;
        }
      }
      if (!available) {
        if (register) {
          let waiters = this.#counterWaiters.get(counter.id);
          if (waiters === undefined) {
            waiters = new Set();
            this.#counterWaiters.set(counter.id, waiters);
          }
          waiters.add(strand);
          if (policy.kind === "choices") this.#contestedReady.add(strand);
        }
        return false;
      }
    }
    return true;
  }

  #take(strand: StrandState, op: SimpleOp): void {
    const { take } = counterUse(this.#in.table, strand.rank, op);
    const relaxed = op.kind === "wait" && op.relaxed;
    const before = strand.clock;
    const segment = strand.segment;
    for (const counter of take) {
      const ticket = this.#taken[counter.id]! + 1;
      this.#taken[counter.id] = ticket;
      const ordinal = this.#bump("w", counter, strand);
      if (simple(counter)) {
        const at = ticket - counter.initial - 1;
        const snapshots = this.#lastSnapshot[counter.id]!;
        const snapshot = at >= 0 ? snapshots[at] : undefined;
        if (at > 0) snapshots[at - 1] = undefined;
        if (snapshot !== undefined && !relaxed) this.#acquire(strand, snapshot);
      } else {
        push(this.#waits, counter.id, { strand: strand.g, segment, ordinal, ticket, clock: before });
        if (relaxed) continue;
        for (const key of this.#in.derived.get(`${counter.id}:${strand.g}:${ordinal}`) ?? []) {
          const snapshot = this.#snapshotsByKey.get(key);
          if (snapshot !== undefined) this.#acquire(strand, snapshot);
        }
      }
    }
    if (relaxed) strand.segment++;
    else separate(strand, this.#size, this.#hasPackets);
  }

  #acquire(strand: StrandState, snapshot: Snapshot): void {
    strand.clock = acquire(strand.clock, snapshot, this.#size);
    learn(strand, snapshot.known, snapshot.link as Link | undefined, this.#hasPackets);
  }

  #laneId(strand: StrandState): number {
    return this.#strands.length + strand.g;
  }

  /** A new request of a strand to its rank's proxy: what it is ordered behind. */
  #request(strand: StrandState): Lane {
    let lane = this.#lanes[strand.g];
    if (lane === undefined) {
      lane = { segment: 0, clock: undefined, requests: [] };
      this.#lanes[strand.g] = lane;
    }
    let clock = join(lane.clock, strand.clock);
    if (strand.segment > 0) clock = withStrand(clock, strand.g, strand.segment, this.#size);
    const first = this.#geo.strandBase[strand.rank]!;
    for (let g = first; g < this.#geo.strandBase[strand.rank + 1]!; g++) {
      const other = this.#lanes[g];
      const known = strand.clock?.[g] ?? 0;
      if (g === strand.g || other === undefined || known === 0) continue;
      const request = other.requests.findLast((candidate) => candidate.strandSegment < known);
      if (request === undefined) continue;
      clock = withStrand(join(clock, request.clock), this.#strands.length + g, request.laneSegment + 1, this.#size);
    }
    lane.clock = clock;
    lane.requests.push({ strandSegment: strand.segment, laneSegment: lane.segment, clock });
    lane.segment++;
    return lane;
  }

  /** The strand has waited for its requests. */
  #joinLane(strand: StrandState): void {
    const lane = this.#lanes[strand.g];
    if (lane === undefined) return;
    strand.clock = withStrand(join(strand.clock, lane.clock), this.#laneId(strand), lane.segment, this.#size);
  }

  // Data operations.

  #own(strand: StrandState, range: Range): number {
    return this.#geo.base(strand.launch, strand.rank, range.buffer) + range.index * this.#geo.cellsPerChunk;
  }
  #remote(strand: StrandState, range: RemoteRange): number {
    return this.#geo.base(strand.launch, range.rank, range.buffer) + range.index * this.#geo.cellsPerChunk;
  }
  #members(strand: StrandState, range: SwitchRange): number[] {
    const channel = this.#plan.ranks[strand.rank]!.channels.switch[range.channel]!;
    return channel.ranks.map(
      (rank) => this.#geo.base(strand.launch, rank, channel.buffer) + range.index * this.#geo.cellsPerChunk,
    );
  }

  /** The part of a range of `size` chunks that this strand handles in this iteration, in cells. */
  #window(strand: StrandState, op: SimpleOp, size: number, pipeline: PipelineOp | undefined, packets: boolean) {
    const total = size * this.#geo.cellsPerChunk;
    let begin = 0;
    let end = total;
    const group = "tbg" in op ? op.tbg : undefined;
    if (group !== undefined) {
      begin = (total / group.size) * group.index;
      end = begin + total / group.size;
    }
    if (pipeline !== undefined && !packets) {
      const unit = this.#geo.unitCells.get(pipeline.unitBytes)!;
      begin += strand.iteration * unit;
      end = Math.min(end, begin + unit);
    }
    return { begin, count: Math.max(0, end - begin) };
  }

  #awaitPackets(strand: StrandState, begin: number, count: number): boolean {
    const tag = strand.launch + 1;
    for (let i = begin; i < begin + count; i++) {
      if (this.#memory.hasPacket(i, tag)) continue;
      let waiters = this.#packetWaiters.get(i);
      if (waiters === undefined) {
        waiters = new Set();
        this.#packetWaiters.set(i, waiters);
      }
      waiters.add(strand);
      return false;
    }
    return true;
  }

  /** Reads a packet that is there, and remembers what its arrival proves. */
  #packet(strand: StrandState, cell: number, who: Accessor, position: number): number {
    const value = this.#memory.read(cell, who, position, strand.launch + 1);
    const from = this.#memory.lastPacket;
    if (from !== undefined) {
      strand.links.set(position, { from, next: strand.links.get(position) ?? strand.base, more: undefined });
    }
    return value;
  }

  #write(cell: number, who: Accessor, position: number, value: number, tag: number): void {
    this.#memory.write(cell, who, position, value, tag);
    if (tag === 0) return;
    const waiters = this.#packetWaiters.get(cell);
    if (waiters === undefined) return;
    this.#packetWaiters.delete(cell);
    for (const waiter of waiters) this.#wake(waiter);
  }

  #data(strand: StrandState, op: SimpleOp, pipeline: PipelineOp | undefined): boolean {
    const memory = this.#memory;
    const tag = strand.launch + 1;
    const who: Accessor = {
      lane: strand.g,
      segment: strand.segment,
      phase: strand.phase,
      clock: strand.clock,
      site: this.#site(strand),
      past: past(strand, strand.phaseStart),
    };
    switch (op.kind) {
      case "copy": {
        const { begin, count } = this.#window(strand, op, op.src.size, pipeline, op.format !== "plain");
        const src = this.#own(strand, op.src) + begin;
        const dst = this.#own(strand, op.dst) + begin;
        if (op.format === "unpack" && !this.#awaitPackets(strand, src, count)) return false;
        for (let p = 0; p < count; p++) {
          const value =
            op.format === "unpack" ? this.#packet(strand, src + p, who, p) : memory.read(src + p, who, p, 0);
          this.#write(dst + p, who, p, value, op.format === "pack" ? tag : 0);
        }
        return true;
      }
      case "get": {
        op.src.forEach((source, i) => {
          const { begin, count } = this.#window(strand, op, source.size, pipeline, false);
          const src = this.#remote(strand, source) + begin;
          const dst = this.#own(strand, op.dst[i]!) + begin;
          for (let p = 0; p < count; p++) this.#write(dst + p, who, p, memory.read(src + p, who, p, 0), 0);
        });
        return true;
      }
      case "put":
        return this.#put(strand, op, pipeline, who);
      case "reduce": {
        const { begin, count } = this.#window(strand, op, op.dst.size, pipeline, op.packets);
        const sources = op.src.map((range) => this.#own(strand, range) + begin);
        const remotes = op.remoteSrc.map((range) => this.#remote(strand, range) + begin);
        if (op.packets) for (const src of sources.slice(1)) if (!this.#awaitPackets(strand, src, count)) return false;
        const dst = this.#own(strand, op.dst) + begin;
        const packetDst = op.packetDst === undefined ? -1 : this.#own(strand, op.packetDst) + begin;
        const targets = op.remoteDst.map((range) => this.#remote(strand, range) + begin);
        for (let p = 0; p < count; p++) {
          const operands = sources.map((src, i) =>
            op.packets && i > 0 ? this.#packet(strand, src + p, who, p) : memory.read(src + p, who, p, 0),
          );
          for (const src of remotes) operands.push(memory.read(src + p, who, p, 0));
          const value = this.#values.reduce(op.op, operands);
          this.#write(dst + p, who, p, value, 0);
          if (packetDst >= 0) this.#write(packetDst + p, who, p, value, tag);
          for (const target of targets) this.#write(target + p, who, p, value, op.packets ? tag : 0);
        }
        return true;
      }
      case "switch-reduce": {
        const { begin, count } = this.#window(strand, op, op.dst.size, pipeline, false);
        const sources = this.#members(strand, op.src).map((src) => src + begin);
        const dst = this.#own(strand, op.dst) + begin;
        for (let p = 0; p < count; p++) {
          const operands = sources.map((src) => memory.read(src + p, who, p, 0));
          this.#write(dst + p, who, p, this.#values.reduce(op.op, operands), 0);
        }
        return true;
      }
      case "switch-broadcast": {
        const packets = op.format === "forward";
        const { begin, count } = this.#window(strand, op, op.src.size, pipeline, packets);
        const src = this.#own(strand, op.src) + begin;
        if (packets && !this.#awaitPackets(strand, src, count)) return false;
        const targets = this.#members(strand, op.dst).map((dst) => dst + begin);
        for (let p = 0; p < count; p++) {
          const value = packets ? this.#packet(strand, src + p, who, p) : memory.read(src + p, who, p, 0);
          for (const target of targets) this.#write(target + p, who, p, value, packets ? tag : 0);
        }
        return true;
      }
      case "switch-reduce-broadcast": {
        const { begin, count } = this.#window(strand, op, op.dst.size, pipeline, false);
        const sources = this.#members(strand, op.src).map((src) => src + begin);
        const targets = this.#members(strand, op.dst).map((dst) => dst + begin);
        for (let p = 0; p < count; p++) {
          const operands = sources.map((src) => memory.read(src + p, who, p, 0));
          const value = this.#values.reduce(op.op, operands);
          for (const target of targets) this.#write(target + p, who, p, value, 0);
        }
        return true;
      }
      default:
        return true;
    }
  }

  #put(
    strand: StrandState,
    op: Extract<SimpleOp, { kind: "put" }>,
    pipeline: PipelineOp | undefined,
    issuer: Accessor,
  ): boolean {
    const memory = this.#memory;
    const packets = op.format !== "plain";
    const tag = strand.launch + 1;
    const byProxy = op.channelKind === "port";
    if (op.format === "forward") {
      for (const source of op.src) {
        const { begin, count } = this.#window(strand, op, source.size, pipeline, true);
        if (!this.#awaitPackets(strand, this.#own(strand, source) + begin, count)) return false;
      }
    }
    op.dst.forEach((target, i) => {
      const source = op.src[op.src.length === 1 ? 0 : i]!;
      const { begin, count } = this.#window(strand, op, source.size, pipeline, packets);
      const src = this.#own(strand, source) + begin;
      const dst = this.#remote(strand, target) + begin;
      let who = issuer;
      if (byProxy) {
        // A block that forwards packets waits for them itself and synchronises before it hands them to the proxy.
        if (op.format === "forward" && i === 0) {
          for (let p = 0; p < count; p++) this.#packet(strand, src + p, issuer, p);
          separate(strand, this.#size, this.#hasPackets);
        }
        const lane = this.#request(strand);
        const at = lane.segment - 1;
        who = {
          ...issuer,
          lane: this.#laneId(strand),
          segment: at,
          phase: at,
          clock: lane.clock,
          past: { ...past(strand, at), link: () => strand.base },
        };
      }
      for (let p = 0; p < count; p++) {
        if (byProxy && op.format === "forward") this.#write(dst + p, who, p, memory.read(src + p, who, p, tag), tag);
        else if (byProxy && op.format === "pack") {
          const raw = memory.readRaw(src + p, who, p);
          this.#write(dst + p, who, p, raw.value, raw.tag);
        } else {
          const value =
            op.format === "forward" ? this.#packet(strand, src + p, who, p) : memory.read(src + p, who, p, 0);
          this.#write(dst + p, who, p, value, packets ? tag : 0);
        }
      }
    });
    if (op.notify !== "none") this.#raise(strand, op);
    if (op.notify === "signal-flush") this.#joinLane(strand);
    return true;
  }

  /** What a strand that has not ended waits for. */
  #why(strand: StrandState): Blocked {
    const op = this.#current(strand);
    const site = this.#site(strand);
    if (op === undefined) return { site, simple: { kind: "nop" }, on: { kind: "launch" } };
    if (op.kind === "barrier") return { site, simple: op, on: { kind: "barrier", barrier: op.barrier } };
    for (const counter of counterUse(this.#in.table, strand.rank, op).take) {
      if (counter.initial + this.#count[counter.id]! - this.#taken[counter.id]! < 1) {
        return { site, simple: op, on: { kind: "counter", counter } };
      }
    }
    const { take } = counterUse(this.#in.table, strand.rank, op);
    if (take[0] !== undefined) return { site, simple: op, on: { kind: "counter", counter: take[0] } };
    for (const [cell, waiters] of this.#packetWaiters) {
      if (waiters.has(strand)) return { site, simple: op, on: { kind: "packet", cell, tag: strand.launch + 1 } };
    }
    return { site, simple: op, on: { kind: "launch" } };
  }
}

/** One strand signals and one waits: the j-th wait belongs to the j-th signal. */
export function simple(counter: Counter): boolean {
  return counter.signallers.size <= 1 && counter.waiters.size <= 1;
}

function push<T>(map: Map<number, T[]>, key: number, item: T): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [item]);
  else list.push(item);
}
