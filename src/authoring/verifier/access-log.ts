/**
 * Who touched which cell, in tables of integers: a large plan has a million accesses, and as objects they would take
 * more memory than everything else together. An access is a row; what all accesses of one operation have in common is
 * a row of its own. Row 0 of every table stands for none.
 */

import type { VectorClock } from "../../core/internal.ts";
import type { Geometry } from "./cell-geometry.ts";

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

/**
 * What a strand knows to have been performed. More than its clock: a packet makes no other write visible, but the reads
 * that went into it are over when it arrives (its data depends on them), so that what they read may be overwritten.
 */
export interface Past {
  /** Segments of every lane whose accesses are over. */
  readonly known: VectorClock;
  /** Segments of this lane before its current phase. */
  readonly own: number;
  /** Place in the order of the lane's operations. */
  readonly seq: number;
  /** Link of the packets read so far at this position, and at any position before the last synchronisation. */
  readonly link: (position: number) => number;
}

/** Who accesses: a strand (or a proxy lane) at a point of its life. */
export interface Accessor {
  readonly lane: number;
  /** For other strands: which part of the strand's life a clock must cover to be behind this access. */
  readonly segment: number;
  /** For the strand itself: how many block-wide synchronisations came before. */
  readonly phase: number;
  readonly clock: VectorClock;
  readonly site: Site;
  /** What surely was *performed* before, for reads only: see `Memory`. */
  readonly past: Past;
}

// Small: most plans are, and campaigns verify millions of them.
const PAGE_BITS = 10;
const PAGE_ROWS = 2 ** PAGE_BITS;

/** Rows of integers that grow without being copied. */
class Rows {
  readonly #pages: Int32Array[] = [];
  readonly #width: number;
  /** Rows in use, row 0 included. */
  length = 1;
  constructor(width: number) {
    this.#width = width;
    this.#pages.push(new Int32Array(PAGE_ROWS * width));
  }
  add(): number {
    const row = this.length++;
    if (row >> PAGE_BITS === this.#pages.length) this.#pages.push(new Int32Array(PAGE_ROWS * this.#width));
    return row;
  }
  get(row: number, column: number): number {
    return this.#pages[row >> PAGE_BITS]![(row & (PAGE_ROWS - 1)) * this.#width + column]!;
  }
  set(row: number, column: number, value: number): void {
    this.#pages[row >> PAGE_BITS]![(row & (PAGE_ROWS - 1)) * this.#width + column] = value;
  }
}

// Columns of the operations that access.
const LANE = 0;
const SEGMENT = 1;
const PHASE = 2;
const SEQ = 3;
const OWN = 4;
const ID = 5;
const ITERATION = 6;
const LAUNCH = 7;
// Columns of the accesses.
const WHO = 0;
const POSITION = 1;
const VALUE = 2;
/**
 * Twice the tag, and 1 more where a write only repeats what the place held from the beginning. Above these bits the level of
 * packets (`short-chunks.ts`).
 */
const TAG = 3;
/** Tags are numbers of launches, of which there are three at most. */
const TAG_BITS = 4;
const NEXT = 4;
/** Of a read of packets: the write that it saw. Of a write of packets: the link of what its writer had read. */
const EXTRA = 5;
const TIME = 6;
// Columns of the links.
const FROM = 0;
const BEHIND = 1;

export class AccessLog {
  readonly #geometry: Pick<Geometry, "strandRank" | "opBase" | "plan" | "strandBase">;
  readonly #who = new Rows(8);
  readonly #rows = new Rows(7);
  readonly #links = new Rows(2);
  readonly #known: VectorClock[] = [undefined];
  readonly #more = new Map<number, readonly number[]>();
  #free = 0;
  #last: Accessor | undefined;
  #lastRow = 0;

  constructor(geometry: Pick<Geometry, "strandRank" | "opBase" | "plan" | "strandBase">) {
    this.#geometry = geometry;
  }

  // Operations.

  #accessor(who: Accessor): number {
    if (who === this.#last) return this.#lastRow;
    const row = this.#who.add();
    this.#who.set(row, LANE, who.lane);
    this.#who.set(row, SEGMENT, who.segment);
    this.#who.set(row, PHASE, who.phase);
    this.#who.set(row, SEQ, who.past.seq);
    this.#who.set(row, OWN, who.past.own);
    this.#who.set(row, ID, who.site.id);
    this.#who.set(row, ITERATION, who.site.iteration);
    this.#who.set(row, LAUNCH, who.site.launch);
    this.#known.push(who.past.known);
    this.#last = who;
    this.#lastRow = row;
    return row;
  }
  lane(access: number): number {
    return this.#who.get(this.#rows.get(access, WHO), LANE);
  }
  segment(access: number): number {
    return this.#who.get(this.#rows.get(access, WHO), SEGMENT);
  }
  phase(access: number): number {
    return this.#who.get(this.#rows.get(access, WHO), PHASE);
  }
  seq(access: number): number {
    return this.#who.get(this.#rows.get(access, WHO), SEQ);
  }
  own(access: number): number {
    return this.#who.get(this.#rows.get(access, WHO), OWN);
  }
  known(access: number): VectorClock {
    return this.#known[this.#rows.get(access, WHO)];
  }
  opId(access: number): number {
    return this.#who.get(this.#rows.get(access, WHO), ID);
  }
  site(access: number): Site {
    const row = this.#rows.get(access, WHO);
    const { strandRank, opBase, plan, strandBase } = this.#geometry;
    const strand = this.#who.get(row, LANE) % strandRank.length;
    const id = this.#who.get(row, ID);
    const op = lastAtMost(opBase[strand]!, id);
    const rank = strandRank[strand]!;
    const isLoop = plan.ranks[rank]!.strands[strand - strandBase[rank]!]!.ops[op]!.kind === "pipeline";
    return {
      strand,
      op,
      body: isLoop ? id - opBase[strand]![op]! : -1,
      iteration: this.#who.get(row, ITERATION),
      launch: this.#who.get(row, LAUNCH),
      id,
    };
  }

  // Accesses.

  /** Adds an access that stands in no list yet. */
  add(who: Accessor, position: number, value: number, tag: number, time: number, extra: number): number {
    let row = this.#free;
    if (row !== 0) this.#free = this.#rows.get(row, NEXT);
    else row = this.#rows.add();
    this.#rows.set(row, WHO, this.#accessor(who));
    this.#rows.set(row, POSITION, position);
    this.#rows.set(row, VALUE, value);
    this.#rows.set(row, TAG, tag * 2);
    this.#rows.set(row, NEXT, 0);
    this.#rows.set(row, EXTRA, extra);
    this.#rows.set(row, TIME, time);
    return row;
  }
  /** Gives a row back that nothing refers to any more. */
  free(access: number): void {
    this.#rows.set(access, NEXT, this.#free);
    this.#free = access;
  }
  position(access: number): number {
    return this.#rows.get(access, POSITION);
  }
  value(access: number): number {
    return this.#rows.get(access, VALUE);
  }
  /** 0 for plain data, else the tag of the packets: 1 + launch. */
  tag(access: number): number {
    return (this.#rows.get(access, TAG) >> 1) & (2 ** TAG_BITS - 1);
  }
  /** Of packets: the level of the operation that wrote them. */
  level(access: number): number {
    return this.#rows.get(access, TAG) >> (TAG_BITS + 1);
  }
  setLevel(access: number, level: number): void {
    this.#rows.set(access, TAG, this.#rows.get(access, TAG) | (level << (TAG_BITS + 1)));
  }
  repeatsInitial(access: number): boolean {
    return (this.#rows.get(access, TAG) & 1) === 1;
  }
  setRepeatsInitial(access: number): void {
    this.#rows.set(access, TAG, this.#rows.get(access, TAG) | 1);
  }
  next(access: number): number {
    return this.#rows.get(access, NEXT);
  }
  setNext(access: number, next: number): void {
    this.#rows.set(access, NEXT, next);
  }
  extra(access: number): number {
    return this.#rows.get(access, EXTRA);
  }
  time(access: number): number {
    return this.#rows.get(access, TIME) >>> 0;
  }

  // Links: packets that were read, each with those before it.

  link(from: number, behind: number, more?: readonly number[]): number {
    const row = this.#links.add();
    this.#links.set(row, FROM, from);
    this.#links.set(row, BEHIND, behind);
    if (more !== undefined) this.#more.set(row, more);
    return row;
  }
  /** The write of packets that was read, or 0. */
  linkFrom(link: number): number {
    return this.#links.get(link, FROM);
  }
  linkBehind(link: number): number {
    return this.#links.get(link, BEHIND);
  }
  linkMore(link: number): readonly number[] | undefined {
    return this.#more.get(link);
  }
}

/**
 * Index of the last of some rising numbers that is at most `value`, or -1. Of every cell of the outputs the writer is looked up: one by
 * one that took the third power of a ring's ranks.
 */
export function lastAtMost(rising: readonly number[], value: number): number {
  let low = 0;
  let high = rising.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rising[middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Where an operation stands, for findings. */
export function placeOfSite(geometry: Geometry, site: Site) {
  const rank = geometry.strandRank[site.strand]!;
  return {
    rank,
    strand: site.strand - geometry.strandBase[rank]!,
    op: site.op,
    body: site.body < 0 ? undefined : site.body,
  };
}
