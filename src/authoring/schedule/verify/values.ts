/**
 * Symbolic contents of memory: what was combined into a cell. A value is a node: a leaf (a cell of a rank's input), a
 * reduction of other values, memory nobody wrote, or "depends on timing". Equal nodes are stored once; two values are
 * compared by the multiset of leaves they stand for, exactly, and only when it matters (`flatten`).
 */
import type { PlanReduceOp } from "../ir.ts";

export const UNDEFINED = 0;
/** Operators for which an operand that comes twice changes nothing. */
const IDEMPOTENT: ReadonlySet<PlanReduceOp> = new Set(["min", "max", "band", "bor"]);
/** `avg` is a sum that is scaled once at the end. */
const operatorOf = (op: PlanReduceOp): PlanReduceOp => (op === "avg" ? "sum" : op);

/** What a value stands for: leaves with their counts, one operator (undefined for a single leaf); or why it is none. */
export interface FlatValue {
  readonly op: PlanReduceOp | undefined;
  readonly leaves: ReadonlyMap<number, number>;
  /** Operators that were mixed; empty when the value is a clean reduction. */
  readonly mixed: readonly PlanReduceOp[];
  readonly undefined: boolean;
  readonly races: readonly number[];
}

export class Values {
  readonly #kids: (readonly number[])[] = [[]];
  readonly #ops: (PlanReduceOp | undefined)[] = [undefined];
  /** Leaf number, or -1. */
  readonly #leaf: number[] = [-1];
  /** Races that a timing-dependent value comes from; undefined for the rest. */
  readonly #races: (readonly number[] | undefined)[] = [undefined];
  /** 1 for nodes with undefined memory somewhere inside. */
  readonly #tainted: number[] = [1];
  /**
   * Sum of a random-looking number for each leaf, as often as it is in: values that differ here differ (unless operands may
   * come twice). Spares flattening most pairs.
   */
  readonly #print: number[] = [0];
  readonly #leafIds = new Map<number, number>();
  readonly #index = new Map<number, number[]>();
  readonly #poison = new Map<string, number>();
  readonly #flat = new Map<number, FlatValue>();

  #push(kids: readonly number[], op: PlanReduceOp | undefined, leaf: number, tainted: number): number {
    this.#kids.push(kids);
    this.#ops.push(op);
    this.#leaf.push(leaf);
    this.#races.push(undefined);
    this.#tainted.push(tainted);
    this.#print.push(leaf < 0 ? 0 : fingerprint(leaf));
    return this.#kids.length - 1;
  }

  /** The value of input cell number `leaf`. */
  leaf(leaf: number): number {
    let id = this.#leafIds.get(leaf);
    if (id === undefined) {
      id = this.#push([], undefined, leaf, 0);
      this.#leafIds.set(leaf, id);
    }
    return id;
  }

  /** A value that depends on the outcome of races. */
  poison(races: readonly number[]): number {
    const sorted = [...new Set(races)].sort((a, b) => a - b).slice(0, 8);
    const key = sorted.join();
    let id = this.#poison.get(key);
    if (id === undefined) {
      id = this.#push([], undefined, -1, 0);
      this.#races[id] = sorted;
      this.#poison.set(key, id);
    }
    return id;
  }

  racesOf(value: number): readonly number[] | undefined {
    return this.#races[value];
  }

  isTainted(value: number): boolean {
    return this.#tainted[value] === 1;
  }

  /** op(operands), in any order. */
  reduce(op: PlanReduceOp, operands: readonly number[]): number {
    if (operands.length === 1) return operands[0] ?? UNDEFINED;
    let races: number[] | undefined;
    let tainted = 0;
    for (const operand of operands) {
      const own = this.#races[operand];
      if (own !== undefined) races = [...(races ?? []), ...own];
      if (this.#tainted[operand] === 1) tainted = 1;
    }
    if (races !== undefined) return this.poison(races);
    const name = operatorOf(op);
    const kids = [...operands].sort((a, b) => a - b);
    let hash = name.charCodeAt(0) * 31 + name.charCodeAt(1);
    for (const kid of kids) hash = (Math.imul(hash, 0x01000193) ^ kid) | 0;
    const bucket = this.#index.get(hash);
    if (bucket !== undefined) {
      for (const id of bucket) {
        const other = this.#kids[id];
        if (this.#ops[id] === name && other?.length === kids.length && other.every((k, i) => k === kids[i])) return id;
      }
    }
    const id = this.#push(kids, name, -1, tainted);
    let print = 0;
    for (const kid of kids) print = (print + this.#print[kid]!) | 0;
    this.#print[id] = print;
    if (bucket === undefined) this.#index.set(hash, [id]);
    else bucket.push(id);
    return id;
  }

  /** The leaves behind a value. Linear in the nodes below it, however often they are shared. */
  flatten(value: number): FlatValue {
    const known = this.#flat.get(value);
    if (known !== undefined) return known;
    const op = this.#ops[value];
    const leaves = new Map<number, number>();
    const mixed = new Set<PlanReduceOp>();
    const multiplicity = new Map<number, number>([[value, 1]]);
    // Kids have smaller numbers than their parents: descending order is a topological order.
    const heap = new DescendingHeap();
    heap.push(value);
    while (heap.size > 0) {
      const id = heap.pop();
      const times = multiplicity.get(id) ?? 0;
      const own = this.#ops[id];
      const leaf = this.#leaf[id] ?? -1;
      if (leaf >= 0) leaves.set(leaf, times);
      else if (own !== undefined) {
        if (op !== undefined && own !== op) mixed.add(own);
        for (const kid of this.#kids[id] ?? []) {
          const before = multiplicity.get(kid);
          multiplicity.set(kid, (before ?? 0) + times);
          if (before === undefined) heap.push(kid);
        }
      }
    }
    if (op !== undefined && IDEMPOTENT.has(op) && mixed.size === 0)
      for (const leaf of leaves.keys()) leaves.set(leaf, 1);
    if (op !== undefined && mixed.size > 0) mixed.add(op);
    const flat: FlatValue = {
      op: leaves.size === 1 && [...leaves.values()][0] === 1 && mixed.size === 0 ? undefined : op,
      leaves,
      mixed: [...mixed],
      undefined: this.#tainted[value] === 1,
      races: this.#races[value] ?? [],
    };
    this.#flat.set(value, flat);
    return flat;
  }

  /** Says whether two values are certainly the same, whatever the inputs are. */
  equal(a: number, b: number): boolean {
    if (a === b) return this.#races[a] === undefined && this.#tainted[a] === 0;
    if (this.#races[a] !== undefined || this.#races[b] !== undefined) return false;
    if (this.#tainted[a] === 1 || this.#tainted[b] === 1) return false;
    const op = this.#ops[a] ?? this.#ops[b];
    if ((op === undefined || !IDEMPOTENT.has(op)) && this.#print[a] !== this.#print[b]) return false;
    const x = this.flatten(a);
    const y = this.flatten(b);
    if (x.mixed.length > 0 || y.mixed.length > 0 || x.op !== y.op || x.leaves.size !== y.leaves.size) return false;
    for (const [leaf, count] of x.leaves) if (y.leaves.get(leaf) !== count) return false;
    return true;
  }
}

function fingerprint(leaf: number): number {
  let x = (leaf + 0x9e3779b9) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}

/** A small binary heap that gives the largest number first. */
class DescendingHeap {
  readonly #items: number[] = [];
  get size(): number {
    return this.#items.length;
  }
  push(item: number): void {
    const items = this.#items;
    let i = items.length;
    items.push(item);
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (items[parent]! >= item) break;
      items[i] = items[parent]!;
      i = parent;
    }
    items[i] = item;
  }
  pop(): number {
    const items = this.#items;
    const top = items[0]!;
    const last = items.pop()!;
    const n = items.length;
    if (n > 0) {
      let i = 0;
      for (;;) {
        let child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && items[child + 1]! > items[child]!) child++;
        if (items[child]! <= last) break;
        items[i] = items[child]!;
        i = child;
      }
      items[i] = last;
    }
    return top;
  }
}
