/**
 * The language: what the callback of `program` is given. Every call is recorded; nothing runs. Vocabulary after the
 * MSCCL++ DSL, with types that refuse what it refuses only at run time, or not at all.
 *
 * Public API: Builder, RankHandle, Buffer, Chunk, MemoryChannel, PortChannel, SwitchChannel, Semaphore, StrandGroup.
 * `P` marks the program that a value belongs to: values of two programs do not mix.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import {
  BUFFERS,
  type BufferKind,
  type ChannelKind,
  type ChannelRecord,
  EXECUTOR_LIMITS,
  MEMORY,
  type PlanReduceOp,
  PORT,
  pairChannels,
  type RawChunk,
  type Recorder,
  type SemaphoreRecord,
  type Strands,
  type SwitchRecord,
  SYNC,
  type SyncName,
} from "../schedule/index.ts";
import type { OnlyScratch, Sentence } from "./sentence.ts";

declare const valuesOfDifferentProgramsDoNotMix: unique symbol;
/** Marks a value as belonging to program P, and to no other. */
interface Of<P> {
  readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
}

/** Several strands that share each operation they are given: each does an equal slice. */
export interface StrandGroup<P> extends Of<P> {
  readonly strands: readonly number[];
}

/** Which strand does an operation: its number (0 unless told) or a group. */
export type At<P> = number | StrandGroup<P> | { readonly strand?: number | StrandGroup<P> };

/** Which strand synchronises, and where its threads meet: before and after (`both` unless told). */
export interface SyncOptions {
  readonly strand?: number | Sentence<"a synchronising operation is done by one strand: it takes no strand group">;
  readonly sync?: SyncName;
}
export interface RelaxedOptions extends SyncOptions {
  /** Orders nothing. */
  readonly relaxed?: boolean;
}
export interface PortSignalOptions extends SyncOptions {
  readonly relaxed?: Sentence<"a port channel has no relaxed signal">;
}
export interface PortWaitOptions extends SyncOptions {
  readonly relaxed?: Sentence<"a port channel has no relaxed wait">;
}
export interface SwitchReduceOptions {
  readonly strand?: number | Sentence<"a switch operation is done by one strand: it takes no strand group">;
  readonly op?: Exclude<PlanReduceOp, "avg">;
}

interface StrandLike {
  readonly strands: readonly number[];
}
function strandsOf(at: number | StrandLike | { readonly strand?: number | StrandLike } | undefined): Strands {
  if (at === undefined) return 0;
  if (typeof at === "number") return at;
  if ("strands" in at) return at.strands;
  const { strand = 0 } = at as { readonly strand?: number | StrandLike };
  return typeof strand === "number" ? strand : strand.strands;
}
function oneOf(at: unknown): number {
  const strands = strandsOf(at as number);
  if (typeof strands !== "number")
    throw new InvalidArgumentError("strand", strands, "one strand: this operation takes no strand group");
  return strands;
}
function syncOf(at: unknown): number {
  return typeof at === "object" && at !== null && "sync" in at
    ? SYNC[(at.sync as SyncName | undefined) ?? "both"]
    : SYNC.both;
}

/** A run of chunks of one buffer of one rank. */
export class Chunk<P, B extends BufferKind = BufferKind> implements RawChunk {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  /** Type only: which buffer. */
  declare readonly kind?: B;
  readonly rank: number;
  readonly buffer: number;
  readonly index: number;
  readonly size: number;
  readonly owner: object;
  constructor(owner: object, rank: number, buffer: number, index: number, size: number) {
    this.owner = owner;
    this.rank = rank;
    this.buffer = buffer;
    this.index = index;
    this.size = size;
  }
  toString(): string {
    return `rank ${this.rank} ${BUFFERS[this.buffer]}[${this.index}:${this.index + this.size}]`;
  }
}

/** A buffer of a rank: its input, its output, or scratch. Chunks are taken by slice. */
export class Buffer<P, B extends BufferKind = BufferKind> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  readonly rank: number;
  /** Number of chunks. */
  readonly size: number;
  private readonly code: number;
  private readonly offset: number;
  private readonly recorder: Recorder;
  constructor(recorder: Recorder, rank: number, buffer: B, offset: number, size: number) {
    this.recorder = recorder;
    this.rank = rank;
    this.code = BUFFERS.indexOf(buffer);
    this.offset = offset;
    this.size = size;
  }
  get buffer(): B {
    return BUFFERS[this.code] as B;
  }
  /** Chunk `index`. @throws InvalidArgumentError when there is none */
  at(index: number): Chunk<P, B> {
    return this.slice(index, index + 1);
  }
  /** Chunks [start, end). @throws InvalidArgumentError unless 0 <= start <= end <= size */
  slice(start = 0, end: number = this.size): Chunk<P, B> {
    if (!(Number.isInteger(start) && Number.isInteger(end) && start >= 0 && start <= end && end <= this.size)) {
      this.recorder.need(
        false,
        `slice of the ${this.buffer} of rank ${this.rank}`,
        [start, end],
        `0 <= start <= end <= ${this.size}`,
      );
    }
    return new Chunk(this.recorder, this.rank, this.code, this.offset + start, end - start);
  }
  /** All of it. */
  get all(): Chunk<P, B> {
    return this.slice();
  }
}

export interface ReduceOptions<P> {
  readonly strand?: number | StrandGroup<P>;
  /** Where the result goes; the first source unless told. */
  readonly dst?: Chunk<P>;
  readonly op?: Exclude<PlanReduceOp, "avg">;
}

/** A rank and what it does alone. */
export class RankHandle<P> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  readonly id: number;
  readonly input: Buffer<P, "input">;
  readonly output: Buffer<P, "output">;
  private readonly recorder: Recorder;
  private readonly op: PlanReduceOp;
  constructor(recorder: Recorder, id: number, op: PlanReduceOp) {
    const record = recorder.ranks[id];
    if (record === undefined) throw new InvalidArgumentError("rank", id, `0 to ${recorder.ranks.length - 1}`);
    this.recorder = recorder;
    this.id = id;
    this.op = op;
    this.input = new Buffer(recorder, id, "input", 0, record.inputChunks);
    this.output = new Buffer(recorder, id, "output", 0, record.outputChunks);
  }
  /** Reserves scratch of `size` chunks. */
  scratch(size: number): Buffer<P, "scratch"> {
    return new Buffer(this.recorder, this.id, "scratch", this.recorder.scratch(this.id, size), size);
  }
  /** dst = src. */
  copy(dst: Chunk<P>, src: Chunk<P>, at?: At<P>): void {
    this.recorder.copy(this.id, "plain", dst, src, strandsOf(at));
  }
  /** Writes src as packets to scratch. */
  copyPackets<B extends BufferKind>(
    dst: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the destination of copyPackets must be a chunk of scratch">,
    src: Chunk<P>,
    at?: At<P>,
  ): void {
    this.recorder.copy(this.id, "pack", dst, src, strandsOf(at));
  }
  /** Waits for the packets in scratch and writes them as data. */
  unpackPackets<B extends BufferKind>(
    dst: Chunk<P>,
    src: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the source of unpackPackets must be a chunk of scratch">,
    at?: At<P>,
  ): void {
    this.recorder.copy(this.id, "unpack", dst, src, strandsOf(at));
  }
  /** dst = op(src, ...others). */
  reduce(src: Chunk<P>, others: readonly Chunk<P>[], at?: number | StrandGroup<P> | ReduceOptions<P>): void {
    const { dst, op } = reduceOptions<P>(at);
    this.recorder.reduce(this.id, src, others, dst ?? src, op ?? this.op, false, strandsOf(at));
  }
  /** dst = op(src, ...others) where the others are packets in scratch. */
  reducePackets<B extends BufferKind>(
    src: Chunk<P>,
    others: readonly (Chunk<P, B> & OnlyScratch<B, "packets live in scratch: reducePackets reads chunks of scratch">)[],
    at?: number | StrandGroup<P> | ReduceOptions<P>,
  ): void {
    const { dst, op } = reduceOptions<P>(at);
    this.recorder.reduce(this.id, src, others, dst ?? src, op ?? this.op, true, strandsOf(at));
  }
  /** The strands wait for each other; a single strand's threads meet. */
  barrier(strands: readonly number[]): void {
    this.recorder.barrier(this.id, strands);
  }
  /** A semaphore between strands of this rank. */
  semaphore(initialValue = 0): Semaphore<P> {
    return new Semaphore(this.recorder, this.recorder.semaphore(this.id, initialValue));
  }
}

function reduceOptions<P>(at: unknown): { readonly dst?: Chunk<P>; readonly op?: PlanReduceOp } {
  return typeof at === "object" && at !== null ? (at as ReduceOptions<P>) : {};
}

/** Counts; strands of one rank release and acquire it. A plan must leave it at its initial value. */
export class Semaphore<P> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  private readonly recorder: Recorder;
  private readonly record: SemaphoreRecord;
  constructor(recorder: Recorder, record: SemaphoreRecord) {
    this.recorder = recorder;
    this.record = record;
  }
  /** Waits until it is above 0 and takes 1. */
  acquire(
    at?: number | Sentence<"a synchronising operation is done by one strand: it takes no strand group"> | SyncOptions,
  ): void {
    this.recorder.acquireOrRelease("acquire", this.record, oneOf(at), syncOf(at));
  }
  /** Adds 1. */
  release(
    at?: number | Sentence<"a synchronising operation is done by one strand: it takes no strand group"> | SyncOptions,
  ): void {
    this.recorder.acquireOrRelease("release", this.record, oneOf(at), syncOf(at));
  }
}

/** One direction between two ranks; the k-th one way pairs with the k-th the other way. */
class Channel<P> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  protected readonly recorder: Recorder;
  protected readonly record: ChannelRecord;
  /** The collective's operator, for reductions that name none. */
  protected readonly op: PlanReduceOp;
  constructor(recorder: Recorder, record: ChannelRecord, op: PlanReduceOp) {
    this.recorder = recorder;
    this.record = record;
    this.op = op;
  }
  /** The rank whose strands use it. */
  get from(): number {
    return this.record.src;
  }
  /** The rank it leads to. */
  get to(): number {
    return this.record.dst;
  }
  /** remote dst = src. */
  put(dst: Chunk<P>, src: Chunk<P>, at?: At<P>): void {
    this.recorder.put(this.record, "plain", "none", dst, src, strandsOf(at));
  }
  /** Waits for packets in own scratch and sends them on, as packets. */
  readPutPackets<D extends BufferKind, S extends BufferKind>(
    dst: Chunk<P, D> &
      OnlyScratch<D, "packets live in scratch: the destination of readPutPackets must be a chunk of scratch">,
    src: Chunk<P, S> &
      OnlyScratch<S, "packets live in scratch: the source of readPutPackets must be a chunk of scratch">,
    at?: At<P>,
  ): void {
    this.recorder.put(this.record, "forward", "none", dst, src, strandsOf(at));
  }
}

/** Loads and stores in the peer's memory. */
export class MemoryChannel<P> extends Channel<P> {
  declare readonly kind: "memory";
  declare readonly flush: Sentence<"a memory channel has no flush: its stores are done in order, only a port channel's proxy needs one">;
  declare readonly putWithSignal: Sentence<"putWithSignal is of port channels: on a memory channel call put, then signal">;
  declare readonly putWithSignalAndFlush: Sentence<"putWithSignalAndFlush is of port channels: on a memory channel call put, then signal">;
  /** Raises the peer's counter; what was written before is visible to its waiter, unless relaxed. */
  signal(
    at?:
      | number
      | Sentence<"a synchronising operation is done by one strand: it takes no strand group">
      | RelaxedOptions,
  ): void {
    this.recorder.signalOrWait("signal", this.record, isRelaxed(at), oneOf(at), syncOf(at));
  }
  /** Waits for one more signal of the peer. */
  wait(
    at?:
      | number
      | Sentence<"a synchronising operation is done by one strand: it takes no strand group">
      | RelaxedOptions,
  ): void {
    this.recorder.signalOrWait("wait", this.record, isRelaxed(at), oneOf(at), syncOf(at));
  }
  /** dst = remote src. */
  get(dst: Chunk<P>, src: Chunk<P>, at?: At<P>): void {
    this.recorder.get(this.record, dst, src, strandsOf(at));
  }
  /** Writes src as packets to the peer's scratch. */
  putPackets<B extends BufferKind>(
    dst: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the destination of putPackets must be a chunk of the peer's scratch">,
    src: Chunk<P>,
    at?: At<P>,
  ): void {
    this.recorder.put(this.record, "pack", "none", dst, src, strandsOf(at));
  }
  /** dst = op(src, ...remote); dst is src unless told. */
  reduce(src: Chunk<P>, remote: readonly Chunk<P>[], at?: number | StrandGroup<P> | ReduceOptions<P>): void {
    const { dst, op } = reduceOptions<P>(at);
    this.recorder.channelReduce(this.record, src, remote, dst ?? src, op ?? this.op, strandsOf(at));
  }
}

/** Puts through a proxy (a network card, a copy engine). */
export class PortChannel<P> extends Channel<P> {
  declare readonly kind: "port";
  declare readonly get: Sentence<"a port channel cannot get: its proxy only puts; let the peer put, or use a memory channel">;
  declare readonly reduce: Sentence<"a port channel cannot reduce: put to scratch and reduce there, or use a memory channel">;
  signal(
    at?:
      | number
      | Sentence<"a synchronising operation is done by one strand: it takes no strand group">
      | PortSignalOptions,
  ): void {
    this.recorder.signalOrWait("signal", this.record, false, oneOf(at), syncOf(at));
  }
  wait(
    at?:
      | number
      | Sentence<"a synchronising operation is done by one strand: it takes no strand group">
      | PortWaitOptions,
  ): void {
    this.recorder.signalOrWait("wait", this.record, false, oneOf(at), syncOf(at));
  }
  /** Waits until the proxy is done with all that was put before: the sources may be reused. */
  flush(
    at?: number | Sentence<"a synchronising operation is done by one strand: it takes no strand group"> | SyncOptions,
  ): void {
    this.recorder.flush(this.record, oneOf(at), syncOf(at));
  }
  /** Puts packets (the source is in packet form already). */
  putPackets<B extends BufferKind>(
    dst: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the destination of putPackets must be a chunk of the peer's scratch">,
    src: Chunk<P>,
    at?: number | Sentence<"putPackets over a port channel is done by one strand: it takes no strand group">,
  ): void {
    this.recorder.put(this.record, "pack", "none", dst, src, oneOf(at));
  }
  /** Puts, then raises the peer's counter. */
  putWithSignal(
    dst: Chunk<P>,
    src: Chunk<P>,
    at?: number | Sentence<"a put that signals is done by one strand: it takes no strand group">,
  ): void {
    this.recorder.put(this.record, "plain", "signal", dst, src, oneOf(at));
  }
  /** Puts, raises the peer's counter, and waits until the source may be reused. */
  putWithSignalAndFlush(
    dst: Chunk<P>,
    src: Chunk<P>,
    at?: number | Sentence<"a put that signals is done by one strand: it takes no strand group">,
  ): void {
    this.recorder.put(this.record, "plain", "signal-flush", dst, src, oneOf(at));
  }
}

function isRelaxed(at: unknown): boolean {
  return typeof at === "object" && at !== null && "relaxed" in at && at.relaxed === true;
}

/** One buffer of several ranks as one multicast range: the switch reduces and broadcasts. */
export class SwitchChannel<P> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  readonly ranks: readonly number[];
  private readonly recorder: Recorder;
  private readonly record: SwitchRecord;
  private readonly op: PlanReduceOp;
  constructor(recorder: Recorder, record: SwitchRecord, op: PlanReduceOp) {
    this.recorder = recorder;
    this.record = record;
    this.ranks = record.ranks;
    this.op = op;
  }
  /** The channel as one member uses it. @throws InvalidArgumentError when `rank` is none */
  at(rank: RankHandle<P>): SwitchView<P> {
    this.recorder.need(
      this.ranks.includes(rank.id),
      "rank on a switch channel",
      rank.id,
      `one of its members ${this.ranks.join(", ")}`,
    );
    return new SwitchView(this.recorder, this.record, rank.id, this.op);
  }
}

export class SwitchView<P> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  private readonly recorder: Recorder;
  private readonly record: SwitchRecord;
  private readonly rank: number;
  private readonly op: PlanReduceOp;
  constructor(recorder: Recorder, record: SwitchRecord, rank: number, op: PlanReduceOp) {
    this.recorder = recorder;
    this.record = record;
    this.rank = rank;
    this.op = op;
  }
  /** dst = op over all members' buffers at [offset, offset + size of dst). */
  reduce(
    dst: Chunk<P>,
    offset: number,
    at?: number | Sentence<"a switch operation is done by one strand: it takes no strand group"> | SwitchReduceOptions,
  ): void {
    const { op } = reduceOptions<P>(at);
    this.recorder.switchReduce(this.record, this.rank, offset, dst.size, dst, op ?? this.op, oneOf(at));
  }
  /** All members' buffers at [offset, offset + size of src) = src. */
  broadcast(
    src: Chunk<P>,
    offset: number,
    at?: number | Sentence<"a switch operation is done by one strand: it takes no strand group">,
  ): void {
    this.recorder.switchBroadcast(this.record, this.rank, false, src, offset, src.size, oneOf(at));
  }
  /** Waits for packets in own scratch and broadcasts them to all members' scratch. */
  broadcastPackets<B extends BufferKind>(
    src: Chunk<P, B> & OnlyScratch<B, "packets live in scratch: broadcastPackets sends a chunk of scratch">,
    offset: number,
    at?: number | Sentence<"a switch operation is done by one strand: it takes no strand group">,
  ): void {
    this.recorder.switchBroadcast(this.record, this.rank, true, src, offset, src.size, oneOf(at));
  }
}

/** Cuts a list of operands so that each part and the accumulator fit one operation. */
function slices<T>(list: readonly T[]): T[][] {
  const most = EXECUTOR_LIMITS.rangesPerOp - 1;
  return Array.from({ length: Math.ceil(list.length / most) }, (_, i) => list.slice(i * most, (i + 1) * most));
}

/** What the callback of `program` works with. */
export class Builder<P> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  /** All ranks, in order. */
  readonly ranks: readonly RankHandle<P>[];
  private readonly recorder: Recorder;
  private readonly op: PlanReduceOp;
  private readonly links: (from: number, to: number) => ChannelKind;
  constructor(recorder: Recorder, op: PlanReduceOp, links: (from: number, to: number) => ChannelKind) {
    this.recorder = recorder;
    this.op = op;
    this.links = links;
    this.ranks = recorder.ranks.map((_, id) => new RankHandle<P>(recorder, id, op));
  }
  get numRanks(): number {
    return this.ranks.length;
  }
  /** @throws InvalidArgumentError when there is no such rank */
  rank(id: number): RankHandle<P> {
    const rank = this.ranks[id];
    this.recorder.need(rank !== undefined, "rank", id, `0 to ${this.numRanks - 1}`);
    return rank;
  }
  /** The number of a rank of this program. */
  private own(rank: RankHandle<P>): number {
    this.recorder.need(this.ranks[rank.id] === rank, "rank", "a rank of another program", "one of this program");
    return rank.id;
  }
  /** A memory channel. Make one the other way too: signals need it. */
  memoryChannel(from: RankHandle<P>, to: RankHandle<P>): MemoryChannel<P> {
    return new MemoryChannel(this.recorder, this.recorder.channel(MEMORY, this.own(to), this.own(from)), this.op);
  }
  /** A port channel. Make one the other way too: signals need it. */
  portChannel(from: RankHandle<P>, to: RankHandle<P>): PortChannel<P> {
    return new PortChannel(this.recorder, this.recorder.channel(PORT, this.own(to), this.own(from)), this.op);
  }
  /** A switch channel over one buffer of several ranks. Scratch must have been reserved before it is used. */
  switchChannel(ranks: readonly RankHandle<P>[], buffer: BufferKind): SwitchChannel<P> {
    return new SwitchChannel(
      this.recorder,
      this.recorder.switchChannel(
        ranks.map((rank) => this.own(rank)),
        BUFFERS.indexOf(buffer),
      ),
      this.op,
    );
  }
  /** @throws InvalidArgumentError when a strand is named twice */
  strandGroup(strands: readonly number[]): StrandGroup<P> {
    this.recorder.need(
      strands.length > 0 && new Set(strands).size === strands.length,
      "strands of a group",
      strands,
      "different strands, at least one",
    );
    return { strands: [...strands] } as unknown as StrandGroup<P>;
  }
  /** Runs what `body` records once for every `unitBytes` of `numChunks` chunks. */
  loop(options: { readonly unitBytes: number; readonly numChunks: number }, body: () => void): void {
    this.recorder.beginLoop(options.unitBytes, options.numChunks);
    body();
    this.recorder.endLoop();
  }

  /** dst = src, wherever both are: a local copy, or a put by the source's rank. Channels are made as needed. */
  copy(dst: Chunk<P>, src: Chunk<P>, at?: At<P>): void {
    if (dst.rank === src.rank) this.recorder.copy(src.rank, "plain", dst, src, strandsOf(at));
    else this.recorder.put(this.link(src.rank, dst.rank), "plain", "none", dst, src, strandsOf(at));
  }
  /** As `copy`, in packets: dst, in scratch, says itself when it is there. */
  copyPackets<B extends BufferKind>(
    dst: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the destination of copyPackets must be a chunk of scratch">,
    src: Chunk<P>,
    at?: At<P>,
  ): void {
    if (dst.rank === src.rank) this.recorder.copy(src.rank, "pack", dst, src, strandsOf(at));
    else this.recorder.put(this.link(src.rank, dst.rank), "pack", "none", dst, src, strandsOf(at));
  }
  /** Forwards packets from scratch to scratch of another rank. */
  forwardPackets<D extends BufferKind, S extends BufferKind>(
    dst: Chunk<P, D> &
      OnlyScratch<D, "packets live in scratch: the destination of forwardPackets must be a chunk of scratch">,
    src: Chunk<P, S> &
      OnlyScratch<S, "packets live in scratch: the source of forwardPackets must be a chunk of scratch">,
    at?: At<P>,
  ): void {
    this.recorder.put(this.link(src.rank, dst.rank), "forward", "none", dst, src, strandsOf(at));
  }
  /**
   * dst = op(src, ...others), by dst's rank; others may be remote when memory channels reach them. Long lists are cut
   * into several operations that accumulate, so that each fits an executor.
   */
  reduce(dst: Chunk<P>, src: Chunk<P>, others: readonly Chunk<P>[], at?: At<P>): void {
    const strands = strandsOf(at);
    let from = src;
    const local = others.filter((chunk) => chunk.rank === dst.rank);
    for (const part of slices(local)) {
      this.recorder.reduce(dst.rank, from, part, dst, this.op, false, strands);
      from = dst;
    }
    for (const chunk of others) {
      if (chunk.rank === dst.rank) continue;
      this.recorder.channelReduce(this.link(dst.rank, chunk.rank, "memory"), from, [chunk], dst, this.op, strands);
      from = dst;
    }
  }
  /** As `reduce`, where the others are packets in scratch of dst's rank. */
  reducePackets<B extends BufferKind>(
    dst: Chunk<P>,
    src: Chunk<P>,
    others: readonly (Chunk<P, B> & OnlyScratch<B, "packets live in scratch: reducePackets reads chunks of scratch">)[],
    at?: At<P>,
  ): void {
    let from = src;
    for (const part of slices(others)) {
      this.recorder.reduce(dst.rank, from, part, dst, this.op, true, strandsOf(at));
      from = dst;
    }
  }

  /** The channel that `copy` and `reduce` use from one rank to another. */
  private link(from: number, to: number, kind: ChannelKind = this.links(from, to)): ChannelRecord {
    const key = `${kind} ${Math.min(from, to)} ${Math.max(from, to)}`;
    let ids = this.recorder.links.get(key);
    if (ids === undefined) {
      ids = pairChannels(this.recorder.ranks, kind, from, to);
      this.recorder.links.set(key, ids);
    }
    return { kind: kind === "memory" ? MEMORY : PORT, id: ids.get(from) ?? 0, src: from, dst: to };
  }
}
