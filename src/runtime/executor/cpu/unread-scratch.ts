/**
 * Scratch that is written and never read. A reduction has a place of its own rank for its result; where it stores it to others
 * as well, that place may be scratch that nobody looks at, and where all ranks share memory it need not be written.
 */
import {
  bodyOf,
  type ExecutionPlan,
  type Range,
  type RankPlan,
  type RemoteRange,
  type SimpleOp,
} from "../../../authoring/plan/index.ts";

/** What an operation of `own` reads of the scratch of `rank`. */
type Reads = (op: SimpleOp, own: RankPlan, rank: number) => readonly Pick<Range, "index" | "size">[];

const local = (ranges: readonly Range[], own: RankPlan, rank: number) =>
  own.rank === rank ? ranges.filter(({ buffer }) => buffer === "scratch") : [];
const remote = (ranges: readonly RemoteRange[], rank: number) =>
  ranges.filter((range) => range.rank === rank && range.buffer === "scratch");
const members = (
  op: { readonly channel: number; readonly index: number; readonly size: number },
  own: RankPlan,
  rank: number,
) => {
  const to = own.channels.switch[op.channel];
  return to?.buffer === "scratch" && to.ranks.includes(rank) ? [op] : [];
};
const nothing = () => [];

const READS: {
  readonly [K in SimpleOp["kind"]]: (
    op: SimpleOp & { readonly kind: K },
    own: RankPlan,
    rank: number,
  ) => ReturnType<Reads>;
} = {
  nop: nothing,
  flush: nothing,
  signal: nothing,
  wait: nothing,
  acquire: nothing,
  release: nothing,
  barrier: nothing,
  copy: (op, own, rank) => local([op.src], own, rank),
  get: (op, _own, rank) => remote(op.src, rank),
  put: (op, own, rank) => local(op.src, own, rank),
  reduce: (op, own, rank) => [...local(op.src, own, rank), ...remote(op.remoteSrc, rank)],
  "switch-reduce": (op, own, rank) => members(op.src, own, rank),
  "switch-broadcast": (op, own, rank) => local([op.src], own, rank),
  "switch-reduce-broadcast": (op, own, rank) => members(op.src, own, rank),
};

/** Whether no operation of a plan reads any of these chunks of a rank's scratch. */
export function isUnread(plan: ExecutionPlan, rank: number, { index, size }: Range): boolean {
  const overlaps = (other: { readonly index: number; readonly size: number }) =>
    other.index < index + size && index < other.index + other.size;
  return plan.ranks.every((own) =>
    own.strands.every(({ ops }) =>
      ops.every((op) => bodyOf(op).every((inner) => !(READS[inner.kind] as Reads)(inner, own, rank).some(overlaps))),
    ),
  );
}
