/** How a schedule becomes chunks, strands and waves: what the programs of trees and of paths share. */
import { UnsupportedError } from "../../core/index.ts";
import { commonDenominator, Rational } from "./rational.ts";

/** Plans with more chunks would cut messages into less than an element. */
export const MAX_CHUNKS = 65_536;

/** Integers in the ratio of the weights; `total` of them are all the data. */
export interface Amounts {
  readonly each: readonly number[];
  readonly total: number;
}

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
  /** The strand of a rank that sends to another one: one for each peer, so that every link is fed without a pause. */
  readonly strandTo: (from: number, to: number) => number;
  /** The strand of a rank for what it does alone. */
  readonly ownStrand: (rank: number) => number;
}

/** Numbers the strands: each rank has one for each rank that it sends to in the schedule, and one for itself. */
export function strandsOf(
  hops: Iterable<readonly [from: number, to: number]>,
  maxStrands: number,
): Pick<Context, "strandTo" | "ownStrand"> {
  const peers = new Map<number, Map<number, number>>();
  for (const [from, to] of hops) {
    const own = peers.get(from) ?? new Map<number, number>();
    peers.set(from, own);
    if (!own.has(to)) own.set(to, own.size);
  }
  return {
    strandTo: (from, to) => (peers.get(from)?.get(to) ?? 0) % maxStrands,
    ownStrand: (rank) => (peers.get(rank)?.size ?? 0) % maxStrands,
  };
}

/** Actions in waves: those of an earlier wave are recorded first, those of one wave in the order they came. */
export class Waves {
  readonly #waves: (() => void)[][] = [];

  at(wave: number, action: () => void): void {
    const actions = this.#waves[wave] ?? [];
    this.#waves[wave] = actions;
    actions.push(action);
  }

  record(): void {
    for (const actions of this.#waves) for (const action of actions ?? []) action();
  }
}
