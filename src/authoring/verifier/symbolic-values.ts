/**
 * Symbolic contents of memory: what was combined into a cell. A value is a number: 0 is memory nobody wrote, 1 + i is
 * cell i of the inputs (a leaf), and above stand reductions of other values and "depends on timing". Equal values have
 * equal numbers where they were combined alike; otherwise they are compared by the multiset of leaves they stand for,
 * exactly, and only when it matters (`flatten`).
 *
 * What lies where nobody wrote is of no use, but it is something: each place has its own contents at the beginning, whoever reads
 * it, and two places need not hold the same. So it is an unknown of its own for each place, and one for each packet that is read as
 * plain data; it never takes part in what is right, and two values that it went into are the same only where the same unknowns did.
 */
import { NumberHeap } from "../../core/internal.ts";
import { PLAN_REDUCE_OPS, type PlanReduceOp } from "../plan/index.ts";

export const UNDEFINED = 0;
/** Operators for which an operand that comes twice changes nothing. */
const IDEMPOTENT: ReadonlySet<PlanReduceOp> = new Set(["min", "max", "band", "bor"]);
/** `avg` is a sum that is scaled once at the end. */
const operatorOf = (op: PlanReduceOp): PlanReduceOp => (op === "avg" ? "sum" : op);
/** Values that are looked at for where one went wrong. */
const MAX_SEARCHED = 4096;
/** Leaves of flattened values that are kept for the next question, all values together. */
const MAX_REMEMBERED_LEAVES = 200_000;

/** What a value stands for: leaves with their counts, one operator (undefined for a single leaf); or why it is none. */
export interface FlatValue {
  readonly op: PlanReduceOp | undefined;
  readonly leaves: ReadonlyMap<number, number>;
  /** Operators that were mixed; empty when the value is a clean reduction. */
  readonly mixed: readonly PlanReduceOp[];
  readonly undefined: boolean;
  /** Places that nobody had written, and packets read as plain data, that went into it, with their counts. */
  readonly unknowns: ReadonlyMap<string, number>;
  readonly races: readonly number[];
}

const NO_LEAF = 2 ** 31 - 1;

const TAINTED = 1;
const POISONED = 2;

/** Integers in a row that grow by half when they are full. */
class IntList {
  data: Int32Array;
  length = 0;
  constructor(room: number) {
    this.data = new Int32Array(room);
  }
  push(value: number): void {
    if (this.length === this.data.length) {
      const grown = new Int32Array(Math.ceil(this.data.length * 1.5) + 16);
      grown.set(this.data);
      this.data = grown;
    }
    this.data[this.length++] = value;
  }
}

export class Values {
  /** Values up to here are leaves. */
  readonly #leaves: number;
  /** Of node #leaves + 1 + i: where its operands begin in `#kids` (they end where the next one's begin). */
  readonly #begin = new IntList(128);
  readonly #kids = new IntList(256);
  /** Index of the operator, or -1. */
  readonly #op = new IntList(128);
  readonly #flags = new IntList(128);
  /**
   * Sum of a random-looking number for each leaf, as often as it is in: values that differ here differ (unless operands
   * may come twice). Spares flattening most pairs.
   */
  readonly #print = new IntList(128);
  /** Number of the operation that made it first, or -1. */
  readonly #maker = new IntList(128);
  /** By operation and unknown, what it got where it read memory that nobody had written, or packets as plain data. */
  readonly #garbage = new Map<string, number>();
  /** The unknown that such a value is. */
  readonly #unknowns = new Map<number, string>();
  readonly #races = new Map<number, readonly number[]>();
  readonly #poison = new Map<string, number>();
  /** Open addressing: node numbers by the hash of operator and operands. */
  #table = new Int32Array(256);
  #numInTable = 0;
  /** Of the first nodes: see `leastOf`. */
  readonly #least = new IntList(16);
  readonly #flat = new Map<number, FlatValue>();
  #numRemembered = 0;

  /** @param numLeaves cells of all inputs of all launches */
  constructor(numLeaves: number) {
    this.#leaves = numLeaves;
  }

  #push(operands: readonly number[], op: PlanReduceOp | undefined, flags: number, print: number, maker = -1): number {
    this.#maker.push(maker);
    this.#begin.push(this.#kids.length);
    for (const operand of operands) this.#kids.push(operand);
    this.#op.push(op === undefined ? -1 : PLAN_REDUCE_OPS.indexOf(op));
    this.#flags.push(flags);
    this.#print.push(print);
    return this.#leaves + this.#begin.length;
  }
  /** Place of a node in the tables; negative for leaves and undefined memory. */
  #node(value: number): number {
    return value - this.#leaves - 1;
  }
  #opOf(value: number): PlanReduceOp | undefined {
    const node = this.#node(value);
    return node < 0 ? undefined : PLAN_REDUCE_OPS[this.#op.data[node]!];
  }
  #kidsOf(value: number): Int32Array {
    const node = this.#node(value);
    if (node < 0) return this.#kids.data.subarray(0, 0);
    const end = node + 1 < this.#begin.length ? this.#begin.data[node + 1]! : this.#kids.length;
    return this.#kids.data.subarray(this.#begin.data[node]!, end);
  }
  #printOf(value: number): number {
    const node = this.#node(value);
    return node >= 0 ? this.#print.data[node]! : value === UNDEFINED ? 0 : fingerprint(value - 1);
  }

  /** The value of input cell number `leaf`. */
  leaf(leaf: number): number {
    return leaf + 1;
  }

  /** What operation `reader` gets where it reads a cell that nobody had written. */
  garbage(reader: number, cell: number): number {
    return this.#unknown(reader, `cell ${cell}`);
  }

  /** What operation `reader` gets where it reads a packet as plain data: undefined, but the same where the packet is. */
  packetAsData(reader: number, value: number, tag: number): number {
    return this.#unknown(reader, `packet ${value} ${tag}`);
  }

  /** One value for each reader, so that what went wrong is found where it was read first. */
  #unknown(reader: number, unknown: string): number {
    const key = `${reader} ${unknown}`;
    let id = this.#garbage.get(key);
    if (id === undefined) {
      id = this.#push([], undefined, TAINTED, 0, reader);
      this.#garbage.set(key, id);
      this.#unknowns.set(id, unknown);
    }
    return id;
  }

  /**
   * The operation where a value went wrong first, and when: of the values that went into it, itself included, the oldest
   * one that `isWrong` holds of. @returns undefined where none is found, or too many had to be looked at
   */
  firstWrong(
    value: number,
    isWrong: (value: number) => boolean,
  ): { readonly op: number; readonly when: number } | undefined {
    const seen = new Set<number>([value]);
    const list = [value];
    for (let at = 0; at < list.length; at++) {
      for (const kid of this.#kidsOf(list[at]!)) {
        if (this.#node(kid) < 0 || seen.has(kid)) continue;
        if (list.length >= MAX_SEARCHED) return undefined;
        seen.add(kid);
        list.push(kid);
      }
    }
    for (const id of list.sort((a, b) => a - b)) {
      const node = this.#node(id);
      if (node < 0 || !isWrong(id)) continue;
      const op = this.#maker.data[node]!;
      return op < 0 ? undefined : { op, when: node };
    }
    return undefined;
  }

  /** A value that depends on the outcome of races. */
  poison(races: readonly number[]): number {
    const sorted = [...new Set(races)].sort((a, b) => a - b).slice(0, 8);
    const key = sorted.join();
    let id = this.#poison.get(key);
    if (id === undefined) {
      id = this.#push([], undefined, POISONED, 0);
      this.#races.set(id, sorted);
      this.#poison.set(key, id);
    }
    return id;
  }

  racesOf(value: number): readonly number[] | undefined {
    const node = this.#node(value);
    return node >= 0 && (this.#flags.data[node]! & POISONED) !== 0 ? this.#races.get(value) : undefined;
  }

  isTainted(value: number): boolean {
    const node = this.#node(value);
    return node < 0 ? value === UNDEFINED : (this.#flags.data[node]! & TAINTED) !== 0;
  }

  /** op(operands), in any order. @param maker the operation that does it */
  reduce(op: PlanReduceOp, operands: readonly number[], maker = -1): number {
    if (operands.length === 1) return operands[0] ?? UNDEFINED;
    let races: number[] | undefined;
    let tainted = 0;
    for (const operand of operands) {
      const own = this.racesOf(operand);
      if (own !== undefined) races = [...(races ?? []), ...own];
      if (this.isTainted(operand)) tainted = TAINTED;
    }
    if (races !== undefined) return this.poison(races);
    const name = operatorOf(op);
    const kids = [...operands].sort((a, b) => a - b);
    const code = PLAN_REDUCE_OPS.indexOf(name);
    const slot = this.#slot(code, kids);
    if (this.#table[slot] !== 0) return this.#table[slot]!;
    let print = 0;
    for (const kid of kids) print = (print + this.#printOf(kid)) | 0;
    const id = this.#push(kids, name, tainted, print, maker);
    this.#table[slot] = id;
    if (++this.#numInTable * 2 > this.#table.length) this.#rehash();
    return id;
  }

  /** Where in the table a reduction stands, or may be put. */
  #slot(code: number, kids: ArrayLike<number>): number {
    const mask = this.#table.length - 1;
    let hash = (code + 1) * 0x9e3779b1;
    for (let i = 0; i < kids.length; i++) hash = Math.imul(hash ^ kids[i]!, 0x01000193) ^ (hash >>> 15);
    for (let at = hash & mask; ; at = (at + 1) & mask) {
      const id = this.#table[at]!;
      if (id === 0 || (this.#op.data[this.#node(id)] === code && sameItems(this.#kidsOf(id), kids))) return at;
    }
  }
  #rehash(): void {
    const old = this.#table;
    this.#table = new Int32Array(old.length * 2);
    for (const id of old) if (id !== 0) this.#table[this.#slot(this.#op.data[this.#node(id)]!, this.#kidsOf(id))] = id;
  }

  /**
   * The least number that `numbers` has for a leaf that went into a value; very large where none did.
   * @param numbers of the leaves of one launch: the same at every call
   */
  leastOf(value: number, numbers: Int32Array): number {
    if (value === UNDEFINED) return NO_LEAF;
    const node = this.#node(value);
    if (node < 0) return numbers[(value - 1) % numbers.length]!;
    // Operands have smaller numbers than what is made of them.
    for (let at = this.#least.length; at <= node; at++) {
      let least = NO_LEAF;
      for (const kid of this.#kidsOf(this.#leaves + 1 + at)) least = Math.min(least, this.leastOf(kid, numbers));
      this.#least.push(least);
    }
    return this.#least.data[node]!;
  }

  /** The leaves behind a value. Linear in the nodes below it, however often they are shared. */
  flatten(value: number): FlatValue {
    const known = this.#flat.get(value);
    if (known !== undefined) return known;
    const op = this.#opOf(value);
    const leaves = new Map<number, number>();
    const unknowns = new Map<string, number>();
    const mixed = new Set<PlanReduceOp>();
    const multiplicity = new Map<number, number>([[value, 1]]);
    // Kids have smaller numbers than their parents: descending order is a topological order.
    const heap = new NumberHeap();
    heap.push(-value);
    while (heap.size > 0) {
      const id = -heap.pop();
      const times = multiplicity.get(id) ?? 0;
      if (id !== UNDEFINED && id <= this.#leaves) {
        leaves.set(id - 1, times);
        continue;
      }
      const unknown = this.#unknowns.get(id);
      if (unknown !== undefined) unknowns.set(unknown, (unknowns.get(unknown) ?? 0) + times);
      const own = this.#opOf(id);
      if (own === undefined) continue;
      if (op !== undefined && own !== op) mixed.add(own);
      for (const kid of this.#kidsOf(id)) {
        const before = multiplicity.get(kid);
        multiplicity.set(kid, (before ?? 0) + times);
        if (before === undefined) heap.push(-kid);
      }
    }
    if (op !== undefined && IDEMPOTENT.has(op) && mixed.size === 0) {
      for (const leaf of leaves.keys()) leaves.set(leaf, 1);
      for (const unknown of unknowns.keys()) unknowns.set(unknown, 1);
    }
    if (op !== undefined && mixed.size > 0) mixed.add(op);
    const isSingle = leaves.size + unknowns.size === 1 && [...leaves.values(), ...unknowns.values()][0] === 1;
    const flat: FlatValue = {
      op: isSingle && mixed.size === 0 ? undefined : op,
      leaves,
      mixed: [...mixed],
      undefined: this.isTainted(value),
      unknowns,
      races: this.racesOf(value) ?? [],
    };
    this.#numRemembered += leaves.size + unknowns.size + 1;
    if (this.#numRemembered > MAX_REMEMBERED_LEAVES) {
      this.#flat.clear();
      this.#numRemembered = leaves.size + unknowns.size + 1;
    }
    this.#flat.set(value, flat);
    return flat;
  }

  /** Says whether two values are certainly the same, whatever the inputs are. */
  equal(a: number, b: number): boolean {
    if (this.racesOf(a) !== undefined || this.racesOf(b) !== undefined) return false;
    if (this.isTainted(a) || this.isTainted(b)) return false;
    return this.alike(a, b);
  }

  /**
   * Says whether two values are certainly the same, whatever the inputs are and whatever lay where nobody wrote: what such a place
   * held at the beginning is one unknown, in all orders in which a plan can be run.
   */
  alike(a: number, b: number): boolean {
    if (this.racesOf(a) !== undefined || this.racesOf(b) !== undefined) return false;
    if (a === b) return true;
    const op = this.#opOf(a) ?? this.#opOf(b);
    if ((op === undefined || !IDEMPOTENT.has(op)) && this.#printOf(a) !== this.#printOf(b)) return false;
    const x = this.flatten(a);
    const y = this.flatten(b);
    if (x.mixed.length > 0 || y.mixed.length > 0 || x.op !== y.op) return false;
    return sameCounts(x.leaves, y.leaves) && sameCounts(x.unknowns, y.unknowns);
  }
}

/** Says whether counts are certainly the same: beyond 53 bits they are rounded, and nothing is said of them. */
function sameCounts<K>(a: ReadonlyMap<K, number>, b: ReadonlyMap<K, number>): boolean {
  if (a.size !== b.size) return false;
  for (const [key, count] of a) if (b.get(key) !== count || !Number.isSafeInteger(count)) return false;
  return true;
}

function sameItems(a: Int32Array, b: ArrayLike<number>): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

function fingerprint(leaf: number): number {
  let x = (leaf + 0x9e3779b9) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}
