/** What remains of operations once they were visited in program order, and the memory that remembers who used it last. */
import type { VectorClock } from "../../core/internal.ts";
import type { DraftOp } from "./draft-ops.ts";
import type { Access } from "./op-accesses.ts";

/** What is known to be done: `base[u]` operations of strand u, and of its own strand all up to `index`. */
export interface Clock {
  /** Lanes beyond the number of strands: port puts of each that have arrived. */
  readonly base: VectorClock;
  readonly strand: number;
  readonly index: number;
}

/** An operation in program order. As a clock: what its strand knows once it is done. */
export interface Entry extends Clock {
  /** Its source line. */
  readonly source: number | undefined;
  /** Channels of a put through a port. */
  readonly ports: readonly number[] | undefined;
  readonly seq: number;
  /** Its number in the strand, from 1. */
  readonly index: number;
  /** Number of port puts of the strand, this one included. */
  readonly puts: number;
  base: VectorClock;
  flushed: boolean;
}

/** What is inserted at one side of an operation: mostly one thing, and a large program has millions of them. */
type Inserted = DraftOp | readonly DraftOp[];

/** What is inserted into each strand, by the number of the operation in it. */
export class Insertions {
  private readonly before: (Map<number, Inserted> | undefined)[] = [];
  private readonly after: (Map<number, Inserted> | undefined)[] = [];

  private sideOf(side: (Map<number, Inserted> | undefined)[], strand: number): Map<number, Inserted> {
    let map = side[strand];
    if (map === undefined) {
      map = new Map();
      side[strand] = map;
    }
    return map;
  }

  /** Inserts `op` before an operation, behind what was inserted there so far. It may stand in many places. */
  addBefore({ strand, index }: Clock, op: DraftOp): void {
    const map = this.sideOf(this.before, strand);
    const there = map.get(index);
    map.set(index, there === undefined ? op : [...listOf(there), op]);
  }

  /** Inserts `op` after an operation, behind what was inserted there so far, or with `isFirst` ahead of it. */
  addAfter({ strand, index }: Clock, op: DraftOp, isFirst = false): void {
    const map = this.sideOf(this.after, strand);
    const there = map.get(index);
    map.set(index, there === undefined ? op : isFirst ? [op, ...listOf(there)] : [...listOf(there), op]);
  }

  /** @param ops the operations of the strand, which have the numbers from 1 up; its end has the number after the last */
  apply(strand: number, ops: readonly DraftOp[]): DraftOp[] {
    const [before, after] = [this.before[strand], this.after[strand]];
    if (before === undefined && after === undefined) return [...ops];
    const result: DraftOp[] = [];
    const add = (there: Inserted | undefined) => {
      if (there !== undefined) for (const op of listOf(there)) result.push(op);
    };
    for (let index = 1; index <= ops.length + 1; index++) {
      add(before?.get(index));
      const op = ops[index - 1];
      if (op !== undefined) result.push(op);
      add(after?.get(index));
    }
    return result;
  }
}

const listOf = (there: Inserted): readonly DraftOp[] => ("kind" in there ? [there] : there);

/** A use of a chunk, and the other uses that stand beside it: a list, as a large program has a million of one each. */
export interface Use {
  readonly entry: Entry;
  readonly proxy: boolean;
  /** Packets, in a chunk that was never written before. */
  readonly freshPacket: boolean;
  readonly next: Use | undefined;
}

export interface Slot {
  readonly writers: Use | undefined;
  readonly readers: Use | undefined;
}

/** @param uses those of the entry so far: a few kinds, however many chunks it touches */
export function useOf(uses: Use[], entry: Entry, { proxy, packet }: Access, fresh: boolean): Use {
  const freshPacket = packet && fresh;
  const known = uses.find((use) => use.proxy === proxy && use.freshPacket === freshPacket);
  if (known !== undefined) return known;
  const use: Use = { entry, proxy, freshPacket, next: undefined };
  uses.push(use);
  return use;
}

/** Whether all of a list stay: then it is shared. Copied for each of a chunk's readers, it took their square. */
function areKept(list: Use | undefined, keep: (use: Use) => boolean): boolean {
  for (let use = list; use !== undefined; use = use.next) if (!keep(use)) return false;
  return true;
}

/** @returns those of `list` that `keep` keeps */
export function only(list: Use | undefined, keep: (use: Use) => boolean): Use | undefined {
  let kept: Use | undefined;
  for (let use = list; use !== undefined; use = use.next) if (keep(use)) kept = { ...use, next: kept };
  return kept;
}

/** @returns `use`, which stands alone, before those of `list` that `keep` keeps */
export function withUses(use: Use, list: Use | undefined, keep: (use: Use) => boolean): Use {
  const kept = areKept(list, keep) ? list : only(list, keep);
  return kept === undefined ? use : { ...use, next: kept };
}
