/**
 * Splits the layers over pipeline stages, exactly: dynamic programming over (stage, layers placed) that keeps every
 * split no other dominates in (sum of a, largest a, sum of b, largest b, largest memory). Every objective is
 * non-decreasing in these five, so its optimum is among what is kept.
 */

export interface StageChoice {
  readonly a: number;
  readonly b: number;
  readonly memoryBytes: number;
}

/** Cost of giving stage `stage` the layers [first, end); undefined when it does not fit. */
export type StageCost = (stage: number, first: number, end: number) => StageChoice | undefined;

export interface Totals {
  readonly sumA: number;
  readonly maxA: number;
  readonly sumB: number;
  readonly maxB: number;
  readonly maxMemory: number;
}

export interface Split extends Totals {
  /** Stage s holds layers [bounds[s], bounds[s + 1]). */
  readonly bounds: readonly number[];
}

interface Entry extends Totals {
  readonly end: number;
  readonly previous: Entry | undefined;
}

export interface SplitOptions {
  readonly withMemory?: boolean;
  readonly limit?: number;
  readonly allows?: (stage: number, numLayers: number) => boolean;
  readonly even: readonly number[] | undefined;
}

/** Sums that differ by less than this count as equal: otherwise rounding alone would keep thousands of splits. */
const SAME = 1 + 1e-9;

/**
 * Most splits that are kept per state. Far above what devices of one or two kinds need (a few); beyond it the best by
 * sum of a are kept, and the result may be off the optimum.
 */
const MAX_ENTRIES = 256;

function dominates(x: Totals, y: Totals, withMemory: boolean): boolean {
  return (
    x.sumA <= y.sumA * SAME &&
    x.maxA <= y.maxA * SAME &&
    x.sumB <= y.sumB * SAME &&
    x.maxB <= y.maxB * SAME &&
    (!withMemory || x.maxMemory <= y.maxMemory)
  );
}

function insert(entries: Entry[], entry: Entry, withMemory: boolean): void {
  for (const known of entries) if (dominates(known, entry, withMemory)) return;
  let kept = 0;
  for (const known of entries) if (!dominates(entry, known, withMemory)) entries[kept++] = known;
  entries.length = kept;
  entries.push(entry);
  if (entries.length > MAX_ENTRIES) {
    entries.sort((x, y) => x.sumA + x.sumB - y.sumA - y.sumB);
    entries.length = MAX_ENTRIES;
  }
}

/** Totals of one stage by itself. */
function aloneTotals({ a, b, memoryBytes }: StageChoice): Totals {
  return { sumA: a, maxA: a, sumB: b, maxB: b, maxMemory: memoryBytes };
}

/** The score of layers spread evenly; Infinity when that does not fit. */
function evenScore(counts: readonly number[], cost: StageCost, score: (totals: Totals) => number): number {
  let totals: Totals = { sumA: 0, maxA: 0, sumB: 0, maxB: 0, maxMemory: 0 };
  let end = 0;
  for (const [stage, count] of counts.entries()) {
    const first = end;
    end += count;
    const choice = end > first ? cost(stage, first, end) : undefined;
    if (choice === undefined) return Number.POSITIVE_INFINITY;
    totals = {
      sumA: totals.sumA + choice.a,
      maxA: Math.max(totals.maxA, choice.a),
      sumB: totals.sumB + choice.b,
      maxB: Math.max(totals.maxB, choice.b),
      maxMemory: Math.max(totals.maxMemory, choice.memoryBytes),
    };
  }
  return score(totals);
}

/**
 * Finds the split that minimises `score`; undefined when none fits. Every stage gets at least one layer.
 * @param cost time and memory must not fall when a stage gets more layers
 * @param score must not fall when a total grows
 * @param options.limit scores above it are of no interest
 * @param options.allows whether a stage may have so many layers
 * @param options.even layers of each stage, spread evenly as far as `allows` lets them; nothing where no split is allowed
 */
export function bestSplit(
  numLayers: number,
  numStages: number,
  cost: StageCost,
  score: (totals: Totals) => number,
  options: SplitOptions,
): Split | undefined {
  const { withMemory = false, allows = () => true, even } = options;
  if (even === undefined) return undefined;
  // Totals only grow and the score with them: what is worse than an even split already cannot end better.
  const limit = Math.min(options.limit ?? Number.POSITIVE_INFINITY, evenScore(even, cost, score)) * SAME;
  const isInteresting = (stage: number, first: number, end: number) => {
    const choice = cost(stage, first, end);
    return choice !== undefined && score(aloneTotals(choice)) <= limit;
  };
  // By stage, the least first layer with which it and those behind it can hold the rest.
  const least: number[] = [];
  least[numStages] = numLayers;
  for (let stage = numStages - 1; stage > 0; stage--) {
    const end = least[stage + 1] as number;
    let first = end;
    while (first > stage && isInteresting(stage, first - 1, end)) first--;
    least[stage] = first;
  }
  const start: Entry = { sumA: 0, maxA: 0, sumB: 0, maxB: 0, maxMemory: 0, end: 0, previous: undefined };
  let states = new Map<number, Entry[]>([[0, [start]]]);
  for (let stage = 0; stage < numStages; stage++) {
    const next = new Map<number, Entry[]>();
    const after = numStages - stage - 1;
    for (const [first, entries] of states) {
      const lowest = Math.max(first + 1, least[stage + 1] as number);
      for (let end = lowest; end <= numLayers - after; end++) {
        if (!allows(stage, end - first)) continue;
        const choice = cost(stage, first, end);
        if (choice === undefined) break;
        if (score(aloneTotals(choice)) > limit) break;
        const list = next.get(end) ?? [];
        if (list.length === 0) next.set(end, list);
        for (const entry of entries) {
          const grown = {
            sumA: entry.sumA + choice.a,
            maxA: Math.max(entry.maxA, choice.a),
            sumB: entry.sumB + choice.b,
            maxB: Math.max(entry.maxB, choice.b),
            maxMemory: Math.max(entry.maxMemory, choice.memoryBytes),
            end,
            previous: entry,
          };
          if (score(grown) <= limit) insert(list, grown, withMemory);
        }
      }
    }
    states = next;
  }
  let best: Entry | undefined;
  let bestScore = Number.POSITIVE_INFINITY;
  for (const entry of states.get(numLayers) ?? []) {
    const value = score(entry);
    if (
      best === undefined ||
      value < bestScore / SAME ||
      (value <= bestScore * SAME && entry.maxMemory < best.maxMemory)
    ) {
      best = entry;
      bestScore = Math.min(value, bestScore);
    }
  }
  if (best === undefined) return undefined;
  const bounds: number[] = [];
  for (let entry: Entry | undefined = best; entry !== undefined; entry = entry.previous) bounds.unshift(entry.end);
  const { sumA, maxA, sumB, maxB, maxMemory } = best;
  return { bounds, sumA, maxA, sumB, maxB, maxMemory };
}
