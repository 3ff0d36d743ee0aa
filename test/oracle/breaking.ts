/** Changes that may break a plan, the plain ones: something is dropped, doubled, moved, aimed elsewhere or weakened. */
import { at, chunksOf, isRemote, type MOp, type Mutator, pickOp, ranges, switchRanges } from "./plan-edit.ts";

/** Mutators by name. */
export const PLAIN_BREAKING: Readonly<Record<string, Mutator>> = {
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
