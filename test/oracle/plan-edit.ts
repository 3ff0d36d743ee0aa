/** Getting at the parts of a plan in order to change them: what the mutators of `mutate.ts` have in common. */
import type { BufferKind, ExecutionPlan, Op, Range, RemoteRange } from "../../src/authoring/plan/execution-plan.ts";
import type { Random } from "./random.ts";

export type Mutable<T> = {
  -readonly [K in keyof T]: T[K] extends (infer U)[] | readonly (infer U)[]
    ? Mutable<U>[]
    : T[K] extends object | undefined
      ? Mutable<T[K]>
      : T[K];
};
export type MPlan = Mutable<ExecutionPlan>;
export type MOp = Mutable<Op>;
export type MRange = Mutable<Range>;

export interface Place {
  readonly rank: number;
  readonly strand: number;
  /** The list that holds the operation: a strand's, or a pipeline's body. */
  readonly list: MOp[];
  readonly at: number;
  readonly op: MOp;
}

export function places(plan: MPlan): Place[] {
  const result: Place[] = [];
  plan.ranks.forEach((rank, r) => {
    rank.strands.forEach((strand, s) => {
      (strand.ops as MOp[]).forEach((op, at) => {
        result.push({ rank: r, strand: s, list: strand.ops as MOp[], at, op });
        if (op.kind === "pipeline")
          (op.body as MOp[]).forEach((inner, i) => {
            result.push({ rank: r, strand: s, list: op.body as MOp[], at: i, op: inner });
          });
      });
    });
  });
  return result;
}

/** Every range of an operation that names chunks, local or remote. */
export function ranges(op: MOp): (MRange | Mutable<RemoteRange>)[] {
  switch (op.kind) {
    case "copy":
      return [op.src, op.dst];
    case "get":
    case "put":
      return [...op.src, ...op.dst];
    case "reduce":
      return [
        ...op.src,
        ...op.remoteSrc,
        op.dst,
        ...(op.packetDst === undefined ? [] : [op.packetDst]),
        ...op.remoteDst,
      ];
    case "switch-reduce":
      return [op.dst];
    case "switch-broadcast":
      return [op.src];
    default:
      return [];
  }
}
/** Ranges on a switch. */
export function switchRanges(op: MOp): { index: number; size: number }[] {
  if (op.kind === "switch-reduce") return [op.src];
  if (op.kind === "switch-broadcast") return [op.dst];
  if (op.kind === "switch-reduce-broadcast") return [op.src, op.dst];
  return [];
}
export const isRemote = (range: MRange | Mutable<RemoteRange>): range is Mutable<RemoteRange> => "rank" in range;

export function chunksOf(plan: MPlan, rank: number, buffer: BufferKind): number {
  return plan.ranks[rank]![buffer].chunks;
}

export type Mutator = (plan: MPlan, random: Random) => string | undefined;

export const at = (place: Place) => `rank ${place.rank} strand ${place.strand} op ${place.at} (${place.op.kind})`;

export function pickOp(plan: MPlan, random: Random, accept: (op: MOp) => boolean): Place | undefined {
  const all = places(plan).filter((place) => accept(place.op));
  return all.length === 0 ? undefined : random.pick(all);
}
