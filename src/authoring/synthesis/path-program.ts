/** The program of paths: each share goes from rank to rank, over scratch of those between, in pieces. */
import type { NetworkRoute, SchedulePath } from "../certificate/index.ts";
import type { Builder, Chunk } from "../language/index.ts";
import { type Amounts, type Context, Waves } from "./schedule-layout.ts";
import type { Synthesis } from "./synthesize.ts";

/** A path's ways from rank to rank, in order: relays have no number. */
function waysOf({ route }: SchedulePath, rankOf: Context["rankOf"]): NetworkRoute[] {
  const stops = [...route.keys()].filter((i) => rankOf(route[i] as string) !== undefined);
  return stops.slice(1).map((to, i) => route.slice(stops[i], to + 1));
}

/** Ways of all paths; equal ones are one array. */
export function pathWays(paths: readonly SchedulePath[], rankOf: Context["rankOf"]): NetworkRoute[][] {
  const known = new Map<string, NetworkRoute>();
  const shared = (way: NetworkRoute): NetworkRoute => {
    const name = JSON.stringify(way);
    const one = known.get(name) ?? way;
    known.set(name, one);
    return one;
  };
  return paths.map((path) => waysOf(path, rankOf).map(shared));
}

/** Copies the part that a rank sends to itself. */
function keepOwn<P>(
  p: Builder<P>,
  collective: Synthesis["collective"],
  root: number,
  part: number,
  context: Context,
): void {
  for (const rank of p.ranks) {
    const own = [rank.id * part, (rank.id + 1) * part] as const;
    const strand = context.ownStrand(rank.id);
    if (collective === "all_to_all") rank.copy(rank.output.slice(...own), rank.input.slice(...own), strand);
    else if (rank.id !== root) continue;
    else if (collective === "scatter") rank.copy(rank.output.all, rank.input.slice(...own), strand);
    else rank.copy(rank.output.slice(...own), rank.input.all, strand);
  }
}

export function recordPaths<P>(
  p: Builder<P>,
  result: Synthesis,
  paths: readonly SchedulePath[],
  ways: readonly (readonly NetworkRoute[])[],
  amounts: Amounts,
  context: Context,
): void {
  const { collective } = result;
  const part = (amounts.total / context.numRanks) * context.pieces;
  keepOwn(p, collective, result.options.root ?? 0, part, context);
  const used = new Map<string, number>();
  const waves = new Waves(context.numRanks);
  for (const [i, path] of paths.entries()) {
    const amount = amounts.each[i] as number;
    const hops = ways[i] as readonly NetworkRoute[];
    const [from, to] = [context.rankOf(path.route[0] as string), context.rankOf(path.route.at(-1) as string)];
    const before = used.get(`${from} ${to}`) ?? 0;
    used.set(`${from} ${to}`, before + amount * context.pieces);
    for (let piece = 0; piece < context.pieces; piece++) {
      const start = before + piece * amount;
      const at = (base: number) => [base * part + start, base * part + start + amount] as const;
      let source: Chunk<P> = p.rank(from).input.slice(...at(collective === "gather" ? 0 : to));
      for (const [hop, way] of hops.entries()) {
        const [sender, stop] = [context.rankOf(way[0] as string), context.rankOf(way.at(-1) as string)];
        waves.at(piece + hop, sender, stop, () => {
          const into: Chunk<P> =
            stop === to
              ? p.rank(to).output.slice(...at(collective === "scatter" ? 0 : from))
              : p.rank(stop).scratch(amount).all;
          p.copyAlong(way, into, source, context.strandOf(way, piece, i));
          source = into;
        });
      }
    }
  }
  waves.record();
}
