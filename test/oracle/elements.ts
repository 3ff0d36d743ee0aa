/**
 * What a data operation does at each position (docs/semantics.md, section 3): which places are read, how they are
 * combined, which places are written. An element of an operation belongs to one thread.
 */
import type { ExecutionPlan, PlanReduceOp, Range, SimpleOp } from "../../src/authoring/plan/execution-plan.ts";

/** Operators on 32-bit numbers. */
export const COMBINE: Readonly<Record<PlanReduceOp, (a: number, b: number) => number>> = {
  sum: (a, b) => (a + b) >>> 0,
  avg: (a, b) => (a + b) >>> 0,
  prod: (a, b) => Math.imul(a, b) >>> 0,
  min: Math.min,
  max: Math.max,
  band: (a, b) => (a & b) >>> 0,
  bor: (a, b) => (a | b) >>> 0,
  bxor: (a, b) => (a ^ b) >>> 0,
};

interface Side {
  readonly places: readonly number[];
  readonly packet: boolean;
}
/** `count` elements: the p-th reads place p of every read, and writes place p of every write. */
export interface Elements {
  readonly reads: readonly Side[];
  readonly reduce: PlanReduceOp | undefined;
  readonly writes: readonly Side[];
  readonly count: number;
}
export interface Layout {
  /** The part of ranges of `size` chunks that is handled now, in cells. */
  share(size: number, packets: boolean): { readonly begin: number; readonly count: number };
  /** Places of cells [begin, begin + count) of a range. */
  span(rank: number, range: Range, begin: number, count: number): number[];
}

/** The elements of a data operation of `rank`; none for other operations. */
export function elementsOf(plan: ExecutionPlan, rank: number, op: SimpleOp, { share, span }: Layout): Elements[] {
  const groups: Elements[] = [];
  const add = (
    reads: readonly Side[],
    reduce: PlanReduceOp | undefined,
    writes: readonly Side[],
    count: number,
  ): void => {
    groups.push({ reads, reduce, writes, count });
  };
  const own = (range: Range, begin: number, count: number) => span(rank, range, begin, count);
  const members = (range: { channel: number; index: number; size: number }, begin: number, count: number) => {
    const channel = plan.ranks[rank]!.channels.switch[range.channel]!;
    return channel.ranks.map((member) => span(member, { buffer: channel.buffer, ...range }, begin, count));
  };
  switch (op.kind) {
    case "copy": {
      const { begin, count } = share(op.src.size, op.format !== "plain");
      add(
        [{ places: own(op.src, begin, count), packet: op.format === "unpack" }],
        undefined,
        [{ places: own(op.dst, begin, count), packet: op.format === "pack" }],
        count,
      );
      return groups;
    }
    case "get":
      op.src.forEach((source, i) => {
        const { begin, count } = share(source.size, false);
        add(
          [{ places: span(source.rank, source, begin, count), packet: false }],
          undefined,
          [{ places: own(op.dst[i]!, begin, count), packet: false }],
          count,
        );
      });
      return groups;
    case "put": {
      const packet = op.format !== "plain";
      op.dst.forEach((target, i) => {
        const source = op.src[op.src.length === 1 ? 0 : i]!;
        const { begin, count } = share(source.size, packet);
        add(
          [{ places: own(source, begin, count), packet: op.format === "forward" }],
          undefined,
          [{ places: span(target.rank, target, begin, count), packet }],
          count,
        );
      });
      return groups;
    }
    case "reduce": {
      const { begin, count } = share(op.dst.size, op.packets);
      add(
        [
          ...op.src.map((range, i) => ({ places: own(range, begin, count), packet: op.packets && i > 0 })),
          ...op.remoteSrc.map((range) => ({
            places: span(range.rank, range, begin, count),
            packet: false,
          })),
        ],
        op.op,
        [
          { places: own(op.dst, begin, count), packet: false },
          ...(op.packetDst === undefined ? [] : [{ places: own(op.packetDst, begin, count), packet: true }]),
          ...op.remoteDst.map((range) => ({
            places: span(range.rank, range, begin, count),
            packet: op.packets,
          })),
        ],
        count,
      );
      return groups;
    }
    case "switch-reduce": {
      const { begin, count } = share(op.dst.size, false);
      add(
        members(op.src, begin, count).map((places) => ({ places, packet: false })),
        op.op,
        [{ places: own(op.dst, begin, count), packet: false }],
        count,
      );
      return groups;
    }
    case "switch-broadcast": {
      const packet = op.format === "forward";
      const { begin, count } = share(op.src.size, packet);
      add(
        [{ places: own(op.src, begin, count), packet }],
        undefined,
        members(op.dst, begin, count).map((places) => ({ places, packet })),
        count,
      );
      return groups;
    }
    case "switch-reduce-broadcast": {
      const { begin, count } = share(op.dst.size, false);
      add(
        members(op.src, begin, count).map((places) => ({ places, packet: false })),
        op.op,
        members(op.dst, begin, count).map((places) => ({ places, packet: false })),
        count,
      );
      return groups;
    }
    default:
      return groups;
  }
}
