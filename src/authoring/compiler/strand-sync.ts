/**
 * Block-wide synchronisation of a strand, from dependences. Other than MSCCL++'s pass it sees every access (remote,
 * switch, packet copies, both names of in-place memory), forgets nothing but at a nop, and derives the nops around
 * signals and waits instead of taking the user's word: what came before a signal is done when it is raised, and nothing
 * passes a wait. Masks of the program are satisfied by it; redundant ones cost nothing.
 */
import { type DraftOp, type DraftSimple, isSync, SYNC } from "./draft-ops.ts";
import { IntervalMap } from "./interval-map.ts";
import { type Access, type AccessContext, accessesOf } from "./op-accesses.ts";

interface Mark {
  /** The operation, when it is only one; -1: several. */
  readonly reader: number;
  readonly writer: number;
  /** All writes since the last nop were packets. */
  readonly packetWrites: boolean;
}

class Since {
  private readonly memories = new Map<number, IntervalMap<Mark>>();
  empty = true;

  clear(): void {
    this.memories.clear();
    this.empty = true;
  }

  conflicts(a: Access, owner: number): boolean {
    let found = false;
    this.memories.get(a.memory)?.visit(a.start, a.end, (mark) => {
      const write = mark.writer !== NONE && mark.writer !== owner;
      const read = mark.reader !== NONE && mark.reader !== owner;
      // Packets announce themselves to whoever waits for packets, also within a block.
      const announced = write && !a.write && a.packet && mark.packetWrites;
      if ((write && !announced) || (read && a.write)) found = true;
    });
    return found;
  }

  add(a: Access, owner: number): void {
    this.empty = false;
    let map = this.memories.get(a.memory);
    if (map === undefined) {
      map = new IntervalMap();
      this.memories.set(a.memory, map);
    }
    const one = (old: number) => (old === NONE || old === owner ? owner : SEVERAL);
    map.update(a.start, a.end, (old = { reader: NONE, writer: NONE, packetWrites: true }) =>
      a.write
        ? { ...old, writer: one(old.writer), packetWrites: old.packetWrites && a.packet }
        : { ...old, reader: one(old.reader) },
    );
  }
}
const NONE = -2;
const SEVERAL = -1;

/** Replaces the masks of a strand's operations by nops, and adds nothing: what the program says is all there is. */
export function syncAsWritten(ops: readonly DraftOp[]): DraftOp[] {
  const result: DraftOp[] = [];
  const nop = (source: number | undefined) => {
    const last = result.at(-1)?.kind;
    if (last !== "nop" && last !== "barrier") result.push({ kind: "nop", source });
  };
  for (const op of ops) {
    if (op.kind === "nop") nop(op.source);
    else if (op.kind === "barrier") {
      if (result.at(-1)?.kind === "nop") result.pop();
      result.push(op);
    } else if (isSync(op)) {
      if ((op.sync & SYNC.before) !== 0) nop(op.source);
      result.push(op);
      if ((op.sync & SYNC.after) !== 0) nop(op.source);
    } else result.push(op.kind === "pipeline" ? { ...op, body: syncAsWritten(op.body) as DraftSimple[] } : op);
  }
  return result;
}

/** Inserts nops into one strand of `rank`. */
export function syncStrand<T extends DraftOp>(context: AccessContext, rank: number, ops: readonly T[]): T[] {
  const result: DraftOp[] = [];
  const since = new Since();
  /** A wait has passed that not every thread has seen. */
  let waited = false;
  /** One for each source line: they stand in many places. */
  const nops = new Map<number | undefined, DraftOp>();
  /** Port puts whose proxy may still read: only a flush ends that, not a nop. */
  const nop = (source: number | undefined) => {
    const last = result.at(-1)?.kind;
    if (last !== "nop" && last !== "barrier") {
      const there = nops.get(source) ?? { kind: "nop", source };
      nops.set(source, there);
      result.push(there);
    }
    since.clear();
    waited = false;
  };
  ops.forEach((op: DraftOp, owner) => {
    switch (op.kind) {
      case "nop":
        nop(op.source);
        return;
      case "barrier":
        if (result.at(-1)?.kind === "nop") result.pop();
        result.push(op);
        since.clear();
        waited = false;
        return;
      case "signal":
      case "release":
        // Whoever hears this may rely on everything before it, waits included.
        if (!since.empty || waited) nop(op.source);
        result.push(op);
        return;
      case "wait":
      case "acquire":
      case "flush":
        if (op.kind === "flush" && !since.empty) nop(op.source);
        result.push(op);
        waited = true;
        return;
      default: {
        const body: DraftOp = op.kind === "pipeline" ? { ...op, body: syncBody(context, rank, op.body) } : op;
        const accesses = accessesOf(context, rank, body);
        // A notifying put signals: everything before it must be done.
        const signals = op.kind === "put" && op.notify !== "none" && !since.empty;
        const enters = op.kind === "pipeline" && !since.empty;
        if (waited || signals || enters || accesses.some((a) => since.conflicts(a, owner))) nop(op.source);
        for (const access of accesses) since.add(access, owner);
        result.push(body);
      }
    }
  });
  return result as T[];
}

/** The body runs again and again: its end is followed by its beginning. */
function syncBody(context: AccessContext, rank: number, ops: readonly DraftSimple[]): DraftSimple[] {
  const body = syncStrand(context, rank, ops);
  const last = body.at(-1)?.kind;
  const first = body[0]?.kind;
  const closed = last === "nop" || last === "barrier" || first === "nop" || first === "barrier";
  return closed || body.length < 2 ? body : [...body, { kind: "nop", source: body.at(-1)?.source }];
}
