/**
 * What every cell holds while the plan is explored, and who touched it. Two conflicting accesses that the
 * happens-before relation does not order are a race; unlike a detector that stops there, this one goes on: the value
 * that depends on the race is marked, and only a mark that reaches an output makes the plan wrong. A race found after
 * its read was executed marks the read for the next run over the same (deterministic) exploration.
 *
 * A cell is two lists of accesses (`access-log.ts`): the writes whose data may lie there, oldest first, and the reads
 * that a later write may still have to be compared with.
 */
import { stepsKnown } from "../../core/internal.ts";
import type { AccessLog, Accessor, Site } from "./access-log.ts";
import { performedBefore } from "./performed-reads.ts";
import { type Race, Races } from "./races.ts";
import { UNDEFINED, type Values } from "./symbolic-values.ts";

/** Earlier writes of one value that are remembered; forgetting one can only make the verdict stricter. */
const MAX_SAME = 8;
/** Reads of a contested cell that are remembered although a write came after them; beyond that, nothing is decided. */
const MAX_OVER = 4096;
/**
 * Different replaced packets of a cell that are remembered for readers that may still have seen them; beyond that,
 * nothing is decided.
 */
const MAX_REPLACED = 64;

export interface PacketMix {
  readonly site: Site;
  readonly cell: number;
}

export interface FinalAccess {
  readonly lane: number;
  readonly segment: number;
  readonly site: Site;
}
export interface FinalCell {
  readonly value: number;
  readonly unfinished: Site | undefined;
  readonly tag: number;
  /** The first of the last writes; undefined where nobody wrote. */
  readonly writer: Site | undefined;
}

const NONE: readonly never[] = [];

export class Memory {
  readonly #values: Values;
  readonly #log: AccessLog;
  /** First write and last read of each cell; 0 for none. */
  readonly #writes: Int32Array;
  readonly #reads: Int32Array;
  /** Races whose outcome a cell still shows. */
  readonly #cellRaces = new Map<number, readonly number[]>();
  /** Packets that a write replaced and that a reader may still have seen. */
  readonly #replaced = new Map<number, readonly number[]>();
  /** Earlier writes of the same value that a write replaced: whoever comes after one of them cannot tell. */
  readonly #sameBefore = new Map<number, readonly number[]>();
  readonly #initial: Int32Array;
  readonly #marked: ReadonlyMap<number, number>;
  /** Cells that an earlier run found contested: their reads are remembered to the end. */
  readonly #watched: ReadonlySet<number>;
  readonly #over = new Map<number, number[]>();
  /** Writes of watched cells that others replaced, and who did: where a write competes with them, they may still show. */
  readonly #beneath = new Map<number, { readonly write: number; readonly by: number[] }[]>();
  /**
   * Cells that are written by two sides in no order. A read that was over before one of the writes may still race with
   * the other, and matter where the race of the writes does not: such cells are watched in the next run.
   */
  readonly contested = new Set<number>();
  /** More reads of a watched cell, or more replaced packets, than are remembered: nothing may be called right. */
  forgot = false;
  readonly #races: Races;
  /** Reads found to race after they were executed: time of the read -> race. */
  readonly lateMarks = new Map<number, number>();
  readonly mixes: PacketMix[] = [];
  /** By operation: 1 when something that it wrote was read. */
  readonly used: Uint8Array;
  /** By operation: 1 when it wrote at all. */
  readonly wrote: Uint8Array;
  readonly #aliases: Int32Array | undefined;
  /** Writes to each cell that are still to come; reads of cells without any need not be remembered. */
  readonly #writesLeft: Uint8Array | undefined;
  #time = 0;
  /** The write of packets that the last `read` with a tag saw. */
  lastPacket = 0;

  /**
   * @param marked reads whose value is known to depend on a race, by time, from an earlier run
   * @param watched cells that were contested in an earlier run
   */
  constructor(
    values: Values,
    log: AccessLog,
    geometry: { readonly numCells: number; readonly numOps: number },
    initial: Int32Array,
    marked: ReadonlyMap<number, number>,
    aliases: Int32Array | undefined,
    writesLeft: Uint8Array | undefined,
    watched: ReadonlySet<number>,
  ) {
    this.#watched = watched;
    this.#writesLeft = writesLeft;
    this.#values = values;
    this.#log = log;
    this.#races = new Races(log);
    this.#writes = new Int32Array(geometry.numCells);
    this.#reads = new Int32Array(geometry.numCells);
    this.used = new Uint8Array(geometry.numOps);
    this.wrote = new Uint8Array(geometry.numOps);
    this.#aliases = aliases;
    this.#initial = initial;
    this.#marked = marked;
  }

  get races(): readonly Race[] {
    return this.#races.list;
  }

  #ordered(access: number, who: Accessor, position: number): boolean {
    const log = this.#log;
    const lane = log.lane(access);
    if (lane === who.lane) return log.phase(access) < who.phase || log.position(access) === position;
    return stepsKnown(who.clock, lane) > log.segment(access);
  }

  #alias(index: number): number {
    return this.#aliases === undefined ? index : this.#aliases[index]!;
  }
  #racesOf(cell: number): readonly number[] {
    return this.#cellRaces.get(cell) ?? NONE;
  }

  /** Says whether packets with this tag lie in the cell. */
  hasPacket(address: number, tag: number): boolean {
    const log = this.#log;
    for (let w = this.#writes[this.#alias(address)]!; w !== 0; w = log.next(w)) if (log.tag(w) === tag) return true;
    return false;
  }

  /** Reads plain data (`tag` 0) or the packet with `tag`, which must be there. @returns the value */
  read(address: number, who: Accessor, position: number, tag: number): number {
    const index = this.#alias(address);
    this.#use(index);
    const time = this.#time++;
    this.lastPacket = 0;
    const seen = tag === 0 ? this.#readPlain(index, who, position) : this.#readPacket(index, who, position, tag);
    const value = this.#mark(time, seen === UNDEFINED ? this.#values.garbage(who.site.id, index) : seen);
    this.#remember(index, who, position, value, tag, time, this.lastPacket);
    return value;
  }

  /** What a read gives, where an earlier run found that it depends on a race. */
  #mark(time: number, value: number): number {
    const mark = this.#marked.get(time);
    return mark === undefined ? value : this.#values.poison([mark, ...(this.#values.racesOf(value) ?? [])]);
  }

  #use(index: number): void {
    const log = this.#log;
    for (let w = this.#writes[index]!; w !== 0; w = log.next(w)) this.used[log.opId(w)] = 1;
  }

  /** What a write left is certainly there: it came before, or only repeats what did. */
  #certain(write: number, who: Accessor, position: number): boolean {
    if (this.#ordered(write, who, position)) return true;
    if (this.#log.tag(write) !== 0) return false;
    if (this.#log.repeatsInitial(write)) return true;
    return (this.#sameBefore.get(write) ?? NONE).some((earlier) => this.#ordered(earlier, who, position));
  }

  #plain(write: number, index: number, who: Accessor): number {
    const value = this.#log.value(write);
    const tag = this.#log.tag(write);
    if (tag === 0) return value;
    this.mixes.push({ site: who.site, cell: index });
    // Undefined, but not the same in every run where the packet is not.
    return this.#values.racesOf(value) === undefined ? this.#values.packetAsData(who.site.id, value, tag) : value;
  }

  #readPlain(index: number, who: Accessor, position: number): number {
    const log = this.#log;
    const first = this.#writes[index]!;
    if (first === 0) return this.#initial[index]!;
    if (log.next(first) === 0 && !this.#beneath.has(index) && this.#certain(first, who, position))
      return this.#plain(first, index, who);
    let sure = first;
    while (sure !== 0 && !this.#certain(sure, who, position)) sure = log.next(sure);
    const races: number[] = [];
    for (let write = first; write !== 0; write = log.next(write)) {
      if (sure !== 0 && (write === sure || this.#same(write, sure))) continue;
      if (this.#ordered(write, who, position)) races.push(...this.#racesOf(index));
      else races.push(this.#races.note(index, write, true, who, false, 0, false));
    }
    this.#seeBeneath(index, who, position, sure, 0, races);
    return races.length > 0 ? this.#values.poison(races) : this.#plain(sure, index, who);
  }

  /** Adds races with replaced writes that a reader may see: nothing that replaced them surely came before it. */
  #seeBeneath(index: number, who: Accessor, position: number, sure: number, tag: number, races: number[]): void {
    for (const { write, by } of this.#beneath.get(index) ?? NONE) {
      if (sure !== 0 && this.#same(write, sure)) continue;
      if (by.some((later) => this.#ordered(later, who, position))) continue;
      races.push(this.#races.note(index, write, true, who, false, tag, false));
    }
  }

  /** A write of a watched cell is replaced; it is remembered. */
  #bury(index: number, write: number, by: number): void {
    const beneath = this.#beneath.get(index);
    if (beneath === undefined) this.#beneath.set(index, [{ write, by: [by] }]);
    else if (beneath.length < MAX_OVER) beneath.push({ write, by: [by] });
    else this.forgot = true;
  }

  #readPacket(index: number, who: Accessor, position: number, tag: number): number {
    const log = this.#log;
    const races: number[] = [];
    let source = 0;
    // Which packet was seen, and so what its writer had read, is known where there is but one.
    let isOne = !this.#watched.has(index);
    for (let write = this.#writes[index]!; write !== 0; write = log.next(write)) {
      if (log.tag(write) !== tag) {
        if (!this.#ordered(write, who, position))
          races.push(this.#races.note(index, write, true, who, false, tag, true));
        else {
          // It is still in the list, so no packet surely came after it: it may have destroyed the one that is waited for.
          for (const race of this.#racesOf(index)) this.#races.mayDestroy(race, tag);
          races.push(...this.#racesOf(index));
        }
        continue;
      }
      if (!this.#ordered(write, who, position)) {
        for (const old of this.#replaced.get(write) ?? NONE) {
          if (log.tag(old) === tag) isOne = false;
          if (log.tag(old) === tag && !this.#values.equal(log.value(old), log.value(write))) {
            races.push(this.#races.note(index, write, true, who, false, tag, false));
            break;
          }
        }
      }
      if (source === 0) source = write;
      else isOne = false;
      if (source !== write && !this.#values.equal(log.value(source), log.value(write))) {
        races.push(this.#races.note(index, write, true, who, false, tag, false));
      }
    }
    this.lastPacket = isOne ? source : 0;
    return races.length > 0 ? this.#values.poison(races) : log.value(source);
  }

  /** Contents as they lie there, plain or packets: what a proxy that copies bytes sees. */
  readRaw(address: number, who: Accessor, position: number): { value: number; tag: number } {
    const log = this.#log;
    const index = this.#alias(address);
    this.#use(index);
    let last = this.#writes[index]!;
    while (last !== 0 && log.next(last) !== 0) last = log.next(last);
    const tag = last === 0 ? 0 : log.tag(last);
    if (tag === 0) return { value: this.read(index, who, position, 0), tag: 0 };
    const races: number[] = [];
    for (let write = this.#writes[index]!; write !== 0; write = log.next(write)) {
      // Of writes that all came before, but in no order, any may lie there: as for a plain read.
      if (this.#ordered(write, who, position)) {
        if (write !== last && !this.#same(write, last)) races.push(...this.#racesOf(index));
      } else races.push(this.#races.note(index, write, true, who, false, tag, true));
    }
    this.#seeBeneath(index, who, position, last, tag, races);
    const time = this.#time++;
    const value = this.#mark(time, races.length > 0 ? this.#values.poison(races) : log.value(last));
    this.#remember(index, who, position, value, tag, time, 0);
    return { value, tag };
  }

  #same(a: number, b: number): boolean {
    const log = this.#log;
    return log.tag(a) === log.tag(b) && this.#values.equal(log.value(a), log.value(b));
  }

  #remember(
    index: number,
    who: Accessor,
    position: number,
    value: number,
    tag: number,
    time: number,
    from: number,
  ): void {
    if (this.#writesLeft?.[index] === 0) return;
    const read = this.#log.add(who, position, value, tag, time, from);
    this.#log.setNext(read, this.#reads[index]!);
    this.#reads[index] = read;
  }

  /** Writes `value` as plain data (`tag` 0) or packets. @param level see `short-chunks.ts` */
  write(address: number, who: Accessor, position: number, value: number, tag: number, level = 0): void {
    const log = this.#log;
    const index = this.#alias(address);
    this.wrote[who.site.id] = 1;
    const left = this.#writesLeft;
    // 255 stands for that many or more: such cells are always remembered.
    if (left !== undefined && left[index] !== 255) left[index] = left[index]! - 1;
    const access = log.add(who, position, value, tag, this.#time++, tag === 0 ? 0 : who.past.link(position));
    if (tag !== 0 && level > 0) log.setLevel(access, level);
    let replaced: number[] | undefined;
    let same: number[] | undefined;
    const first = this.#writes[index]!;
    let repeats = first === 0 && tag === 0 && this.#initial[index] === value && value !== UNDEFINED;
    let head = 0;
    let tail = 0;
    // Where earlier writes of other values compete, a read after one of this value may still see those.
    let competing = false;
    const watched = this.#watched.has(index);
    for (const { write, by } of (watched ? this.#beneath.get(index) : undefined) ?? NONE)
      if (this.#ordered(write, who, position)) by.push(access);
    for (let write = first; write !== 0; write = log.next(write)) competing ||= !this.#same(write, access);
    for (let write = first; write !== 0; ) {
      const next = log.next(write);
      const isPacket = log.tag(write) !== 0;
      if (this.#ordered(write, who, position) || (isPacket && this.#seenBefore(index, write, who, position))) {
        // Also what lies beneath plain data: a reader may have seen the packet before the plain write came.
        const hidden = this.#replaced.get(write) ?? NONE;
        if (isPacket || hidden.length > 0) {
          replaced ??= [];
          for (const old of isPacket ? [write, ...hidden] : hidden)
            if (!replaced.some((other) => this.#same(other, old))) replaced.push(old);
        }
        const before = this.#sameBefore.get(write);
        this.#sameBefore.delete(write);
        if (!competing && log.tag(write) === tag && log.value(write) === value) {
          same ??= [];
          same.push(write, ...(before ?? NONE));
          repeats ||= log.repeatsInitial(write);
        } else {
          if (watched) this.#bury(index, write, access);
          else if (!isPacket) {
            for (const old of before ?? NONE) log.free(old);
            log.free(write);
          }
        }
      } else {
        this.contested.add(index);
        log.setNext(write, 0);
        if (tail === 0) head = write;
        else log.setNext(tail, write);
        tail = write;
        if (!this.#same(write, access)) {
          const race = this.#races.note(index, write, true, who, true, tag, false);
          this.#cellRaces.set(index, [...this.#racesOf(index), race]);
        }
      }
      write = next;
    }
    this.#compareReads(index, who, position, value, tag, level, head);
    if (head === 0) this.#cellRaces.delete(index);
    if (tail === 0) head = access;
    else log.setNext(tail, access);
    this.#writes[index] = head;
    if (repeats) log.setRepeatsInitial(access);
    if (replaced !== undefined) {
      if (replaced.length > MAX_REPLACED) this.forgot = true;
      this.#replaced.set(access, replaced.slice(0, MAX_REPLACED));
    }
    if (same !== undefined) this.#sameBefore.set(access, same.slice(-MAX_SAME));
  }

  /** Drops the reads that were over before this write; the others race with it. @param kept first write that stays */
  #compareReads(
    index: number,
    who: Accessor,
    position: number,
    value: number,
    tag: number,
    level: number,
    kept: number,
  ): void {
    const log = this.#log;
    const watched = this.#watched.has(index) ? this.#over.get(index) : undefined;
    for (const read of watched ?? NONE) this.#compareRead(read, index, who, position, value, tag, level);
    let head = 0;
    for (let read = this.#reads[index]!; read !== 0; ) {
      const next = log.next(read);
      const isOver = this.#compareRead(read, index, who, position, value, tag, level);
      const from = log.extra(read);
      if (!isOver || (from !== 0 && this.#isIn(from, kept))) {
        log.setNext(read, head);
        head = read;
      } else this.#forget(read, index);
      read = next;
    }
    this.#reads[index] = head;
  }

  /** Says whether a read was over before this write; where it was not, and would have seen another value, they race. */
  #compareRead(
    read: number,
    index: number,
    who: Accessor,
    position: number,
    value: number,
    tag: number,
    level: number,
  ): boolean {
    const log = this.#log;
    if (this.#ordered(read, who, position) || performedBefore(log, read, who, position, level)) return true;
    if (log.tag(read) !== tag || !this.#values.equal(log.value(read), value)) {
      const readTag = log.tag(read);
      const race = this.#races.note(index, read, false, who, true, tag, readTag !== 0 && tag !== readTag);
      if (!this.#marked.has(log.time(read))) this.lateMarks.set(log.time(read), race);
    }
    return false;
  }

  #forget(read: number, index: number): void {
    if (!this.#watched.has(index)) {
      this.#log.free(read);
      return;
    }
    const over = this.#over.get(index);
    if (over === undefined) this.#over.set(index, [read]);
    else if (over.length < MAX_OVER) over.push(read);
    else this.forgot = true;
  }

  #isIn(write: number, list: number): boolean {
    for (let at = list; at !== 0; at = this.#log.next(at)) if (at === write) return true;
    return false;
  }

  /** A packet that was read, by a reader that comes before `who`, was written before `who`. */
  #seenBefore(index: number, write: number, who: Accessor, position: number): boolean {
    const log = this.#log;
    for (let read = this.#reads[index]!; read !== 0; read = log.next(read)) {
      if (log.extra(read) === write && this.#ordered(read, who, position)) return true;
    }
    return false;
  }

  /**
   * The value at the end of all strands.
   * @param finished for a proxy lane, how many of its segments some strand has waited for
   */
  final(address: number, finished: (lane: number) => number): FinalCell {
    const log = this.#log;
    const index = this.#alias(address);
    const first = this.#writes[index]!;
    if (first === 0) return { value: this.#initial[index]!, unfinished: undefined, tag: 0, writer: undefined };
    const over = (access: number) => finished(log.lane(access)) > log.segment(access);
    let unfinished: Site | undefined;
    let agree = true;
    for (let write = first; write !== 0; write = log.next(write)) {
      if (
        unfinished === undefined &&
        !over(write) &&
        !log.repeatsInitial(write) &&
        !(this.#sameBefore.get(write) ?? NONE).some(over)
      )
        unfinished = log.site(write);
      agree &&= write === first || this.#same(write, first);
    }
    const value = agree ? log.value(first) : this.#values.poison(this.#racesOf(index));
    return { value, unfinished, tag: log.tag(first), writer: log.site(first) };
  }

  /** Marks what was written to the cell last as used. */
  useFinal(address: number): void {
    this.#use(this.#alias(address));
  }

  /** The writes that may have been the last at the cell, and the reads of it that were remembered. */
  lastAccesses(address: number): { readonly writes: readonly FinalAccess[]; readonly reads: readonly FinalAccess[] } {
    const index = this.#alias(address);
    return { writes: this.#list(this.#writes[index]!), reads: this.#list(this.#reads[index]!) };
  }
  #list(first: number): FinalAccess[] {
    const log = this.#log;
    const list: FinalAccess[] = [];
    for (let at = first; at !== 0; at = log.next(at))
      list.push({ lane: log.lane(at), segment: log.segment(at), site: log.site(at) });
    return list;
  }
}
