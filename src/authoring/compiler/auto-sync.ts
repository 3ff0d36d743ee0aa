/**
 * `autoSync: "full"`: the order in which the program was written is taken as its meaning, and everything that a run
 * needs to respect it is inserted: semaphores between strands of a rank, signals and waits between ranks, flushes
 * before a source is reused.
 *
 * How: operations are visited in program order with a vector clock per strand (Fidge 1988, Mattern 1989): clock[u] is
 * how many operations of strand u are known to be done. Two accesses conflict when they share a chunk and one writes.
 * If the earlier one is not covered by the clock of the later one's strand, a pair of synchronising operations joins
 * them: right after the earlier, right before the later. Pairs follow program order, so they cannot form a cycle; each
 * pair of strands has its own channel or semaphore, so the k-th wait meets the k-th signal. What the program
 * synchronises by itself counts. Port puts finish in their proxy: a second clock entry per strand counts those whose
 * arrival is known. Packets announce themselves to the first reader of a fresh slot and order nothing else.
 *
 * At the end each rank waits for what others still write to or read from its input and output: a rank that returns may
 * use its buffers. Loops are one operation here: what strands owe each other inside one loop is the program's to say.
 */
import { UnsupportedError } from "../../core/index.ts";
import { joinClocks, Listener, stepsKnown, type VectorClock, withSteps } from "../../core/internal.ts";
import type { ChannelKind } from "../plan/index.ts";
import { type DraftOp, SYNC } from "./draft-ops.ts";
import { IntervalMap } from "./interval-map.ts";
import { type Access, type AccessContext, accessesOf } from "./op-accesses.ts";
import { readTape, type Tape, type TapeReader } from "./op-tape.ts";
import { pairChannels, type RankRecord, recordedOrdinal } from "./rank-records.ts";
import { type Clock, type Entry, Insertions, only, type Slot, type Use, useOf, withUses } from "./sync-entries.ts";

/** One strand of a program: its place and its operations as they were recorded. */
export interface RecordedStrand {
  readonly rank: number;
  readonly tape: Tape;
}

/** @returns the channels of a put through a port */
function portsOf(op: DraftOp): readonly number[] | undefined {
  return op.kind === "put" && op.channelKind === "port" ? op.channels : undefined;
}

/** The channels between two strands, and what was inserted for them. */
interface Pair {
  readonly kind: ChannelKind;
  readonly ids: ReadonlyMap<number, number>;
  /** By what it is, its end and its source line: one operation that stands in many places. A ring of 1,024 ranks has four million. */
  readonly drafts: Map<number, DraftOp>;
}

/** @param end 0 for the lower rank's end of the channel, 1 for the other */
function syncOf(
  { kind: channelKind, drafts }: Pair,
  kind: "signal" | "wait",
  id: number,
  end: 0 | 1,
  source: number | undefined,
): DraftOp {
  const key = ((source ?? -1) + 1) * 4 + (kind === "signal" ? 2 : 0) + end;
  const known = drafts.get(key);
  if (known !== undefined) return known;
  const op: DraftOp = { kind, relaxed: false, channelKind, channels: [id], sync: SYNC.none, source };
  drafts.set(key, op);
  return op;
}

export class AutoSync {
  private readonly context: AccessContext;
  private readonly ranks: readonly RankRecord[];
  private readonly strands: readonly RecordedStrand[];
  private readonly width: number;
  private readonly readers: readonly TapeReader[];
  /** Operations of each strand that were visited. */
  private readonly visited: number[];
  /** Every operation as one number, by its place in program order and then by its strand. */
  private readonly keys: Float64Array;
  private readonly inserted = new Insertions();
  private readonly hasPorts: boolean;
  /** What each strand knows of the others. */
  private readonly clocks: VectorClock[];
  private readonly listeners: readonly Listener[];
  private readonly strandsOf: readonly (readonly number[])[];
  private readonly puts: number[];
  /** Port puts among the first i operations of each strand. */
  private readonly putsUpTo: readonly Int32Array[];
  /** Port puts of each strand whose source the proxy may still read. */
  private readonly unflushed = new Map<number, Entry[]>();
  private readonly memories = new Map<number, IntervalMap<Slot>>();
  private readonly queues = new Map<string, (Clock | undefined)[]>();
  private readonly meetings = new Map<string, Entry[]>();
  private readonly pairs = new Map<number, Pair>();
  private readonly semaphores = new Map<string, number>();
  private readonly links: Map<string, ReadonlyMap<number, number>>;

  /**
   * @param links pairs of channels that carry data and no signals, by "kind lower higher": one pair of strands of these
   *   ranks may signal on them
   */
  constructor(
    context: AccessContext,
    ranks: readonly RankRecord[],
    strands: readonly RecordedStrand[],
    links: ReadonlyMap<string, ReadonlyMap<number, number>> = new Map(),
  ) {
    // Of several ways between two ranks, the last one's channels.
    this.links = new Map([...links].map(([key, ids]) => [key.split(" ", 3).join(" "), ids]));
    this.context = context;
    this.ranks = ranks;
    this.strands = strands;
    this.width = strands.length;
    this.readers = strands.map(({ tape }) => readTape(tape));
    this.visited = strands.map(() => 0);
    this.puts = strands.map(() => 0);
    this.keys = new Float64Array(strands.reduce((sum, { tape }) => sum + tape.count, 0));
    let count = 0;
    this.putsUpTo = strands.map(({ tape }, strand) => {
      const reader = readTape(tape);
      const upTo = new Int32Array(tape.count + 2);
      for (let i = 0; i < tape.count; i++) {
        this.keys[count++] = reader.nextSeq() * this.width + strand;
        upTo[i + 1] = (upTo[i] as number) + (portsOf(reader.next()) === undefined ? 0 : 1);
      }
      upTo[tape.count + 1] = upTo[tape.count] as number;
      return upTo;
    });
    this.keys.sort();
    this.hasPorts = this.putsUpTo.some((upTo) => upTo[upTo.length - 1] !== 0);
    this.clocks = strands.map(() => undefined);
    this.listeners = strands.map(() => new Listener());
    const strandsOf = ranks.map((): number[] => []);
    for (const [strand, { rank }] of strands.entries()) strandsOf[rank]?.push(strand);
    this.strandsOf = strandsOf;
  }

  /** @returns what is to be inserted into each strand. Channels and semaphores are added to the rank records */
  run(): Insertions {
    for (const key of this.keys) {
      const strand = key % this.width;
      const { nextSeq, next } = this.readers[strand] as TapeReader;
      const seq = nextSeq();
      const index = (this.visited[strand] as number) + 1;
      this.visited[strand] = index;
      this.visit(next(), seq, strand, index);
    }
    this.finishRanks();
    return this.inserted;
  }

  private visit(op: DraftOp, seq: number, strand: number, index: number): void {
    if (portsOf(op) !== undefined) this.puts[strand] = (this.puts[strand] as number) + 1;
    const entry = this.entry(op, seq, strand, index);
    const accesses = accessesOf(this.context, this.rankOf(strand), op);
    this.order(entry, accesses);
    // The entry carries what its strand knows by now.
    entry.base = this.clocks[strand];
    this.own(entry, op);
    const uses: Use[] = [];
    for (const access of accesses) this.record(entry, access, uses);
  }

  private rankOf(strand: number): number {
    return (this.strands[strand] as RecordedStrand).rank;
  }

  /** An operation of a strand, or without one the strand's end. */
  private entry(op: DraftOp | undefined, seq: number, strand: number, index: number): Entry {
    return {
      source: op?.source,
      ports: op === undefined ? undefined : portsOf(op),
      seq,
      strand,
      index,
      puts: this.puts[strand] as number,
      base: this.clocks[strand],
      flushed: false,
    };
  }

  private join(strand: number, other: Clock): void {
    const clock = this.clocks[strand];
    // What a signal through a port carries is not what its strand knows.
    this.clocks[strand] = this.hasPorts
      ? withSteps(joinClocks(clock, other.base), other.strand, other.index)
      : (this.listeners[strand] as Listener).hear(clock, other.base, other.strand, other.index);
  }

  // ---- conflicts

  private memory(id: number): IntervalMap<Slot> {
    let map = this.memories.get(id);
    if (map === undefined) {
      map = new IntervalMap();
      this.memories.set(id, map);
    }
    return map;
  }

  /** Orders everything that conflicts with `accesses` before `entry`. */
  private order(entry: Entry, accesses: readonly Access[]): void {
    const needs = new Set<Use>();
    const readers = new Set<Use>();
    for (const a of accesses) {
      this.memories.get(a.memory)?.visit(a.start, a.end, (slot) => {
        for (let use = slot.writers; use !== undefined; use = use.next)
          if (a.write || !(a.packet && use.freshPacket)) needs.add(use);
        if (a.write) for (let use = slot.readers; use !== undefined; use = use.next) readers.add(use);
      });
    }
    if (needs.size + readers.size === 0) return;
    // Latest first: ordering after it often covers the rest.
    const all = [
      ...[...needs].map((use) => ({ use, write: true })),
      ...[...readers].map((use) => ({ use, write: false })),
    ];
    all.sort((x, y) => y.use.entry.seq - x.use.entry.seq);
    for (const { use, write } of all) if (use.entry.seq !== entry.seq) this.orderAfter(use, write, entry);
  }

  private orderAfter({ entry: from, proxy }: Use, write: boolean, to: Entry): void {
    const clock = this.clocks[to.strand];
    const arrived = this.hasPorts && stepsKnown(clock, this.width + from.strand) >= from.puts;
    const passed = stepsKnown(clock, from.strand) >= from.index;
    if (proxy && write) {
      if (arrived) return;
      if (from.strand === to.strand || this.rankOf(from.strand) === this.rankOf(to.strand)) {
        throw new UnsupportedError(
          `reading back at rank ${this.rankOf(to.strand)} what it put through a port channel`,
          "signal the peer and let it answer, or use a memory channel",
        );
      }
      this.connect(from, to, "port");
      return;
    }
    if (proxy && !arrived && !from.flushed) {
      if (from.ports !== undefined)
        this.inserted.addAfter(
          from,
          { kind: "flush", channelKind: "port", channels: [...from.ports], sync: SYNC.none, source: from.source },
          true,
        );
      from.flushed = true;
    } else if (proxy && arrived) return;
    if (from.strand === to.strand || passed) return;
    if (this.rankOf(from.strand) === this.rankOf(to.strand)) this.connectLocally(from, to);
    else this.connect(from, to, this.kindBetween(this.rankOf(from.strand), this.rankOf(to.strand)));
  }

  private record(entry: Entry, a: Access, uses: Use[]): void {
    const sameOp = (use: Use) => use.entry.seq === entry.seq;
    const ofOthers = (use: Use | undefined): boolean => use !== undefined && (!sameOp(use) || ofOthers(use.next));
    // A later read of the same strand stands for its earlier ones, unless a proxy still does those.
    const stays = (use: Use) => use.proxy || use.entry.strand !== entry.strand;
    const change = (old: Slot | undefined): Slot => {
      const use = useOf(uses, entry, a, !ofOthers(old?.writers));
      if (!a.write) return { writers: old?.writers, readers: withUses(use, old?.readers, stays) };
      return { writers: withUses(use, old?.writers, sameOp), readers: only(old?.readers, sameOp) };
    };
    if (a.end === a.start + 1) {
      this.memory(a.memory).update(a.start, a.end, change);
      return;
    }
    // Chunks that were used alike stay one slot: a large program has a million of them.
    const changed = new Map<Slot | undefined, Slot>();
    this.memory(a.memory).update(a.start, a.end, (old) => {
      let slot = changed.get(old);
      if (slot === undefined) {
        slot = change(old);
        changed.set(old, slot);
      }
      return slot;
    });
  }

  // ---- what is inserted

  private kindBetween(a: number, b: number): ChannelKind {
    const record = this.ranks[a] as RankRecord;
    return record.port.includes(b) && !record.memory.includes(b) ? "port" : "memory";
  }

  private connectLocally(from: Entry, to: Entry): void {
    const rank = this.rankOf(from.strand);
    const key = `${from.strand} ${to.strand}`;
    let id = this.semaphores.get(key);
    if (id === undefined) {
      id = (this.ranks[rank] as RankRecord).semaphores.push(0) - 1;
      this.semaphores.set(key, id);
    }
    this.inserted.addAfter(from, { kind: "release", semaphores: [id], sync: SYNC.none, source: from.source });
    this.inserted.addBefore(to, { kind: "acquire", semaphores: [id], sync: SYNC.none, source: to.source });
    this.join(to.strand, from);
  }

  private connect(from: Entry, to: Entry, kind: ChannelKind): void {
    const [a, b] = [this.rankOf(from.strand), this.rankOf(to.strand)];
    const strands = Math.min(from.strand, to.strand) * this.width + Math.max(from.strand, to.strand);
    const key = kind === "port" ? -1 - strands : strands;
    let pair = this.pairs.get(key);
    if (pair === undefined) {
      const unused = `${kind} ${Math.min(a, b)} ${Math.max(a, b)}`;
      pair = { kind, ids: this.links.get(unused) ?? pairChannels(this.ranks, kind, a, b), drafts: new Map() };
      this.links.delete(unused);
      this.pairs.set(key, pair);
    }
    this.inserted.addAfter(from, syncOf(pair, "signal", pair.ids.get(a) as number, a < b ? 0 : 1, from.source));
    this.inserted.addBefore(to, syncOf(pair, "wait", pair.ids.get(b) as number, b < a ? 0 : 1, to.source));
    this.join(to.strand, kind === "port" ? this.behindProxy(from, a) : from);
  }

  /** What a port signal carries: also the arrival of every put of the rank that was issued before it. */
  private behindProxy(clock: Clock, rank: number): Clock {
    if (!this.hasPorts) return clock;
    let { base } = clock;
    for (const s of this.strandsOf[rank] ?? []) {
      const done = s === clock.strand ? clock.index : stepsKnown(clock.base, s);
      base = withSteps(base, this.width + s, (this.putsUpTo[s] as Int32Array)[done] ?? 0);
    }
    return { base, strand: clock.strand, index: clock.index };
  }

  // ---- what the program synchronises itself

  private own(entry: Entry, op: DraftOp): void {
    const rank = this.rankOf(entry.strand);
    switch (op.kind) {
      case "put":
        if (op.channelKind === "port" && op.notify !== "signal-flush") {
          this.unflushed.set(entry.strand, [...(this.unflushed.get(entry.strand) ?? []), entry]);
        }
        if (op.notify === "none") return;
        for (const id of op.channels) this.queue(rank, op.channelKind, id, true).push(this.behindProxy(entry, rank));
        if (op.notify === "signal-flush") entry.flushed = true;
        return;
      case "signal": {
        const carried = op.channelKind === "port" ? this.behindProxy(entry, rank) : entry;
        for (const id of op.channels) this.queue(rank, op.channelKind, id, true).push(op.relaxed ? undefined : carried);
        return;
      }
      case "wait":
        for (const id of op.channels) {
          const clock = this.queue(rank, op.channelKind, id, false).shift();
          if (clock !== undefined && !op.relaxed) this.join(entry.strand, clock);
        }
        return;
      case "flush": {
        const waiting = this.unflushed.get(entry.strand) ?? [];
        const covered = ({ ports }: Entry) => ports?.every((id) => op.channels.includes(id)) === true;
        for (const e of waiting) if (covered(e)) e.flushed = true;
        this.unflushed.set(
          entry.strand,
          waiting.filter((e) => !e.flushed),
        );
        return;
      }
      case "release":
        for (const id of op.semaphores) this.semaphoreQueue(rank, id).push(entry);
        return;
      case "acquire":
        for (const id of op.semaphores) {
          const clock = this.semaphoreQueue(rank, id).shift();
          if (clock !== undefined) this.join(entry.strand, clock);
        }
        return;
      case "barrier": {
        const key = `${rank} ${op.barrier}`;
        const met = [...(this.meetings.get(key) ?? []), entry];
        if (met.length < op.numStrands) {
          this.meetings.set(key, met);
          return;
        }
        this.meetings.delete(key);
        for (const one of met) for (const other of met) this.join(one.strand, other);
        return;
      }
      default:
        return;
    }
  }

  private semaphoreQueue(rank: number, id: number): (Clock | undefined)[] {
    return this.queueOf(`semaphore ${rank} ${id}`, (this.ranks[rank] as RankRecord).semaphores[id]);
  }

  /** The clocks of the signals under way on a channel, named by its sending end; `id` is `rank`'s own. */
  private queue(rank: number, kind: ChannelKind, id: number, sending: boolean): (Clock | undefined)[] {
    const peers = (this.ranks[rank] as RankRecord)[kind];
    const [from, to] = sending ? [rank, peers[id]] : [peers[id], rank];
    return this.queueOf(`${kind} ${from} ${to} ${recordedOrdinal(peers, id)}`);
  }

  /** @param tokens that it begins with, of nobody */
  private queueOf(key: string, tokens = 0): (Clock | undefined)[] {
    let queue = this.queues.get(key);
    if (queue === undefined) {
      queue = new Array<undefined>(tokens).fill(undefined);
      this.queues.set(key, queue);
    }
    return queue;
  }

  // ---- the end

  /** Each rank waits for what others do to its input and output: in strands by turns, so that none waits for all. */
  private finishRanks(): void {
    for (const record of this.ranks) {
      const own = this.strandsOf[record.rank] ?? [];
      if (own.length === 0) continue;
      const endOf = (strand: number) =>
        this.entry(undefined, Number.MAX_SAFE_INTEGER, strand, (this.visited[strand] as number) + 1);
      const ends = new Map(own.map((strand) => [strand, endOf(strand)]));
      const uses = new Map<Use, boolean>();
      /** Of each strand the last use that is over with its operation: whoever waits for it waits for those before. */
      const last = new Map<number, Use>();
      const add = (use: Use, write: boolean) => {
        if (use.proxy) {
          uses.set(use, write);
          return;
        }
        const { strand, seq } = use.entry;
        if ((last.get(strand)?.entry.seq ?? -1) < seq) last.set(strand, use);
      };
      for (const buffer of [0, 1]) {
        this.memories.get(record.rank * 4 + buffer)?.visit(0, Number.MAX_SAFE_INTEGER, (slot) => {
          for (let use = slot.readers; use !== undefined; use = use.next) add(use, false);
          for (let use = slot.writers; use !== undefined; use = use.next) add(use, true);
        });
      }
      for (const use of last.values()) uses.set(use, false);
      for (const [use, write] of [...uses].sort(([a], [b]) => b.entry.seq - a.entry.seq)) {
        const from = this.rankOf(use.entry.strand);
        if (from === record.rank) {
          if (use.proxy && !write) this.orderAfter(use, false, ends.get(use.entry.strand) as Entry);
        } else {
          const turn = (from < record.rank ? from : from - 1) % own.length;
          this.orderAfter(use, write, ends.get(own[turn] as number) as Entry);
        }
      }
    }
  }
}
