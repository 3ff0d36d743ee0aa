/**
 * The two synchronisation passes of the MSCCL++ 0.9 DSL: nops for the masks that the program gave, and nops for
 * conflicts between local accesses of one strand. The second forgets what it should remember in known cases (kept here
 * on purpose): reads of an operation whose later access conflicts, everything remote, packet copies, switch buffers.
 */

import type { BufferKind, Range } from "../../plan/index.ts";
import { type DraftOp, type DraftSimple, isSync, SYNC } from "../draft-ops.ts";

/** Writes a nop where a mask asks for one. */
export function explicitSync<T extends DraftOp>(ops: readonly T[]): T[] {
  const result: DraftOp[] = [];
  for (const op of ops) {
    if (op.kind === "pipeline") op.body = explicitSync(op.body);
    const mask = isSync(op) ? op.sync : 0;
    if ((mask & SYNC.before) !== 0) result.push({ kind: "nop", source: op.source });
    result.push(op);
    if ((mask & SYNC.after) !== 0) result.push({ kind: "nop", source: op.source });
  }
  return result as T[];
}

interface Access {
  readonly buffer: BufferKind;
  readonly start: number;
  readonly end: number;
  readonly write: boolean;
}

const read = (r: Range): Access => ({ buffer: r.buffer, start: r.index, end: r.index + r.size - 1, write: false });
const write = (r: Range): Access => ({ buffer: r.buffer, start: r.index, end: r.index + r.size - 1, write: true });

function accessesOf(op: DraftOp): Access[] {
  switch (op.kind) {
    case "copy":
      if (op.format === "pack") return [read(op.src)];
      return op.format === "unpack" ? [write(op.dst)] : [read(op.src), write(op.dst)];
    case "get":
      return op.dst.map(write);
    case "put":
      return op.format === "forward" ? [] : op.src.map(read);
    case "reduce":
      return [...(op.packets ? op.src.slice(1) : op.src).map(read), write(op.dst)];
    case "pipeline":
      return op.body.flatMap(accessesOf);
    default:
      return [];
  }
}

interface Interval {
  start: number;
  end: number;
  owner: number;
  write: boolean;
}

/** Disjoint intervals of each buffer with their last owner. */
class Tracker {
  private readonly state: Record<BufferKind, Interval[]> = { input: [], output: [], scratch: [] };

  clear(): void {
    this.state.input.length = 0;
    this.state.output.length = 0;
    this.state.scratch.length = 0;
  }

  /** Records an access of operation `owner`. @returns whether it conflicts with an earlier operation's */
  process({ buffer, start, end, write: writes }: Access, owner: number): boolean {
    const list = this.state[buffer];
    let at = 0;
    let high = list.length;
    while (at < high) {
      const middle = (at + high) >> 1;
      if ((list[middle] as Interval).end >= start) high = middle;
      else at = middle + 1;
    }
    let last = at;
    const remainders: Interval[] = [];
    while (last < list.length && (list[last] as Interval).start <= end) {
      const old = list[last] as Interval;
      if (old.owner !== owner && (old.write || writes)) {
        this.clear();
        list.push({ start, end, owner, write: writes });
        return true;
      }
      if (old.start < start) remainders.push({ ...old, end: start - 1 });
      if (old.end > end) remainders.push({ ...old, start: end + 1 });
      last++;
    }
    const before = remainders.filter((r) => r.end < start);
    const after = remainders.filter((r) => r.end >= start);
    list.splice(at, last - at, ...before, { start, end, owner, write: writes }, ...after);
    return false;
  }
}

/** Writes a nop before every operation whose local accesses conflict with earlier ones since the last nop. */
export function dependencySync<T extends DraftOp>(ops: readonly T[]): T[] {
  const tracker = new Tracker();
  const result: DraftOp[] = [];
  for (let owner = 0; owner < ops.length; owner++) {
    const op = ops[owner] as DraftOp;
    if (op.kind === "nop" || op.kind === "barrier") tracker.clear();
    else {
      if (op.kind === "pipeline") op.body = dependencySync(op.body as DraftSimple[]);
      let conflict = false;
      for (const access of accessesOf(op)) if (tracker.process(access, owner)) conflict = true;
      if (conflict) result.push({ kind: "nop", source: op.source });
    }
    result.push(op);
  }
  return result as T[];
}
