/** How a schedule becomes chunks, strands and waves: what the programs of trees and of paths share. */
import { UnsupportedError } from "../../core/index.ts";
import type { NetworkRoute } from "../certificate/index.ts";
import { commonDenominator, Rational } from "./rational.ts";

/** Plans with more chunks would cut messages into less than an element. */
export const MAX_CHUNKS = 65_536;

/** Integers in the ratio of the weights; `total` of them are all the data. */
export interface Amounts {
  readonly each: readonly number[];
  readonly total: number;
}

/** Where each rank's part of the data begins, in the units of amounts; one more entry for the end. */
export function partStarts({ total }: Amounts, numRanks: number, shares?: readonly string[]): number[] {
  const starts = [0];
  for (let rank = 0; rank < numRanks; rank++) {
    const { numerator, denominator } = shares === undefined ? ONE_OF(numRanks) : Rational.parse(shares[rank] as string);
    starts.push((starts[rank] as number) + Number((BigInt(total) * numerator) / denominator));
  }
  return starts;
}
const ONE_OF = (numRanks: number): Rational => new Rational(1n, BigInt(numRanks));

export function amountsOf(weights: readonly string[], multiple: number): Amounts {
  const fractions = weights.map((weight) => Rational.parse(weight));
  const common = commonDenominator(fractions);
  // Collectives with a part for each rank need as many units in each part.
  const total = common % BigInt(multiple) === 0n ? common : common * BigInt(multiple);
  if (total > BigInt(MAX_CHUNKS)) {
    throw new UnsupportedError(
      `a program with ${total} chunks`,
      `at most ${MAX_CHUNKS}: ask for fewer trees for each rank (treesPerRoot)`,
    );
  }
  return {
    each: fractions.map(({ numerator, denominator }) => Number(numerator * (total / denominator))),
    total: Number(total),
  };
}

export interface Context {
  readonly rankOf: (id: string) => number;
  readonly numRanks: number;
  readonly pieces: number;
  /** The strand of a rank for a piece of a part of the schedule (a tree or path, by its number) that it sends by a way. */
  readonly strandOf: (way: NetworkRoute, piece: number, part: number) => number;
  /** The strand of a rank for what it does alone. */
  readonly ownStrand: (rank: number) => number;
}

/** A way from rank to rank, and how much of the data of one part of the schedule goes by it. */
export interface Load {
  readonly way: NetworkRoute;
  readonly part: number;
  readonly amount: number;
}

/**
 * What the strands are of those that send by one link. Links are shared evenly by the strands that use them, but loads of ways
 * differ, and a light way alone runs ahead: what has to be passed on at the next rank then comes late. Which is best depends
 * on where ways meet again: `ways`: one for each way; `parts`: one for each way of each tree or path; `even`: about equal
 * loads: heavy ways have several, which take their pieces in turn, light ones share; `few`: as many as ways as heavy as the
 * heaviest one would be.
 */
export const STRAND_LAYOUTS = ["ways", "parts", "even", "few"] as const;
export type StrandLayout = (typeof STRAND_LAYOUTS)[number];

/** Shares out the ways that leave a rank by one link. @returns by way, its strands, counted from 0; and their number */
const LAYOUTS: Readonly<Record<StrandLayout, (ways: readonly (readonly [string, number])[]) => Sharing>> = {
  ways: oneEach,
  parts: oneEach,
  few: (ways) => inBins(ways, 0, Math.floor((sumOf(ways) / (ways[0]?.[1] as number)) * (1 + 1e-9))),
  even: (ways) => {
    const even = sumOf(ways) / ways.length;
    const heavy = ways.filter(([, amount]) => amount >= even * (1 - 1e-9));
    const light = ways.slice(heavy.length);
    const own = new Map<string, number[]>();
    let count = 0;
    for (const [name, amount] of heavy) {
      const first = count;
      count += Math.round(amount / even);
      own.set(
        name,
        Array.from({ length: count - first }, (_, i) => first + i),
      );
    }
    if (light.length === 0) return { own, count };
    const rest = inBins(light, count, Math.max(1, Math.round(sumOf(light) / even)));
    return { own: new Map([...own, ...rest.own]), count: rest.count };
  },
};

interface Sharing {
  readonly own: ReadonlyMap<string, readonly number[]>;
  readonly count: number;
}

const sumOf = (ways: readonly (readonly [string, number])[]): number =>
  ways.reduce((sum, [, amount]) => sum + amount, 0);

function oneEach(ways: readonly (readonly [string, number])[]): Sharing {
  return { own: new Map(ways.map(([name], i) => [name, [i]])), count: ways.length };
}

/** The heaviest first, each to the strand that has least. */
function inBins(ways: readonly (readonly [string, number])[], first: number, count: number): Sharing {
  const bins = Array<number>(count).fill(0);
  const own = new Map<string, number[]>();
  for (const [name, amount] of ways) {
    const lightest = bins.indexOf(Math.min(...bins));
    bins[lightest] = (bins[lightest] as number) + amount;
    own.set(name, [first + lightest]);
  }
  return { own, count: first + count };
}

/** Numbers the strands of each rank; there is one more for what it does alone. */
export function strandsOf(
  loads: Iterable<Load>,
  rankOf: Context["rankOf"],
  layout: StrandLayout,
  maxStrands: number,
): Pick<Context, "strandOf" | "ownStrand"> {
  /** By rank and first link, each way's name and load. */
  const byLink = new Map<number, Map<string, Map<string, number>>>();
  const names = new Map<NetworkRoute, string>();
  const nameOf = (way: NetworkRoute, part: number): string => {
    const name = names.get(way) ?? JSON.stringify(way);
    names.set(way, name);
    return layout === "parts" ? `${part} ${name}` : name;
  };
  for (const { way, part, amount } of loads) {
    const name = nameOf(way, part);
    const rank = entry(byLink, rankOf(way[0] as string), () => new Map<string, Map<string, number>>());
    const ways = entry(rank, way[1] as string, () => new Map<string, number>());
    ways.set(name, (ways.get(name) ?? 0) + amount);
  }
  const strands = new Map<string, number[]>();
  const used = new Map<number, number>();
  for (const [rank, links] of byLink) {
    let first = 0;
    for (const ways of links.values()) {
      const { own, count } = LAYOUTS[layout]([...ways].sort(([, a], [, b]) => b - a));
      for (const [name, list] of own) {
        strands.set(
          name,
          list.map((strand) => (first + strand) % maxStrands),
        );
      }
      first += count;
    }
    used.set(rank, first);
  }
  return {
    strandOf: (way, piece, part) => {
      const own = strands.get(nameOf(way, part)) as number[];
      return own[piece % own.length] as number;
    },
    ownStrand: (rank) => (used.get(rank) ?? 0) % maxStrands,
  };
}

function entry<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  const value = map.get(key) ?? make();
  map.set(key, value);
  return value;
}

/**
 * Actions in waves: those of an earlier wave are recorded first. Those of one wave go by how far the receiver is from the
 * sender, in rank order: all senders begin with another receiver.
 */
export class Waves {
  readonly #numRanks: number;
  readonly #waves: { readonly distance: number; readonly action: () => void }[][] = [];

  constructor(numRanks: number) {
    this.#numRanks = numRanks;
  }

  at(wave: number, from: number, to: number, action: () => void): void {
    const actions = this.#waves[wave] ?? [];
    this.#waves[wave] = actions;
    actions.push({ distance: (to - from + this.#numRanks) % this.#numRanks, action });
  }

  record(): void {
    for (const actions of this.#waves) {
      for (const { action } of (actions ?? []).sort((a, b) => a.distance - b.distance)) action();
    }
  }
}
