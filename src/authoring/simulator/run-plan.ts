/**
 * Executes a plan in simulated time. Strands issue their operations in order; a data operation holds its strand until
 * its last byte has left (stores) or come (loads); what a store sends is visible at the other end one latency later, and
 * a signal after it. Packets are seen one by one: who forwards them need not wait for the last. Port operations go to
 * the rank's proxy. All costs are `parameters.ts`'s; what is shared is `network.ts`'s business.
 */
import type { BufferKind, ChannelKind, ExecutionPlan, PipelineOp, RankPlan, SimpleOp } from "../schedule/index.ts";
import type { Machine, Route } from "./machine.ts";
import { Network } from "./network.ts";
import { PacketBoard } from "./packets.ts";
import type { SystemParameters } from "./parameters.ts";
import {
  type Counter,
  iterationsOf,
  type OpRecord,
  type PlanRun,
  packetSources,
  type RunPlanInput,
  type Strand,
  share,
} from "./run-state.ts";

export function runPlan(input: RunPlanInput): PlanRun {
  return new PlanRunner(input).run();
}

class PlanRunner {
  readonly #in: RunPlanInput;
  readonly #plan: ExecutionPlan;
  readonly #p: SystemParameters;
  readonly #machine: Machine;
  readonly #net: Network;
  readonly #strands: Strand[] = [];
  readonly #records: OpRecord[] = [];
  readonly #counters = new Map<string, Counter>();
  readonly #barriers = new Map<string, Strand[]>();
  readonly #boards: { begun: PacketBoard; done: PacketBoard }[];
  readonly #proxyFree: number[];
  readonly #efficiency: readonly number[];

  constructor(input: RunPlanInput) {
    this.#in = input;
    this.#plan = input.plan;
    this.#p = input.parameters;
    this.#machine = input.machine;
    this.#net = new Network(input.capacities);
    this.#boards = this.#plan.ranks.map(() => ({ begun: new PacketBoard(), done: new PacketBoard() }));
    this.#proxyFree = this.#plan.ranks.map(() => 0);
    this.#efficiency = this.#plan.ranks.map((rank) => {
      const shared = this.#plan.collective.inPlace ? Math.min(rank.input.chunks, rank.output.chunks) : 0;
      const chunks = rank.input.chunks + rank.output.chunks + rank.scratch.chunks - shared;
      const fits = chunks * input.chunkBytes <= this.#p.cacheBytes;
      return fits ? this.#p.efficiencyCached : this.#p.efficiency;
    });
    for (const rank of this.#plan.ranks) {
      for (const strand of rank.strands) {
        this.#strands.push({
          rank: rank.rank,
          index: strand.id,
          op: 0,
          body: 0,
          iteration: 0,
          time: this.#p.launchUs,
          visibleAt: 0,
          lastRecord: -1,
          open: -1,
          outstanding: 0,
          flushing: false,
          done: false,
          dead: false,
          startedAt: 0,
          waitingFor: undefined,
        });
      }
    }
  }

  run(): PlanRun {
    for (const strand of this.#strands) this.#net.at(strand.time, () => this.#advance(strand));
    this.#net.run();
    const rankEndUs = this.#plan.ranks.map((rank) =>
      this.#strands
        .filter((strand) => strand.rank === rank.rank)
        .reduce((end, strand) => Math.max(end, strand.time, strand.visibleAt), this.#p.launchUs),
    );
    const stuck = this.#strands
      .filter((strand) => !strand.done && !strand.dead)
      .map((strand) => ({
        rank: strand.rank,
        strand: strand.index,
        op: strand.op,
        why: strand.waitingFor?.why ?? "a transfer that never ends (its link is down)",
        waitsFor: strand.waitingFor?.ranks ?? [],
      }));
    return {
      timeUs: Math.max(0, ...rankEndUs) + this.#p.endUs,
      rankEndUs,
      records: this.#records,
      linkBytes: this.#net.carriedBytes,
      stuck,
    };
  }

  #rankPlan(strand: Strand): RankPlan {
    return this.#plan.ranks[strand.rank]!;
  }

  /** Runs a strand until it has to wait for something. The network's time is the strand's when it begins. */
  #advance(strand: Strand): void {
    if (strand.done || strand.dead) return;
    if (strand.time < this.#net.now) strand.time = this.#net.now;
    const ops = this.#rankPlan(strand).strands[strand.index]!.ops;
    const deadAt = this.#in.deadAt.get(strand.rank) ?? Number.POSITIVE_INFINITY;
    for (;;) {
      const outer = ops[strand.op];
      if (outer === undefined) {
        strand.done = true;
        return;
      }
      if (strand.op >= deadAt) {
        strand.dead = true;
        return;
      }
      let pipeline: PipelineOp | undefined;
      let op: SimpleOp;
      if (outer.kind === "pipeline") {
        if (outer.body.length === 0 || iterationsOf(this.#in.chunkBytes, outer) === 0) {
          strand.op++;
          continue;
        }
        pipeline = outer;
        op = outer.body[strand.body]!;
      } else op = outer;
      strand.startedAt = strand.time;
      if (!this.#execute(strand, op, pipeline)) return;
      this.#step(strand, pipeline);
    }
  }

  #step(strand: Strand, pipeline: PipelineOp | undefined): void {
    strand.waitingFor = undefined;
    if (pipeline !== undefined) {
      if (++strand.body < pipeline.body.length) return;
      strand.body = 0;
      if (++strand.iteration < iterationsOf(this.#in.chunkBytes, pipeline)) return;
      strand.iteration = 0;
    }
    strand.op++;
  }

  #record(strand: Strand, cause: number, peers: readonly number[], bytes: number): number {
    if (strand.open >= 0) {
      const open = strand.open;
      const record = this.#records[open]!;
      strand.open = -1;
      record.endUs = strand.time;
      record.cause = cause;
      record.peers = peers;
      record.bytes = bytes;
      return open;
    }
    const id = this.#records.length;
    const outer = this.#rankPlan(strand).strands[strand.index]!.ops[strand.op];
    this.#records.push({
      rank: strand.rank,
      strand: strand.index,
      op: strand.op,
      body: outer?.kind === "pipeline" ? strand.body : -1,
      iteration: strand.iteration,
      startUs: strand.startedAt,
      endUs: strand.time,
      previous: strand.lastRecord,
      cause,
      peers,
      bytes,
    });
    strand.lastRecord = id;
    return id;
  }

  /** Ends the current operation of a strand that had waited, and goes on. */
  #finish(strand: Strand, cause: number, peers: readonly number[], bytes: number): void {
    if (strand.time < this.#net.now) strand.time = this.#net.now;
    this.#record(strand, cause, peers, bytes);
    const outer = this.#rankPlan(strand).strands[strand.index]!.ops[strand.op];
    this.#step(strand, outer?.kind === "pipeline" ? outer : undefined);
    this.#advance(strand);
  }

  /** Executes an operation. @returns false when it goes on later, by itself */
  #execute(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined): boolean {
    switch (op.kind) {
      case "nop":
        strand.time += this.#p.syncUs;
        this.#record(strand, -1, [], 0);
        return true;
      case "barrier":
        return this.#barrier(strand, op.barrier, op.numStrands);
      case "signal":
        strand.time += this.#p.signalUs;
        this.#signal(
          strand,
          op.channelKind,
          op.channels,
          op.relaxed,
          this.#record(strand, -1, this.#peers(strand, op), 0),
        );
        return true;
      case "release": {
        strand.time += this.#p.signalUs;
        const record = this.#record(strand, -1, [], 0);
        for (const id of op.semaphores) this.#arrive(this.#semaphore(strand.rank, id), strand.time, record);
        return true;
      }
      case "wait":
        return this.#wait(
          strand,
          op.channels.map((id) => this.#channel(strand.rank, op.channelKind, id, false)),
        );
      case "acquire":
        return this.#wait(
          strand,
          op.semaphores.map((id) => this.#semaphore(strand.rank, id)),
        );
      case "flush":
        strand.flushing = true;
        return this.#flushed(strand);
      default:
        return this.#data(strand, op, pipeline);
    }
  }

  // Synchronisation.

  #peers(strand: Strand, op: { readonly channelKind: ChannelKind; readonly channels: readonly number[] }): number[] {
    return op.channels.map((id) => this.#rankPlan(strand).channels[op.channelKind][id]!);
  }

  #counter(key: string, from: number, initial: number): Counter {
    let counter = this.#counters.get(key);
    if (counter === undefined) {
      counter = { from, arrived: initial, taken: 0, records: new Array<number>(initial).fill(-1), waiting: new Set() };
      this.#counters.set(key, counter);
    }
    return counter;
  }

  #channel(rank: number, kind: ChannelKind, id: number, out: boolean): Counter {
    const peers = this.#plan.ranks[rank]!.channels[kind];
    const peer = peers[id]!;
    let ordinal = 0;
    for (let i = 0; i < id; i++) if (peers[i] === peer) ordinal++;
    const [from, to] = out ? [rank, peer] : [peer, rank];
    return this.#counter(`${kind}${from}>${to}.${ordinal}`, from, 0);
  }

  #semaphore(rank: number, id: number): Counter {
    return this.#counter(`s${rank}.${id}`, rank, this.#plan.ranks[rank]!.semaphores[id]!.initialValue);
  }

  #arrive(counter: Counter, time: number, record: number): void {
    this.#net.at(time, () => {
      counter.arrived++;
      counter.records.push(record);
      const waiting = [...counter.waiting];
      counter.waiting.clear();
      for (const strand of waiting) this.#advance(strand);
    });
  }

  #signal(strand: Strand, kind: ChannelKind, channels: readonly number[], relaxed: boolean, record: number): void {
    for (const id of channels) {
      const counter = this.#channel(strand.rank, kind, id, true);
      const peer = this.#rankPlan(strand).channels[kind][id]!;
      const { latencyUs } = this.#machine.route(strand.rank, peer);
      if (kind === "port") this.#proxied(strand, peer, 0, (at) => this.#arrive(counter, at, record));
      else {
        // A signal does not overtake what was stored before it; a fence costs what waiting for that costs.
        const at = relaxed
          ? strand.time + latencyUs
          : Math.max(strand.time + this.#p.fenceUs + latencyUs, strand.visibleAt);
        this.#arrive(counter, at, record);
      }
    }
  }

  #wait(strand: Strand, counters: readonly Counter[]): boolean {
    for (const counter of counters) {
      if (counter.arrived > counter.taken) continue;
      counter.waiting.add(strand);
      strand.waitingFor = { why: `a signal of rank ${counter.from}`, ranks: [counter.from] };
      return false;
    }
    let cause = -1;
    for (const counter of counters) {
      const record = counter.records[counter.taken++] ?? -1;
      // Who came last held it up, if it was held up at all.
      if (record >= 0 && strand.time <= this.#net.now) cause = record;
    }
    strand.time += this.#p.waitUs;
    this.#record(
      strand,
      cause,
      counters.map((counter) => counter.from),
      0,
    );
    return true;
  }

  #barrier(strand: Strand, barrier: number, numStrands: number): boolean {
    const key = `${strand.rank} ${barrier}`;
    const waiting = this.#barriers.get(key) ?? [];
    waiting.push(strand);
    this.#barriers.set(key, waiting);
    if (waiting.length < numStrands) {
      strand.waitingFor = { why: `barrier ${barrier} of its rank`, ranks: [] };
      return false;
    }
    this.#barriers.delete(key);
    const time = Math.max(...waiting.map((member) => member.time)) + this.#p.barrierUs;
    const last = waiting.reduce((a, b) => (b.time > a.time ? b : a));
    for (const member of waiting) {
      const cause = member === last ? -1 : last.lastRecord;
      member.time = time;
      if (member !== strand) this.#net.at(time, () => this.#finish(member, cause, [], 0));
    }
    this.#record(strand, strand === last ? -1 : last.lastRecord, [], 0);
    return true;
  }

  // Port channels.

  /** Hands a request to the rank's proxy; `delivered` is told when it is visible at the peer. */
  #proxied(strand: Strand, peer: number, bytes: number, delivered: (at: number) => void): void {
    strand.time += this.#p.portPushUs;
    strand.outstanding++;
    const begin = Math.max(this.#proxyFree[strand.rank]!, strand.time) + this.#p.proxyUs;
    this.#proxyFree[strand.rank] = begin;
    const route = this.#machine.route(strand.rank, peer);
    this.#net.at(begin, () => {
      this.#net.start(
        route.links,
        route.key,
        bytes / (route.efficiency ?? this.#p.networkEfficiency),
        Number.POSITIVE_INFINITY,
        () => {
          const at = this.#net.now + route.latencyUs;
          delivered(at);
          this.#net.at(at, () => {
            strand.outstanding--;
            strand.visibleAt = Math.max(strand.visibleAt, at);
            if (strand.flushing) this.#flushed(strand);
          });
        },
      );
    });
  }

  #flushed(strand: Strand): boolean {
    if (strand.outstanding > 0) {
      strand.waitingFor = { why: "its proxy to finish", ranks: [] };
      return false;
    }
    if (strand.time < this.#net.now) {
      strand.flushing = false;
      this.#finish(strand, -1, [], 0);
      return false;
    }
    strand.flushing = false;
    this.#record(strand, -1, [], 0);
    return true;
  }

  // Data.

  /** Bytes that the links see for `bytes` of payload between two ranks. */
  #onWire(rank: number, route: Route, bytes: number, packets: boolean): number {
    const payload = packets ? 2 * bytes : bytes;
    return payload / (route.efficiency ?? (packets ? this.#p.packetEfficiency : this.#efficiency[rank]!));
  }

  #data(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined): boolean {
    const packets =
      (op.kind === "copy" && op.format === "unpack") ||
      (op.kind === "put" && op.format === "forward") ||
      (op.kind === "reduce" && op.packets) ||
      (op.kind === "switch-broadcast" && op.format === "forward");
    strand.time += this.#p.opUs;
    if (packets) {
      const cause = this.#begun(strand, op, pipeline);
      if (cause === undefined) return false;
    }
    if (op.kind === "put" && op.channelKind === "port") return this.#portPut(strand, op, pipeline);
    // Flows begin at the strand's own time.
    if (strand.time > this.#net.now) this.#net.at(strand.time, () => this.#move(strand, op, pipeline));
    else this.#move(strand, op, pipeline);
    return false;
  }

  /** Whether the first packets of every source have come. */
  #begun(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined): number | undefined {
    const board = this.#boards[strand.rank]!.begun;
    let cause = -1;
    for (const { begin, end } of packetSources(strand, this.#in.chunkBytes, op, pipeline)) {
      const record = board.covers(begin, end, () => {
        strand.time = Math.max(strand.startedAt, this.#net.now);
        this.#advance(strand);
      });
      if (record === undefined) {
        strand.waitingFor = { why: `packets in scratch[${begin}] of rank ${strand.rank}`, ranks: [] };
        return undefined;
      }
      cause = Math.max(cause, record);
    }
    return cause;
  }

  /** Calls `then` when all packets that the operation reads are there. */
  #whenArrived(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined, then: (cause: number) => void): void {
    const board = this.#boards[strand.rank]!.done;
    let cause = -1;
    for (const { begin, end } of packetSources(strand, this.#in.chunkBytes, op, pipeline)) {
      const record = board.covers(begin, end, () => this.#whenArrived(strand, op, pipeline, then));
      if (record === undefined) return;
      cause = Math.max(cause, record);
    }
    then(cause);
  }

  #post(
    rank: number,
    buffer: BufferKind,
    begin: number,
    end: number,
    at: number,
    record: number,
    begun: boolean,
  ): void {
    if (buffer !== "scratch") return;
    const board = begun ? this.#boards[rank]!.begun : this.#boards[rank]!.done;
    this.#net.at(at, () => board.add(begin, end, record));
  }

  #portPut(strand: Strand, op: Extract<SimpleOp, { kind: "put" }>, pipeline: PipelineOp | undefined): boolean {
    const packets = op.format !== "plain";
    const go = (cause: number): void => {
      let total = 0;
      const record = this.#record(
        strand,
        cause,
        op.dst.map((range) => range.rank),
        0,
      );
      op.dst.forEach((target, i) => {
        const source = op.src[op.src.length === 1 ? 0 : i]!;
        const part = share(strand, this.#in.chunkBytes, op, source.size, pipeline, packets);
        total += part.bytes;
        this.#proxied(strand, target.rank, packets ? 2 * part.bytes : part.bytes, (at) => {
          if (!packets) return;
          const [begin, end] = [target.index + part.begin, target.index + part.end];
          this.#post(target.rank, target.buffer, begin, end, at, record, true);
          this.#post(target.rank, target.buffer, begin, end, at, record, false);
        });
        if (op.notify === "none") return;
        const channel = op.channels[i] ?? op.channels[0]!;
        const counter = this.#channel(strand.rank, "port", channel, true);
        this.#proxied(strand, target.rank, 0, (at) => this.#arrive(counter, at, record));
      });
      this.#records[record]!.bytes = total;
      this.#records[record]!.endUs = strand.time;
    };
    if (op.format === "forward") {
      // The proxy takes whole packets only when the last is there.
      let later = false;
      this.#whenArrived(strand, op, pipeline, (cause) => {
        if (strand.time < this.#net.now) strand.time = this.#net.now;
        go(cause);
        if (!later) return;
        const outer = this.#rankPlan(strand).strands[strand.index]!.ops[strand.op];
        this.#step(strand, outer?.kind === "pipeline" ? outer : undefined);
        this.#advance(strand);
      });
      later = true;
      return strand.lastRecord >= 0 && this.#records[strand.lastRecord]!.op === strand.op;
    }
    go(-1);
    if (op.notify !== "signal-flush") return true;
    strand.flushing = true;
    return this.#flushed(strand);
  }

  /** Moves the data of an operation, beginning now. */
  #move(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined): void {
    const { rank } = strand;
    const p = this.#p;
    strand.open = this.#record(strand, -1, [], 0);
    const memory = [this.#machine.memoryLink(rank)];
    const local = (bytes: number, then: () => void) =>
      this.#net.start(memory, `m${rank}`, bytes, 2 * p.blockLocalGBps, then);
    switch (op.kind) {
      case "copy": {
        const packed = op.format !== "plain";
        const part = share(strand, this.#in.chunkBytes, op, op.src.size, pipeline, packed);
        if (op.format === "unpack") {
          this.#afterPackets(strand, op, pipeline, part.bytes, [], part.bytes);
          return;
        }
        local((packed ? 3 : 2) * part.bytes, () => {
          strand.time = this.#net.now;
          const record = strand.open;
          if (packed) {
            const [begin, end] = [op.dst.index + part.begin, op.dst.index + part.end];
            this.#post(rank, op.dst.buffer, begin, end, strand.time, record, true);
            this.#post(rank, op.dst.buffer, begin, end, strand.time, record, false);
          }
          this.#finish(strand, -1, [], part.bytes);
        });
        return;
      }
      case "get": {
        const flows = op.src.map((source) => ({
          from: source.rank,
          to: rank,
          share: share(strand, this.#in.chunkBytes, op, source.size, pipeline, false),
        }));
        this.#loads(strand, flows, [], () => {});
        return;
      }
      case "put":
        this.#store(strand, op, pipeline);
        return;
      case "reduce":
        if (op.packets) {
          const part = share(strand, this.#in.chunkBytes, op, op.dst.size, pipeline, true);
          const targets = op.remoteDst.map((range) => ({
            rank: range.rank,
            buffer: range.buffer,
            begin: range.index + part.begin,
            end: range.index + part.end,
          }));
          if (op.packetDst !== undefined) {
            const begin = op.packetDst.index + part.begin;
            targets.push({ rank, buffer: op.packetDst.buffer, begin, end: op.packetDst.index + part.end });
          }
          this.#afterPackets(strand, op, pipeline, part.bytes, targets, part.bytes * Math.max(1, op.src.length - 1));
          return;
        }
        this.#reduce(strand, op, pipeline);
        return;
      case "switch-reduce":
      case "switch-broadcast":
      case "switch-reduce-broadcast":
        this.#switchOp(strand, op, pipeline);
        return;
      default:
        this.#finish(strand, -1, [], 0);
    }
  }

  /** Loads from other ranks, and stores what was loaded: the strand goes on when the last load has come. */
  #loads(
    strand: Strand,
    loads: readonly { from: number; to: number; share: { bytes: number } }[],
    stores: readonly { to: number; bytes: number }[],
    before: () => void,
  ): void {
    const { rank } = strand;
    const cap = this.#p.blockRemoteGBps / Math.max(1, Math.max(loads.length, stores.length));
    let left = 1 + loads.length + stores.length;
    let readyAt = 0;
    let visibleAt = 0;
    const bytes = Math.max(
      loads.reduce((sum, load) => sum + load.share.bytes, 0),
      stores[0]?.bytes ?? 0,
    );
    const peers = [...loads.map((load) => load.from), ...stores.map((store) => store.to)];
    const one = () => {
      if (--left > 0) return;
      const at = Math.max(readyAt, this.#net.now);
      this.#net.at(at, () => {
        strand.time = this.#net.now;
        if (stores.length > 0) {
          const latency = Math.max(...stores.map((store) => this.#machine.route(rank, store.to).latencyUs));
          visibleAt = Math.max(visibleAt, strand.time) + latency;
          strand.visibleAt = Math.max(strand.visibleAt, visibleAt);
        }
        before();
        this.#finish(strand, -1, peers, bytes);
      });
    };
    for (const load of loads) {
      const route = this.#machine.route(load.from, load.to);
      this.#net.at(this.#net.now + route.latencyUs, () =>
        this.#net.start(route.links, route.key, this.#onWire(rank, route, load.share.bytes, false), cap, () => {
          readyAt = Math.max(readyAt, this.#net.now + route.latencyUs);
          one();
        }),
      );
    }
    for (const store of stores) {
      const route = this.#machine.route(rank, store.to);
      const wait = loads.length > 0 ? 2 * route.latencyUs : 0;
      this.#net.at(this.#net.now + wait, () =>
        this.#net.start(route.links, route.key, this.#onWire(rank, route, store.bytes, false), cap, one),
      );
    }
    one();
  }

  #store(strand: Strand, op: Extract<SimpleOp, { kind: "put" }>, pipeline: PipelineOp | undefined): void {
    const { rank } = strand;
    const packets = op.format !== "plain";
    const cap = (packets ? 2 * this.#p.blockPacketGBps : this.#p.blockRemoteGBps) / op.dst.length;
    let left = op.dst.length;
    let bytes = 0;
    const record = strand.open;
    const after = () => {
      if (--left > 0) return;
      if (op.format === "forward") {
        this.#whenArrived(strand, op, pipeline, (cause) =>
          this.#finish(
            strand,
            cause,
            op.dst.map((r) => r.rank),
            bytes,
          ),
        );
      } else
        this.#finish(
          strand,
          -1,
          op.dst.map((r) => r.rank),
          bytes,
        );
    };
    if (op.dst.length === 0) {
      this.#finish(strand, -1, [], 0);
      return;
    }
    op.dst.forEach((target, i) => {
      const source = op.src[op.src.length === 1 ? 0 : i]!;
      const part = share(strand, this.#in.chunkBytes, op, source.size, pipeline, packets);
      bytes += part.bytes;
      const route = this.#machine.route(rank, target.rank);
      const [begin, end] = [target.index + part.begin, target.index + part.end];
      if (packets) this.#post(target.rank, target.buffer, begin, end, this.#net.now + route.latencyUs, record, true);
      this.#net.start(route.links, route.key, this.#onWire(rank, route, part.bytes, packets), cap, () => {
        const visible = this.#net.now + route.latencyUs;
        strand.visibleAt = Math.max(strand.visibleAt, visible);
        if (packets && op.format === "forward") {
          this.#whenArrived(strand, op, pipeline, () =>
            this.#post(target.rank, target.buffer, begin, end, this.#net.now + route.latencyUs, record, false),
          );
        } else if (packets) this.#post(target.rank, target.buffer, begin, end, visible, record, false);
        after();
      });
    });
  }

  /** Reads packets as they come and sends the results on; ends when the last has come and gone. */
  #afterPackets(
    strand: Strand,
    op: SimpleOp,
    pipeline: PipelineOp | undefined,
    bytes: number,
    targets: readonly { rank: number; buffer: BufferKind; begin: number; end: number }[],
    readBytes: number,
  ): void {
    const { rank } = strand;
    const record = strand.open;
    const ownWork = this.#net.now + readBytes / (this.#p.blockLocalGBps * 1000);
    const remote = targets.filter((target) => target.rank !== rank);
    let left = 1 + remote.length;
    let cause = -1;
    const one = () => {
      if (--left > 0) return;
      const at = Math.max(this.#net.now, ownWork);
      this.#net.at(at, () => {
        for (const target of targets) {
          const { latencyUs } = this.#machine.route(rank, target.rank);
          const visible = this.#net.now + (target.rank === rank ? 0 : latencyUs);
          this.#post(target.rank, target.buffer, target.begin, target.end, visible, record, false);
          if (target.rank !== rank) strand.visibleAt = Math.max(strand.visibleAt, visible);
        }
        this.#finish(
          strand,
          cause,
          targets.map((target) => target.rank),
          bytes,
        );
      });
    };
    for (const target of targets) {
      const { latencyUs } = this.#machine.route(rank, target.rank);
      this.#post(
        target.rank,
        target.buffer,
        target.begin,
        target.end,
        this.#net.now + (target.rank === rank ? 0 : latencyUs),
        record,
        true,
      );
    }
    for (const target of remote) {
      const route = this.#machine.route(rank, target.rank);
      const cap = (2 * this.#p.blockPacketGBps) / remote.length;
      this.#net.start(route.links, route.key, this.#onWire(rank, route, bytes, true), cap, one);
    }
    this.#whenArrived(strand, op, pipeline, (record) => {
      cause = record;
      one();
    });
  }

  #reduce(strand: Strand, op: Extract<SimpleOp, { kind: "reduce" }>, pipeline: PipelineOp | undefined): void {
    const { rank } = strand;
    const part = share(strand, this.#in.chunkBytes, op, op.dst.size, pipeline, false);
    const memory = [this.#machine.memoryLink(rank)];
    const localBytes = (op.src.length + 1) * part.bytes;
    if (op.remoteSrc.length + op.remoteDst.length === 0) {
      this.#net.start(memory, `m${rank}`, localBytes, 2 * this.#p.blockLocalGBps, () => {
        strand.time = this.#net.now;
        this.#finish(strand, -1, [], part.bytes);
      });
      return;
    }
    const loads = op.remoteSrc.map((source) => ({ from: source.rank, to: rank, share: part }));
    this.#loads(
      strand,
      loads,
      op.remoteDst.map((target) => ({ to: target.rank, bytes: part.bytes })),
      () => {},
    );
  }

  #switchOp(
    strand: Strand,
    op: Extract<SimpleOp, { kind: "switch-reduce" | "switch-broadcast" | "switch-reduce-broadcast" }>,
    pipeline: PipelineOp | undefined,
  ): void {
    const { rank } = strand;
    const size = op.kind === "switch-broadcast" ? op.src.size : op.dst.size;
    const packets = op.kind === "switch-broadcast" && op.format === "forward";
    const part = share(strand, this.#in.chunkBytes, op, size, pipeline, packets);
    const members =
      this.#rankPlan(strand).channels.switch[(op.kind === "switch-broadcast" ? op.dst : op.src).channel]!.ranks;
    const others = members.filter((member) => member !== rank);
    const posts = () => {
      if (!packets || op.kind !== "switch-broadcast") return;
      const channel = this.#rankPlan(strand).channels.switch[op.dst.channel]!;
      for (const member of members) {
        const at = this.#net.now + this.#machine.route(rank, member).latencyUs;
        const [begin, end] = [op.dst.index + part.begin, op.dst.index + part.end];
        this.#post(member, channel.buffer, begin, end, at, strand.open, true);
        this.#post(member, channel.buffer, begin, end, at, strand.open, false);
      }
    };
    if (!this.#in.switchOps || others.length === 0) {
      const loads = op.kind === "switch-broadcast" ? [] : others.map((from) => ({ from, to: rank, share: part }));
      const stores = op.kind === "switch-reduce" ? [] : others.map((to) => ({ to, bytes: part.bytes }));
      this.#loads(strand, loads, stores, posts);
      return;
    }
    // In the switch: every member's link carries the data once; a reduction comes back over the own link.
    const up = (from: number) => this.#machine.route(from, from === rank ? others[0]! : rank).links[0]!;
    const down = (to: number) => this.#machine.route(to === rank ? others[0]! : rank, to).links.at(-1)!;
    const phases: number[][] = [];
    if (op.kind !== "switch-broadcast") phases.push([...members.map(up), down(rank)]);
    if (op.kind !== "switch-reduce") phases.push([up(rank), ...members.map(down)]);
    const latency = this.#machine.route(rank, others[0]!).latencyUs;
    const wire =
      (packets ? 2 * part.bytes : part.bytes) / (packets ? this.#p.packetEfficiency : this.#efficiency[rank]!);
    let left = phases.length;
    phases.forEach((links, i) => {
      this.#net.at(this.#net.now + latency * (op.kind === "switch-broadcast" ? 0 : 1 + i), () =>
        this.#net.start(links, `sw${rank}.${op.kind}.${i}.${members.join()}`, wire, this.#p.blockRemoteGBps, () => {
          if (--left > 0) return;
          this.#net.at(this.#net.now + (op.kind === "switch-broadcast" ? 0 : latency), () => {
            strand.time = this.#net.now;
            strand.visibleAt = Math.max(strand.visibleAt, strand.time + latency);
            posts();
            this.#finish(strand, -1, others, part.bytes);
          });
        }),
      );
    });
  }
}
