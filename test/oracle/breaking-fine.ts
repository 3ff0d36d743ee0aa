/**
 * Finer changes that may break a plan: parts of fused operations, directions, kinds of synchronisation, packets taken
 * for data, loops, tables of channels, the collective's own word, and two changes at once.
 */
import { PLAIN_BREAKING } from "./breaking.ts";
import { at, isRemote, type MOp, type Mutator, pickOp, places, ranges, switchRanges } from "./plan-edit.ts";

type Of<K extends MOp["kind"]> = Extract<MOp, { kind: K }>;
const is =
  <K extends MOp["kind"]>(...kinds: K[]) =>
  (op: MOp): op is Of<K> =>
    (kinds as string[]).includes(op.kind);

/** Mutators by name. */
export const FINE_BREAKING: Readonly<Record<string, Mutator>> = {
  "drop-part": (plan, random) => {
    const place = pickOp(plan, random, (op) => "channels" in op && op.channels.length > 1);
    if (place === undefined || !("channels" in place.op)) return undefined;
    const { op } = place;
    const i = random.below(op.channels.length);
    if (op.kind === "put" || op.kind === "get") {
      if (op.src.length !== op.dst.length && op.src.length !== 1) return undefined;
      if (op.src.length > 1) op.src.splice(i, 1);
      if (op.dst.length > 1) op.dst.splice(i, 1);
    } else if (op.kind === "reduce") {
      if (i < op.remoteSrc.length) op.remoteSrc.splice(i, 1);
      else op.remoteDst.splice(i - op.remoteSrc.length, 1);
    }
    op.channels.splice(i, 1);
    return `dropped part ${i} of ${at(place)}`;
  },
  "swap-destinations": (plan, random) => {
    const place = pickOp(plan, random, (op) => (op.kind === "put" || op.kind === "get") && op.dst.length > 1);
    if (place === undefined || (place.op.kind !== "put" && place.op.kind !== "get")) return undefined;
    const dst = place.op.dst as { index: number }[];
    const i = random.below(dst.length - 1);
    const [a, b] = [dst[i]!, dst[i + 1]!];
    if (a.index === b.index) return undefined;
    [a.index, b.index] = [b.index, a.index];
    return `swapped the places of destinations ${i} and ${i + 1} of ${at(place)}`;
  },
  "swap-source-destination": (plan, random) => {
    const place = pickOp(plan, random, is("copy", "put"));
    if (place === undefined) return undefined;
    const { op } = place;
    if (op.kind !== "copy" && op.kind !== "put") return undefined;
    const [a, b] = op.kind === "copy" ? [op.src, op.dst] : [op.src[0]!, op.dst[0]!];
    if (a.index === b.index) return undefined;
    [a.index, b.index] = [b.index, a.index];
    return `swapped the indices of source and destination of ${at(place)}`;
  },
  "put-for-get": (plan, random) => {
    const place = pickOp(plan, random, is("put", "get"));
    if (place === undefined) return undefined;
    const { op } = place;
    if (op.kind === "get") {
      const local = op.dst;
      place.list[place.at] = { ...op, kind: "put", format: "plain", notify: "none", src: local, dst: op.src } as MOp;
    } else if (op.kind === "put" && op.src.length === op.dst.length) {
      const { format: _, notify: __, src, dst, ...rest } = op;
      place.list[place.at] = { ...rest, kind: "get", src: dst, dst: src } as MOp;
    } else return undefined;
    return `turned ${at(place)} round`;
  },
  "wait-for-signal": (plan, random) => {
    const place = pickOp(plan, random, is("signal", "wait", "acquire", "release"));
    if (place === undefined) return undefined;
    const turned = { signal: "wait", wait: "signal", acquire: "release", release: "acquire" } as const;
    const op = place.op as { kind: string };
    op.kind = turned[place.op.kind as keyof typeof turned];
    return `turned ${op.kind === "wait" || op.kind === "acquire" ? "a raise into" : "a wait into"} ${at(place)}`;
  },
  "other-semaphore": (plan, random) => {
    const place = pickOp(plan, random, is("acquire", "release"));
    if (place === undefined || !("semaphores" in place.op)) return undefined;
    const count = plan.ranks[place.rank]!.semaphores.length;
    const i = random.below(place.op.semaphores.length);
    const to = random.below(count);
    if (place.op.semaphores[i] === to) return undefined;
    if (random.chance(0.3) && place.op.semaphores.length > 1) place.op.semaphores.splice(i, 1);
    else place.op.semaphores[i] = to;
    return `changed the semaphores of ${at(place)}`;
  },
  "barrier-to-nop": (plan, random) => {
    const place = pickOp(plan, random, is("barrier"));
    if (place === undefined) return undefined;
    if (random.chance(0.5)) {
      // Consistently on all strands, or on one.
      place.list[place.at] = { kind: "nop" };
      return `made ${at(place)} a nop`;
    }
    const { barrier } = place.op as Of<"barrier">;
    for (const other of places(plan))
      if (other.rank === place.rank && other.op.kind === "barrier" && other.op.barrier === barrier)
        other.list[other.at] = { kind: "nop" };
    return `made barrier ${barrier} of rank ${place.rank} nops`;
  },
  "other-barrier": (plan, random) => {
    const place = pickOp(plan, random, is("barrier"));
    if (place === undefined || place.op.kind !== "barrier") return undefined;
    place.op.barrier += random.chance(0.5) && place.op.barrier > 0 ? -1 : 1;
    return `changed the barrier of ${at(place)}`;
  },
  "relax-all": (plan, random) => {
    const place = pickOp(plan, random, (op) => (op.kind === "signal" || op.kind === "wait") && !op.relaxed);
    if (place === undefined || !("channels" in place.op)) return undefined;
    let count = 0;
    for (const other of places(plan)) {
      if (other.op.kind !== place.op.kind || other.rank !== place.rank || !("relaxed" in other.op)) continue;
      if (!other.op.relaxed) count++;
      other.op.relaxed = true;
    }
    return `relaxed every ${place.op.kind} of rank ${place.rank} (${count})`;
  },
  "drop-all-nops": (plan, random) => {
    const place = pickOp(plan, random, is("nop"));
    if (place === undefined) return undefined;
    const kept = place.list.filter((op) => op.kind !== "nop");
    const count = place.list.length - kept.length;
    place.list.splice(0, place.list.length, ...kept);
    return `dropped ${count} nops of rank ${place.rank} strand ${place.strand}`;
  },
  "drop-pair": (plan, random) => {
    // A signal and a wait that meet, so that counts still balance.
    const place = pickOp(plan, random, (op) => op.kind === "signal" && op.channels.length === 1);
    if (place === undefined || place.op.kind !== "signal") return undefined;
    const { channelKind } = place.op;
    const own = plan.ranks[place.rank]!.channels[channelKind];
    const peer = own[place.op.channels[0]!];
    if (peer === undefined) return undefined;
    const nth = own.slice(0, place.op.channels[0]).filter((other) => other === peer).length;
    const theirs = plan.ranks[peer]!.channels[channelKind];
    const id = theirs.flatMap((other, i) => (other === place.rank ? [i] : []))[nth];
    const partner = places(plan).find(
      ({ rank, op }) =>
        rank === peer && op.kind === "wait" && op.channelKind === channelKind && op.channels.join() === `${id}`,
    );
    if (partner === undefined) return undefined;
    partner.list.splice(partner.at, 1);
    place.list.splice(place.list.indexOf(place.op), 1);
    return `dropped ${at(place)} and the wait for it at rank ${peer}`;
  },
  "other-rank": (plan, random) => {
    const place = pickOp(plan, random, (op) => op.kind !== "pipeline");
    if (place === undefined) return undefined;
    const to = random.below(plan.ranks.length);
    const strand = random.below(Math.max(1, plan.ranks[to]!.strands.length));
    const ops = plan.ranks[to]!.strands[strand]?.ops as MOp[] | undefined;
    if (ops === undefined || to === place.rank) return undefined;
    place.list.splice(place.at, 1);
    ops.splice(random.below(ops.length + 1), 0, place.op);
    return `moved ${at(place)} to rank ${to} strand ${strand}`;
  },
  "exchange-strands": (plan, random) => {
    const a = pickOp(plan, random, (op) => op.kind !== "nop");
    const b = pickOp(plan, random, (op) => op.kind !== "nop");
    if (a === undefined || b === undefined || a.rank !== b.rank || a.list === b.list) return undefined;
    a.list[a.at] = b.op;
    b.list[b.at] = a.op;
    return `exchanged ${at(a)} and ${at(b)}`;
  },
  truncate: (plan, random) => {
    const place = pickOp(plan, random, () => true);
    if (place === undefined) return undefined;
    place.list.splice(place.at);
    return `cut everything from ${at(place)}`;
  },
  "channel-kind": (plan, random) => {
    const place = pickOp(plan, random, (op) => "channelKind" in op && op.channelKind !== undefined);
    if (place === undefined || !("channelKind" in place.op) || place.op.channelKind === undefined) return undefined;
    const { op } = place;
    const to = op.channelKind === "memory" ? "port" : "memory";
    const channels = plan.ranks[place.rank]!.channels;
    const moved = op.channels.map((id) =>
      channels[to].indexOf(channels[op.channelKind as "memory" | "port"][id] ?? -1),
    );
    if (moved.length === 0 || moved.some((id) => id < 0)) return undefined;
    op.channels.splice(0, op.channels.length, ...moved);
    (op as { channelKind: string }).channelKind = to;
    return `sent ${at(place)} over ${to} channels`;
  },
  "channel-table": (plan, random) => {
    const rank = random.below(plan.ranks.length);
    const kind = random.pick(["memory", "port"] as const);
    const peers = plan.ranks[rank]!.channels[kind];
    if (peers.length < 2) return undefined;
    const i = random.below(peers.length);
    const j = random.below(peers.length);
    if (peers[i] === peers[j]) return undefined;
    [peers[i], peers[j]] = [peers[j]!, peers[i]!];
    return `swapped ${kind} channels ${i} and ${j} in the table of rank ${rank}`;
  },
  "switch-channel": (plan, random) => {
    const place = pickOp(plan, random, (op) => switchRanges(op).length > 0);
    if (place === undefined) return undefined;
    const count = plan.ranks[place.rank]!.channels.switch.length;
    const range = random.pick(switchRanges(place.op)) as { channel?: number };
    const to = random.below(count);
    if (count < 2 || range.channel === to) return undefined;
    range.channel = to;
    return `changed the switch channel of ${at(place)}`;
  },
  "switch-members": (plan, random) => {
    const rank = random.below(plan.ranks.length);
    const channels = plan.ranks[rank]!.channels.switch;
    if (channels.length === 0) return undefined;
    const channel = random.pick(channels);
    const others = channel.ranks.filter((member) => member !== rank);
    if (others.length === 0) return undefined;
    const gone = random.pick(others);
    channel.ranks.splice(channel.ranks.indexOf(gone), 1);
    return `took rank ${gone} out of a switch channel of rank ${rank}`;
  },
  "packet-format": (plan, random) => {
    const place = pickOp(plan, random, is("copy", "put", "reduce", "switch-broadcast"));
    if (place === undefined) return undefined;
    const { op } = place;
    if (op.kind === "copy")
      op.format = random.pick((["plain", "pack", "unpack"] as const).filter((f) => f !== op.format));
    else if (op.kind === "put")
      op.format = random.pick((["plain", "pack", "forward"] as const).filter((f) => f !== op.format));
    else if (op.kind === "reduce") op.packets = !op.packets;
    else if (op.kind === "switch-broadcast") op.format = op.format === "plain" ? "forward" : "plain";
    return `changed the packets of ${at(place)}`;
  },
  "packet-copy": (plan, random) => {
    const place = pickOp(plan, random, (op) => op.kind === "reduce" && op.packetDst !== undefined);
    if (place === undefined || place.op.kind !== "reduce" || place.op.packetDst === undefined) return undefined;
    if (random.chance(0.5)) delete place.op.packetDst;
    else place.op.packetDst.index += random.chance(0.5) ? 1 : -1;
    return `changed the packet copy of ${at(place)}`;
  },
  grow: (plan, random) => {
    const place = pickOp(plan, random, (op) => ranges(op).length > 0);
    if (place === undefined) return undefined;
    const delta = random.chance(0.5) ? 1 : -1;
    for (const range of [...ranges(place.op), ...switchRanges(place.op)]) {
      range.size += delta;
      if (range.size < 0) return undefined;
    }
    return `changed the size of ${at(place)} by ${delta}`;
  },
  unit: (plan, random) => {
    const place = pickOp(plan, random, is("pipeline"));
    if (place === undefined || place.op.kind !== "pipeline") return undefined;
    const half = random.chance(0.5) && place.op.unitBytes % 2 === 0;
    place.op.unitBytes = half ? place.op.unitBytes / 2 : place.op.unitBytes * 2;
    return `${half ? "halved" : "doubled"} the unit of ${at(place)}`;
  },
  unroll: (plan, random) => {
    const place = pickOp(plan, random, is("pipeline"));
    if (place === undefined || place.op.kind !== "pipeline") return undefined;
    place.list.splice(place.at, 1, ...(place.op.body as MOp[]));
    return `ran the body of ${at(place)} once, as a whole`;
  },
  "out-of-loop": (plan, random) => {
    const place = pickOp(plan, random, is("pipeline"));
    if (place === undefined || place.op.kind !== "pipeline" || place.op.body.length === 0) return undefined;
    const body = place.op.body as MOp[];
    const last = random.chance(0.5);
    const [inner] = body.splice(last ? body.length - 1 : 0, 1);
    place.list.splice(place.at + (last ? 1 : 0), 0, inner!);
    return `moved ${inner!.kind} out of ${at(place)}`;
  },
  "in-place": (plan) => {
    plan.collective.inPlace = !plan.collective.inPlace;
    return `declared the collective ${plan.collective.inPlace ? "" : "not "}in place`;
  },
  "alias-scratch": (plan, random) => {
    const scratch = places(plan).flatMap((place) =>
      ranges(place.op).flatMap((range) => (range.buffer === "scratch" ? [{ place, range }] : [])),
    );
    if (scratch.length < 2) return undefined;
    const a = random.pick(scratch);
    const rankOf = (x: (typeof scratch)[number]) => (isRemote(x.range) ? x.range.rank : x.place.rank);
    const b = random.pick(scratch.filter((x) => rankOf(x) === rankOf(a)));
    if (b.range.index === a.range.index) return undefined;
    a.range.index = b.range.index;
    return `let ${at(a.place)} use the scratch of ${at(b.place)}`;
  },
  "share-scratch": (plan, random) => {
    // Two places of a rank become one, everywhere.
    const rank = random.below(plan.ranks.length);
    const chunks = plan.ranks[rank]!.scratch.chunks;
    if (chunks < 2) return undefined;
    const from = random.below(chunks);
    const to = random.below(chunks);
    if (from === to) return undefined;
    for (const place of places(plan))
      for (const range of ranges(place.op)) {
        const owner = isRemote(range) ? range.rank : place.rank;
        if (owner === rank && range.buffer === "scratch" && range.index === from && range.size === 1) range.index = to;
      }
    return `let scratch ${from} of rank ${rank} be scratch ${to}`;
  },
  twice: (plan, random) => {
    const names = Object.keys(PLAIN_BREAKING);
    const first = random.pick(names);
    const second = random.pick(names);
    const a = PLAIN_BREAKING[first]!(plan, random);
    const b = PLAIN_BREAKING[second]!(plan, random);
    return a === undefined || b === undefined ? undefined : `${a}; ${b}`;
  },
};
