/**
 * Records a program: numbers in, tapes and tables out. The typed language and the trace replayer both stand on it. It
 * checks at every call what MSCCL++ checks (ranks, sizes, packets only through scratch), and in chorale's own mode also
 * what MSCCL++ lets pass: negative numbers, a channel to oneself, sizes of a get, ranges beyond a buffer.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { BUFFERS, type PlanReduceOp, type SourceLocation } from "../plan/index.ts";
import { type CopyFormat, type Notify, type PutFormat, type RawChunk, type Stamp, Tape } from "./op-tape.ts";
import {
  type ChannelRecord,
  MEMORY,
  type RankRecord,
  roomOf,
  SCRATCH,
  type SemaphoreRecord,
  StrandRecord,
  SWITCH,
  type SwitchRecord,
} from "./rank-records.ts";

/** One member of a group, doing its own slice only. */
export interface GroupMember {
  readonly group: readonly number[];
  readonly strand: number;
}
/** One strand or a group of them; a group shares the operation. */
export type Strands = number | readonly number[] | GroupMember;

/**
 * Operations and channels of a program, all instances together. Compiling takes some 2.5 KB for each, which is what the
 * heap of Node holds unless told otherwise; thousands of ranks are for sketches (`runSketch`).
 */
export const MAX_OPERATIONS = 2 ** 20;

export interface RecorderOptions {
  readonly numRanks: number;
  /** How often the compiler will replicate what is recorded; once by default. */
  readonly instances?: number;
  readonly inputChunks: (rank: number) => number;
  readonly outputChunks: (rank: number) => number;
  /** Also refuse what MSCCL++ lets pass. */
  readonly strict: boolean;
  /** Where the call being recorded stands in the user's program, or undefined. */
  readonly locate?: (failing: boolean) => SourceLocation | undefined;
}

export class Recorder {
  readonly ranks: RankRecord[];
  readonly sources: SourceLocation[] = [];
  /** Signals minus waits by "kind a b", as MSCCL++ counts them. */
  readonly signals = new Map<number, number>();
  /**
   * Pairs of channels that the language made for data, by "kind lower higher" and the way, if it has one: nobody
   * signals on them.
   */
  readonly links = new Map<string, ReadonlyMap<number, number>>();
  private readonly sourceIds = new Map<string, number>();
  private seq = 0;
  private numRecorded = 0;
  private loop: { unit: number; numChunks: number; tapes: Map<number, Tape>; source: number } | undefined;
  private closed = false;
  private readonly options: RecorderOptions;

  constructor(options: RecorderOptions) {
    this.options = options;
    this.ranks = Array.from({ length: options.numRanks }, (_, rank) => ({
      rank,
      inputChunks: options.inputChunks(rank),
      outputChunks: options.outputChunks(rank),
      scratchChunks: 0,
      strands: [],
      memory: [],
      port: [],
      switches: [],
      channelKinds: [],
      remotes: new Map(),
      semaphores: [],
      barriers: new Map(),
      ways: [],
    }));
  }

  get numOps(): number {
    return this.seq;
  }

  /** No call is accepted after this. */
  close(): void {
    this.need(this.loop === undefined, "loop", described("open"), "every loop to be closed before the program ends");
    this.closed = true;
  }

  /** @throws InvalidArgumentError naming the line of the program, unless `holds` */
  need(holds: boolean, argument: string, value: unknown, accepted: string): asserts holds {
    if (holds) return;
    const at = this.options.locate?.(true);
    throw new InvalidArgumentError(
      argument,
      value,
      at === undefined ? accepted : `${accepted} (${at.file}:${at.line}:${at.column})`,
    );
  }

  // ---- buffers, channels, semaphores

  /** Reserves scratch. @returns the index of its first chunk */
  scratch(rank: number, size: number): number {
    const record = this.rank(rank, "rank of a scratch buffer");
    if (this.options.strict)
      this.need(Number.isInteger(size) && size >= 0, "size of a scratch buffer", size, "a whole number of chunks");
    const offset = record.scratchChunks;
    record.scratchChunks += size;
    return offset;
  }

  channel(kind: number, dst: number, src: number): ChannelRecord {
    const from = this.rank(src, "source rank of a channel");
    this.rank(dst, "destination rank of a channel");
    if (this.options.strict)
      this.need(src !== dst, "destination rank of a channel", dst, `another rank than its source ${src}`);
    this.spend(1);
    if (!from.channelKinds.includes(kind)) from.channelKinds.push(kind);
    const list = kind === MEMORY ? from.memory : from.port;
    list.push(dst);
    return { kind, id: list.length - 1, src, dst };
  }

  switchChannel(ranks: readonly number[], buffer: number): SwitchRecord {
    for (const rank of ranks) this.rank(rank, "member of a switch channel");
    if (this.options.strict)
      this.need(new Set(ranks).size === ranks.length, "ranks of a switch channel", ranks, "different ranks");
    this.spend(ranks.length);
    const ids = ranks.map((rank) => {
      const record = this.ranks[rank] as RankRecord;
      record.switches.push({ buffer, ranks });
      return record.switches.length - 1;
    });
    return { buffer, ranks, ids };
  }

  semaphore(rank: number, initialValue: number): SemaphoreRecord {
    const record = this.rank(rank, "rank of a semaphore");
    if (this.options.strict)
      this.need(Number.isInteger(initialValue) && initialValue >= 0, "initial value", initialValue, "0 or more");
    record.semaphores.push(initialValue);
    return { rank, id: record.semaphores.length - 1 };
  }

  // ---- local operations

  copy(rank: number, format: CopyFormat, dst: RawChunk, src: RawChunk, strands: Strands): void {
    this.need(dst.rank === rank && src.rank === rank, "ranks of a copy", [dst.rank, src.rank], `both ${rank}`);
    this.sameSize(dst, src);
    if (format === "unpack")
      this.need(src.buffer === SCRATCH, "source of unpackPackets", BUFFERS[src.buffer], "scratch");
    if (format === "pack")
      this.need(dst.buffer === SCRATCH, "destination of copyPackets", BUFFERS[dst.buffer], "scratch");
    this.inside(dst);
    this.inside(src);
    this.each(rank, strands, (tape, stamp) => tape.copy(stamp, format, dst, src));
  }

  reduce(
    rank: number,
    src: RawChunk,
    others: readonly RawChunk[],
    dst: RawChunk,
    op: PlanReduceOp,
    packets: boolean,
    strands: Strands,
  ): void {
    this.need(dst.rank === rank && src.rank === rank, "ranks of a reduction", [dst.rank, src.rank], `both ${rank}`);
    this.sameSize(dst, src);
    this.need(others.length > 0, "others", others, "at least one chunk to reduce with");
    for (const other of others) {
      this.need(other.rank === rank, "rank of a chunk to reduce", other.rank, `${rank}`);
      this.sameSize(other, dst);
      if (packets) this.need(other.buffer === SCRATCH, "packets to reduce", BUFFERS[other.buffer], "chunks of scratch");
      this.inside(other);
    }
    this.inside(dst);
    this.inside(src);
    this.each(rank, strands, (tape, stamp) => tape.reduce(stamp, op, packets, undefined, dst, [src, ...others], []));
  }

  barrier(rank: number, strands: readonly number[]): void {
    const record = this.rank(rank, "rank of a barrier");
    if (!Array.isArray(strands) || (this.options.strict && !strands.every(Number.isInteger)))
      this.need(false, "strands of a barrier", strands, "a list of numbers, as in barrier([0, 1])");
    this.need(strands.length > 0, "strands of a barrier", strands, "at least one");
    if (strands.length === 1) {
      this.each(rank, strands[0] as number, (tape, stamp) => tape.nop(stamp));
      return;
    }
    if (this.options.strict)
      this.need(new Set(strands).size === strands.length, "strands of a barrier", strands, "different strands");
    const key = strands.join(",");
    const id = record.barriers.get(key) ?? record.barriers.size;
    record.barriers.set(key, id);
    for (const strand of strands) this.each(rank, strand, (tape, stamp) => tape.barrier(stamp, id, strands.length));
  }

  acquireOrRelease(what: "acquire" | "release", { rank, id }: SemaphoreRecord, strand: number, sync: number): void {
    this.each(rank, strand, (tape, stamp) => tape.semaphore(stamp, what, id, sync));
  }

  // ---- channels

  signalOrWait(what: "signal" | "wait", c: ChannelRecord, relaxed: boolean, strand: number, sync: number): void {
    this.count(c, what === "signal" ? 1 : -1);
    this.each(c.src, strand, (tape, stamp) => tape.signal(stamp, what, c, relaxed, sync), c);
  }

  flush(c: ChannelRecord, strand: number, sync: number): void {
    this.each(c.src, strand, (tape, stamp) => tape.signal(stamp, "flush", c, false, sync), c);
  }

  get(c: ChannelRecord, dst: RawChunk, src: RawChunk, strands: Strands): void {
    this.need(dst.rank === c.src, "rank of a get's destination", dst.rank, `${c.src}, the channel's own end`);
    this.need(src.rank === c.dst, "rank of a get's source", src.rank, `${c.dst}, the channel's far end`);
    if (this.options.strict) this.sameSize(dst, src);
    this.inside(dst);
    this.inside(src);
    this.each(c.src, strands, (tape, stamp) => tape.get(stamp, c, dst, src), c, [src]);
  }

  put(c: ChannelRecord, format: PutFormat, notify: Notify, dst: RawChunk, src: RawChunk, strands: Strands): void {
    this.need(src.rank === c.src, "rank of a put's source", src.rank, `${c.src}, the channel's own end`);
    this.need(dst.rank === c.dst, "rank of a put's destination", dst.rank, `${c.dst}, the channel's far end`);
    if (format !== "plain") this.need(dst.buffer === SCRATCH, "destination of packets", BUFFERS[dst.buffer], "scratch");
    if (format === "forward")
      this.need(src.buffer === SCRATCH, "source of readPutPackets", BUFFERS[src.buffer], "scratch");
    this.sameSize(dst, src);
    this.inside(dst);
    this.inside(src);
    if (notify !== "none") this.count(c, 1);
    this.each(c.src, strands, (tape, stamp) => tape.put(stamp, format, notify, c, dst, src), c, [dst]);
  }

  channelReduce(
    c: ChannelRecord,
    src: RawChunk,
    remote: readonly RawChunk[],
    dst: RawChunk,
    op: PlanReduceOp,
    strands: Strands,
  ): void {
    this.need(src.rank === c.src, "rank of the local source", src.rank, `${c.src}, the channel's own end`);
    this.sameSize(dst, src);
    if (this.options.strict) {
      this.need(dst.rank === c.src, "rank of the local destination", dst.rank, `${c.src}, the channel's own end`);
      this.need(remote.length > 0, "remote chunks", remote, "at least one");
    }
    for (const chunk of remote) {
      this.need(chunk.rank === c.dst, "rank of a remote source", chunk.rank, `${c.dst}, the channel's far end`);
      this.sameSize(chunk, src);
      this.inside(chunk);
    }
    this.inside(dst);
    this.inside(src);
    this.each(c.src, strands, (tape, stamp) => tape.reduce(stamp, op, false, c, dst, [src], remote), c, remote);
  }

  switchReduce(
    s: SwitchRecord,
    rank: number,
    index: number,
    size: number,
    dst: RawChunk,
    op: PlanReduceOp,
    strand: number,
  ): void {
    const id = this.switchId(s, rank, dst, index, size);
    const record = (tape: Tape, stamp: Stamp) => tape.switchReduce(stamp, op, id, index, dst, rank);
    this.each(rank, strand, record, { kind: SWITCH, id });
  }

  switchBroadcast(
    s: SwitchRecord,
    rank: number,
    forward: boolean,
    src: RawChunk,
    index: number,
    size: number,
    strand: number,
  ): void {
    if (forward) {
      this.need(src.buffer === SCRATCH, "source of broadcastPackets", BUFFERS[src.buffer], "scratch");
      this.need(s.buffer === SCRATCH, "buffer of a switch channel for packets", BUFFERS[s.buffer], "scratch");
    }
    const id = this.switchId(s, rank, src, index, size);
    const record = (tape: Tape, stamp: Stamp) => tape.switchBroadcast(stamp, forward, id, index, src, rank);
    this.each(rank, strand, record, { kind: SWITCH, id });
  }

  // ---- loops

  beginLoop(unit: number, numChunks: number): void {
    this.need(this.loop === undefined, "loop", described("within another loop"), "loops one after the other");
    if (this.options.strict) {
      this.need(Number.isInteger(unit) && unit > 0, "unit of a loop", unit, "a number of bytes, 1 or more");
      this.need(
        Number.isInteger(numChunks) && numChunks > 0,
        "chunks of a loop",
        numChunks,
        "a number of chunks, 1 or more",
      );
    }
    this.loop = { unit, numChunks, tapes: new Map(), source: this.source() };
  }

  endLoop(): void {
    const loop = this.loop;
    this.need(loop !== undefined, "loop", described("not open"), "a loop to end");
    const seq = this.seq++;
    this.loop = undefined;
    for (const [key, body] of loop.tapes) {
      const strand = this.strand(Math.floor(key / 65536), key % 65536);
      strand.tape.pipeline({ seq, source: loop.source, tbgIndex: 0, tbgSize: 0 }, loop.unit, loop.numChunks, body);
    }
  }

  // ---- within

  /** @throws InvalidArgumentError for a program that no plan would hold: a slip of a digit should be told, not run out of memory */
  private spend(amount: number): void {
    this.numRecorded += amount;
    const { instances = 1, numRanks } = this.options;
    if (this.numRecorded * instances > MAX_OPERATIONS)
      this.need(
        false,
        "size of the program",
        described(`more than ${MAX_OPERATIONS} operations and channels`),
        `fewer ranks, chunks or instances than ${numRanks} ranks in ${instances} instance${instances === 1 ? "" : "s"} have here`,
      );
  }

  private rank(rank: number, argument: string): RankRecord {
    // MSCCL++ counts negative ranks from the end, without meaning to.
    const record = this.ranks[rank < 0 && !this.options.strict ? this.ranks.length + rank : rank];
    this.need(record !== undefined, argument, rank, `0 to ${this.ranks.length - 1}`);
    return record;
  }

  private sameSize(a: RawChunk, b: RawChunk): void {
    if (a.size !== b.size) this.need(false, "sizes of the two sides", [a.size, b.size], "equal numbers of chunks");
  }

  private inside({ rank, buffer, index, size, owner }: RawChunk): void {
    if (!this.options.strict) return;
    if (owner !== undefined && owner !== this)
      this.need(false, "chunk", described("one of another program"), "one of this program");
    const room = roomOf(this.ranks[rank] as RankRecord, buffer);
    if (index < 0 || size < 0 || index + size > room) {
      this.need(
        false,
        `${BUFFERS[buffer]} of rank ${rank}`,
        [index, index + size],
        `a range within its ${room} chunks`,
      );
    }
  }

  private switchId(s: SwitchRecord, rank: number, chunk: RawChunk, index: number, size: number): number {
    const member = s.ranks.lastIndexOf(rank);
    this.need(member >= 0, "rank on a switch channel", rank, `one of its members ${s.ranks.join(", ")}`);
    this.need(
      s.ranks.includes(chunk.rank),
      "rank of the chunk",
      chunk.rank,
      `one of the members ${s.ranks.join(", ")}`,
    );
    if (this.options.strict) {
      this.need(chunk.rank === rank, "rank of the chunk", chunk.rank, `${rank}, the rank that executes`);
      this.inside(chunk);
    }
    this.need(chunk.size === size, "size of the chunk", chunk.size, `${size}, as on the switch`);
    for (const r of s.ranks) {
      const room = roomOf(this.ranks[r] as RankRecord, s.buffer);
      this.need(
        room >= index + size,
        "end of the range on the switch",
        index + size,
        `at most ${room}, the ${BUFFERS[s.buffer]} of rank ${r}`,
      );
    }
    return s.ids[member] as number;
  }

  private count(c: ChannelRecord, change: number): void {
    // Waits are counted for the pair as the waiter sees it: signals src->dst meet waits at dst for src.
    const [a, b] = change > 0 ? [c.src, c.dst] : [c.dst, c.src];
    const key = (c.kind * 65536 + a) * 65536 + b;
    this.signals.set(key, (this.signals.get(key) ?? 0) + change);
  }

  private source(): number {
    const at = this.options.locate?.(false);
    if (at === undefined) return -1;
    const key = `${at.file}:${at.line}:${at.column}`;
    let id = this.sourceIds.get(key);
    if (id === undefined) {
      id = this.sources.push(at) - 1;
      this.sourceIds.set(key, id);
    }
    return id;
  }

  private strand(rank: number, strand: number): StrandRecord {
    const record = this.rank(rank, "rank");
    if (!Number.isInteger(strand) || strand < 0 || strand > 65535)
      this.need(false, "strand", strand, "the number of a strand, 0 or more");
    while (record.strands.length <= strand) record.strands.push(new StrandRecord());
    return record.strands[strand] as StrandRecord;
  }

  private each(
    rank: number,
    strands: Strands,
    append: (tape: Tape, stamp: Stamp) => void,
    channel?: { readonly kind: number; readonly id: number },
    remotes?: readonly RawChunk[],
  ): void {
    this.need(!this.closed, "program", described("finished"), "calls only while it is being built");
    const source = this.source();
    if (typeof strands === "number") {
      this.one(rank, strands, append, { seq: this.seq++, source, tbgIndex: 0, tbgSize: 0 }, channel, remotes);
      return;
    }
    const seq = this.seq++;
    if ("group" in strands) {
      const { group, strand } = strands;
      const tbgIndex = group.indexOf(strand);
      this.need(tbgIndex >= 0, "strand", strand, `one of its group ${group.join(", ")}`);
      this.one(rank, strand, append, { seq, source, tbgIndex, tbgSize: group.length }, channel, remotes);
      return;
    }
    this.need(strands.length > 0, "strands", strands, "at least one");
    for (let i = 0; i < strands.length; i++) {
      this.one(
        rank,
        strands[i] as number,
        append,
        { seq, source, tbgIndex: i, tbgSize: strands.length },
        channel,
        remotes,
      );
    }
  }

  private one(
    rank: number,
    strandId: number,
    append: (tape: Tape, stamp: Stamp) => void,
    stamp: Stamp,
    channel: { readonly kind: number; readonly id: number } | undefined,
    remotes: readonly RawChunk[] | undefined,
  ): void {
    this.spend(1);
    if (channel !== undefined) {
      const strand = this.strand(rank, strandId);
      if (remotes !== undefined)
        for (const chunk of remotes) this.registerRemote(this.ranks[rank] as RankRecord, strand, channel.kind, chunk);
      const ids = strand.channels.get(channel.kind);
      if (ids === undefined) strand.channels.set(channel.kind, new Set([channel.id]));
      else ids.add(channel.id);
    }
    if (this.loop === undefined) {
      append(this.strand(rank, strandId).tape, stamp);
      return;
    }
    this.need(
      Number.isInteger(strandId) && strandId >= 0 && strandId < 65536,
      "strand",
      strandId,
      "the number of a strand, 0 or more",
    );
    const key = rank * 65536 + strandId;
    let tape = this.loop.tapes.get(key);
    if (tape === undefined) {
      tape = new Tape();
      this.loop.tapes.set(key, tape);
    }
    append(tape, stamp);
  }

  private registerRemote(record: RankRecord, strand: StrandRecord, kind: number, chunk: RawChunk): void {
    const key = chunk.rank * 4 + chunk.buffer;
    let entry = record.remotes.get(key);
    if (entry === undefined) {
      entry = { id: record.remotes.size, kinds: new Set() };
      record.remotes.set(key, entry);
    }
    entry.kinds.add(kind);
    const ids = strand.remotes.get(kind);
    if (ids === undefined) strand.remotes.set(kind, new Set([entry.id]));
    else ids.add(entry.id);
  }
}
