/**
 * What every cell holds while the plan is explored, and who touched it. Two conflicting accesses that the
 * happens-before relation does not order are a race; unlike a detector that stops there, this one goes on: the value
 * that depends on the race is marked, and only a mark that reaches an output makes the plan wrong. A race found after
 * its read was executed marks the read for the next run over the same (deterministic) exploration.
 */
import type { Clock } from "./clocks.ts";
import { UNDEFINED, type Values } from "./values.ts";

/** A dynamic operation: strand, place in it, launch. */
export interface Site {
  /** Global strand number. */
  readonly strand: number;
  readonly op: number;
  /** Index in a pipeline's body, or -1. */
  readonly body: number;
  readonly iteration: number;
  readonly launch: number;
  /** Number of the operation in the plan, see `Geometry.opBase`. */
  readonly id: number;
}

/** Who accesses: a strand (or a proxy lane) at a point of its life, and at which position of the operation. */
export interface Accessor {
  readonly lane: number;
  /** For other strands: which part of the strand's life a clock must cover to be behind this access. */
  readonly segment: number;
  /** For the strand itself: how many block-wide synchronisations came before. */
  readonly phase: number;
  readonly clock: Clock;
  readonly site: Site;
  /** What surely was *performed* before, for reads only: see `performed`. */
  readonly past: Past;
}

/**
 * What a strand knows to have been performed. More than its clock: a packet makes no other write visible, but the reads
 * that went into it are over when it arrives (its data depends on them), so that what they read may be overwritten.
 */
export interface Past {
  /** Segments of every lane whose accesses are over. */
  readonly known: Clock;
  /** Segments of this lane before its current phase. */
  readonly own: number;
  /** Place in the order of the lane's operations. */
  readonly seq: number;
  /** Packets read so far at this position, and at any position before the last synchronisation. */
  readonly link: (position: number) => Link | undefined;
}
export interface Link {
  readonly from: PacketNode | undefined;
  readonly next: Link | undefined;
  readonly more: readonly Link[] | undefined;
}
/** A write of packets, as seen by those who read them: the write itself. */
export interface PacketNode {
  readonly lane: number;
  readonly phase: number;
  readonly position: number;
  readonly seq: number;
  /** What the writer knew to have been performed. */
  readonly known: Clock;
  /** Segments of the lane that were over. */
  readonly own: number;
  readonly time: number;
  readonly link: Link | undefined;
}
/** Packets followed back before giving up on an order; the answer is then "not ordered", which is never unsound. */
const MAX_FOLLOWED = 20_000;

interface Access {
  readonly lane: number;
  readonly segment: number;
  readonly phase: number;
  readonly position: number;
  readonly site: Site;
  readonly value: number;
  /** 0 for plain data, else the tag of the packets: 1 + launch. */
  readonly tag: number;
  readonly seq: number;
  readonly time: number;
}
interface ReadAccess extends Access {
  readonly id: number;
  /** For packets: the write that it saw. */
  readonly from: Access | undefined;
}
interface WriteAccess extends Access {
  /** Packets that this write replaced and that a reader may still have seen. */
  readonly replaced: readonly Access[];
  /** Of packets only, see `PacketNode`. */
  readonly known: Clock;
  readonly own: number;
  readonly link: Link | undefined;
  /** Earlier writes of the same value that this one replaced: whoever comes after one of them cannot tell. */
  readonly same: readonly Access[];
  /** The place held this value from the beginning. */
  readonly sameAsInitial: boolean;
}
/** Earlier writes of one value that are remembered; forgetting one can only make the verdict stricter. */
const MAX_SAME = 8;

interface Cell {
  readonly index: number;
  writes: readonly WriteAccess[];
  reads: readonly ReadAccess[];
  races: readonly number[];
}

export interface Race {
  readonly id: number;
  readonly first: Site;
  readonly second: Site;
  readonly firstWrites: boolean;
  readonly secondWrites: boolean;
  readonly firstTag: number;
  readonly secondTag: number;
  readonly cell: number;
  readonly sameStrand: boolean;
  /** A reader of packets may never see its packet: wrong whatever becomes of the data. */
  readonly mayHang: boolean;
  count: number;
}

export interface PacketMix {
  readonly site: Site;
  readonly cell: number;
}

const NONE: readonly never[] = [];

export class Memory {
  readonly #values: Values;
  /** Most cells hold one write and nothing else: then that write stands for the cell. */
  readonly #cells: (Cell | WriteAccess | undefined)[];
  readonly #initial: Int32Array;
  readonly #marked: ReadonlyMap<number, number>;
  readonly #raceIds = new Map<string, Race>();
  readonly races: Race[] = [];
  /** Reads found to race after they were executed: read number -> race. */
  readonly lateMarks = new Map<number, number>();
  readonly mixes: PacketMix[] = [];
  /** By operation: 1 when something that it wrote was read. */
  readonly used: Uint8Array;
  /** By operation: 1 when it wrote at all. */
  readonly wrote: Uint8Array;
  readonly #aliases: Int32Array | undefined;
  /** Writes to each cell that are still to come; reads of cells without any need not be remembered. */
  readonly #writesLeft: Uint8Array | undefined;
  #nextRead = 0;
  #time = 0;
  /** The packet that the last `read` with a tag saw. */
  lastPacket: PacketNode | undefined;

  /** @param marked reads whose value is known to depend on a race, by number, from an earlier run */
  constructor(
    values: Values,
    geometry: { readonly numCells: number; readonly numOps: number },
    initial: Int32Array,
    marked: ReadonlyMap<number, number>,
    aliases: Int32Array | undefined,
    writesLeft: Uint8Array | undefined,
  ) {
    this.#writesLeft = writesLeft;
    this.#values = values;
    this.#cells = new Array<Cell | WriteAccess | undefined>(geometry.numCells);
    this.used = new Uint8Array(geometry.numOps);
    this.wrote = new Uint8Array(geometry.numOps);
    this.#aliases = aliases;
    this.#initial = initial;
    this.#marked = marked;
  }

  #ordered(access: Access, who: Accessor, position: number): boolean {
    if (access.lane === who.lane) return access.phase < who.phase || access.position === position;
    return who.clock !== undefined && who.clock[access.lane]! > access.segment;
  }

  #race(cell: number, a: Access, aWrites: boolean, who: Accessor, bWrites: boolean, bTag: number, mayHang: boolean) {
    const key = `${a.site.id} ${who.site.id} ${aWrites} ${bWrites} ${mayHang}`;
    let race = this.#raceIds.get(key);
    if (race === undefined) {
      race = {
        id: this.races.length,
        first: a.site,
        second: who.site,
        firstWrites: aWrites,
        secondWrites: bWrites,
        firstTag: a.tag,
        secondTag: bTag,
        cell,
        sameStrand: a.lane === who.lane,
        mayHang,
        count: 0,
      };
      this.races.push(race);
      this.#raceIds.set(key, race);
    }
    race.count++;
    return race.id;
  }

  #alias(index: number): number {
    return this.#aliases === undefined ? index : this.#aliases[index]!;
  }

  /** The cell, made up where nothing is stored for it yet: `#store` keeps it. */
  #cell(index: number): Cell {
    const entry = this.#cells[index];
    if (entry === undefined) return { index, writes: NONE, reads: NONE, races: NONE };
    return "writes" in entry ? entry : { index, writes: [entry], reads: NONE, races: NONE };
  }

  #store(cell: Cell): void {
    const only = cell.writes.length === 1 && cell.reads.length === 0 && cell.races.length === 0;
    this.#cells[cell.index] = only ? cell.writes[0]! : cell;
  }

  /** Says whether packets with this tag lie in the cell. */
  hasPacket(index: number, tag: number): boolean {
    const entry = this.#cells[this.#alias(index)];
    if (entry === undefined) return false;
    return "writes" in entry ? entry.writes.some((write) => write.tag === tag) : entry.tag === tag;
  }

  /** Reads plain data (`tag` 0) or the packet with `tag`, which must be there. @returns the value */
  read(address: number, who: Accessor, position: number, tag: number): number {
    const index = this.#alias(address);
    const cell = this.#cell(index);
    for (const write of cell.writes) this.used[write.site.id] = 1;
    const id = this.#nextRead++;
    let value: number;
    let from: Access | undefined;
    if (tag === 0) value = this.#readPlain(index, cell, who, position);
    else {
      [value, from] = this.#readPacket(index, cell, who, position, tag);
    }
    const mark = this.#marked.get(id);
    if (mark !== undefined) value = this.#values.poison([mark, ...(this.#values.racesOf(value) ?? [])]);
    this.lastPacket = from as WriteAccess | undefined;
    this.#remember(cell, who, position, value, tag, id, from);
    return value;
  }

  /** What a write left is certainly there: it came before, or only repeats what did. */
  #certain(write: WriteAccess, who: Accessor, position: number): boolean {
    return (
      this.#ordered(write, who, position) ||
      (write.tag === 0 && (write.sameAsInitial || write.same.some((earlier) => this.#ordered(earlier, who, position))))
    );
  }

  #readPlain(index: number, cell: Cell, who: Accessor, position: number): number {
    const { writes } = cell;
    if (writes.length === 0) return this.#initial[index]!;
    if (writes.length === 1 && this.#certain(writes[0]!, who, position)) {
      const write = writes[0]!;
      if (write.tag !== 0) {
        this.mixes.push({ site: who.site, cell: index });
        return UNDEFINED;
      }
      return write.value;
    }
    const sure = writes.find((write) => this.#certain(write, who, position));
    const races: number[] = [];
    for (const write of writes) {
      if (sure !== undefined && (write === sure || this.#same(write, sure))) continue;
      if (this.#ordered(write, who, position)) races.push(...cell.races);
      else races.push(this.#race(index, write, true, who, false, 0, false));
    }
    if (races.length > 0) return this.#values.poison(races);
    if (sure!.tag !== 0) {
      this.mixes.push({ site: who.site, cell: index });
      return UNDEFINED;
    }
    return sure!.value;
  }

  #readPacket(index: number, cell: Cell, who: Accessor, position: number, tag: number): [number, Access] {
    const races: number[] = [];
    let source: WriteAccess | undefined;
    for (const write of cell.writes) {
      if (write.tag !== tag) {
        if (!this.#ordered(write, who, position)) races.push(this.#race(index, write, true, who, false, tag, true));
        else races.push(...cell.races);
        continue;
      }
      if (!this.#ordered(write, who, position)) {
        for (const old of write.replaced) {
          if (old.tag === tag && !this.#values.equal(old.value, write.value)) {
            races.push(this.#race(index, write, true, who, false, tag, false));
            break;
          }
        }
      }
      if (source === undefined) source = write;
      else if (!this.#values.equal(source.value, write.value)) {
        races.push(this.#race(index, write, true, who, false, tag, false));
      }
    }
    const value = races.length > 0 ? this.#values.poison(races) : source!.value;
    return [value, source!];
  }

  /** Contents as they lie there, plain or packets: what a proxy that copies bytes sees. */
  readRaw(address: number, who: Accessor, position: number): { value: number; tag: number } {
    const index = this.#alias(address);
    const cell = this.#cell(index);
    for (const write of cell.writes) this.used[write.site.id] = 1;
    const tag = cell.writes.at(-1)?.tag ?? 0;
    if (tag === 0) return { value: this.read(index, who, position, 0), tag: 0 };
    const races: number[] = [];
    for (const write of cell.writes) {
      if (!this.#ordered(write, who, position)) races.push(this.#race(index, write, true, who, false, tag, true));
    }
    const id = this.#nextRead++;
    let value = races.length > 0 ? this.#values.poison(races) : cell.writes.at(-1)!.value;
    const mark = this.#marked.get(id);
    if (mark !== undefined) value = this.#values.poison([mark, ...(this.#values.racesOf(value) ?? [])]);
    this.#remember(cell, who, position, value, tag, id, undefined);
    return { value, tag };
  }

  #same(a: Access, b: Access): boolean {
    return a.tag === b.tag && this.#values.equal(a.value, b.value);
  }

  #remember(
    cell: Cell,
    who: Accessor,
    position: number,
    value: number,
    tag: number,
    id: number,
    from: Access | undefined,
  ): void {
    if (this.#writesLeft?.[cell.index] === 0) return;
    const { lane, segment, phase, site, past } = who;
    const read = { lane, segment, phase, position, site, value, tag, seq: past.seq, time: this.#time++, id, from };
    if (cell.reads === NONE) cell.reads = [read];
    else (cell.reads as ReadAccess[]).push(read);
    this.#store(cell);
  }

  /** Writes `value` as plain data (`tag` 0) or packets. */
  write(address: number, who: Accessor, position: number, value: number, tag: number): void {
    const index = this.#alias(address);
    const cell = this.#cell(index);
    this.wrote[who.site.id] = 1;
    const left = this.#writesLeft;
    // 255 stands for that many or more: such cells are always remembered.
    if (left !== undefined && left[index] !== 255) left[index] = left[index]! - 1;
    const { lane, segment, phase, site, past } = who;
    const time = this.#time++;
    const access = { lane, segment, phase, position, site, value, tag, seq: past.seq, time };
    let kept: WriteAccess[] | undefined;
    let replaced: Access[] | undefined;
    let same: Access[] | undefined;
    let sameAsInitial = cell.writes.length === 0 && tag === 0 && this.#initial[index] === value && value !== UNDEFINED;
    for (const write of cell.writes) {
      if (this.#ordered(write, who, position) || this.#seenBefore(cell, write, who, position)) {
        if (write.tag !== 0) {
          replaced ??= [];
          replaced.push(write, ...write.replaced);
        }
        if (write.tag === tag && write.value === value) {
          same ??= [];
          same.push(write, ...write.same);
          sameAsInitial ||= write.sameAsInitial;
        }
        continue;
      }
      kept ??= [];
      kept.push(write);
      if (!this.#same(write, access)) {
        cell.races = [...cell.races, this.#race(index, write, true, who, true, tag, false)];
      }
    }
    let reads: ReadAccess[] | undefined;
    for (const read of cell.reads) {
      if (this.#ordered(read, who, position) || this.#performed(read, who, position)) {
        if (read.from === undefined || kept === undefined || !kept.includes(read.from as WriteAccess)) continue;
        reads ??= [];
        reads.push(read);
        continue;
      }
      reads ??= [];
      reads.push(read);
      if (read.tag === tag && this.#values.equal(read.value, value)) continue;
      const race = this.#race(index, read, false, who, true, tag, read.tag !== 0 && tag !== read.tag);
      if (!this.#marked.has(read.id)) this.lateMarks.set(read.id, race);
    }
    if (kept === undefined) {
      cell.races = NONE;
      kept = [];
    }
    kept.push({
      lane,
      segment,
      phase,
      position,
      site,
      value,
      tag,
      seq: past.seq,
      time,
      replaced: replaced === undefined ? NONE : replaced.slice(0, 4),
      known: tag === 0 ? undefined : past.known,
      own: past.own,
      link: tag === 0 ? undefined : past.link(position),
      same: same === undefined ? NONE : same.slice(-MAX_SAME),
      sameAsInitial,
    });
    cell.writes = kept;
    cell.reads = reads ?? NONE;
    this.#store(cell);
  }

  /** Says whether a read was surely over before `who` gets to this position: through the packets it went into. */
  #performed(read: ReadAccess, who: Accessor, position: number): boolean {
    const { past } = who;
    if (past.known !== undefined && past.known[read.lane]! > read.segment) return true;
    const stack: (Link | undefined)[] = [past.link(position)];
    const seen = new Set<Link>();
    while (stack.length > 0) {
      const link = stack.pop();
      if (link === undefined || seen.has(link)) continue;
      seen.add(link);
      if (seen.size > MAX_FOLLOWED) return false;
      const node = link.from;
      stack.push(link.next);
      if (link.more !== undefined) stack.push(...link.more);
      if (node === undefined || node.time < read.time) continue;
      if (node.lane === read.lane) {
        if (node.phase > read.phase) return true;
        if (node.phase === read.phase && node.position === read.position && node.seq >= read.seq) return true;
      }
      if (node.known !== undefined && node.known[read.lane]! > read.segment) return true;
      stack.push(node.link);
    }
    return false;
  }

  /** A packet that was read, by a reader that comes before `who`, was written before `who`. */
  #seenBefore(cell: Cell, write: WriteAccess, who: Accessor, position: number): boolean {
    if (write.tag === 0) return false;
    return cell.reads.some((read) => read.from === write && this.#ordered(read, who, position));
  }

  /**
   * The value at the end of all strands.
   * @param finished for a proxy lane, how many of its segments some strand has waited for
   */
  final(address: number, finished: (lane: number) => number): FinalCell {
    const index = this.#alias(address);
    const cell = this.#cells[index] === undefined ? undefined : this.#cell(index);
    if (cell === undefined || cell.writes.length === 0) {
      return { value: this.#initial[index]!, unfinished: undefined, tag: 0, writes: [], reads: cell?.reads ?? [] };
    }
    const first = cell.writes[0]!;
    const over = (access: Access) => finished(access.lane) > access.segment;
    const unfinished = cell.writes.find(
      (write) => !over(write) && !write.sameAsInitial && !write.same.some(over),
    )?.site;
    const agree = cell.writes.every((write) => write === first || this.#same(write, first));
    const value = agree ? first.value : this.#values.poison(cell.races);
    return { value, unfinished, tag: first.tag, writes: cell.writes, reads: cell.reads };
  }
}

export interface FinalCell {
  readonly value: number;
  readonly unfinished: Site | undefined;
  readonly tag: number;
  /** The last accesses. */
  readonly writes: readonly { readonly lane: number; readonly segment: number; readonly site: Site }[];
  readonly reads: readonly { readonly lane: number; readonly segment: number; readonly site: Site }[];
}
