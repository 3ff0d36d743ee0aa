/**
 * Where MSCCL++'s executor puts what lies in scratch. Plain data of chunk i begins at i chunks, packets of chunk i at 2i: packets
 * are twice as long as their data, and scratch has no part of its own for them. With two halves of scratch, launches take turns
 * in local accesses and in packets, but plain accesses to scratch of other ranks, by ports and by switches use the first half.
 * Why every such access is refused there, and nothing else. `getBuffer` adds this launch's half to the address of local scratch, and
 * every handler of packets adds it to the peer's address; `handlePut`, `handleGet`, `handleReduceSend`, `handleReadReduceSend` and the
 * handlers of ports and switches use the peer's address (or the registered memory) as it is. So in every other launch a put is
 * received in the half that its receiver does not look at. Where both sides go over channels, puts and gets meet in the first half,
 * but launches do not take turns there, which is what the plan asks for. Local plain data and packets are in this launch's half at
 * either end.
 * With `reuse_resources` scratch has 64 MiB whatever the message. From the size on at which chunks outgrow their share of it, an
 * operation outside a loop writes on into the next share, and loops use a share again from its beginning.
 * Source: microsoft/mscclpp 0.9, `handlePut`, `handleGet`, `handlePutPackets`, `handleUnpackPackets` of `execution_kernel.hpp`,
 * `calScratchBufferSize` and `calMaxScratchChunkSize` of `execution_plan.cc`.
 */
import { type BufferKind, bodyOf, type ExecutionPlan, type SimpleOp } from "../plan/index.ts";

interface Stretch {
  readonly rank: number;
  readonly index: number;
  readonly size: number;
  readonly packets: boolean;
  /** Found without the offset of the half that is this launch's. */
  readonly firstHalf: boolean;
}

/** What an operation of a rank reads and writes in scratch. */
function stretchesOf(op: SimpleOp, plan: ExecutionPlan, rank: number): readonly Stretch[] {
  const all: Stretch[] = [];
  const add = (
    ranges: readonly {
      readonly buffer: BufferKind;
      readonly index: number;
      readonly size: number;
      readonly rank?: number;
    }[],
    packets: boolean,
    firstHalf: boolean,
  ) => {
    for (const { buffer, index, size, rank: owner = rank } of ranges)
      if (buffer === "scratch") all.push({ rank: owner, index, size, packets, firstHalf: firstHalf && !packets });
  };
  const members = (
    range: { readonly channel: number; readonly index: number; readonly size: number },
    packets: boolean,
  ) => {
    const { ranks, buffer } = plan.ranks[rank]!.channels.switch[range.channel]!;
    add(
      ranks.map((member) => ({ ...range, buffer, rank: member })),
      packets,
      true,
    );
  };
  switch (op.kind) {
    case "copy":
      add([op.src], op.format === "unpack", false);
      add([op.dst], op.format === "pack", false);
      break;
    case "get":
      add(op.src, false, true);
      add(op.dst, false, false);
      break;
    case "put": {
      const byPort = op.channelKind === "port";
      // A port sends what lies there: packets already, for a put of packets.
      add(op.src, op.format === "forward" || (op.format === "pack" && byPort), byPort);
      add(op.dst, op.format !== "plain", true);
      break;
    }
    case "reduce":
      add(op.src.slice(0, 1), false, false);
      add(op.src.slice(1), op.packets, false);
      add(op.remoteSrc, false, true);
      add([op.dst], false, false);
      if (op.packetDst !== undefined) add([op.packetDst], true, false);
      add(op.remoteDst, op.packets, true);
      break;
    case "switch-reduce":
      members(op.src, false);
      add([op.dst], false, false);
      break;
    case "switch-broadcast":
      add([op.src], op.format === "forward", false);
      members(op.dst, op.format === "forward");
      break;
    case "switch-reduce-broadcast":
      members(op.src, false);
      members(op.dst, false);
      break;
    default:
  }
  return all;
}

/** An operation whose packets take up room in scratch in which others put plain data. */
export interface Overlap {
  /** Rank, strand, operation and, inside a pipeline, place in its body of the operation that moves packets. */
  readonly place: readonly [number, number, number, number | undefined];
  /** Rank that has the scratch, the chunk of packets there, and the chunk of plain data. */
  readonly owner: number;
  readonly packets: number;
  readonly plain: number;
}

/** Finds where packets lie over plain data in scratch: at most one place for each operation. */
export function packetsOverPlain(plan: ExecutionPlan): readonly Overlap[] {
  const plain = plan.ranks.map(() => new Set<number>());
  const packets: { readonly place: Overlap["place"]; readonly stretches: readonly Stretch[] }[] = [];
  for (const { rank, strands } of plan.ranks) {
    strands.forEach(({ ops }, s) => {
      ops.forEach((outer, o) => {
        bodyOf(outer).forEach((op, b) => {
          const all = stretchesOf(op, plan, rank);
          for (const { rank: owner, index, size } of all.filter((stretch) => !stretch.packets))
            for (let i = index; i < index + size; i++) plain[owner]!.add(i);
          const stretches = all.filter((stretch) => stretch.packets);
          if (stretches.length > 0)
            packets.push({ place: [rank, s, o, outer.kind === "pipeline" ? b : undefined], stretches });
        });
      });
    });
  }
  return packets.flatMap(({ place, stretches }) => {
    for (const { rank: owner, index, size } of stretches)
      for (let at = 2 * index; at < 2 * (index + size); at++)
        if (plain[owner]!.has(at)) return [{ place, owner, packets: Math.floor(at / 2), plain: at }];
    return [];
  });
}

/** Says whether an operation finds plain data of scratch in the first half in every launch. */
export function missesHalf(op: SimpleOp, plan: ExecutionPlan, rank: number): boolean {
  return plan.options.useDoubleScratchBuffer && stretchesOf(op, plan, rank).some(({ firstHalf }) => firstHalf);
}

/** Bytes of scratch with `reuse_resources`. */
const SHARED_SCRATCH_BYTES = 2 ** 26;

/** An operation on chunks of scratch that large messages make longer than their share. */
export interface Outgrowth {
  readonly place: readonly [number, number, number, number | undefined];
  readonly inLoop: boolean;
  /** Of each chunk. */
  readonly shareBytes: number;
  /** The largest message that fits. */
  readonly maxMessageBytes: bigint;
}

/**
 * Finds where chunks of scratch outgrow their shares of what `reuse_resources` gives, at the plan's largest message: at most one
 * place inside and one outside of loops for each rank. An executor's rank takes its own number of chunks of scratch for
 * everybody's; the largest number of all ranks gives the smallest share.
 */
export function outgrowsSharedScratch(plan: ExecutionPlan): readonly Outgrowth[] {
  const { options, ranks, collective } = plan;
  const numChunks = Math.max(...ranks.map(({ scratch }) => scratch.chunks));
  if (!options.reuseResources || numChunks === 0) return [];
  const halves = options.useDoubleScratchBuffer ? 2 : 1;
  const align = Math.max(1, options.bufferAlignment);
  const shareBytes = Math.ceil(Math.ceil(SHARED_SCRATCH_BYTES / halves / numChunks) / align) * align;
  const found: Outgrowth[] = [];
  for (const rank of ranks) {
    const [first, second] =
      collective.operation === "all_gather" ? [rank.output, rank.input] : [rank.input, rank.output];
    const messageChunks = first.chunks === 0 ? second.chunks : first.chunks;
    const seen = new Set<boolean>();
    rank.strands.forEach(({ ops }, s) => {
      ops.forEach((outer, o) => {
        const inLoop = outer.kind === "pipeline";
        bodyOf(outer).forEach((op, b) => {
          const stretches = stretchesOf(op, plan, rank.rank);
          if (stretches.length === 0 || seen.has(inLoop)) return;
          const times = stretches.some(({ packets }) => packets) ? 2 : 1;
          const maxMessageBytes = BigInt(Math.floor(shareBytes / times) * messageChunks);
          if (options.maxMessageSizeBytes <= maxMessageBytes) return;
          seen.add(inLoop);
          found.push({ place: [rank.rank, s, o, inLoop ? b : undefined], inLoop, shareBytes, maxMessageBytes });
        });
      });
    });
  }
  return found;
}
