/**
 * What an operation reads and writes, everywhere: own memory, other ranks' memory, switch buffers; and how: as plain
 * data, as packets (which carry their own arrival), or through a proxy that works later. In-place collectives are seen
 * through: input and output that share memory have one place.
 */

import { BUFFERS, type BufferKind, type PlanCollective, placeOf, type RankChannels } from "../plan/index.ts";
import type { DraftOp } from "./draft-ops.ts";

export interface Access {
  /** rank * 4 + buffer: which memory. */
  readonly memory: number;
  readonly start: number;
  /** Exclusive. */
  readonly end: number;
  readonly write: boolean;
  /** Written as packets, or read by an operation that waits for packets. */
  readonly packet: boolean;
  /** Done by the port proxy, after the operation itself. */
  readonly proxy: boolean;
}

/** What `accessesOf` needs to know of the program. */
export interface AccessContext {
  readonly collective: PlanCollective;
  readonly channels: (rank: number) => RankChannels;
}

const INDEX: Readonly<Record<BufferKind, number>> = { input: 0, output: 1, scratch: 2 };

/** The shared memory of a range of an in-place collective. Ranges are mapped whole: aliases are shifts. */
function locate(
  context: AccessContext,
  rank: number,
  buffer: BufferKind,
  index: number,
): { memory: number; start: number } {
  const c = context.collective;
  if (!c.inPlace || buffer === "scratch") return { memory: rank * 4 + INDEX[buffer], start: index };
  const place = placeOf({ collective: c, options: { instances: 1 } }, rank, buffer, index);
  return { memory: rank * 4 + BUFFERS.indexOf(place.buffer), start: place.index };
}

/** Every access of an operation of `rank`. Packets of a put over a port channel are read by the proxy as they are. */
export function accessesOf(context: AccessContext, rank: number, op: DraftOp): Access[] {
  const list: Access[] = [];
  const add = (
    who: number,
    range: { buffer: BufferKind; index: number; size: number },
    write: boolean,
    packet = false,
    proxy = false,
  ) => {
    const { memory, start } = locate(context, who, range.buffer, range.index);
    list.push({ memory, start, end: start + range.size, write, packet, proxy });
  };
  const multi = (channel: number, index: number, size: number, write: boolean, packet: boolean) => {
    const channelPlan = context.channels(rank).switch[channel];
    for (const member of channelPlan?.ranks ?? [])
      add(member, { buffer: channelPlan?.buffer ?? "input", index, size }, write, packet);
  };
  switch (op.kind) {
    case "copy":
      add(rank, op.src, false, op.format === "unpack");
      add(rank, op.dst, true, op.format === "pack");
      break;
    case "get":
      for (const src of op.src) add(src.rank, src, false);
      for (const dst of op.dst) add(rank, dst, true);
      break;
    case "put": {
      const proxy = op.channelKind === "port";
      for (const src of op.src) add(rank, src, false, op.format === "forward", proxy && op.format !== "forward");
      for (const dst of op.dst) add(dst.rank, dst, true, op.format !== "plain", proxy);
      break;
    }
    case "reduce":
      op.src.forEach((src, i) => {
        add(rank, src, false, op.packets && i > 0);
      });
      for (const src of op.remoteSrc) add(src.rank, src, false);
      add(rank, op.dst, true);
      if (op.packetDst !== undefined) add(rank, op.packetDst, true, true);
      for (const dst of op.remoteDst) add(dst.rank, dst, true, op.packets);
      break;
    case "switch-reduce":
      multi(op.src.channel, op.src.index, op.src.size, false, false);
      add(rank, op.dst, true);
      break;
    case "switch-broadcast":
      add(rank, op.src, false, op.format === "forward");
      multi(op.dst.channel, op.dst.index, op.dst.size, true, op.format === "forward");
      break;
    case "switch-reduce-broadcast":
      multi(op.src.channel, op.src.index, op.src.size, false, false);
      multi(op.dst.channel, op.dst.index, op.dst.size, true, false);
      break;
    case "pipeline":
      for (const inner of op.body) list.push(...accessesOf(context, rank, inner));
      break;
    default:
      break;
  }
  return list;
}

/** Says whether two ranges of accesses share a chunk of the same memory. */
export function overlaps(a: Access, b: Access): boolean {
  return a.memory === b.memory && a.start < b.end && b.start < a.end;
}
