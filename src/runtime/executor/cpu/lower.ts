/**
 * From a rank's plan to records of the strand machine: which bytes of which buffers every operation moves, as a function
 * of the sizes of a call, and where every counter stands. Pure; `prepared-plan.ts` writes the records into memory.
 *
 * An operation whose ranges cross from one part of a buffer to the next (all-gather's output is one part per rank) becomes
 * several records, so that each range of a record is one stretch of memory whatever the sizes are.
 */
import type {
  BufferKind,
  ChannelKind,
  ExecutionPlan,
  GroupSlice,
  PlanReduceOp,
  RankPlan,
  SimpleOp,
  Strand,
} from "../../../authoring/plan/index.ts";
import { bodyOf, channelOrdinal } from "../../../authoring/plan/index.ts";
import { requireShape } from "../../../authoring/verifier/internal.ts";
import type { Code } from "./image.ts";

/** One stretch of a buffer: chunks from `chunk` of part `segment` on. */
export interface Stretch {
  readonly rank: number;
  readonly buffer: BufferKind;
  readonly packets: boolean;
  readonly segment: number;
  readonly chunk: number;
}

/** A data operation, or the part of one whose ranges are each one stretch. */
export interface DataRecord {
  readonly code: Extract<Code, "copy" | "move" | "pack" | "unpack" | "forward" | "reducePackets">;
  readonly ins: readonly Stretch[];
  readonly outs: readonly Stretch[];
  readonly op: PlanReduceOp | undefined;
  /** Chunks of the whole operation, and which of them this record handles. */
  readonly chunks: number;
  readonly from: number;
  readonly to: number;
  readonly tbg: GroupSlice | undefined;
  readonly windowed: boolean;
  readonly raw: boolean;
}
/** Counters by rank and number; a rank's own are those that it waits for. */
export interface CounterRef {
  readonly rank: number;
  readonly counter: number;
}
export type SyncRecord =
  | { readonly code: "signal"; readonly counters: readonly CounterRef[]; readonly relaxed: boolean }
  | { readonly code: "wait"; readonly counters: readonly Counted[]; readonly relaxed: boolean }
  | { readonly code: "barrier"; readonly barrier: number; readonly numStrands: number }
  | { readonly code: "acquire"; readonly semaphores: readonly Counted[] }
  | { readonly code: "release"; readonly semaphores: readonly number[] }
  | { readonly code: "loop"; readonly numChunks: number; readonly unitBytes: number; readonly length: number }
  | { readonly code: "repeat"; readonly length: number }
  | { readonly code: "end" };
/** A counter or semaphore, and how often one operation names it. */
export interface Counted {
  readonly id: number;
  readonly times: number;
}

export interface StrandRecord {
  readonly record: DataRecord | SyncRecord;
  /** Index of the operation in the strand, and in the pipeline's body: for reports. */
  readonly op: number;
  readonly body: number | undefined;
}
export interface LoweredRank {
  readonly strands: readonly (readonly StrandRecord[])[];
  /** Counters that this rank waits for, by id: memory channels first, then port channels. */
  readonly numCounters: number;
  readonly semaphores: readonly number[];
  /** Ids of barriers. */
  readonly barriers: readonly number[];
  /** Most ranges on one side of an operation, and most sources of packets of a reduction. */
  readonly mostRanges: number;
  readonly mostPackets: number;
}

interface RangeLike {
  readonly buffer: BufferKind;
  readonly index: number;
  readonly size: number;
}
interface Side {
  readonly rank: number;
  readonly range: RangeLike;
  readonly packets: boolean;
}

/** Whether any rank sends packets: then every rank has room for them. */
export function sendsPackets(plan: ExecutionPlan): boolean {
  const sends = (op: SimpleOp) =>
    ((op.kind === "copy" || op.kind === "put" || op.kind === "switch-broadcast") && op.format !== "plain") ||
    (op.kind === "reduce" && (op.packets || op.packetDst !== undefined));
  return plan.ranks.some(({ strands }) => strands.some(({ ops }) => ops.some((op) => bodyOf(op).some(sends))));
}

/**
 * Lowers what one rank does. Also a plan that runs by force must hold together: a range outside its buffer would reach
 * what the world keeps beside it, and here become a record of each chunk.
 * @throws PlanError for a plan that does not hold together
 */
export function lowerRank(plan: ExecutionPlan, rank: number): LoweredRank {
  requireShape(plan);
  return new Lowering(plan, plan.ranks[rank] as RankPlan).run();
}

class Lowering {
  readonly #plan: ExecutionPlan;
  readonly #rank: RankPlan;
  readonly #barriers = new Map<number, number>();
  #mostRanges = 1;
  #mostPackets = 1;

  constructor(plan: ExecutionPlan, rank: RankPlan) {
    this.#plan = plan;
    this.#rank = rank;
  }

  run(): LoweredRank {
    const strands = this.#rank.strands.map((strand) => this.#strand(strand));
    return {
      strands,
      numCounters: this.#rank.channels.memory.length + this.#rank.channels.port.length,
      semaphores: this.#rank.semaphores.map(({ initialValue }) => initialValue),
      barriers: [...this.#barriers.keys()],
      mostRanges: this.#mostRanges,
      mostPackets: this.#mostPackets,
    };
  }

  #strand(strand: Strand): StrandRecord[] {
    const records: StrandRecord[] = [];
    const end = (op: number): StrandRecord => ({ record: { code: "end" }, op, body: undefined });
    strand.ops.forEach((op, index) => {
      if (op.kind !== "pipeline") {
        for (const record of this.#op(op, false)) records.push({ record, op: index, body: undefined });
        return;
      }
      const body = op.body.flatMap((inner, i) =>
        this.#op(inner, true).map((record): StrandRecord => ({ record, op: index, body: i })),
      );
      const { numChunks, unitBytes } = op;
      const { length } = body;
      records.push({ record: { code: "loop", numChunks, unitBytes, length }, op: index, body: undefined });
      records.push(...body, { record: { code: "repeat", length }, op: index, body: undefined });
    });
    records.push(end(strand.ops.length));
    return records;
  }

  #op(op: SimpleOp, inLoop: boolean): (DataRecord | SyncRecord)[] {
    const own = this.#rank.rank;
    const local = (range: RangeLike, packets = false): Side => ({ rank: own, range, packets });
    const remote = (range: RangeLike & { readonly rank: number }, packets = false): Side => ({
      rank: range.rank,
      range,
      packets,
    });
    const members = ({ channel, index, size }: { channel: number; index: number; size: number }, packets = false) => {
      const to = this.#rank.channels.switch[channel];
      return (to?.ranks ?? []).map((rank): Side => ({ rank, range: { buffer: to!.buffer, index, size }, packets }));
    };
    const data = (
      code: DataRecord["code"],
      ins: readonly Side[],
      outs: readonly Side[],
      more: { readonly op?: PlanReduceOp; readonly raw?: boolean; readonly whole?: boolean } = {},
    ) => {
      const packets = more.whole ?? [...ins, ...outs].some((side) => side.packets);
      const tbg = "tbg" in op ? op.tbg : undefined;
      return this.#data(code, ins, outs, { ...more, tbg, windowed: inLoop && !packets });
    };
    switch (op.kind) {
      case "nop":
      case "flush":
        // Strands are sequential here, and requests to a proxy are executed as they are issued.
        return [];
      case "copy": {
        const code = op.format === "plain" ? "copy" : op.format;
        return data(code, [local(op.src, op.format === "unpack")], [local(op.dst, op.format === "pack")]);
      }
      case "get":
        return op.src.flatMap((source, i) => data("copy", [remote(source)], [local(op.dst[i] as RangeLike)]));
      case "put": {
        const moved = op.dst.flatMap((target, i) => {
          const source = op.src[op.src.length === 1 ? 0 : i] as RangeLike;
          if (op.format === "plain") return data("copy", [local(source)], [remote(target)]);
          // Through a port what lies in scratch is sent as it is: it should be packets already.
          const raw = op.format === "pack" && op.channelKind === "port";
          if (op.format === "forward" || raw)
            return data("forward", [local(source, true)], [remote(target, true)], { raw });
          return data("pack", [local(source)], [remote(target, true)]);
        });
        if (op.notify === "none") return moved;
        return [...moved, { code: "signal", relaxed: false, counters: this.#paired(op.channelKind, op.channels) }];
      }
      case "reduce": {
        const ins = [
          ...op.src.map((range, i) => local(range, op.packets && i > 0)),
          ...op.remoteSrc.map((range) => remote(range)),
        ];
        const arrive = [
          ...(op.packetDst === undefined ? [] : [local(op.packetDst, true)]),
          ...(op.packets ? op.remoteDst.map((range) => remote(range, true)) : []),
        ];
        const outs = [local(op.dst), ...(op.packets ? [] : op.remoteDst.map((range) => remote(range)))];
        const code = op.packets ? "reducePackets" : "move";
        return [
          ...data(code, ins, outs, { op: op.op, whole: op.packets }),
          ...arrive.flatMap((side) => data("pack", [local(op.dst)], [side], { whole: op.packets })),
        ];
      }
      case "signal":
        return [{ code: "signal", relaxed: op.relaxed, counters: this.#paired(op.channelKind, op.channels) }];
      case "wait":
        return [
          {
            code: "wait",
            relaxed: op.relaxed,
            counters: counted(op.channels.map((id) => this.#counter(this.#rank, op.channelKind, id))),
          },
        ];
      case "acquire":
        return [{ code: "acquire", semaphores: counted(op.semaphores) }];
      case "release":
        return [{ code: "release", semaphores: op.semaphores }];
      case "barrier": {
        const known = this.#barriers.get(op.barrier) ?? this.#barriers.size;
        this.#barriers.set(op.barrier, known);
        return [{ code: "barrier", barrier: known, numStrands: op.numStrands }];
      }
      case "switch-reduce":
        return data("move", members(op.src), [local(op.dst)], { op: op.op });
      case "switch-broadcast":
        return op.format === "plain"
          ? data("move", [local(op.src)], members(op.dst))
          : data("forward", [local(op.src, true)], members(op.dst, true));
      case "switch-reduce-broadcast":
        return data("move", members(op.src), members(op.dst), { op: op.op });
    }
  }

  #data(
    code: DataRecord["code"],
    ins: readonly Side[],
    outs: readonly Side[],
    more: {
      readonly op?: PlanReduceOp;
      readonly raw?: boolean;
      readonly tbg: GroupSlice | undefined;
      readonly windowed: boolean;
    },
  ): DataRecord[] {
    const sides = [...ins, ...outs];
    const chunks = sides[0]?.range.size ?? 0;
    if (chunks === 0) return [];
    this.#mostRanges = Math.max(this.#mostRanges, ins.length, outs.length);
    this.#mostPackets = Math.max(this.#mostPackets, ins.filter((side) => side.packets).length);
    const cuts = new Set([0, chunks]);
    for (const side of sides) {
      const per = this.#chunksPerSegment(side);
      for (let cut = per - (side.range.index % per); cut < chunks; cut += per) cuts.add(cut);
    }
    const edges = [...cuts].sort((a, b) => a - b);
    const { op, raw = false, tbg, windowed } = more;
    const stretch = (side: Side, from: number): Stretch => {
      const per = this.#chunksPerSegment(side);
      const index = side.range.index + from;
      const { rank, packets } = side;
      return { rank, buffer: side.range.buffer, packets, segment: Math.floor(index / per), chunk: index % per };
    };
    return edges.slice(0, -1).map((from, i) => {
      const at = (list: readonly Side[]) => list.map((side) => stretch(side, from));
      return { code, ins: at(ins), outs: at(outs), op, chunks, from, to: edges[i + 1]!, tbg, windowed, raw };
    });
  }

  #chunksPerSegment({ rank, range }: Side): number {
    const buffer = this.#plan.ranks[rank]![range.buffer];
    return range.buffer === "scratch" ? Math.max(1, buffer.chunks) : buffer.chunks / buffer.segments;
  }

  /** A rank's number of the counter of one of its channels. */
  #counter(rank: RankPlan, kind: ChannelKind, id: number): number {
    return kind === "memory" ? id : rank.channels.memory.length + id;
  }

  /** The counters at the other ends of this rank's channels: the k-th to a rank pairs with its k-th to this one. */
  #paired(kind: ChannelKind, ids: readonly number[]): CounterRef[] {
    const peers = this.#rank.channels[kind];
    return ids.flatMap((id) => {
      const peer = this.#plan.ranks[peers[id] ?? -1];
      if (peer === undefined) return [];
      const wanted = channelOrdinal(peers, id);
      let seen = 0;
      const at = peer.channels[kind].findIndex((back) => back === this.#rank.rank && seen++ === wanted);
      // A channel that the peer has no end of: nobody can wait for it.
      return at < 0 ? [] : [{ rank: peer.rank, counter: this.#counter(peer, kind, at) }];
    });
  }
}

function counted(ids: readonly number[]): Counted[] {
  const times = new Map<number, number>();
  for (const id of ids) times.set(id, (times.get(id) ?? 0) + 1);
  return [...times].map(([id, count]) => ({ id, times: count }));
}
