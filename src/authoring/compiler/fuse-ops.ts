/**
 * Fusion that keeps the meaning. Two neighbours of a strand are joined only when their accesses say that one pass over
 * the elements does what both did in turn: a reduction continues another only if it accumulates into its result, and a
 * put joins only what it reads. MSCCL++'s peephole (`mscclpp/mscclpp-fusion.ts`) joins more, and wrongly: see docs/language.md.
 * No operation grows beyond what the MSCCL++ executor holds.
 */

import { EXECUTOR_LIMITS, type Range, type RemoteRange, sameGroup, sameRange } from "../plan/index.ts";
import { type DraftGet, type DraftOp, type DraftPut, type DraftReduce, type DraftSimple, isSync } from "./draft-ops.ts";
import { type Access, type AccessContext, accessesOf, overlaps } from "./op-accesses.ts";

const { rangesPerOp: MAX_RANGES, channelIdsPerOp: MAX_CHANNELS } = EXECUTOR_LIMITS;

/** Does a write of `y` or `x` meet an access of the other, other than as `allowed` says? */
function conflict(x: readonly Access[], y: readonly Access[], allowed?: (a: Access, b: Access) => boolean): boolean {
  return x.some((a) => y.some((b) => (a.write || b.write) && overlaps(a, b) && !(allowed?.(a, b) ?? false)));
}

const sameSpan = (a: Access, b: Access) => a.memory === b.memory && a.start === b.start && a.end === b.end;

function join(context: AccessContext, rank: number, x: DraftOp, y: DraftOp): DraftOp | undefined {
  if (x.kind === "nop" && (y.kind === "nop" || y.kind === "barrier")) return y;
  if (x.kind === "barrier" && y.kind === "nop") return x;
  if ((x.kind === "signal" || x.kind === "wait") && y.kind === x.kind) {
    const fits =
      x.relaxed === y.relaxed &&
      x.channelKind === y.channelKind &&
      x.channels.length + y.channels.length <= MAX_CHANNELS;
    if (!fits || y.channels.some((id) => x.channels.includes(id))) return undefined;
    return { ...x, channels: [...x.channels, ...y.channels] };
  }
  const of = (op: DraftOp) => accessesOf(context, rank, op);
  if (x.kind === "get" && y.kind === "get") return fits(x, y) && !conflict(of(x), of(y)) ? joinMany(x, y) : undefined;
  if (x.kind === "put" && y.kind === "put") return joinPuts(x, y, of);
  if (x.kind === "reduce" && y.kind === "reduce") return joinReductions(x, y, of);
  if (x.kind === "reduce" && y.kind === "put") return joinSend(x, y, of);
  if (x.kind === "reduce" && y.kind === "copy") {
    const copies =
      y.format === "pack" &&
      x.packets &&
      x.packetDst === undefined &&
      x.remoteDst.length === 0 &&
      sameRange(x.dst, y.src) &&
      sameGroup(x.tbg, y.tbg);
    const clash = conflict(
      of(x),
      of(y).filter((a) => a.write),
    );
    return copies && !clash ? { ...x, packetDst: y.dst } : undefined;
  }
  if (x.kind === "switch-reduce" && y.kind === "switch-broadcast" && y.format === "plain") {
    // The fused form writes no local result: only where the broadcast writes it there anyway.
    const own = context.channels(rank).switch[x.src.channel];
    const same = x.src.channel === y.dst.channel && x.src.index === y.dst.index && x.src.size === y.dst.size;
    const covered = own?.ranks.includes(rank) === true && own.buffer === x.dst.buffer && x.dst.index === y.dst.index;
    if (!same || !covered || !sameRange(x.dst, y.src)) return undefined;
    return { kind: "switch-reduce-broadcast", op: x.op, src: x.src, dst: y.dst, source: x.source };
  }
  return undefined;
}

function fits(x: DraftGet | DraftPut, y: DraftGet | DraftPut): boolean {
  return (
    x.channelKind === y.channelKind &&
    sameGroup(x.tbg, y.tbg) &&
    x.src[0]?.size === y.src[0]?.size &&
    x.src.length + y.src.length <= MAX_RANGES &&
    x.dst.length + y.dst.length <= MAX_RANGES &&
    x.channels.length + y.channels.length <= MAX_CHANNELS
  );
}

function joinMany(x: DraftGet, y: DraftGet): DraftGet {
  return { ...x, src: [...x.src, ...y.src], dst: [...x.dst, ...y.dst], channels: [...x.channels, ...y.channels] };
}

function joinPuts(x: DraftPut, y: DraftPut, of: (op: DraftOp) => Access[]): DraftOp | undefined {
  if (x.format !== y.format || x.notify !== y.notify || !fits(x, y)) return undefined;
  if (x.notify !== "none" && y.channels.some((id) => x.channels.includes(id))) return undefined;
  if (conflict(of(x), of(y))) return undefined;
  if (x.format === "forward") {
    if (!sameRange(x.src[0], y.src[0])) return undefined;
    return { ...x, dst: [...x.dst, ...y.dst], channels: [...x.channels, ...y.channels] };
  }
  // The MSCCL++ executor takes the base of the first source's buffer for all of them.
  if (x.src[0]?.buffer !== y.src[0]?.buffer) return undefined;
  return { ...x, src: [...x.src, ...y.src], dst: [...x.dst, ...y.dst], channels: [...x.channels, ...y.channels] };
}

function joinReductions(x: DraftReduce, y: DraftReduce, of: (op: DraftOp) => Access[]): DraftOp | undefined {
  const plain =
    x.remoteDst.length === 0 && y.remoteDst.length === 0 && x.packetDst === undefined && y.packetDst === undefined;
  const accumulates = sameRange(y.src[0], y.dst) && sameRange(x.dst, y.dst);
  const alike = x.op === y.op && x.packets === y.packets && sameGroup(x.tbg, y.tbg) && x.channelKind === y.channelKind;
  if (!plain || !accumulates || !alike) return undefined;
  const src = [...x.src, ...y.src.slice(1)];
  const remoteSrc = [...x.remoteSrc, ...y.remoteSrc];
  const channels = [...x.channels, ...y.channels];
  if (src.length + remoteSrc.length > MAX_RANGES || channels.length > MAX_CHANNELS) return undefined;
  // Y's other operands must not be what X wrote, nor X's operands what Y writes (which is the same place).
  const result = of(x).filter((a) => a.write);
  const operands = of({ ...y, src: y.src.slice(1) }).filter((a) => !a.write);
  if (conflict(result, operands)) return undefined;
  return { ...x, src, remoteSrc, channels };
}

function joinSend(x: DraftReduce, y: DraftPut, of: (op: DraftOp) => Access[]): DraftOp | undefined {
  if (y.channelKind !== "memory" || x.channelKind === "port" || y.notify !== "none" || !sameGroup(x.tbg, y.tbg))
    return undefined;
  const first = y.src[0] as Range;
  if (y.src.length !== 1) return undefined;
  const carries = !x.packets
    ? y.format === "plain" && sameRange(x.dst, first)
    : (y.format === "pack" && sameRange(x.dst, first)) ||
      (y.format === "forward" && x.packetDst !== undefined && sameRange(x.packetDst, first));
  const room = 1 + (x.packetDst === undefined ? 0 : 1) + x.remoteDst.length + y.dst.length <= MAX_RANGES;
  if (!carries || !room || x.channels.length + y.channels.length > MAX_CHANNELS) return undefined;
  // Writing back exactly what was read is element by element and fine; any other meeting is not.
  if (
    conflict(
      of(x),
      of(y).filter((a) => a.write),
      (a, b) => !a.write && !a.packet && sameSpan(a, b),
    )
  )
    return undefined;
  const remoteDst: RemoteRange[] = [...x.remoteDst, ...y.dst];
  return { ...x, remoteDst, channels: [...x.channels, ...y.channels], channelKind: "memory" };
}

/** Fuses neighbours of one strand of `rank`. `onJoin` hears which draft took the place of which. */
export function fuseSound<T extends DraftOp>(context: AccessContext, rank: number, ops: readonly T[]): T[] {
  const result: DraftOp[] = [];
  for (const next of ops) {
    const op: DraftOp =
      next.kind === "pipeline" ? { ...next, body: fuseSound(context, rank, next.body as DraftSimple[]) } : next;
    const last = result.at(-1);
    const joined = last === undefined || last.kind === "pipeline" ? undefined : join(context, rank, last, op);
    if (joined === undefined) result.push(op);
    else {
      if (isSync(joined) && isSync(op)) joined.sync |= op.sync;
      result[result.length - 1] = joined;
    }
  }
  return result as T[];
}
