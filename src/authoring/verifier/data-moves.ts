/** Operations that move data during an exploration: which cells they read and write, as whom, in which order. */
import type { PipelineOp, Range, RemoteRange, SimpleOp, SwitchRange } from "../plan/index.ts";
import type { Accessor, Site } from "./access-log.ts";
import { type Geometry, shareOf } from "./cell-geometry.ts";
import type { Memory } from "./cell-memory.ts";
import type { Lanes } from "./proxy-lanes.ts";
import type { Proxies } from "./proxy-stalls.ts";
import type { ShortChunks } from "./short-chunks.ts";
import { type Hearsay, movesPackets, past, type StrandState } from "./strand-state.ts";
import type { Values } from "./symbolic-values.ts";
import type { Tokens } from "./token-accounting.ts";

export interface MoveParts {
  readonly geometry: Geometry;
  readonly memory: Memory;
  readonly values: Values;
  readonly lanes: Lanes;
  readonly tokens: Tokens;
  readonly hearsay: Hearsay;
  readonly proxies: Proxies;
  readonly wake: (strand: StrandState) => void;
  /** Threads move 16 bytes of plain data each, but 8 bytes of packets: MSCCL++'s executor. */
  readonly threadwise: boolean;
  /** Undefined where all chunks are equally long. */
  readonly short: ShortChunks | undefined;
}

interface Written {
  readonly value: number;
  readonly tag: number;
}
/** One iteration of an operation with packets, beside the first. */
interface Round {
  readonly written: Written[];
  at: number;
  readonly isFirst: boolean;
  readonly site: Site;
}

export class Moves {
  readonly #in: MoveParts;
  readonly #packetWaiters = new Map<number, Set<StrandState>>();
  /** What an operation with packets wrote in the first iteration of its loop, by operation and launch. */
  readonly #firstRound = new Map<string, Written[]>();
  #round: Round | undefined;
  /** An operation with packets that writes other values in a later iteration of its loop than in the first. */
  changing: Site | undefined;
  constructor(parts: MoveParts) {
    this.#in = parts;
  }

  /** The cell whose packets a strand waits for. */
  waitedFor(strand: StrandState): number | undefined {
    for (const [cell, waiters] of this.#packetWaiters) if (waiters.has(strand)) return cell;
    return undefined;
  }

  #own(strand: StrandState, range: Range): number {
    return (
      this.#in.geometry.base(strand.launch, strand.rank, range.buffer) + range.index * this.#in.geometry.cellsPerChunk
    );
  }
  #remote(strand: StrandState, range: RemoteRange): number {
    return (
      this.#in.geometry.base(strand.launch, range.rank, range.buffer) + range.index * this.#in.geometry.cellsPerChunk
    );
  }
  #members(strand: StrandState, range: SwitchRange): number[] {
    const channel = this.#in.geometry.plan.ranks[strand.rank]!.channels.switch[range.channel]!;
    return channel.ranks.map(
      (rank) =>
        this.#in.geometry.base(strand.launch, rank, channel.buffer) + range.index * this.#in.geometry.cellsPerChunk,
    );
  }

  /** The part of a range of `size` chunks that this strand handles in this iteration, in cells. */
  #window(strand: StrandState, op: SimpleOp, size: number, pipeline: PipelineOp | undefined, packets: boolean) {
    const total = size * this.#in.geometry.cellsPerChunk;
    let begin = 0;
    let end = total;
    const group = "tbg" in op ? op.tbg : undefined;
    if (group !== undefined) {
      const share = shareOf(this.#in.geometry, size, group);
      begin = share.begin;
      end = begin + share.count;
    }
    if (pipeline !== undefined && !packets) {
      const unit = this.#in.geometry.unitCells.get(pipeline.unitBytes)!;
      begin += strand.iteration * unit;
      end = Math.min(end, begin + unit);
    }
    return { begin, count: Math.max(0, end - begin) };
  }

  #awaitPackets(strand: StrandState, begin: number, count: number): boolean {
    const tag = strand.launch + 1;
    for (let i = begin; i < begin + count; i++) {
      if (this.#in.memory.hasPacket(i, tag)) continue;
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

  /** The thread that handles the p-th element, as a number: other ones for packets where their elements are smaller. */
  #position(p: number, packets: boolean): number {
    return packets && this.#in.threadwise ? -1 - p : p;
  }

  #read(cell: number, who: Accessor, position: number, tag: number): number {
    const value = this.#in.memory.read(cell, who, position, tag);
    this.#in.short?.read(cell, value, who.site);
    return value;
  }

  /** The level of an operation at place `p` of its ranges (`short-chunks.ts`); 0 where all chunks are equally long. */
  #level(bases: readonly number[], p: number): number {
    return this.#in.short === undefined ? 0 : this.#in.short.levelAt(bases, p);
  }

  /** Reads a packet that is there, and remembers what its arrival proves. */
  #packet(strand: StrandState, cell: number, who: Accessor, position: number): number {
    const value = this.#read(cell, who, position, strand.launch + 1);
    const from = this.#in.memory.lastPacket;
    if (from !== 0) this.#in.hearsay.heard(strand, position, from);
    return value;
  }

  #write(cell: number, who: Accessor, position: number, value: number, tag: number, level: number): void {
    const { short } = this.#in;
    short?.write(cell, value, level, who.site);
    if (tag !== 0) short?.send(cell, level);
    this.#in.memory.write(cell, who, position, value, tag, level);
    if (this.#round !== undefined) this.#compareRound(this.#round, value, tag);
    if (tag === 0) return;
    const waiters = this.#packetWaiters.get(cell);
    if (waiters === undefined) return;
    this.#packetWaiters.delete(cell);
    for (const waiter of waiters) this.#in.wake(waiter);
  }

  /** A port copies what lies there: the same value may be plain data in one iteration and packets in another. */
  #compareRound(round: Round, value: number, tag: number): void {
    if (round.isFirst) round.written.push({ value, tag });
    else {
      const first = round.written[round.at++]!;
      const isSame = first.tag === tag && (first.value === value || this.#in.values.equal(first.value, value));
      if (!isSame) this.changing ??= round.site;
    }
  }

  /** Executes one operation. @returns false when it waits for packets; it will be tried again */
  execute(strand: StrandState, op: SimpleOp, pipeline: PipelineOp | undefined, site: Site): boolean {
    if (pipeline === undefined || !movesPackets(op)) return this.#execute(strand, op, pipeline, site);
    const key = `${site.id} ${site.launch}`;
    const written = this.#firstRound.get(key) ?? [];
    this.#firstRound.set(key, written);
    this.#round = { written, at: 0, isFirst: site.iteration === 0, site };
    const done = this.#execute(strand, op, pipeline, site);
    this.#round = undefined;
    return done;
  }

  #execute(strand: StrandState, op: SimpleOp, pipeline: PipelineOp | undefined, site: Site): boolean {
    const tag = strand.launch + 1;
    const who: Accessor = {
      lane: strand.g,
      segment: strand.segment,
      phase: strand.phase,
      clock: strand.clock,
      site,
      past: past(strand, strand.phaseStart),
    };
    switch (op.kind) {
      case "copy": {
        const { begin, count } = this.#window(strand, op, op.src.size, pipeline, op.format !== "plain");
        const src = this.#own(strand, op.src) + begin;
        const dst = this.#own(strand, op.dst) + begin;
        if (op.format === "unpack" && !this.#awaitPackets(strand, src, count)) return false;
        const moved = [src, dst];
        for (let p = 0; p < count; p++) {
          const at = this.#position(p, op.format !== "plain");
          const level = this.#level(moved, p);
          const value =
            op.format === "unpack" ? this.#packet(strand, src + p, who, at) : this.#read(src + p, who, at, 0);
          this.#write(dst + p, who, at, value, op.format === "pack" ? tag : 0, level);
        }
        return true;
      }
      case "get": {
        op.src.forEach((source, i) => {
          const { begin, count } = this.#window(strand, op, source.size, pipeline, false);
          const src = this.#remote(strand, source) + begin;
          const dst = this.#own(strand, op.dst[i]!) + begin;
          const moved = [src, dst];
          for (let p = 0; p < count; p++)
            this.#write(dst + p, who, p, this.#read(src + p, who, p, 0), 0, this.#level(moved, p));
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
        const moved = [...sources, ...remotes, dst, ...(op.packets ? [] : targets)];
        for (let p = 0; p < count; p++) {
          const at = this.#position(p, op.packets);
          const level = this.#level(moved, p);
          const operands = sources.map((src, i) =>
            op.packets && i > 0 ? this.#packet(strand, src + p, who, at) : this.#read(src + p, who, at, 0),
          );
          for (const src of remotes) operands.push(this.#read(src + p, who, at, 0));
          const value = this.#in.values.reduce(op.op, operands, site.id);
          this.#write(dst + p, who, at, value, 0, level);
          if (packetDst >= 0) this.#write(packetDst + p, who, at, value, tag, level);
          for (const target of targets) this.#write(target + p, who, at, value, op.packets ? tag : 0, level);
        }
        return true;
      }
      case "switch-broadcast": {
        const packets = op.format === "forward";
        const { begin, count } = this.#window(strand, op, op.src.size, pipeline, packets);
        const src = this.#own(strand, op.src) + begin;
        if (packets && !this.#awaitPackets(strand, src, count)) return false;
        const targets = this.#members(strand, op.dst).map((dst) => dst + begin);
        const moved = [src, ...targets];
        for (let p = 0; p < count; p++) {
          const at = this.#position(p, packets);
          const level = this.#level(moved, p);
          const value = packets ? this.#packet(strand, src + p, who, at) : this.#read(src + p, who, at, 0);
          for (const target of targets) this.#write(target + p, who, at, value, packets ? tag : 0, level);
        }
        return true;
      }
      case "switch-reduce":
      case "switch-reduce-broadcast": {
        const { begin, count } = this.#window(strand, op, op.dst.size, pipeline, false);
        const sources = this.#members(strand, op.src).map((src) => src + begin);
        const written = op.kind === "switch-reduce" ? [this.#own(strand, op.dst)] : this.#members(strand, op.dst);
        const targets = written.map((dst) => dst + begin);
        const moved = [...sources, ...targets];
        for (let p = 0; p < count; p++) {
          const operands = sources.map((src) => this.#read(src + p, who, p, 0));
          const value = this.#in.values.reduce(op.op, operands, site.id);
          const level = this.#level(moved, p);
          for (const target of targets) this.#write(target + p, who, p, value, 0, level);
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
    const memory = this.#in.memory;
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
          for (let p = 0; p < count; p++) this.#packet(strand, src + p, issuer, this.#position(p, true));
          this.#in.hearsay.separate(strand);
        }
        const thread = this.#in.threadwise ? i : 0;
        const { segment, clock } = this.#in.lanes.request(strand, thread);
        const { base } = strand;
        who = {
          ...issuer,
          lane: this.#in.lanes.id(strand, thread),
          segment,
          phase: segment,
          clock,
          past: { ...past(strand, segment), link: () => base },
        };
      }
      const moved = [src, dst];
      for (let p = 0; p < count; p++) {
        const at = this.#position(p, packets);
        const level = this.#level(moved, p);
        if (byProxy && op.format === "forward")
          this.#write(dst + p, who, at, this.#read(src + p, who, at, tag), tag, level);
        else if (byProxy && op.format === "pack") {
          const raw = memory.readRaw(src + p, who, at);
          this.#in.short?.read(src + p, raw.value, who.site);
          // What lies there is sent, packets or not: as many as there are.
          const sent = raw.tag === 0 ? 0 : (this.#in.short?.levelOfPackets(src + p) ?? 0);
          this.#write(dst + p, who, at, raw.value, raw.tag, Math.max(level, sent));
        } else {
          const value =
            op.format === "forward" ? this.#packet(strand, src + p, who, at) : this.#read(src + p, who, at, 0);
          this.#write(dst + p, who, at, value, packets ? tag : 0, level);
        }
      }
    });
    if (op.notify !== "none") this.#in.tokens.raise(strand, op);
    else if (byProxy) this.#in.proxies.request(strand, [], () => undefined);
    if (op.notify === "signal-flush") {
      if (this.#in.threadwise) strand.heardByThread.push(this.#in.lanes.joined(strand, strand.clock));
      else strand.clock = this.#in.lanes.joined(strand, strand.clock);
    }
    return true;
  }
}
