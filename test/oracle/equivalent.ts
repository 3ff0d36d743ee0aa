/** Changes that mean nothing by construction. The plan has to be right before. */
import { at, isRemote, type MOp, type MPlan, type Mutator, pickOp, places, ranges } from "./plan-edit.ts";

const SYNC = new Set(["nop", "barrier", "signal", "wait", "flush", "acquire", "release"]);
const separates = (op: MOp | undefined) =>
  op === undefined || (SYNC.has(op.kind) && !(("relaxed" in op && op.relaxed) as boolean));

/** Places that two operations touch. Different operations with disjoint places commute. */
function touched(plan: MPlan, rank: number, op: MOp): { key: string; begin: number; end: number }[] | undefined {
  if (op.kind !== "copy" && op.kind !== "put" && op.kind !== "get" && op.kind !== "reduce") return undefined;
  if ("channelKind" in op && op.channelKind === "port") return undefined;
  return ranges(op).map((range) => {
    const owner = isRemote(range) ? range.rank : rank;
    // Input and output may share memory: treat them as one place.
    const buffer = range.buffer === "scratch" ? "scratch" : "io";
    const whole = buffer === "io" && plan.collective.inPlace;
    return {
      key: `${owner} ${buffer === "io" && !plan.collective.inPlace ? range.buffer : buffer}`,
      begin: whole ? 0 : range.index,
      end: whole ? Number.MAX_SAFE_INTEGER : range.index + range.size,
    };
  });
}

/** Mutators by name. */
export const EQUIVALENT: Readonly<Record<string, Mutator>> = {
  "rename-strands": (plan, random) => {
    const rank = random.below(plan.ranks.length);
    const strands = plan.ranks[rank]!.strands;
    if (strands.length < 2) return undefined;
    const turned = [...strands.slice(1), strands[0]!];
    (plan.ranks[rank] as { strands: unknown }).strands = turned.map((strand, id) => ({ ...strand, id }));
    return `renamed the strands of rank ${rank}`;
  },
  "extra-nop": (plan, random) => {
    const place = pickOp(plan, random, () => true);
    if (place === undefined) return undefined;
    place.list.splice(place.at, 0, { kind: "nop" });
    return `nop before ${at(place)}`;
  },
  reorder: (plan, random) => {
    const candidates = places(plan).filter((place) => {
      const next = place.list[place.at + 1];
      if (next === undefined || !separates(place.list[place.at - 1]) || !separates(place.list[place.at + 2]))
        return false;
      const a = touched(plan, place.rank, place.op);
      const b = touched(plan, place.rank, next);
      return (
        a !== undefined &&
        b !== undefined &&
        a.every((x) => b.every((y) => x.key !== y.key || x.end <= y.begin || y.end <= x.begin))
      );
    });
    if (candidates.length === 0) return undefined;
    const place = random.pick(candidates);
    // Waiting for packets holds a strand; only operations that never wait commute freely.
    const next = place.list[place.at + 1]!;
    if (
      [place.op, next].some(
        (op) =>
          (op.kind === "reduce" && op.packets) || ((op.kind === "copy" || op.kind === "put") && op.format !== "plain"),
      )
    )
      return undefined;
    place.list[place.at] = next;
    place.list[place.at + 1] = place.op;
    return `reordered ${at(place)} and the next, which are independent`;
  },
  split: (plan, random) => {
    const candidates = places(plan).filter(
      ({ op, list, at: i }) =>
        op.kind === "copy" &&
        op.format === "plain" &&
        op.src.size > 1 &&
        op.tbg === undefined &&
        separates(list[i - 1]) &&
        separates(list[i + 1]) &&
        (op.src.buffer !== op.dst.buffer ||
          op.src.index + op.src.size <= op.dst.index ||
          op.dst.index + op.dst.size <= op.src.index),
    );
    const outside = candidates.filter(
      (place) => (plan.ranks[place.rank]!.strands[place.strand]!.ops as MOp[]) === place.list,
    );
    if (outside.length === 0) return undefined;
    const place = random.pick(outside);
    if (place.op.kind !== "copy") return undefined;
    const tail = structuredClone(place.op);
    place.op.src.size = place.op.dst.size = 1;
    for (const range of [tail.src, tail.dst]) {
      range.index++;
      range.size--;
    }
    place.list.splice(place.at + 1, 0, tail);
    return `split ${at(place)}`;
  },
};
