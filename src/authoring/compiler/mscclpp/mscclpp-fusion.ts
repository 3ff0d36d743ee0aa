/**
 * Instruction fusion exactly as the MSCCL++ 0.9 DSL does it: a greedy walk over one strand, left to right, that joins an
 * operation with the next while a pattern matches. It changes the meaning of some programs (see docs/language.md);
 * chorale's own mode uses `../fuse-ops.ts`. Rules after `python/mscclpp/language/internal/optimizer.py`, described in
 * words and implemented anew.
 */

import { type Range, sameGroup, sameRange } from "../../plan/index.ts";
import {
  type DraftGet,
  type DraftOp,
  type DraftPipeline,
  type DraftPut,
  type DraftReduce,
  type DraftSync,
  isSync,
  SYNC,
} from "../draft-ops.ts";

const { before: BEFORE, after: AFTER } = SYNC;

function sameRanges(a: readonly Range[], b: readonly Range[]): boolean {
  return a.length === b.length && a.every((range, i) => sameRange(range, b[i]));
}

/** What a pipeline already does at its edges. A closing nop counts as `before`: upstream's asymmetry, kept. */
function edges(pipeline: DraftPipeline): number {
  const first = pipeline.body[0];
  const last = pipeline.body.at(-1);
  let mask = 0;
  if (first !== undefined) {
    if (first.kind === "nop" || first.kind === "barrier") mask |= BEFORE;
    else if (isSync(first)) mask |= first.sync & BEFORE;
  }
  if (last !== undefined) {
    if (last.kind === "nop" || last.kind === "barrier") mask |= BEFORE;
    else if (isSync(last)) mask |= last.sync & AFTER;
  }
  return mask;
}

/** Tries to join `x` with `y`. Returns what replaces `x`, or undefined; may clear sync bits of either. */
function join(x: DraftOp, y: DraftOp): DraftOp | undefined {
  switch (x.kind) {
    case "nop":
      if (y.kind === "nop" || y.kind === "barrier") return y;
      if (y.kind === "pipeline") return (edges(y) & BEFORE) !== 0 ? y : undefined;
      if (isSync(y)) y.sync &= ~BEFORE;
      return undefined;
    case "barrier":
      if (y.kind === "nop") return x;
      if (isSync(y)) y.sync &= ~BEFORE;
      return undefined;
    case "pipeline":
      if (isSync(y)) {
        if ((edges(x) & AFTER) !== 0) y.sync &= ~BEFORE;
        return undefined;
      }
      return y.kind === "nop" && (edges(x) & AFTER) !== 0 ? x : undefined;
    case "signal":
    case "wait":
    case "flush":
    case "acquire":
    case "release":
      return joinSync(x, y);
    case "get":
      return y.kind === "get" ? joinGet(x, y) : undefined;
    case "put":
      return y.kind === "put" ? joinPut(x, y) : undefined;
    case "reduce":
      return joinReduce(x, y);
    case "switch-reduce":
      if (
        y.kind !== "switch-broadcast" ||
        y.format !== "plain" ||
        x.src.channel !== y.dst.channel ||
        x.src.size !== y.dst.size ||
        !sameRange(x.dst, y.src) ||
        x.statedRank !== y.statedRank
      ) {
        return undefined;
      }
      // The file format writes the source's offset for both sides: a broadcast to another offset is lost upstream.
      return { kind: "switch-reduce-broadcast", op: x.op, src: x.src, dst: { ...x.src }, source: x.source };
    default:
      return undefined;
  }
}

function joinSync(x: DraftSync, y: DraftOp): DraftOp | undefined {
  if ((x.kind === "acquire" || x.kind === "release") && y.kind === x.kind) {
    x.semaphores.push(...y.semaphores);
    x.sync |= y.sync;
    return x;
  }
  if (
    (x.kind === "signal" || x.kind === "wait") &&
    y.kind === x.kind &&
    x.relaxed === y.relaxed &&
    x.channelKind === y.channelKind &&
    !y.channels.some((id) => x.channels.includes(id))
  ) {
    x.channels.push(...y.channels);
    x.sync |= y.sync;
    return x;
  }
  if (x.kind === "flush" && y.kind === "flush") {
    for (const id of y.channels) if (!x.channels.includes(id)) x.channels.push(id);
    x.sync |= y.sync;
    return x;
  }
  const synchronises =
    y.kind === "nop" ||
    y.kind === "barrier" ||
    (isSync(y) && (y.sync & BEFORE) !== 0) ||
    (y.kind === "pipeline" && (edges(y) & BEFORE) !== 0);
  if (synchronises) x.sync &= ~AFTER;
  return undefined;
}

function joinGet(x: DraftGet, y: DraftGet): DraftOp | undefined {
  if (x.src[0]?.size !== y.src[0]?.size || x.channelKind !== y.channelKind || !sameGroup(x.tbg, y.tbg))
    return undefined;
  x.src.push(...y.src);
  x.dst.push(...y.dst);
  x.channels.push(...y.channels);
  return x;
}

function joinPut(x: DraftPut, y: DraftPut): DraftOp | undefined {
  if (x.format !== y.format || x.notify !== y.notify || x.channelKind !== y.channelKind || !sameGroup(x.tbg, y.tbg)) {
    return undefined;
  }
  if (x.format === "forward") {
    if (!sameRanges(x.src, y.src)) return undefined;
  } else {
    if (x.src[0]?.size !== y.src[0]?.size) return undefined;
    x.src.push(...y.src);
  }
  x.dst.push(...y.dst);
  x.channels.push(...y.channels);
  return x;
}

function joinReduce(x: DraftReduce, y: DraftOp): DraftOp | undefined {
  const sends = x.remoteDst.length > 0;
  const copies = x.packetDst !== undefined;
  if (y.kind === "reduce") {
    const plainForm = !sends && !copies && y.remoteDst.length === 0 && y.packetDst === undefined;
    const sameForm = plainForm && x.packets === y.packets && x.remoteSrc.length > 0 === y.remoteSrc.length > 0;
    if (
      !sameForm ||
      !sameRange(x.src[0], y.src[0]) ||
      !sameRange(x.dst, y.dst) ||
      x.channelKind !== y.channelKind ||
      x.op !== y.op ||
      !sameGroup(x.tbg, y.tbg)
    ) {
      return undefined;
    }
    for (let i = 1; i < y.src.length; i++) x.src.push(y.src[i] as Range);
    x.remoteSrc.push(...y.remoteSrc);
    x.channels.push(...y.channels);
    return x;
  }
  if (y.kind === "put") {
    if (y.channelKind !== "memory" || y.notify !== "none" || !sameGroup(x.tbg, y.tbg)) return undefined;
    const first = y.src[0];
    const fits = !x.packets
      ? y.format === "plain" && sameRange(x.dst, first)
      : (y.format === "pack" && sameRange(x.dst, first)) ||
        (copies && y.format === "forward" && sameRange(x.packetDst, first));
    if (!fits) return undefined;
    x.remoteDst.push(...y.dst);
    x.channels.push(...y.channels);
    x.channelKind = "memory";
    return x;
  }
  if (y.kind === "copy" && y.format === "pack" && x.packets && !sends && !copies) {
    if (!sameRange(x.dst, y.src) || !sameGroup(x.tbg, y.tbg)) return undefined;
    x.packetDst = y.dst;
    return x;
  }
  return undefined;
}

/** Fuses the operations of one strand. The drafts are used up. */
export function fuseStrand<T extends DraftOp>(ops: readonly T[]): T[] {
  const result: DraftOp[] = [];
  let i = 0;
  while (i < ops.length) {
    let x: DraftOp = ops[i++] as DraftOp;
    if (x.kind === "pipeline") x.body = fuseStrand(x.body);
    while (i < ops.length) {
      const joined = join(x, ops[i] as DraftOp);
      if (joined === undefined) break;
      x = joined;
      i++;
    }
    result.push(x);
  }
  return result as T[];
}
