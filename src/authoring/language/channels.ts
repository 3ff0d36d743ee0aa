/** Channels between ranks: memory, port and switch. */

import type { ChannelRecord, Recorder, SwitchRecord } from "../compiler/index.ts";
import type { BufferKind, PlanReduceOp } from "../plan/index.ts";
import { needChunk, needChunks, needOffset, needTwo } from "./call-checks.ts";
import { CALLS } from "./call-signatures.ts";
import {
  type At,
  type Chunk,
  isRelaxed,
  oneOf,
  type PortSignalOptions,
  type PortWaitOptions,
  type ReduceOptions,
  type RelaxedOptions,
  reduceOptions,
  type StrandGroup,
  type SwitchReduceOptions,
  type SyncOptions,
  strandsOf,
  syncOf,
  type valuesOfDifferentProgramsDoNotMix,
} from "./program-values.ts";
import type { RankHandle } from "./rank-handle.ts";
import type { OneStrand, OnlyScratch, Sentence } from "./type-error-sentence.ts";

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
  /** How error messages show it. */
  toJSON(): string {
    return `a channel from rank ${this.from} to rank ${this.to}`;
  }
  protected synchronise(what: "signal" | "wait", relaxed: boolean, at: Parameters<typeof syncOf>[1]): void {
    this.recorder.signalOrWait(what, this.record, relaxed, oneOf(this.recorder, at), syncOf(this.recorder, at));
  }
  /** remote dst = src. */
  put(dst: Chunk<P>, src: Chunk<P>, at?: At<P>): void {
    needTwo(this.recorder, dst, src, CALLS.put);
    this.recorder.put(this.record, "plain", "none", dst, src, strandsOf(this.recorder, at));
  }
  /** Waits for packets in own scratch and sends them on, as packets. */
  readPutPackets<D extends BufferKind, S extends BufferKind>(
    dst: Chunk<P, D> &
      OnlyScratch<D, "packets live in scratch: the destination of readPutPackets must be a chunk of scratch">,
    src: Chunk<P, S> &
      OnlyScratch<S, "packets live in scratch: the source of readPutPackets must be a chunk of scratch">,
    at?: At<P>,
  ): void {
    needTwo(this.recorder, dst, src, CALLS.readPutPackets);
    this.recorder.put(this.record, "forward", "none", dst, src, strandsOf(this.recorder, at));
  }
}

/** Loads and stores in the peer's memory. */
export class MemoryChannel<P> extends Channel<P> {
  declare readonly kind: "memory";
  declare readonly flush: Sentence<"a memory channel has no flush: its stores are done in order, only a port channel's proxy needs one">;
  declare readonly putWithSignal: Sentence<"putWithSignal is of port channels: on a memory channel call put, then signal">;
  declare readonly putWithSignalAndFlush: Sentence<"putWithSignalAndFlush is of port channels: on a memory channel call put, then signal">;
  /** Raises the peer's counter; what was written before is visible to its waiter, unless relaxed. */
  signal(at?: number | Sentence<OneStrand> | RelaxedOptions): void {
    this.synchronise("signal", isRelaxed(this.recorder, at), at);
  }
  /** Waits for one more signal of the peer. */
  wait(at?: number | Sentence<OneStrand> | RelaxedOptions): void {
    this.synchronise("wait", isRelaxed(this.recorder, at), at);
  }
  /** dst = remote src. */
  get(dst: Chunk<P>, src: Chunk<P>, at?: At<P>): void {
    needTwo(this.recorder, dst, src, CALLS.get);
    this.recorder.get(this.record, dst, src, strandsOf(this.recorder, at));
  }
  /** Writes src as packets to the peer's scratch. */
  putPackets<B extends BufferKind>(
    dst: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the destination of putPackets must be a chunk of the peer's scratch">,
    src: Chunk<P>,
    at?: At<P>,
  ): void {
    needTwo(this.recorder, dst, src, CALLS.putPackets);
    this.recorder.put(this.record, "pack", "none", dst, src, strandsOf(this.recorder, at));
  }
  /** dst = op(src, ...remote); dst is src by default. */
  reduce(src: Chunk<P>, remote: readonly Chunk<P>[], at?: number | StrandGroup<P> | ReduceOptions<P>): void {
    needChunk(this.recorder, src, "src", CALLS.channelReduce);
    needChunks(this.recorder, remote, "remote", CALLS.channelReduce);
    const { dst, op } = reduceOptions<P>(this.recorder, at, CALLS.channelReduce);
    this.recorder.channelReduce(this.record, src, remote, dst ?? src, op ?? this.op, strandsOf(this.recorder, at));
  }
}

/** Puts through a proxy (a network card, a copy engine). */
export class PortChannel<P> extends Channel<P> {
  declare readonly kind: "port";
  declare readonly get: Sentence<"a port channel cannot get: its proxy only puts; let the peer put, or use a memory channel">;
  declare readonly reduce: Sentence<"a port channel cannot reduce: put to scratch and reduce there, or use a memory channel">;
  signal(at?: number | Sentence<OneStrand> | PortSignalOptions): void {
    this.synchronise("signal", false, at);
  }
  wait(at?: number | Sentence<OneStrand> | PortWaitOptions): void {
    this.synchronise("wait", false, at);
  }
  /** Waits until the proxy is done with all that was put before: the sources may be reused. */
  flush(at?: number | Sentence<OneStrand> | SyncOptions): void {
    this.recorder.flush(this.record, oneOf(this.recorder, at), syncOf(this.recorder, at));
  }
  /** Puts packets (the source is in packet form already). */
  putPackets<B extends BufferKind>(
    dst: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the destination of putPackets must be a chunk of the peer's scratch">,
    src: Chunk<P>,
    at?: number | Sentence<"putPackets over a port channel is done by one strand: it takes no strand group">,
  ): void {
    needTwo(this.recorder, dst, src, CALLS.putPackets);
    this.recorder.put(this.record, "pack", "none", dst, src, oneOf(this.recorder, at));
  }
  /** Puts, then raises the peer's counter. */
  putWithSignal(
    dst: Chunk<P>,
    src: Chunk<P>,
    at?: number | Sentence<"a put that signals is done by one strand: it takes no strand group">,
  ): void {
    needTwo(this.recorder, dst, src, CALLS.putWithSignal);
    this.recorder.put(this.record, "plain", "signal", dst, src, oneOf(this.recorder, at));
  }
  /** Puts, raises the peer's counter, and waits until the source may be reused. */
  putWithSignalAndFlush(
    dst: Chunk<P>,
    src: Chunk<P>,
    at?: number | Sentence<"a put that signals is done by one strand: it takes no strand group">,
  ): void {
    needTwo(this.recorder, dst, src, CALLS.putWithSignalAndFlush);
    this.recorder.put(this.record, "plain", "signal-flush", dst, src, oneOf(this.recorder, at));
  }
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
  /** How error messages show it. */
  toJSON(): string {
    return `a switch channel over ranks ${this.ranks.join(", ")}`;
  }
  /** The channel as one member uses it. @throws InvalidArgumentError when `rank` is none */
  at(rank: RankHandle<P>): SwitchView<P> {
    this.recorder.need(typeof rank?.id === "number", "rank", rank, `a rank (p.rank(0)), as in ${CALLS.switchAt}`);
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
    needChunk(this.recorder, dst, "dst", CALLS.switchReduce);
    const { op } = reduceOptions<P>(this.recorder, at, CALLS.switchReduce);
    needOffset(this.recorder, offset);
    this.recorder.switchReduce(this.record, this.rank, offset, dst.size, dst, op ?? this.op, oneOf(this.recorder, at));
  }
  /** All members' buffers at [offset, offset + size of src) = src. */
  broadcast(
    src: Chunk<P>,
    offset: number,
    at?: number | Sentence<"a switch operation is done by one strand: it takes no strand group">,
  ): void {
    needChunk(this.recorder, src, "src", CALLS.switchBroadcast);
    needOffset(this.recorder, offset);
    this.recorder.switchBroadcast(this.record, this.rank, false, src, offset, src.size, oneOf(this.recorder, at));
  }
  /** Waits for packets in own scratch and broadcasts them to all members' scratch. */
  broadcastPackets<B extends BufferKind>(
    src: Chunk<P, B> & OnlyScratch<B, "packets live in scratch: broadcastPackets sends a chunk of scratch">,
    offset: number,
    at?: number | Sentence<"a switch operation is done by one strand: it takes no strand group">,
  ): void {
    needChunk(this.recorder, src, "src", CALLS.switchBroadcastPackets);
    needOffset(this.recorder, offset);
    this.recorder.switchBroadcast(this.record, this.rank, true, src, offset, src.size, oneOf(this.recorder, at));
  }
}
