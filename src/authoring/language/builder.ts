/**
 * The language: what the callback of `program` is given. Every call is recorded; nothing runs. Vocabulary after the
 * MSCCL++ DSL, with types that refuse what it refuses only at run time, or not at all.
 */

import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { type ChannelRecord, MEMORY, PORT, pairChannels, type Recorder } from "../compiler/index.ts";
import {
  BUFFERS,
  type BufferKind,
  type ChannelKind,
  EXECUTOR_LIMITS,
  type PlaceContext,
  type PlanCollective,
  type PlanReduceOp,
  placeOf,
} from "../plan/index.ts";
import { needChunks, needTwo } from "./call-checks.ts";
import { CALLS } from "./call-signatures.ts";
import { MemoryChannel, PortChannel, SwitchChannel } from "./channels.ts";
import {
  type At,
  type Chunk,
  type StrandGroup,
  strandsOf,
  type valuesOfDifferentProgramsDoNotMix,
} from "./program-values.ts";
import { RankHandle } from "./rank-handle.ts";
import type { OnlyScratch } from "./type-error-sentence.ts";

/** Operands that fit one operation beside the accumulator. */
const MAX_OPERANDS = EXECUTOR_LIMITS.rangesPerOp - 1;

/** Cuts a list of operands so that each part and the accumulator fit one operation. */
function slices<T>(list: readonly T[]): T[][] {
  const most = MAX_OPERANDS;
  return Array.from({ length: Math.ceil(list.length / most) }, (_, i) => list.slice(i * most, (i + 1) * most));
}

const CHANNEL_KINDS: readonly ChannelKind[] = ["memory", "port"];

/** What the callback of `program` works with. */
export class Builder<P> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  /** All ranks, in order. */
  readonly ranks: readonly RankHandle<P>[];
  private readonly recorder: Recorder;
  private readonly op: PlanReduceOp;
  private readonly links: (from: number, to: number) => ChannelKind;
  private readonly places: PlaceContext;
  constructor(
    recorder: Recorder,
    op: PlanReduceOp,
    links: (from: number, to: number) => ChannelKind,
    collective: PlanCollective,
  ) {
    this.places = { collective, options: { instances: 1 } };
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
  /** The number of a rank of this program. @param call how the operation is called */
  private own(rank: RankHandle<P>, call: string): number {
    this.recorder.need(rank instanceof RankHandle, "rank", rank, `a rank (p.rank(0)), as in ${call}`);
    this.recorder.need(
      this.ranks[rank.id] === rank,
      "rank",
      described("one of another program"),
      "one of this program",
    );
    return rank.id;
  }
  /** A memory channel. Make one the other way too: signals need it. */
  memoryChannel(from: RankHandle<P>, to: RankHandle<P>): MemoryChannel<P> {
    return new MemoryChannel(this.recorder, this.channel(MEMORY, from, to, CALLS.memoryChannel), this.op);
  }
  /** A port channel. Make one the other way too: signals need it. */
  portChannel(from: RankHandle<P>, to: RankHandle<P>): PortChannel<P> {
    return new PortChannel(this.recorder, this.channel(PORT, from, to, CALLS.portChannel), this.op);
  }
  private channel(kind: number, from: RankHandle<P>, to: RankHandle<P>, call: string): ChannelRecord {
    const source = this.own(from, call);
    return this.recorder.channel(kind, this.own(to, call), source);
  }
  /** A switch channel over one buffer of several ranks. Scratch must have been reserved before it is used. */
  switchChannel(ranks: readonly RankHandle<P>[], buffer: BufferKind): SwitchChannel<P> {
    this.recorder.need(Array.isArray(ranks), "ranks", ranks, `a list of ranks, as in ${CALLS.switchChannel}`);
    this.recorder.need(BUFFERS.includes(buffer), "buffer", buffer, BUFFERS.join(", "));
    return new SwitchChannel(
      this.recorder,
      this.recorder.switchChannel(
        ranks.map((rank) => this.own(rank, CALLS.switchChannel)),
        BUFFERS.indexOf(buffer),
      ),
      this.op,
    );
  }
  /** @throws InvalidArgumentError when a strand is named twice */
  strandGroup(strands: readonly number[]): StrandGroup<P> {
    this.recorder.need(Array.isArray(strands), "strands", strands, `a list of numbers, as in ${CALLS.strandGroup}`);
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
    this.recorder.need(typeof options === "object" && options !== null, "options", options, `as in ${CALLS.loop}`);
    this.recorder.need(typeof body === "function", "body", body, `a function, as in ${CALLS.loop}`);
    this.recorder.beginLoop(options.unitBytes, options.numChunks);
    body();
    this.recorder.endLoop();
  }

  /** dst = src, wherever both are: a local copy, or a put by the source's rank. Channels are made as needed. */
  copy(dst: Chunk<P>, src: Chunk<P>, at?: At<P>): void {
    needTwo(this.recorder, dst, src, CALLS.copy);
    if (dst.rank === src.rank) this.recorder.copy(src.rank, "plain", dst, src, strandsOf(this.recorder, at));
    else this.recorder.put(this.link(src.rank, dst.rank), "plain", "none", dst, src, strandsOf(this.recorder, at));
  }
  /**
   * As `copy` to another rank, by the named nodes of the topology that the program is made for, from the source's device to
   * the destination's: a simulator follows them. Each way between two ranks has channels of its own.
   */
  copyAlong(nodes: readonly string[], dst: Chunk<P>, src: Chunk<P>, at?: At<P>): void {
    needTwo(this.recorder, dst, src, CALLS.copyAlong);
    this.recorder.need(dst.rank !== src.rank, "dst", dst.rank, "a chunk of another rank than src");
    const isWay = Array.isArray(nodes) && nodes.length > 1 && nodes.every((node) => typeof node === "string");
    this.recorder.need(isWay, "nodes", nodes, "ids of two or more nodes");
    const link = this.link(src.rank, dst.rank, undefined, nodes);
    this.recorder.put(link, "plain", "none", dst, src, strandsOf(this.recorder, at));
  }
  /** As `copy`, in packets: dst, in scratch, says itself when it is there. */
  copyPackets<B extends BufferKind>(
    dst: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the destination of copyPackets must be a chunk of scratch">,
    src: Chunk<P>,
    at?: At<P>,
  ): void {
    needTwo(this.recorder, dst, src, CALLS.copyPackets);
    if (dst.rank === src.rank) this.recorder.copy(src.rank, "pack", dst, src, strandsOf(this.recorder, at));
    else this.recorder.put(this.link(src.rank, dst.rank), "pack", "none", dst, src, strandsOf(this.recorder, at));
  }
  /** Forwards packets from scratch to scratch of another rank. */
  forwardPackets<D extends BufferKind, S extends BufferKind>(
    dst: Chunk<P, D> &
      OnlyScratch<D, "packets live in scratch: the destination of forwardPackets must be a chunk of scratch">,
    src: Chunk<P, S> &
      OnlyScratch<S, "packets live in scratch: the source of forwardPackets must be a chunk of scratch">,
    at?: At<P>,
  ): void {
    needTwo(this.recorder, dst, src, CALLS.forwardPackets);
    this.recorder.put(this.link(src.rank, dst.rank), "forward", "none", dst, src, strandsOf(this.recorder, at));
  }
  /**
   * dst = op(src, ...others), by dst's rank; others may be remote when memory channels reach them. Long lists are cut
   * into several operations that accumulate, so that each fits an executor.
   */
  reduce(dst: Chunk<P>, src: Chunk<P>, others: readonly Chunk<P>[], at?: At<P>): void {
    needTwo(this.recorder, dst, src, CALLS.reduce);
    needChunks(this.recorder, others, "others", CALLS.reduce);
    const strands = strandsOf(this.recorder, at);
    this.recorder.need(others.length > 0, "others", others, "at least one chunk to reduce with");
    let from = src;
    const local = this.destinationFirst(
      dst,
      others.filter((chunk) => chunk.rank === dst.rank),
    );
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
    needTwo(this.recorder, dst, src, CALLS.reducePackets);
    needChunks(this.recorder, others, "others", CALLS.reducePackets);
    let from = src;
    this.recorder.need(others.length > 0, "others", others, "at least one chunk to reduce with");
    for (const part of slices(this.destinationFirst(dst, others))) {
      this.recorder.reduce(dst.rank, from, part, dst, this.op, true, strandsOf(this.recorder, at));
      from = dst;
    }
  }

  /**
   * Operands that lie where the result goes come first: several operations are needed for a long list, and the first of
   * them overwrites these places.
   * @throws InvalidArgumentError when more operands lie there than one operation takes
   */
  private destinationFirst<T extends Chunk<P>>(dst: Chunk<P>, list: readonly T[]): readonly T[] {
    if (list.length <= MAX_OPERANDS) return list;
    const places = ({ rank, buffer, index, size }: Chunk<P>) =>
      Array.from({ length: size }, (_, i) => {
        const place = placeOf(this.places, rank, BUFFERS[buffer] as BufferKind, index + i);
        return `${place.buffer} ${place.index}`;
      });
    const written = new Set(places(dst));
    const overlaps = (chunk: T) => places(chunk).some((place) => written.has(place));
    const first = list.filter(overlaps);
    this.recorder.need(
      first.length <= MAX_OPERANDS,
      "others",
      `${first.length} chunks where the result goes`,
      `${MAX_OPERANDS} of them at most`,
    );
    return [...first, ...list.filter((chunk) => !overlaps(chunk))];
  }

  /** The channel that `copy` and `reduce` use from one rank to another. */
  private link(
    from: number,
    to: number,
    kind: ChannelKind = this.links(from, to),
    nodes?: readonly string[],
  ): ChannelRecord {
    if (!CHANNEL_KINDS.includes(kind)) throw new InvalidArgumentError("channel", kind, CHANNEL_KINDS.join(" or "));
    const pair = `${kind} ${Math.min(from, to)} ${Math.max(from, to)}`;
    const key = nodes === undefined ? pair : `${pair} ${JSON.stringify(from < to ? nodes : [...nodes].reverse())}`;
    let ids = this.recorder.links.get(key);
    if (ids === undefined) {
      ids = pairChannels(this.recorder.ranks, kind, from, to);
      this.recorder.links.set(key, ids);
      if (nodes !== undefined) {
        const [here, there] = [ids.get(from) as number, ids.get(to) as number];
        this.recorder.ranks[from]?.ways.push({ kind, channel: here, nodes });
        this.recorder.ranks[to]?.ways.push({ kind, channel: there, nodes: [...nodes].reverse() });
      }
    }
    return { kind: kind === "memory" ? MEMORY : PORT, id: ids.get(from) ?? 0, src: from, dst: to };
  }
}
