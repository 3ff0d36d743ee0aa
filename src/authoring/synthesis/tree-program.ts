/** The program of trees: each carries its share of the chunks, cut into pieces that follow each other in waves. */
import type { NetworkRoute, ScheduleTree } from "../certificate/index.ts";
import type { Builder, Chunk } from "../language/index.ts";
import { type Hop, hopsOf } from "./schedule-hops.ts";
import { type Amounts, type Context, Waves } from "./schedule-layout.ts";
import type { Synthesis } from "./synthesize.ts";

/** The ways from rank to rank that a tree uses. */
export const treeWays = (tree: ScheduleTree): NetworkRoute[] => [...(tree.up ?? []), ...(tree.down ?? [])];

/** Where each tree's share begins. Trees of one root lie in that root's part, in the collectives that have parts. */
function startsOf(
  trees: readonly ScheduleTree[],
  { each }: Amounts,
  parts: readonly number[] | undefined,
  { rankOf }: Context,
): number[] {
  const next = new Map<number, number>();
  return trees.map(({ root }, i) => {
    const part = parts === undefined ? -1 : rankOf(root);
    const start = next.get(part) ?? parts?.[part] ?? 0;
    next.set(part, start + (each[i] as number));
    return start;
  });
}

/** Chunks [start, end) of the data: one piece of one tree's share. */
class PieceOfTree<P> {
  readonly #p: Builder<P>;
  readonly #context: Context;
  readonly #collective: Synthesis["collective"];
  readonly #root: number;
  /** Where the root's part of the data begins. */
  readonly #partStart: number;
  readonly #start: number;
  readonly #end: number;
  readonly #piece: number;
  readonly #tree: number;
  readonly #inboxes = new Map<number, Chunk<P>[]>();

  constructor(
    p: Builder<P>,
    context: Context,
    collective: Synthesis["collective"],
    root: number,
    partStart: number,
    start: number,
    amount: number,
    piece: number,
    tree: number,
  ) {
    this.#p = p;
    this.#context = context;
    this.#collective = collective;
    this.#root = root;
    this.#partStart = partStart;
    this.#start = start + piece * amount;
    this.#end = this.#start + amount;
    this.#piece = piece;
    this.#tree = tree;
  }

  /** Where the share lies in a rank's output; undefined where the rank has no place for it. */
  #output(rank: number): Chunk<P> | undefined {
    const { output } = this.#p.rank(rank);
    const whole =
      this.#collective === "all_reduce" || this.#collective === "all_gather" || this.#collective === "broadcast";
    if (whole || (this.#collective === "reduce" && rank === this.#root)) return output.slice(this.#start, this.#end);
    if (rank !== this.#root) return undefined;
    const offset = this.#partStart;
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
    const strand = this.#context.strandOf(way, this.#piece, this.#tree);
    if (up) {
      const inbox = this.#p.rank(to).scratch(this.#end - this.#start).all;
      this.#p.copyAlong(way, inbox, this.#sum(from, strand), strand);
      this.#inboxes.set(to, [...(this.#inboxes.get(to) ?? []), inbox]);
      return;
    }
    const fromInput = from === this.#root && this.#collective !== "all_reduce";
    const offset = this.#collective === "all_gather" ? this.#partStart : 0;
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
  parts: readonly number[],
  context: Context,
): void {
  for (const rank of p.ranks) {
    const strand = context.ownStrand(rank.id);
    const [start, end] = [parts[rank.id] as number, parts[rank.id + 1] as number];
    if (collective === "all_gather" && end > start) rank.copy(rank.output.slice(start, end), rank.input.all, strand);
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
  parts: readonly number[],
  context: Context,
): void {
  const { collective } = result;
  const inParts = collective === "all_gather" || collective === "reduce_scatter";
  const starts = startsOf(trees, amounts, inParts ? parts : undefined, context);
  const inPieces = parts.map((start) => start * context.pieces);
  keepOwn(p, collective, result.options.root ?? 0, inPieces, context);
  const waves = new Waves(context.numRanks);
  for (const [i, tree] of trees.entries()) {
    const amount = amounts.each[i] as number;
    const root = context.rankOf(tree.root);
    const { hops, gathered } = hopsOf(tree, context.rankOf);
    for (let piece = 0; piece < context.pieces; piece++) {
      const start = (starts[i] as number) * context.pieces;
      const partStart = inPieces[root] as number;
      const share = new PieceOfTree(p, context, collective, root, partStart, start, amount, piece, i);
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
