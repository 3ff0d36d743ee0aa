/**
 * Changes to plans, for testing the verifier: breaking ones (a mutant may still be right by luck; the oracle knows), and
 * ones that change nothing by construction. Plans are data, so a mutant is a deep copy with one place changed.
 */
import type {
  BufferKind,
  ExecutionPlan,
  Op,
  Range,
  RankPlan,
  RemoteRange,
  SimpleOp,
  Strand,
} from "../../src/authoring/schedule/ir.ts";
import { Random } from "./random.ts";

type Mutable<T> = {
  -readonly [K in keyof T]: T[K] extends (infer U)[] | readonly (infer U)[]
    ? Mutable<U>[]
    : T[K] extends object | undefined
      ? Mutable<T[K]>
      : T[K];
};
type MPlan = Mutable<ExecutionPlan>;
type MOp = Mutable<Op>;
type MRange = Mutable<Range>;

export interface Mutant {
  readonly plan: ExecutionPlan;
  readonly what: string;
  readonly kind: string;
}

interface Place {
  readonly rank: number;
  readonly strand: number;
  /** The list that holds the operation: a strand's, or a pipeline's body. */
  readonly list: MOp[];
  readonly at: number;
  readonly op: MOp;
}

function places(plan: MPlan): Place[] {
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
function ranges(op: MOp): (MRange | Mutable<RemoteRange>)[] {
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
function switchRanges(op: MOp): { index: number; size: number }[] {
  if (op.kind === "switch-reduce") return [op.src];
  if (op.kind === "switch-broadcast") return [op.dst];
  if (op.kind === "switch-reduce-broadcast") return [op.src, op.dst];
  return [];
}
const isRemote = (range: MRange | Mutable<RemoteRange>): range is Mutable<RemoteRange> => "rank" in range;

function chunksOf(plan: MPlan, rank: number, buffer: BufferKind): number {
  return plan.ranks[rank]![buffer].chunks;
}

type Mutator = (plan: MPlan, random: Random) => string | undefined;

const at = (place: Place) => `rank ${place.rank} strand ${place.strand} op ${place.at} (${place.op.kind})`;

function pickOp(plan: MPlan, random: Random, accept: (op: MOp) => boolean): Place | undefined {
  const all = places(plan).filter((place) => accept(place.op));
  return all.length === 0 ? undefined : random.pick(all);
}

/** Mutators that may break a plan, by name. */
export const BREAKING: Readonly<Record<string, Mutator>> = {
  drop: (plan, random) => {
    const place = pickOp(plan, random, () => true);
    if (place === undefined) return undefined;
    place.list.splice(place.at, 1);
    return `dropped ${at(place)}`;
  },
  "drop-sync": (plan, random) => {
    const place = pickOp(plan, random, (op) =>
      ["nop", "barrier", "signal", "wait", "flush", "acquire", "release"].includes(op.kind),
    );
    if (place === undefined) return undefined;
    place.list.splice(place.at, 1);
    return `dropped ${at(place)}`;
  },
  duplicate: (plan, random) => {
    const place = pickOp(plan, random, (op) => op.kind !== "nop");
    if (place === undefined) return undefined;
    place.list.splice(place.at + random.below(place.list.length - place.at + 1), 0, structuredClone(place.op));
    return `duplicated ${at(place)}`;
  },
  move: (plan, random) => {
    const place = pickOp(plan, random, () => true);
    if (place === undefined || place.list.length < 2) return undefined;
    const to = random.below(place.list.length);
    if (to === place.at) return undefined;
    place.list.splice(place.at, 1);
    place.list.splice(to, 0, place.op);
    return `moved ${at(place)} to ${to}`;
  },
  "swap-neighbours": (plan, random) => {
    const place = pickOp(plan, random, () => true);
    if (place === undefined || place.at + 1 >= place.list.length) return undefined;
    place.list[place.at] = place.list[place.at + 1]!;
    place.list[place.at + 1] = place.op;
    return `swapped ${at(place)} with the next`;
  },
  "other-strand": (plan, random) => {
    const place = pickOp(plan, random, (op) => op.kind !== "pipeline");
    if (place === undefined) return undefined;
    const strands = plan.ranks[place.rank]!.strands;
    if (strands.length < 2) return undefined;
    const to = random.below(strands.length);
    const ops = strands[to]!.ops as MOp[];
    if (ops === place.list) return undefined;
    place.list.splice(place.at, 1);
    ops.splice(random.below(ops.length + 1), 0, place.op);
    return `moved ${at(place)} to strand ${to}`;
  },
  retarget: (plan, random) => {
    const place = pickOp(plan, random, (op) => op.kind === "put" || op.kind === "get" || op.kind === "reduce");
    if (place === undefined) return undefined;
    const { op } = place;
    if (op.kind !== "put" && op.kind !== "get" && op.kind !== "reduce") return undefined;
    const remote = ranges(op).filter(isRemote);
    if (remote.length === 0 || op.channelKind === undefined) return undefined;
    const i = random.below(remote.length);
    const peers = plan.ranks[place.rank]!.channels[op.channelKind];
    if (peers.length === 0) return undefined;
    const channel = random.below(peers.length);
    if (peers[channel] === remote[i]!.rank) return undefined;
    remote[i]!.rank = peers[channel]!;
    if (op.channels.length === remote.length) op.channels[i] = channel;
    return `retargeted ${at(place)} to rank ${peers[channel]}`;
  },
  "other-channel": (plan, random) => {
    const place = pickOp(plan, random, (op) => op.kind === "signal" || op.kind === "wait" || op.kind === "flush");
    if (place === undefined) return undefined;
    const { op } = place;
    if (op.kind !== "signal" && op.kind !== "wait" && op.kind !== "flush") return undefined;
    const peers = plan.ranks[place.rank]!.channels[op.channelKind];
    const i = random.below(Math.max(1, op.channels.length));
    const to = random.below(Math.max(1, peers.length));
    if (op.channels[i] === undefined || op.channels[i] === to) return undefined;
    op.channels[i] = to;
    return `changed the channel of ${at(place)} to ${to}`;
  },
  "off-by-one": (plan, random) => {
    const place = pickOp(plan, random, (op) => ranges(op).length + switchRanges(op).length > 0);
    if (place === undefined) return undefined;
    const plain = ranges(place.op);
    const onSwitch = switchRanges(place.op);
    const i = random.below(plain.length + onSwitch.length);
    const delta = random.chance(0.5) ? 1 : -1;
    const range = plain[i];
    const moved = range ?? onSwitch[i - plain.length]!;
    moved.index += delta;
    if (moved.index < 0) return undefined;
    if (range !== undefined) {
      const rank = isRemote(range) ? range.rank : place.rank;
      if (range.index + range.size > chunksOf(plan, rank, range.buffer)) return undefined;
    }
    return `moved a range of ${at(place)} by ${delta}`;
  },
  "other-chunk": (plan, random) => {
    const place = pickOp(plan, random, (op) => ranges(op).length > 0);
    if (place === undefined) return undefined;
    const range = random.pick(ranges(place.op));
    const room = chunksOf(plan, isRemote(range) ? range.rank : place.rank, range.buffer) - range.size;
    if (room < 1) return undefined;
    const to = random.below(room + 1);
    if (to === range.index) return undefined;
    range.index = to;
    return `moved a range of ${at(place)} to ${to}`;
  },
  shrink: (plan, random) => {
    const place = pickOp(plan, random, (op) => ranges(op).some((range) => range.size > 1));
    if (place === undefined) return undefined;
    for (const range of [...ranges(place.op), ...switchRanges(place.op)]) range.size--;
    return `shrank ${at(place)} by a chunk`;
  },
  relax: (plan, random) => {
    const place = pickOp(plan, random, (op) => (op.kind === "signal" || op.kind === "wait") && !op.relaxed);
    if (place === undefined || (place.op.kind !== "signal" && place.op.kind !== "wait")) return undefined;
    place.op.relaxed = true;
    return `relaxed ${at(place)}`;
  },
  "swap-buffer": (plan, random) => {
    const place = pickOp(plan, random, (op) => ranges(op).length > 0);
    if (place === undefined) return undefined;
    const range = random.pick(ranges(place.op));
    const to = random.pick(["input", "output", "scratch"] as const);
    const rank = isRemote(range) ? range.rank : place.rank;
    if (to === range.buffer || range.index + range.size > chunksOf(plan, rank, to)) return undefined;
    const from = range.buffer;
    range.buffer = to;
    return `changed ${from} to ${to} in ${at(place)}`;
  },
  counts: (plan, random) => {
    const place = pickOp(plan, random, (op) => op.kind === "pipeline" || op.kind === "barrier");
    if (place === undefined) return undefined;
    const delta = random.chance(0.5) ? 1 : -1;
    if (place.op.kind === "pipeline") place.op.numChunks += delta;
    else if (place.op.kind === "barrier") place.op.numStrands += delta;
    return place.op.kind === "barrier" && place.op.numStrands < 1
      ? undefined
      : `changed the count of ${at(place)} by ${delta}`;
  },
  semaphore: (plan, random) => {
    const rank = random.below(plan.ranks.length);
    const semaphores = plan.ranks[rank]!.semaphores;
    if (semaphores.length === 0) return undefined;
    const id = random.below(semaphores.length);
    semaphores[id]!.initialValue += random.chance(0.5) || semaphores[id]!.initialValue === 0 ? 1 : -1;
    return `changed semaphore ${id} of rank ${rank}`;
  },
  notify: (plan, random) => {
    const place = pickOp(plan, random, (op) => op.kind === "put" && op.channelKind === "port" && op.format === "plain");
    if (place === undefined || place.op.kind !== "put") return undefined;
    const to = random.pick(["none", "signal", "signal-flush"] as const);
    if (to === place.op.notify) return undefined;
    place.op.notify = to;
    return `changed notify of ${at(place)} to ${to}`;
  },
  operands: (plan, random) => {
    const place = pickOp(plan, random, (op) => op.kind === "reduce" && op.src.length > 1);
    if (place === undefined || place.op.kind !== "reduce") return undefined;
    const i = 1 + random.below(place.op.src.length - 1);
    if (random.chance(0.5)) place.op.src.splice(i, 1);
    else place.op.src.push(structuredClone(place.op.src[i]!));
    return `changed the operands of ${at(place)}`;
  },
  operator: (plan, random) => {
    const place = pickOp(plan, random, (op) => "op" in op);
    if (place === undefined || !("op" in place.op)) return undefined;
    place.op.op = place.op.op === "max" ? "min" : "max";
    return `changed the operator of ${at(place)}`;
  },
  format: (plan, random) => {
    const place = pickOp(plan, random, (op) => (op.kind === "copy" || op.kind === "put") && op.format !== "plain");
    if (place === undefined || (place.op.kind !== "copy" && place.op.kind !== "put")) return undefined;
    place.op.format = "plain";
    return `made ${at(place)} plain`;
  },
  part: (plan, random) => {
    const place = pickOp(plan, random, (op) => "tbg" in op && op.tbg !== undefined && op.tbg.size > 1);
    if (place === undefined || !("tbg" in place.op) || place.op.tbg === undefined) return undefined;
    place.op.tbg.index = (place.op.tbg.index + 1) % place.op.tbg.size;
    return `changed the part of ${at(place)}`;
  },
};

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

/** Changes that mean nothing, by name. The plan has to be right before. */
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

/** Makes one mutant, or undefined when this mutator finds nothing to change. */
export function mutate(
  plan: ExecutionPlan,
  mutators: Readonly<Record<string, Mutator>>,
  seed: number,
  only?: string,
): Mutant | undefined {
  const random = new Random(seed);
  const names = Object.keys(mutators);
  const kind = only ?? random.pick(names);
  const copy = structuredClone(plan) as unknown as MPlan;
  const what = mutators[kind]!(copy, random);
  return what === undefined ? undefined : { plan: copy as unknown as ExecutionPlan, what, kind };
}

export type { RankPlan, SimpleOp, Strand };
