/** The program of paths: each share goes from rank to rank, over scratch of those between, in pieces. */
import type { SchedulePath } from "../certificate/index.ts";
import type { Builder, Chunk } from "../language/index.ts";
import { type Amounts, type Context, Waves } from "./schedule-layout.ts";
import type { Synthesis } from "./synthesize.ts";

/** The ranks that a path visits; relays have no number. */
function stopsOf({ route }: SchedulePath, rankOf: Context["rankOf"]): number[] {
  return route.map((id): number | undefined => rankOf(id)).filter((rank) => rank !== undefined);
}

/** Who sends to whom on a path. */
export function pathHops(path: SchedulePath, rankOf: Context["rankOf"]): (readonly [from: number, to: number])[] {
  const stops = stopsOf(path, rankOf);
  return stops.slice(1).map((to, i) => [stops[i] as number, to] as const);
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
  amounts: Amounts,
  context: Context,
): void {
  const { collective } = result;
  const part = (amounts.total / context.numRanks) * context.pieces;
  keepOwn(p, collective, result.options.root ?? 0, part, context);
  const used = new Map<string, number>();
  const waves = new Waves();
  for (const [i, path] of paths.entries()) {
    const amount = amounts.each[i] as number;
    const stops = stopsOf(path, context.rankOf);
    const [from, to] = [stops[0] as number, stops[stops.length - 1] as number];
    const before = used.get(`${from} ${to}`) ?? 0;
    used.set(`${from} ${to}`, before + amount * context.pieces);
    for (let piece = 0; piece < context.pieces; piece++) {
      const start = before + piece * amount;
      const at = (base: number) => [base * part + start, base * part + start + amount] as const;
      let source: Chunk<P> = p.rank(from).input.slice(...at(collective === "gather" ? 0 : to));
      for (const [hop, stop] of stops.slice(1).entries()) {
        waves.at(piece + hop, () => {
          const into: Chunk<P> =
            stop === to
              ? p.rank(to).output.slice(...at(collective === "scatter" ? 0 : from))
              : p.rank(stop).scratch(amount).all;
          p.copy(into, source, context.strandTo(stops[hop] as number, stop));
          source = into;
        });
      }
    }
  }
  waves.record();
}
