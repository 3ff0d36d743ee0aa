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
 * Where strands do compete (a counter with several waiting strands, a semaphore used as a lock), `verify-plan.ts` first tries
 * a pessimistic run, in which a wait passes only if it would pass behind all its rivals: if that run ends, every run
 * does. Otherwise it enumerates who goes first, and gives up, with a finding, when there are too many ways.
 *
 * Two things are not in this order of operations. A proxy may be held up by a strand that is waiting for packets:
 * `proxy-stalls.ts` says how a second, worst run decides about that. And where waits compete, a relaxed one may overtake the
 * packets before it (`packet-lookahead.ts`): such plans are not passed unless the pessimistic run ends.
 */
import { joinClocks, stepsKnown, type VectorClock, withSteps } from "../../core/internal.ts";
import { bodyOf, type ExecutionPlan, type Op, type PipelineOp, type SimpleOp } from "../plan/index.ts";
import { AccessLog, type Site } from "./access-log.ts";
import { aliasesOf, type Geometry, iterationsOf } from "./cell-geometry.ts";
import { Memory } from "./cell-memory.ts";
import { Moves } from "./data-moves.ts";
import { Lanes } from "./proxy-lanes.ts";
import { Proxies, type Stalls } from "./proxy-stalls.ts";
import type { ShortChunks } from "./short-chunks.ts";
import type { Counter, CounterTable, SignalEvent, WaitEvent } from "./signal-counters.ts";
import { Hearsay, newStrand, type StrandState, usesPackets } from "./strand-state.ts";
import type { Values } from "./symbolic-values.ts";
import { type Policy, Tokens } from "./token-accounting.ts";
import { countWrites } from "./write-counts.ts";

export interface ExploreInput {
  readonly geometry: Geometry;
  readonly table: CounterTable;
  readonly values: Values;
  readonly policy: Policy;
  /** For counters shared by several strands: signals that precede a wait, by `counter:strand:ordinal`. */
  readonly derived: ReadonlyMap<string, readonly string[]>;
  readonly marked: ReadonlyMap<number, number>;
  /** Cells that an earlier run found contested. */
  readonly watched: ReadonlySet<number>;
  /** Wanted at the end: reads, also of places that nobody writes any more, and what each strand knows. */
  readonly keepReads: boolean;
  /** Signals, waits and packets as MSCCL++'s executor does them: see `check-target.ts`. */
  readonly threadwise: boolean;
  /** Looks for data that may be cut; undefined where all chunks are equally long. */
  readonly short: ShortChunks | undefined;
  /** Stalls that an earlier run found: proxies are held up by them as long as may be. */
  readonly stalls?: Stalls | undefined;
}

export interface Blocked {
  readonly site: Site;
  readonly simple: SimpleOp;
  /** What it waits for. */
  readonly on:
    | { readonly kind: "counter"; readonly counter: Counter }
    | { readonly kind: "barrier"; readonly barrier: number }
    | { readonly kind: "packet"; readonly cell: number; readonly tag: number }
    | { readonly kind: "proxy" }
    | { readonly kind: "launch" };
  /** Strands that hold up the proxy which it waits for, itself or for its signal. */
  readonly heldBy: readonly number[];
}

export interface BarrierClash {
  readonly barrier: number;
  readonly site: Site;
  /** `counts`: those who meet name different numbers of strands; `order`: an earlier meeting may not be over. */
  readonly why: "counts" | "order";
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
  /** With `keepReads`: what each strand knows at its end, by launch. */
  readonly ends: readonly (readonly VectorClock[])[];
  /** With `keepReads`: how many segments of each strand were over when it began its second and later launches. */
  readonly begins: readonly (readonly number[])[];
  /** Strands that came to a barrier where it depends on timing whom they meet. */
  readonly barrierClashes: readonly BarrierClash[];
  readonly steps: number;
  readonly stalls: Stalls;
  /** An operation with packets that writes other values in a later iteration of its loop than in the first. */
  readonly changing: Site | undefined;
}

export function explore(input: ExploreInput): Exploration {
  return new Explorer(input).run();
}

class Explorer {
  readonly #in: ExploreInput;
  readonly #plan: ExecutionPlan;
  readonly #geo: Geometry;
  readonly #strands: StrandState[] = [];
  readonly #memory: Memory;
  readonly #hearsay: Hearsay;
  readonly #lanes: Lanes;
  readonly #tokens: Tokens;
  readonly #moves: Moves;
  readonly #proxies: Proxies;
  readonly #queue: StrandState[] = [];
  readonly #barriers = new Map<string, StrandState[]>();
  readonly #atBarrier = new Set<StrandState>();
  readonly #launchWaiters: StrandState[][];
  readonly #decisions: number[] = [];
  readonly #clashes: BarrierClash[] = [];
  /** The last meeting at each barrier: how many met, and how many segments of each member were over then. */
  readonly #lastMeeting = new Map<string, ReadonlyMap<number, number>>();
  readonly #ends: VectorClock[][] = [];
  readonly #begins: number[][] = [];
  #steps = 0;

  constructor(input: ExploreInput) {
    this.#in = input;
    const geometry = input.geometry;
    this.#geo = geometry;
    this.#plan = geometry.plan;
    const { values } = input;
    const numStrands = geometry.strandRank.length;
    const hasPorts = this.#plan.ranks.some((rank) => rank.channels.port.length > 0);
    const size = numStrands * (1 + (hasPorts ? (input.threadwise ? portThreads(this.#plan) : 1) : 0));
    const log = new AccessLog(geometry);
    this.#hearsay = new Hearsay(log, size, usesPackets(this.#plan), input.short !== undefined);
    this.#lanes = new Lanes(geometry, size);
    this.#memory = new Memory(
      values,
      log,
      geometry,
      initialValues(geometry, values),
      input.marked,
      aliasesOf(geometry),
      input.keepReads ? undefined : countWrites(geometry),
      input.watched,
    );
    this.#proxies = new Proxies(geometry, (strand) => this.#wake(strand), input.stalls);
    const parts = {
      ...input,
      proxies: this.#proxies,
      lanes: this.#lanes,
      hearsay: this.#hearsay,
      memory: this.#memory,
      wake: (strand: StrandState) => this.#wake(strand),
    };
    this.#tokens = new Tokens(parts);
    this.#moves = new Moves({ ...parts, tokens: this.#tokens });
    this.#launchWaiters = this.#plan.ranks.map(() => []);
    for (let g = 0; g < numStrands; g++) {
      this.#strands.push(newStrand(g, geometry.strandRank[g]!));
      this.#ends.push([]);
      this.#begins.push([]);
    }
    // Not at once: there may be more strands than a call has arguments.
    for (const strand of this.#strands) this.#queue.push(strand);
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
    const numStrands = this.#strands.length;
    // Of puts through ports: strands finish all that they begin.
    let finished = this.#tokens.arrived;
    if (this.#lanes.any) for (const { clock } of this.#strands) finished = joinClocks(finished, clock);
    return {
      blocked,
      memory: this.#memory,
      signals: this.#tokens.signals,
      waits: this.#tokens.waits,
      signalKeys: this.#tokens.signalKeys,
      decisions: this.#decisions,
      finished: (lane) => (lane < numStrands ? Number.MAX_SAFE_INTEGER : stepsKnown(finished, lane)),
      ends: this.#ends,
      begins: this.#begins,
      barrierClashes: this.#clashes,
      steps: this.#steps,
      stalls: this.#proxies.stalls,
      changing: this.#moves.changing,
    };
  }

  /** Under `choices`: lets one of the contested waits that could go on do so. */
  #decide(): boolean {
    const { policy } = this.#in;
    if (policy.kind !== "choices") return false;
    const waiting = [...this.#tokens.contestedReady].filter((strand) => this.#canTake(strand));
    const ready = waiting.sort((a, b) => a.g - b.g);
    if (ready.length === 0) return false;
    const choice = policy.choices[this.#decisions.length] ?? 0;
    this.#decisions.push(ready.length);
    const chosen = ready[choice]!;
    this.#tokens.contestedReady.delete(chosen);
    this.#tokens.take(chosen, this.#current(chosen)!, true);
    this.#step(chosen);
    this.#wake(chosen);
    return true;
  }

  #canTake(strand: StrandState): boolean {
    const op = this.#current(strand);
    return (op?.kind === "wait" || op?.kind === "acquire") && this.#tokens.canTake(strand, op, false);
  }

  #ops(strand: StrandState): readonly Op[] {
    return this.#plan.ranks[strand.rank]!.strands[strand.g - this.#geo.strandBase[strand.rank]!]!.ops;
  }

  #current(strand: StrandState): SimpleOp | undefined {
    const op = this.#ops(strand)[strand.op];
    return op?.kind === "pipeline" ? op.body[strand.body] : op;
  }

  #pipeline(strand: StrandState): PipelineOp | undefined {
    const op = this.#ops(strand)[strand.op];
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
      if (strand.iteration < iterationsOf(pipeline, this.#geo)) return;
      strand.iteration = 0;
    }
    strand.op++;
  }

  #advance(strand: StrandState): void {
    const ops = this.#ops(strand);
    if (strand.done || strand.parked || this.#atBarrier.has(strand)) return;
    for (;;) {
      const op = ops[strand.op];
      if (op === undefined) {
        this.#endLaunch(strand);
        return;
      }
      if (op.kind === "pipeline") {
        if (op.body.length === 0 || iterationsOf(op, this.#geo) < 1) {
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
    this.#hearsay.separate(strand);
    if (this.#in.keepReads) this.#ends[strand.g]!.push(strand.clock);
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
      this.#begins[member.g]!.push(member.segment);
      member.op = member.body = member.iteration = 0;
      this.#wake(member);
    }
  }

  /** All members learn what each of them knows. */
  #meet(members: readonly StrandState[]): void {
    let clock: VectorClock;
    let known: VectorClock;
    for (const member of members) {
      this.#hearsay.separate(member);
      clock = joinClocks(clock, member.clock);
      known = joinClocks(known, member.known);
    }
    const link = this.#hearsay.together(new Set(members.flatMap(({ base }) => (base === 0 ? [] : [base]))));
    for (const member of members) clock = withSteps(clock, member.g, member.segment);
    for (const member of members) {
      member.clock = clock;
      this.#hearsay.learn(member, known, link);
    }
  }

  /** Executes one operation. @returns false when it must wait; it will be tried again */
  #execute(strand: StrandState, op: SimpleOp, pipeline: PipelineOp | undefined): boolean {
    switch (op.kind) {
      case "nop":
        this.#hearsay.separate(strand);
        return true;
      case "barrier":
        return this.#barrier(strand, op.barrier, op.numStrands);
      case "signal":
        this.#tokens.raise(strand, op);
        return true;
      case "release":
        this.#tokens.raise(strand, op);
        return true;
      case "wait":
      case "acquire":
        if (!this.#tokens.canTake(strand, op, true)) return false;
        this.#tokens.take(strand, op);
        return true;
      case "flush":
        if (!this.#proxies.mayRun(strand, op)) return false;
        this.#hearsay.separate(strand);
        strand.clock = this.#lanes.joined(strand, strand.clock);
        return true;
      default:
        return this.#move(strand, op, pipeline);
    }
  }

  #move(strand: StrandState, op: SimpleOp, pipeline: PipelineOp | undefined): boolean {
    const site = this.#site(strand);
    if (!this.#proxies.mayRun(strand, op) || !this.#moves.execute(strand, op, pipeline, site)) return false;
    this.#proxies.passed(strand, site.id);
    return true;
  }

  #barrier(strand: StrandState, barrier: number, numStrands: number): boolean {
    const key = `${strand.rank} ${barrier}`;
    const arrived = this.#barriers.get(key) ?? [];
    if (!this.#isBehindMeeting(strand, key, numStrands))
      this.#clashes.push({ barrier, site: this.#site(strand), why: "order" });
    arrived.push(strand);
    this.#barriers.set(key, arrived);
    this.#atBarrier.add(strand);
    if (arrived.length > 1) {
      const other = this.#current(arrived[0]!);
      if (other?.kind === "barrier" && other.numStrands !== numStrands) {
        this.#clashes.push({ barrier, site: this.#site(strand), why: "counts" });
      }
    }
    if (arrived.length < numStrands) return false;
    this.#barriers.delete(key);
    this.#meet(arrived);
    this.#lastMeeting.set(key, new Map(arrived.map((member) => [member.g, member.segment])));
    for (const member of arrived) {
      this.#atBarrier.delete(member);
      if (member !== strand) {
        this.#step(member);
        this.#wake(member);
      }
    }
    return true;
  }

  /**
   * Whether a strand comes to a barrier only after the last meeting there was over: it was there itself, or has heard from
   * somebody who left it. If all do, the members of every meeting are the same in every interleaving, whoever names the
   * barrier; where one does not, it might have taken another's place. A barrier of one strand holds nobody.
   */
  #isBehindMeeting(strand: StrandState, key: string, numStrands: number): boolean {
    // A barrier is block-wide before it is anything else.
    this.#hearsay.gather(strand);
    const last = this.#lastMeeting.get(key);
    if (last === undefined || last.has(strand.g) || (numStrands === 1 && last.size === 1)) return true;
    const { clock } = strand;
    return [...last].some(([member, segments]) => stepsKnown(clock, member) > segments);
  }

  /** What a strand that has not ended waits for. */
  #why(strand: StrandState): Blocked {
    const op = this.#current(strand);
    const site = this.#site(strand);
    const heldBy: readonly number[] = [];
    if (op === undefined) return { site, simple: { kind: "nop" }, on: { kind: "launch" }, heldBy };
    if (op.kind === "barrier") return { site, simple: op, on: { kind: "barrier", barrier: op.barrier }, heldBy };
    const holding = this.#proxies.holding(strand);
    if (holding !== undefined) return { site, simple: op, on: { kind: "proxy" }, heldBy: holding };
    const counter = this.#tokens.blockedOn(strand, op);
    if (counter !== undefined)
      return {
        site,
        simple: op,
        on: { kind: "counter", counter },
        heldBy: this.#proxies.holdingCounter(counter.id),
      };
    const cell = this.#moves.waitedFor(strand);
    if (cell !== undefined) return { site, simple: op, on: { kind: "packet", cell, tag: strand.launch + 1 }, heldBy };
    return { site, simple: op, on: { kind: "launch" }, heldBy };
  }
}

/** Most threads that hand requests of one operation to a proxy. */
function portThreads(plan: ExecutionPlan): number {
  let most = 1;
  for (const rank of plan.ranks)
    for (const strand of rank.strands)
      for (const op of strand.ops.flatMap(bodyOf))
        if ("channelKind" in op && op.channelKind === "port") most = Math.max(most, op.channels.length);
  return most;
}

/** What lies in memory at the beginning: the inputs, and nothing elsewhere. */
function initialValues(geometry: Geometry, values: Values): Int32Array {
  const initial = new Int32Array(geometry.numCells);
  for (let launch = 0; launch < geometry.launches; launch++) {
    for (const rank of geometry.plan.ranks) {
      const base = geometry.base(launch, rank.rank, "input");
      const leaf = geometry.leafBase[rank.rank]! + launch * geometry.numLeaves;
      for (let i = 0; i < rank.input.chunks * geometry.cellsPerChunk; i++) initial[base + i] = values.leaf(leaf + i);
    }
  }
  return initial;
}
