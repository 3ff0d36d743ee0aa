/** Operations in program order with what was inserted around them, and the memory that remembers who used it last. */
import type { DraftOp } from "./draft-ops.ts";
import type { Access } from "./op-accesses.ts";

/** What is known to be done: `base[u]` operations of strand u, and of its own strand all up to `index`. */
export interface Clock {
  /** Shared until something is joined. Entries beyond the number of strands: port puts of each that have arrived. */
  readonly base: Int32Array;
  readonly strand: number;
  readonly index: number;
}

/** An operation in program order, with what was inserted around it. As a clock: what its strand knows once it is done. */
export interface Entry extends Clock {
  readonly op: DraftOp | undefined;
  readonly seq: number;
  /** Its number in the strand, from 1. */
  readonly index: number;
  /** Number of port puts of the strand, this one included. */
  readonly puts: number;
  base: Int32Array;
  before: readonly DraftOp[] | undefined;
  after: readonly DraftOp[] | undefined;
  flushed: boolean;
}

export interface Use {
  readonly entry: Entry;
  readonly proxy: boolean;
  readonly packet: boolean;
  /** The chunk was never written before. */
  readonly fresh: boolean;
  /** The list of this use alone, which most slots have. */
  alone: readonly Use[];
}

export const NONE: readonly Use[] = [];

export function addBefore(entry: Entry, op: DraftOp): void {
  entry.before = [...(entry.before ?? []), op];
}
export function addAfter(entry: Entry, op: DraftOp): void {
  entry.after = [...(entry.after ?? []), op];
}
export function firstAfter(entry: Entry, op: DraftOp): void {
  entry.after = [op, ...(entry.after ?? [])];
}

/** @param uses those of the entry so far: a few kinds, however many chunks it touches */
export function useOf(uses: Use[], entry: Entry, { proxy, packet }: Access, fresh: boolean): Use {
  const known = uses.find((use) => use.proxy === proxy && use.packet === packet && use.fresh === fresh);
  if (known !== undefined) return known;
  const use: Use = { entry, proxy, packet, fresh, alone: NONE };
  use.alone = [use];
  uses.push(use);
  return use;
}
export interface Slot {
  readonly writers: readonly Use[];
  readonly readers: readonly Use[];
}
