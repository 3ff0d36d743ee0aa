/**
 * From a rank's plan to records of the strand machine: which bytes of which buffers every operation moves, as a function
 * of the sizes of a call, and where every counter stands. Pure; `prepared-plan.ts` writes the records into memory.
 *
 * An operation whose ranges cross from one part of a buffer to the next (all-gather's output is one part per rank) becomes
 * several records, so that each range of a record is one stretch of memory whatever the sizes are.
 */
import type {
  BufferKind,
  ExecutionPlan,
  GroupSlice,
  PlanReduceOp,
  Range,
  RankPlan,
  SimpleOp,
  Strand,
} from "../../../authoring/plan/index.ts";
import { bodyOf, proofOf } from "../../../authoring/plan/index.ts";
import { requireShape } from "../../../authoring/verifier/internal.ts";
import { fuseRecords } from "./fuse-records.ts";
import { counterOf, leadingSync, pairedCounters } from "./leading-sync.ts";
import type { Counted, DataRecord, StrandRecord, Stretch, SyncRecord } from "./records.ts";
import { isUnread } from "./unread-scratch.ts";

/** What the executor of the records promises. */
interface LoweringOptions {
  /** All ranks have met at every launch, and a rank's strands are run by one thread: both spare records. */
  readonly met?: boolean;
  /** All ranks' memory is this one: results go straight to where they are wanted. */
  readonly together?: boolean;
  /** All ranks meet after every launch, too: of a plan of one pass the data alone, by rank and strand (one-pass-plan.ts). */
  readonly onePass?: readonly (readonly (readonly [from: number, to: number])[])[] | undefined;
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
export function lowerRank(plan: ExecutionPlan, rank: number, how: LoweringOptions = {}): LoweredRank {
  // The verifier has looked at what it has proved.
  if (proofOf(plan)?.ok !== true) requireShape(plan);
  return new Lowering(plan, plan.ranks[rank] as RankPlan, how).run();
}

class Lowering {
  readonly #plan: ExecutionPlan;
  readonly #rank: RankPlan;
  readonly #met: boolean;
  readonly #together: boolean;
  readonly #onePass: LoweringOptions["onePass"];
  readonly #barriers = new Map<number, number>();
  #mostRanges = 1;
  #mostPackets = 1;

  constructor(plan: ExecutionPlan, rank: RankPlan, { met = false, together = false, onePass }: LoweringOptions) {
    this.#plan = plan;
    this.#rank = rank;
    this.#met = met;
    this.#together = together;
    this.#onePass = onePass;
  }

  run(): LoweredRank {
    const at = this.#plan.ranks.indexOf(this.#rank);
    const met = this.#met ? (leadingSync(this.#plan)[at] ?? []) : [];
    const strands = this.#rank.strands.map((strand, i) => {
      const [from, to] = this.#onePass?.[at]?.[i] ?? [met[i] ?? 0, strand.ops.length];
      return this.#strand(strand, from, to);
    });
    return {
      strands,
      numCounters: this.#rank.channels.memory.length + this.#rank.channels.port.length,
      semaphores: this.#rank.semaphores.map(({ initialValue }) => initialValue),
      barriers: [...this.#barriers.keys()],
      mostRanges: this.#mostRanges,
      mostPackets: this.#mostPackets,
    };
  }

  /** @param from the first operation that is left to do, `to` the one behind the last */
  #strand(strand: Strand, from: number, to: number): StrandRecord[] {
    const records: StrandRecord[] = [];
    // Those since the last pipeline: what is within one runs in every round.
    let open: StrandRecord[] = [];
    const close = () => {
      for (const fused of this.#met ? fuseRecords(open) : open) {
        if ("outs" in fused.record) this.#mostRanges = Math.max(this.#mostRanges, fused.record.outs.length);
        records.push(fused);
      }
      open = [];
    };
    const end = (op: number): StrandRecord => ({ record: { code: "end" }, op, body: undefined });
    strand.ops.forEach((op, index) => {
      if (index < from || index >= to) return;
      if (op.kind !== "pipeline") {
        for (const record of this.#op(op, false)) open.push({ record, op: index, body: undefined });
        return;
      }
      close();
      const body = op.body.flatMap((inner, i) =>
        this.#op(inner, true).map((record): StrandRecord => ({ record, op: index, body: i })),
      );
      const { numChunks, unitBytes } = op;
      const { length } = body;
      records.push({ record: { code: "loop", numChunks, unitBytes, length }, op: index, body: undefined });
      records.push(...body, { record: { code: "repeat", length }, op: index, body: undefined });
    });
    close();
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
        return [
          ...moved,
          {
            code: "signal",
            relaxed: false,
            counters: pairedCounters(this.#plan, this.#rank, op.channelKind, op.channels),
          },
        ];
      }
      case "reduce": {
        const sources = [
          ...op.src.map((range, i) => local(range, op.packets && i > 0)),
          ...op.remoteSrc.map((range) => remote(range)),
        ];
        // In rank order sums are the same to the last bit, whichever rank makes them, and the same as those of kernels.
        const isOrdered = this.#together && !op.packets;
        const ins = isOrdered ? sources.toSorted((a, b) => a.rank - b.rank) : sources;
        const arrive = [
          ...(op.packetDst === undefined ? [] : [local(op.packetDst, true)]),
          ...(op.packets ? op.remoteDst.map((range) => remote(range, true)) : []),
        ];
        const others = op.packets ? [] : op.remoteDst.map((range) => remote(range));
        const isSpared = this.#together && others.length > 0 && arrive.length === 0 && this.#isUnread(op.dst);
        const outs = isSpared ? others : [local(op.dst), ...others];
        const code = op.packets ? "reducePackets" : "move";
        return [
          ...data(code, ins, outs, { op: op.op, whole: op.packets }),
          ...arrive.flatMap((side) => data("pack", [local(op.dst)], [side], { whole: op.packets })),
        ];
      }
      case "signal":
        return [
          {
            code: "signal",
            relaxed: op.relaxed,
            counters: pairedCounters(this.#plan, this.#rank, op.channelKind, op.channels),
          },
        ];
      case "wait":
        return [
          {
            code: "wait",
            relaxed: op.relaxed,
            counters: counted(op.channels.map((id) => counterOf(this.#rank, op.channelKind, id))),
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

  /** Whether nobody will read what is stored in these chunks of this rank. */
  #isUnread(range: Range): boolean {
    return range.buffer === "scratch" && isUnread(this.#plan, this.#rank.rank, range);
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
}

function counted(ids: readonly number[]): Counted[] {
  const times = new Map<number, number>();
  for (const id of ids) times.set(id, (times.get(id) ?? 0) + 1);
  return [...times].map(([id, count]) => ({ id, times: count }));
}
