/** The program of trees: each carries its share of the chunks, cut into pieces that follow each other in waves. */
import type { NetworkRoute, ScheduleTree } from "../certificate/index.ts";
import type { Builder, Chunk } from "../language/index.ts";
import { type Amounts, type Context, Waves } from "./schedule-layout.ts";
import type { Synthesis } from "./synthesize.ts";

const firstOf = (route: NetworkRoute): string => route[0] as string;
const lastOf = (route: NetworkRoute): string => route[route.length - 1] as string;

/** The ways from rank to rank that a tree uses. */
export const treeWays = (tree: ScheduleTree): NetworkRoute[] => [...(tree.up ?? []), ...(tree.down ?? [])];

/** Where each tree's share begins. Trees of one root lie in that root's part, in the collectives that have parts. */
function startsOf(
  trees: readonly ScheduleTree[],
  { each, total }: Amounts,
  inParts: boolean,
  context: Context,
): number[] {
  const used = new Map<number, number>();
  let next = 0;
  return trees.map(({ root }, i) => {
    const amount = each[i] as number;
    if (!inParts) {
      next += amount;
      return next - amount;
    }
    const part = context.rankOf(root);
    const before = used.get(part) ?? 0;
    used.set(part, before + amount);
    return (part * total) / context.numRanks + before;
  });
}

/** A route of a tree and the step at which a piece takes it, from 0. */
interface Hop {
  readonly from: number;
  readonly to: number;
  readonly way: NetworkRoute;
  readonly up: boolean;
  readonly step: number;
}

/** The hops of a tree, in an order in which each can be done: up from the leaves, then down from the root. */
function hopsOf(tree: ScheduleTree, rankOf: Context["rankOf"]): { hops: Hop[]; gathered: number } {
  const pairs = (routes: readonly NetworkRoute[] | undefined) =>
    (routes ?? []).map((way) => [rankOf(firstOf(way)), { to: rankOf(lastOf(way)), way }] as const);
  const parent = new Map(pairs(tree.up));
  // A rank sends up once its last child has; ranks are visited from the leaves by the number of children to come.
  const ready = new Map<number, number>();
  const pending = new Map<number, number>();
  for (const { to } of parent.values()) pending.set(to, (pending.get(to) ?? 0) + 1);
  const hops: Hop[] = [];
  const queue = [...parent.keys()].filter((rank) => !pending.has(rank));
  for (const from of queue) {
    const above = parent.get(from);
    if (above === undefined) continue;
    const { to, way } = above;
    const step = ready.get(from) ?? 0;
    hops.push({ from, to, way, up: true, step });
    ready.set(to, Math.max(ready.get(to) ?? 0, step + 1));
    const left = (pending.get(to) as number) - 1;
    pending.set(to, left);
    if (left === 0) queue.push(to);
  }
  const root = rankOf(tree.root);
  const gathered = ready.get(root) ?? 0;
  const children = new Map<number, { readonly to: number; readonly way: NetworkRoute }[]>();
  for (const [from, child] of pairs(tree.down)) children.set(from, [...(children.get(from) ?? []), child]);
  let level = [root];
  for (let step = gathered; level.length > 0; step++) {
    for (const from of level)
      for (const { to, way } of children.get(from) ?? []) hops.push({ from, to, way, up: false, step });
    level = level.flatMap((from) => (children.get(from) ?? []).map(({ to }) => to));
  }
  return { hops, gathered };
}

/** Chunks [start, end) of the data: one piece of one tree's share. */
class PieceOfTree<P> {
  readonly #p: Builder<P>;
  readonly #context: Context;
  readonly #collective: Synthesis["collective"];
  readonly #root: number;
  readonly #part: number;
  readonly #start: number;
  readonly #end: number;
  readonly #piece: number;
  readonly #inboxes = new Map<number, Chunk<P>[]>();

  constructor(
    p: Builder<P>,
    context: Context,
    collective: Synthesis["collective"],
    root: number,
    part: number,
    start: number,
    amount: number,
    piece: number,
  ) {
    this.#p = p;
    this.#context = context;
    this.#collective = collective;
    this.#root = root;
    this.#part = part;
    this.#start = start + piece * amount;
    this.#end = this.#start + amount;
    this.#piece = piece;
  }

  /** Where the share lies in a rank's output; undefined where the rank has no place for it. */
  #output(rank: number): Chunk<P> | undefined {
    const { output } = this.#p.rank(rank);
    const whole =
      this.#collective === "all_reduce" || this.#collective === "all_gather" || this.#collective === "broadcast";
    if (whole || (this.#collective === "reduce" && rank === this.#root)) return output.slice(this.#start, this.#end);
    if (rank !== this.#root) return undefined;
    const offset = this.#root * this.#part;
    return output.slice(this.#start - offset, this.#end - offset);
  }

  /** The sum of what a rank has and what it was sent. */
  #sum(rank: number, strand: number): Chunk<P> {
    const own = this.#p.rank(rank).input.slice(this.#start, this.#end);
    const others = this.#inboxes.get(rank);
    if (others === undefined) return own;
    const into = this.#output(rank) ?? this.#p.rank(rank).scratch(this.#end - this.#start).all;
    this.#p.reduce(into, own, others, strand);
    return into;
  }

  record({ from, to, way, up }: Hop): void {
    const strand = this.#context.strandOf(way, this.#piece);
    if (up) {
      const inbox = this.#p.rank(to).scratch(this.#end - this.#start).all;
      this.#p.copyAlong(way, inbox, this.#sum(from, strand), strand);
      this.#inboxes.set(to, [...(this.#inboxes.get(to) ?? []), inbox]);
      return;
    }
    const fromInput = from === this.#root && this.#collective !== "all_reduce";
    const offset = this.#collective === "all_gather" ? this.#root * this.#part : 0;
    const source = fromInput
      ? this.#p.rank(from).input.slice(this.#start - offset, this.#end - offset)
      : this.#output(from);
    this.#p.copyAlong(way, this.#output(to) as Chunk<P>, source as Chunk<P>, strand);
  }

  /** The root has everything: its sum is the result. */
  finish(): void {
    this.#sum(this.#root, this.#context.ownStrand(this.#root));
  }
}

/** Copies what a rank keeps of its own input to its output, beside the trees. */
function keepOwn<P>(
  p: Builder<P>,
  collective: Synthesis["collective"],
  root: number,
  part: number,
  context: Context,
): void {
  for (const rank of p.ranks) {
    const strand = context.ownStrand(rank.id);
    if (collective === "all_gather")
      rank.copy(rank.output.slice(rank.id * part, (rank.id + 1) * part), rank.input.all, strand);
    else if (collective === "broadcast" && rank.id === root) rank.copy(rank.output.all, rank.input.all, strand);
  }
}

/**
 * Trees in waves: in wave w piece k takes the hops of step w - k of every tree, so that each link carries a piece of each
 * of its trees in every wave, and a wave takes what the busiest link needs for them.
 */
export function recordTrees<P>(
  p: Builder<P>,
  result: Synthesis,
  trees: readonly ScheduleTree[],
  amounts: Amounts,
  context: Context,
): void {
  const { collective } = result;
  const inParts = collective === "all_gather" || collective === "reduce_scatter";
  const starts = startsOf(trees, amounts, inParts, context);
  const part = (amounts.total / context.numRanks) * context.pieces;
  keepOwn(p, collective, result.options.root ?? 0, part, context);
  const waves = new Waves(context.numRanks);
  for (const [i, tree] of trees.entries()) {
    const amount = amounts.each[i] as number;
    const root = context.rankOf(tree.root);
    const { hops, gathered } = hopsOf(tree, context.rankOf);
    for (let piece = 0; piece < context.pieces; piece++) {
      const start = (starts[i] as number) * context.pieces;
      const share = new PieceOfTree(p, context, collective, root, part, start, amount, piece);
      for (const hop of hops) {
        if (hop.up) waves.at(2 * (piece + hop.step), hop.from, hop.to, () => share.record(hop));
      }
      // Between two waves: what the last children sent is summed before the root spreads it.
      if (tree.up !== undefined) waves.at(2 * (piece + gathered) - 1, root, root, () => share.finish());
      for (const hop of hops) {
        if (!hop.up) waves.at(2 * (piece + hop.step), hop.from, hop.to, () => share.record(hop));
      }
    }
  }
  waves.record();
}
