/**
 * The oracle: runs a plan once, on real numbers, in one random interleaving on a weakly ordered memory, and says what
 * went wrong. Written from docs/semantics.md; it shares no code with the verifier and knows nothing of it. It is slow
 * and simple on purpose: every rule of that page is one place here.
 */
import type { ExecutionPlan, PipelineOp, SimpleOp } from "../../src/authoring/plan/execution-plan.ts";
import { type Counter, Counters } from "./counters.ts";
import { COMBINE, elementsOf } from "./elements.ts";
import { contentsAtEnd, wrongAtEnd } from "./ending.ts";
import { Agent, joinInto, OracleMemory } from "./memory.ts";
import { Places } from "./places.ts";
import { Random } from "./random.ts";
import type { Request, StrandRun, Work } from "./state.ts";

export interface RunOptions {
  readonly seed: number;
  /** Units of a pipeline that a chunk has. 1 by default. */
  readonly unitsPerChunk?: number;
  /** `rank:strand:op` of operations to hold back as long as anything else can happen. */
  readonly holdBack?: readonly string[];
  /** Launches one after the other, each rank on its own. 1 by default. */
  readonly launches?: number;
  /** Seed of what lies in memory at the beginning; that of the schedule by default. */
  readonly contents?: number;
  /** How those who run behave; random by default. */
  readonly habits?: Habits;
}
/** How those who run behave. */
export interface Habits {
  /** How likely a plain read is an old one, and how likely a write is visible at once. */
  readonly stale: number;
  readonly eager: number;
  /** How likely a strand goes on issuing while elements of it wait. */
  readonly hurry: number;
  /** By strand, then by proxy: how likely it is let go on, from 0 to 1. */
  readonly weights: readonly number[];
}
/** What went wrong, or nothing. */
export type Outcome = string | undefined;
/** A run, with what input and output hold at its end. */
export interface Run {
  readonly outcome: Outcome;
  readonly contents: string;
  /** How much depended on timing: reads that could have got another value, and times when nearly nobody could go on. */
  readonly tension: number;
}

const SEPARATES = new Set(["nop", "barrier", "flush", "acquire", "release"]);

/** Runs `plan` once. Where its collective says nothing, two runs on equal contents have to end alike. */
export function runAndLook(plan: ExecutionPlan, options: RunOptions): Run {
  const machine = new Machine(plan, options);
  const outcome = machine.run();
  return {
    outcome,
    // Most who ask do not look at it.
    get contents() {
      return machine.contents();
    },
    tension: machine.tension,
  };
}

/** What all runs of a plan at one size have in common. */
interface Prepared {
  readonly places: Places;
  /** By strand, then by place in the order of its operations. */
  readonly works: Work[][][];
}
const preparedOf = new WeakMap<ExecutionPlan, Map<string, Prepared>>();

function prepare(plan: ExecutionPlan, unitsPerChunk: number, launches: number): Prepared {
  const known = preparedOf.get(plan) ?? new Map<string, Prepared>();
  preparedOf.set(plan, known);
  const key = `${unitsPerChunk} ${launches}`;
  let prepared = known.get(key);
  if (prepared === undefined) {
    const works = plan.ranks.flatMap(({ strands }) => strands.map((): Work[][] => []));
    prepared = { places: new Places(plan, unitsPerChunk, launches), works };
    known.set(key, prepared);
  }
  return prepared;
}

class Machine {
  readonly #plan: ExecutionPlan;
  readonly #random: Random;
  readonly #prepared: Prepared;
  readonly #places: Places;
  readonly #memory: OracleMemory;
  readonly #initial: number[] = [];
  readonly #strands: StrandRun[] = [];
  readonly #proxies: { readonly agent: Agent; readonly queue: Request[] }[] = [];
  readonly #counters: Counters;
  readonly #barriers = new Map<string, StrandRun[]>();
  readonly #held: ReadonlySet<string>;
  readonly #hurry: number;
  readonly #weights: number[];
  readonly #launches: number;
  #stalls = 0;
  /** Strands that have not ended. */
  #left: number;

  constructor(plan: ExecutionPlan, options: RunOptions) {
    this.#plan = plan;
    this.#counters = new Counters(plan);
    this.#random = new Random(options.seed);
    this.#held = new Set(options.holdBack ?? []);
    this.#prepared = prepare(plan, options.unitsPerChunk ?? 1, options.launches ?? 1);
    this.#places = this.#prepared.places;
    this.#launches = options.launches ?? 1;
    const contents = options.contents === undefined ? this.#random : new Random(options.contents);
    for (let i = 0; i < this.#places.size; i++) this.#initial.push((contents.u32() | 1) >>> 0);
    this.#memory = new OracleMemory(this.#initial, this.#random);
    const { habits } = options;
    const stale = habits?.stale ?? this.#random.pick([0, 0.2, 0.7]);
    const eager = habits?.eager ?? this.#random.pick([1, 0.5, 0.05]);
    this.#hurry = habits?.hurry ?? this.#random.pick([0.1, 0.5, 0.95]);
    for (const rank of plan.ranks) {
      for (const strand of rank.strands) {
        this.#strands.push({
          index: this.#strands.length,
          rank: rank.rank,
          strand: strand.id,
          agent: new Agent(this.#memory, stale, eager),
          launch: 0,
          parked: false,
          op: 0,
          body: 0,
          iteration: 0,
          seq: 0,
          ended: false,
          inBarrier: false,
          forwarding: false,
          queues: new Map(),
          pending: 0,
          outstanding: 0,
        });
      }
      this.#proxies.push({ agent: new Agent(this.#memory, stale, eager), queue: [] });
    }
    this.#left = this.#strands.length;
    // Some agents are much faster than others.
    const spread = this.#random.pick([0, 3, 8]);
    this.#weights = [...this.#strands, ...this.#proxies].map(
      (_, agent) => habits?.weights[agent] ?? 2 ** -this.#random.below(spread + 1),
    );
  }

  // Scheduling.

  run(): Outcome {
    const agents = this.#strands.length + this.#proxies.length;
    // Who could not go on since anybody last did.
    const failed = new Uint8Array(agents);
    for (let steps = 0; this.#left > 0; steps++) {
      if (steps > 2_000_000) return "ran for too long";
      const index = this.#pick(failed);
      let moved = index >= 0 && this.#act(index, false);
      if (index >= 0 && !moved) {
        failed[index] = 1;
        continue;
      }
      if (!moved) {
        // Nothing at random: try everyone, then those held back.
        for (const held of [false, true]) {
          for (let i = 0; i < agents && !moved; i++) moved = this.#act(i, held);
          if (!moved) moved = this.#surface(held);
        }
        if (!moved) return this.#stuck();
        this.#stalls++;
      }
      failed.fill(0);
    }
    for (const strand of this.#strands) strand.agent.drain();
    return this.#judge();
  }

  /** Somebody who has not failed, the likelier the larger the weight; -1 when all have. */
  #pick(failed: Uint8Array): number {
    const weights = this.#weights;
    let total = 0;
    for (let i = 0; i < failed.length; i++) if (failed[i] === 0) total += weights[i]!;
    let left = this.#random.fraction() * total;
    let last = -1;
    for (let i = 0; i < failed.length; i++) {
      if (failed[i] !== 0) continue;
      last = i;
      left -= weights[i]!;
      if (left < 0) break;
    }
    return last;
  }

  #act(index: number, evenHeld: boolean): boolean {
    const strand = this.#strands[index];
    if (strand === undefined) return this.#proxyStep(index - this.#strands.length, evenHeld);
    if (strand.agent.buffer.length > 0 && this.#random.chance(0.1)) {
      const at = this.#random.below(strand.agent.buffer.length);
      if (evenHeld || !this.#heldWrite(strand, at)) {
        strand.agent.drainOne(at);
        return true;
      }
    }
    if (strand.pending > 0 && !this.#random.chance(this.#hurry)) {
      return this.#perform(strand, evenHeld) || this.#issue(strand, evenHeld);
    }
    return this.#issue(strand, evenHeld) || this.#perform(strand, evenHeld);
  }

  /** Every write becomes visible in the end: lets one do so. */
  #surface(evenHeld: boolean): boolean {
    for (const strand of this.#strands) {
      for (let at = 0; at < strand.agent.buffer.length; at++) {
        if (!evenHeld && this.#heldWrite(strand, at)) continue;
        strand.agent.drainOne(at);
        return true;
      }
    }
    for (const proxy of this.#proxies) {
      if (proxy.agent.buffer.length === 0) continue;
      proxy.agent.drainOne(0);
      return true;
    }
    return false;
  }

  #heldWrite(strand: StrandRun, at: number): boolean {
    const { place } = strand.agent.buffer[at]!;
    return strand.agent.buffer.some((entry) => entry.place === place && entry.op < 0);
  }

  /** Performs an element that may be performed. */
  #perform(strand: StrandRun, evenHeld: boolean): boolean {
    const positions = [...strand.queues.keys()];
    const start = positions.length === 0 ? 0 : this.#random.below(positions.length);
    for (let i = 0; i < positions.length; i++) {
      const position = positions[(start + i) % positions.length]!;
      const queue = strand.queues.get(position)!;
      const element = queue[0]!;
      if (element.held && !evenHeld) continue;
      const { reads, op, writes } = element.work;
      if (reads.some((read) => read.packet !== 0 && !strand.agent.seesPacket(read.place, read.packet))) continue;
      const values = reads.map((read) => strand.agent.read(read.place, read.packet));
      let value = values[0]!;
      for (const other of values.slice(1)) value = COMBINE[op!](value, other);
      for (const write of writes) strand.agent.write(write.place, value, write.packet, element.held ? -1 : element.seq);
      queue.shift();
      if (queue.length === 0) strand.queues.delete(position);
      strand.pending--;
      return true;
    }
    return false;
  }

  #proxyStep(rank: number, evenHeld: boolean): boolean {
    const proxy = this.#proxies[rank]!;
    const request = proxy.queue[0];
    if (request === undefined || (request.held && !evenHeld)) return false;
    if (request.raise !== undefined && request.releases) {
      // The signal comes after all that its strand had done.
      const { strand } = request;
      for (const queue of strand.queues.values()) if (queue.some((element) => element.seq <= request.seq)) return false;
      strand.agent.drain();
      joinInto(proxy.agent.view, strand.agent.view);
    }
    joinInto(proxy.agent.view, request.view);
    for (const { from, to } of request.copies) {
      if (request.mode === "raw") {
        const entry = proxy.agent.readRaw(from);
        proxy.agent.write(to, entry.value, entry.packet, request.seq);
      } else {
        const packet = request.mode === "forward" ? request.tag : 0;
        proxy.agent.write(to, proxy.agent.read(from, packet), packet, request.seq);
      }
    }
    if (request.raise !== undefined) {
      if (request.releases) proxy.agent.drain();
      request.raise.count++;
      request.raise.views.push(request.releases ? new Map(proxy.agent.view) : undefined);
    }
    proxy.queue.shift();
    request.strand.outstanding--;
    return true;
  }

  #stuck(): string {
    const waiting = this.#strands.filter((strand) => !strand.ended);
    return `stuck: ${waiting
      .slice(0, 4)
      .map((s) => `rank ${s.rank} strand ${s.strand} at op ${s.op}${s.pending > 0 ? " (elements wait)" : ""}`)
      .join(", ")}`;
  }

  // Issuing.

  #issue(strand: StrandRun, evenHeld: boolean): boolean {
    if (strand.ended || strand.inBarrier || strand.parked) return false;
    const outer = this.#plan.ranks[strand.rank]!.strands[strand.strand]!.ops[strand.op];
    if (outer === undefined) {
      if (strand.pending > 0) return false;
      this.#endLaunch(strand);
      return true;
    }
    const held = this.#held.has(`${strand.rank}:${strand.strand}:${strand.op}`);
    if (outer.kind !== "pipeline")
      return this.#start(strand, outer, undefined, held, evenHeld) && this.#next(strand, outer);
    const iterations = this.#places.iterations(outer);
    if (iterations < 1 || outer.body.length === 0) {
      strand.op++;
      return true;
    }
    return this.#start(strand, outer.body[strand.body]!, outer, held, evenHeld) && this.#next(strand, outer);
  }

  /** The rank's next launch begins when all its strands are done with this one, and sees what they did. */
  #endLaunch(strand: StrandRun): void {
    if (strand.launch + 1 >= this.#launches) {
      strand.ended = true;
      this.#left--;
      return;
    }
    strand.parked = true;
    const own = this.#strands.filter((other) => other.rank === strand.rank);
    if (own.some((other) => !other.parked)) return;
    for (const member of own) member.agent.drain();
    for (const member of own) for (const other of own) joinInto(member.agent.view, other.agent.view);
    for (const member of own) {
      member.parked = false;
      member.launch++;
      member.op = member.body = member.iteration = 0;
    }
  }

  #next(strand: StrandRun, outer: SimpleOp | PipelineOp): boolean {
    strand.seq++;
    if (outer.kind === "pipeline") {
      if (++strand.body < outer.body.length) return true;
      strand.body = 0;
      if (++strand.iteration < this.#places.iterations(outer)) return true;
      strand.iteration = 0;
    }
    strand.op++;
    return true;
  }

  /** Starts an operation. @returns false when it has to wait */
  #start(strand: StrandRun, op: SimpleOp, pipeline: PipelineOp | undefined, held: boolean, evenHeld: boolean): boolean {
    const relaxed = (op.kind === "signal" || op.kind === "wait") && op.relaxed;
    const separates = SEPARATES.has(op.kind) || ((op.kind === "signal" || op.kind === "wait") && !relaxed);
    if (separates && strand.pending > 0) return false;
    const isData = !separates && !relaxed;
    if (held && !isData && !evenHeld) return false;
    switch (op.kind) {
      case "nop":
        return true;
      case "barrier":
        return this.#barrier(strand, op.barrier, op.numStrands);
      case "signal":
        for (const id of op.channels) {
          const counter = this.#counters.channel(strand.rank, op.channelKind, id, true);
          if (op.channelKind === "port") this.#request(strand, [], "plain", counter, !relaxed, held);
          else this.#raise(strand, counter, !relaxed);
        }
        return true;
      case "release":
        for (const id of op.semaphores) this.#raise(strand, this.#counters.semaphore(strand.rank, id), true);
        return true;
      case "wait":
        return this.#take(
          strand,
          op.channels.map((id) => this.#counters.channel(strand.rank, op.channelKind, id, false)),
          !relaxed,
        );
      case "acquire":
        return this.#take(
          strand,
          op.semaphores.map((id) => this.#counters.semaphore(strand.rank, id)),
          true,
        );
      case "flush":
        return this.#flushed(strand);
      case "put":
        if (op.channelKind === "port") return this.#portPut(strand, op, pipeline, held);
        break;
      default:
    }
    this.#elements(strand, op, pipeline, held);
    return true;
  }

  #flushed(strand: StrandRun): boolean {
    if (strand.outstanding > 0) return false;
    const proxy = this.#proxies[strand.rank]!;
    proxy.agent.drain();
    joinInto(strand.agent.view, proxy.agent.view);
    return true;
  }

  #raise(strand: StrandRun, counter: Counter, releases: boolean): void {
    if (releases) strand.agent.drain();
    counter.count++;
    counter.views.push(releases ? new Map(strand.agent.view) : undefined);
  }

  #take(strand: StrandRun, counters: readonly Counter[], acquires: boolean): boolean {
    for (const counter of counters) {
      const wanted = counters.filter((other) => other === counter).length;
      if (counter.initial + counter.count - counter.taken < wanted) return false;
    }
    for (const counter of counters) {
      counter.taken++;
      if (!acquires) continue;
      const seen = counter.taken - counter.initial;
      for (let i = 0; i < seen; i++) joinInto(strand.agent.view, counter.views[i]);
    }
    return true;
  }

  #barrier(strand: StrandRun, barrier: number, numStrands: number): boolean {
    const key = `${strand.rank} ${barrier}`;
    const waiting = this.#barriers.get(key) ?? [];
    waiting.push(strand);
    this.#barriers.set(key, waiting);
    if (waiting.length < numStrands) {
      strand.inBarrier = true;
      return false;
    }
    this.#barriers.delete(key);
    for (const member of waiting) member.agent.drain();
    for (const member of waiting) for (const other of waiting) joinInto(member.agent.view, other.agent.view);
    for (const member of waiting) {
      if (member === strand) continue;
      member.inBarrier = false;
      this.#next(member, this.#plan.ranks[member.rank]!.strands[member.strand]!.ops[member.op]!);
    }
    return true;
  }

  #request(
    strand: StrandRun,
    copies: Request["copies"],
    mode: Request["mode"],
    raise: Counter | undefined,
    releases: boolean,
    held: boolean,
  ): void {
    strand.agent.drain();
    strand.outstanding++;
    this.#proxies[strand.rank]!.queue.push({
      strand,
      seq: strand.seq,
      view: new Map(strand.agent.view),
      copies,
      mode,
      tag: strand.launch + 1,
      raise,
      releases,
      held,
    });
  }

  #portPut(
    strand: StrandRun,
    op: Extract<SimpleOp, { kind: "put" }>,
    pipeline: PipelineOp | undefined,
    held: boolean,
  ): boolean {
    const packets = op.format !== "plain";
    if (op.notify === "signal-flush" && strand.forwarding) {
      // Issued already: it only waits for the proxy.
      if (!this.#flushed(strand)) return false;
      strand.forwarding = false;
      return true;
    }
    if (op.format === "forward") {
      if (strand.pending > 0) return false;
      for (const source of op.src) {
        const { begin, count } = this.#places.share(strand.iteration, op, source.size, pipeline, true);
        const places = this.#places.span(strand.launch, strand.rank, source, begin, count);
        if (!places.every((place) => strand.agent.seesPacket(place, strand.launch + 1))) return false;
        for (const place of places) strand.agent.read(place, strand.launch + 1);
      }
    }
    op.dst.forEach((target, i) => {
      const source = op.src[op.src.length === 1 ? 0 : i]!;
      const { begin, count } = this.#places.share(strand.iteration, op, source.size, pipeline, packets);
      const from = this.#places.span(strand.launch, strand.rank, source, begin, count);
      const to = this.#places.span(strand.launch, target.rank, target, begin, count);
      const mode = op.format === "forward" ? "forward" : op.format === "pack" ? "raw" : "plain";
      this.#request(
        strand,
        from.map((place, p) => ({ from: place, to: to[p]! })),
        mode,
        undefined,
        false,
        held,
      );
    });
    if (op.notify !== "none")
      for (const id of op.channels)
        this.#request(strand, [], "plain", this.#counters.channel(strand.rank, "port", id, true), true, held);
    if (op.notify !== "signal-flush") return true;
    strand.forwarding = true;
    return false;
  }

  /** Queues the elements of a data operation. */
  #elements(strand: StrandRun, op: SimpleOp, pipeline: PipelineOp | undefined, held: boolean): void {
    // The n-th operation of a strand is the same in every run.
    const known = this.#prepared.works[strand.index]!;
    known[strand.seq] ??= this.#worksOf(strand, op, pipeline);
    const works = known[strand.seq]!;
    for (const work of works) {
      const queue = strand.queues.get(work.position);
      const element = { work, seq: strand.seq, held };
      if (queue === undefined) strand.queues.set(work.position, [element]);
      else queue.push(element);
    }
    strand.pending += works.length;
  }

  #worksOf(strand: StrandRun, op: SimpleOp, pipeline: PipelineOp | undefined): Work[] {
    const tag = strand.launch + 1;
    const groups = elementsOf(this.#plan, strand.rank, op, {
      share: (size, packets) => this.#places.share(strand.iteration, op, size, pipeline, packets),
      span: (rank, range, begin, count) => this.#places.span(strand.launch, rank, range, begin, count),
    });
    return groups.flatMap(({ reads, reduce, writes, count }) =>
      Array.from({ length: count }, (_, position) => ({
        position,
        reads: reads.map(({ places, packet }) => ({ place: places[position]!, packet: packet ? tag : 0 })),
        op: reduce,
        writes: writes.map(({ places, packet }) => ({ place: places[position]!, packet: packet ? tag : 0 })),
      })),
    );
  }

  // The end.

  #judge(): Outcome {
    for (let launch = 0; launch < this.#launches; launch++) {
      const wrong = wrongAtEnd(this.#plan, this.#places, launch, this.#initial, this.#memory);
      if (wrong !== undefined) return wrong;
    }
    // What the proxies had not got to yet.
    for (let guard = 0; guard < 100_000; guard++) {
      let moved = false;
      for (let rank = 0; rank < this.#proxies.length; rank++) moved = this.#proxyStep(rank, true) || moved;
      if (!moved) break;
    }
    for (const proxy of this.#proxies) proxy.agent.drain();
    return this.#counters.unequal();
  }

  get tension(): number {
    return this.#memory.tension + this.#stalls;
  }

  /** What input and output hold, of every launch. */
  contents(): string {
    return Array.from({ length: this.#launches }, (_, launch) =>
      contentsAtEnd(this.#plan, this.#places, this.#memory, launch),
    ).join("|");
  }
}
