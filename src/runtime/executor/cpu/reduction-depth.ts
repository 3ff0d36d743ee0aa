/**
 * How often a result is rounded: whether a plan combines values that were combined before. Where it does, 16- and 8-bit
 * floats have to be carried in f32 from the first operand to the last, and an average is divided after the last sum.
 */
import {
  bodyOf,
  channelOrdinal,
  type ExecutionPlan,
  type Op,
  placeOf,
  type Range,
  type SimpleOp,
} from "../../../authoring/plan/index.ts";

const depths = new WeakMap<ExecutionPlan, number>();

/** Packets in a loop are whole ranges in every round; plain data is another unit each time, as if there were no loop. */
function loopsOverPackets(op: Op): boolean {
  const isPackets = (inner: SimpleOp) =>
    ("format" in inner && inner.format !== "plain") ||
    (inner.kind === "reduce" && (inner.packets || !!inner.packetDst));
  return op.kind === "pipeline" && op.body.some(isPackets);
}

/**
 * The longest chain of reductions that a value goes through: 0, 1 or 2, which stands for more. Also 2 where one run of the
 * plan, chunk by chunk, does not tell: packets in loops, and plans that hang.
 */
export function reductionDepth(plan: ExecutionPlan): 0 | 1 | 2 {
  const known = depths.get(plan);
  if (known !== undefined) return known as 0 | 1 | 2;
  const found = new DepthRun(plan).run();
  if (Object.isFrozen(plan)) depths.set(plan, found);
  return found;
}

interface Strand {
  readonly rank: number;
  readonly ops: readonly SimpleOp[];
  at: number;
  inBarrier: number | undefined;
}

class DepthRun {
  readonly #plan: ExecutionPlan;
  /** By rank, buffer and chunk; absent: 0. */
  readonly #depth = new Map<string, number>();
  readonly #counters = new Map<string, number>();
  readonly #strands: Strand[];
  #deepest = 0;

  constructor(plan: ExecutionPlan) {
    this.#plan = plan;
    this.#strands = plan.ranks.flatMap(({ rank, strands }) =>
      strands.map(({ ops }) => ({ rank, ops: ops.flatMap(bodyOf), at: 0, inBarrier: undefined })),
    );
    for (const { rank, semaphores } of plan.ranks)
      for (const [id, { initialValue }] of semaphores.entries())
        this.#counters.set(`${rank} semaphore ${id}`, initialValue);
  }

  run(): 0 | 1 | 2 {
    const { ranks } = this.#plan;
    if (ranks.some(({ strands }) => strands.some(({ ops }) => ops.some(loopsOverPackets)))) return 2;
    for (let moved = true; moved; ) {
      moved = false;
      for (const strand of this.#strands) while (this.#step(strand)) moved = true;
    }
    const ended = this.#strands.every((strand) => strand.at === strand.ops.length);
    return ended ? (Math.min(2, this.#deepest) as 0 | 1 | 2) : 2;
  }

  #step(strand: Strand): boolean {
    const op = strand.ops[strand.at];
    if (op === undefined || strand.inBarrier !== undefined) return false;
    switch (op.kind) {
      case "signal":
        for (const id of op.channels) this.#add(this.#pairedKey(strand.rank, op.channelKind, id), 1);
        break;
      case "wait":
        if (!this.#take(op.channels.map((id) => `${strand.rank} ${op.channelKind} ${id}`))) return false;
        break;
      case "acquire":
        if (!this.#take(op.semaphores.map((id) => `${strand.rank} semaphore ${id}`))) return false;
        break;
      case "release":
        for (const id of op.semaphores) this.#add(`${strand.rank} semaphore ${id}`, 1);
        break;
      case "barrier": {
        const here = this.#strands.filter((s) => s.rank === strand.rank && s.inBarrier === op.barrier);
        if (here.length + 1 < op.numStrands) {
          strand.inBarrier = op.barrier;
          return true;
        }
        for (const other of here) {
          other.inBarrier = undefined;
          other.at++;
        }
        break;
      }
      default:
        if (!this.#data(strand.rank, op)) return false;
    }
    strand.at++;
    return true;
  }

  /** @returns false where packets are missing: depth -1 marks a place in scratch that has none yet */
  #data(rank: number, op: SimpleOp): boolean {
    const own = (range: Range, i: number, packets = false) => this.#key(rank, range, i, packets);
    const members = (
      range: { readonly channel: number; readonly index: number; readonly size: number },
      i: number,
      packets = false,
    ) => {
      const channel = this.#plan.ranks[rank]!.channels.switch[range.channel];
      return (channel?.ranks ?? []).map((r) => this.#key(r, { ...range, buffer: channel!.buffer }, i, packets));
    };
    const moves: { from: string[]; to: string[]; reduces: boolean }[] = [];
    const move = (from: string[], to: string[], reduces = false) => moves.push({ from, to, reduces });
    // Parts of a group do the same to the same chunks.
    if ("tbg" in op && op.tbg !== undefined && op.tbg.index > 0) return true;
    switch (op.kind) {
      case "copy":
        for (let i = 0; i < op.src.size; i++)
          move([own(op.src, i, op.format === "unpack")], [own(op.dst, i, op.format === "pack")]);
        break;
      case "get":
        op.src.forEach((source, k) => {
          for (let i = 0; i < source.size; i++) move([this.#key(source.rank, source, i, false)], [own(op.dst[k]!, i)]);
        });
        break;
      case "put":
        op.dst.forEach((target, k) => {
          const source = op.src[op.src.length === 1 ? 0 : k]!;
          const fromPackets = op.format === "forward" || (op.format === "pack" && op.channelKind === "port");
          for (let i = 0; i < source.size; i++)
            move([own(source, i, fromPackets)], [this.#key(target.rank, target, i, op.format !== "plain")]);
        });
        break;
      case "reduce":
        for (let i = 0; i < op.dst.size; i++) {
          const from = [
            ...op.src.map((range, k) => own(range, i, op.packets && k > 0)),
            ...op.remoteSrc.map((range) => this.#key(range.rank, range, i, false)),
          ];
          const to = [
            own(op.dst, i),
            ...(op.packetDst === undefined ? [] : [own(op.packetDst, i, true)]),
            ...op.remoteDst.map((range) => this.#key(range.rank, range, i, op.packets)),
          ];
          move(from, to, true);
        }
        break;
      case "switch-reduce":
        for (let i = 0; i < op.dst.size; i++) move(members(op.src, i), [own(op.dst, i)], true);
        break;
      case "switch-broadcast":
        for (let i = 0; i < op.src.size; i++)
          move([own(op.src, i, op.format === "forward")], members(op.dst, i, op.format === "forward"));
        break;
      case "switch-reduce-broadcast":
        for (let i = 0; i < op.dst.size; i++) move(members(op.src, i), members(op.dst, i), true);
        break;
      default:
    }
    if (moves.some(({ from }) => from.some((key) => key.endsWith("p") && !this.#depth.has(key)))) return false;
    for (const { from, to, reduces } of moves) {
      const deepest = Math.max(0, ...from.map((key) => this.#depth.get(key) ?? 0));
      const depth = reduces && from.length > 1 ? deepest + 1 : deepest;
      this.#deepest = Math.max(this.#deepest, depth);
      for (const key of to) this.#depth.set(key, depth);
    }
    if ("notify" in op && op.notify !== "none")
      for (const id of op.channels) this.#add(this.#pairedKey(rank, op.channelKind, id), 1);
    return true;
  }

  #key(rank: number, range: { readonly buffer: Range["buffer"]; readonly index: number }, i: number, packets: boolean) {
    const { buffer, index } = placeOf(this.#plan, rank, range.buffer, range.index + i);
    return `${rank} ${buffer} ${index}${packets ? "p" : ""}`;
  }

  #pairedKey(rank: number, kind: "memory" | "port", id: number): string {
    const peers = this.#plan.ranks[rank]!.channels[kind];
    const peer = peers[id];
    const wanted = channelOrdinal(peers, id);
    let seen = 0;
    const at = this.#plan.ranks[peer ?? -1]?.channels[kind].findIndex((back) => back === rank && seen++ === wanted);
    return `${peer} ${kind} ${at}`;
  }

  #add(key: string, amount: number): void {
    this.#counters.set(key, (this.#counters.get(key) ?? 0) + amount);
  }

  #take(keys: readonly string[]): boolean {
    for (const key of keys) {
      if ((this.#counters.get(key) ?? 0) < keys.filter((other) => other === key).length) return false;
    }
    for (const key of keys) this.#add(key, -1);
    return true;
  }
}
