/**
 * Exact mixes of columns: what the master program weighs in floating point, as integers that hold exactly. Few and even parts
 * are sought (each becomes a chunk), and low trees.
 */
import { InvariantError } from "../../core/index.ts";
import type { Ratio } from "./cut-bounds.ts";
import { solveExactly } from "./exact-solution.ts";
import { buildForest, type RoutedTree } from "./forest.ts";
import { solveIntegerProgram, solveLinearProgram } from "./linear-program.ts";
import { type Column, heightOfMix, LP_SECONDS, type Mix, type OrbitProgram } from "./orbit-program.ts";
import { commonDenominator, Rational } from "./rational.ts";
import { commonIntegers, commonIntegerWeights } from "./round.ts";
import { gcd } from "./scaled-graph.ts";

/** Into how many trees a root's weight is cut where the exact fractions have too many digits. */
const MOST_ROUNDED = 240;
const FINE = [720, 5040, 20_160];
/** Equations of more unknowns take seconds in fractions. */
const MOST_UNKNOWNS = 48;
/** Heights that are tried for the lowest exact forest, from the least. */
const MOST_HEIGHTS = 8;
/** How long lower trees are sought once a forest reaches the bound. */
const LOWERING_SECONDS = 3;
/** Integer programs of more trees or constraints are not tried, nor for longer: each, and all together. */
const MOST_INTEGERS = 250;
const INTEGER_SECONDS = 1;
const INTEGER_SECONDS_IN_ALL = 2;
/** Multiples of the least unit that are tried. */
const FINEST = 12;
const COARSER = [1, 2, 4];
/** Fewer parts than this fraction of the most are few enough: no integer program is needed. */
const PARTS_TO_SPARE = 16;

/** The search for integers that take exactly `bound` for a unit of weight. */
export class MixSearch {
  readonly #program: OrbitProgram;
  readonly #bound: Ratio;
  readonly #mostParts: number;
  /** The bound in floating point, with room for rounding: every result is checked in integers. */
  readonly #time: number;
  /** The least number of trees for a unit of weight such that links carry integers of them. */
  readonly #unit: number;
  #integerSeconds = INTEGER_SECONDS_IN_ALL;

  /** @param mostParts the data is cut into no more */
  constructor(program: OrbitProgram, bound: Ratio, mostParts: number) {
    const { above, below } = bound;
    this.#program = program;
    this.#bound = bound;
    this.#mostParts = mostParts;
    this.#time = (above / below) * (1 + 1e-10);
    this.#unit = below / program.capacities.reduce((common, capacity) => gcd(common, capacity * above), below);
  }

  /**
   * Weights of columns that take exactly `time`, of the least height that the columns allow, as integers.
   * @param highest no column is higher
   */
  async exact(highest = Number.POSITIVE_INFINITY): Promise<Mix | undefined> {
    const heights = [...new Set(this.#program.columns.map(({ height }) => height))]
      .filter((height) => height <= highest)
      .sort((a, b) => a - b);
    const step = Math.max(1, Math.ceil(heights.length / MOST_HEIGHTS));
    for (const most of heights.filter((_, i) => (heights.length - 1 - i) % step === 0)) {
      const used = this.#program.columns.filter(({ height }) => height <= most);
      const present = new Set(used.map(({ root }) => root));
      if (this.#program.weights.some((weight, root) => weight > 0 && !present.has(root))) continue;
      this.#program.graph.deadline?.check();
      const time = this.#time;
      const solution = await solveLinearProgram(
        this.#program.linearProgram(used, time),
        this.#program.clock.wallSeconds(LP_SECONDS),
      );
      if (solution === undefined) continue;
      const weights = solution.columns.subarray(0, used.length);
      const rounded = commonIntegers(weights);
      const found =
        rounded !== undefined && this.#program.holds(used, rounded.integers, rounded.q, this.#bound)
          ? { columns: used, amounts: rounded.integers }
          : this.#vertex(used, weights);
      if (found !== undefined && this.#program.partsOf(found) <= this.#mostParts / PARTS_TO_SPARE) return found;
      // Without a limit of parts networks are large: more trees to choose from would take minutes.
      if (!Number.isFinite(this.#mostParts)) continue;
      const inUnits = this.#isFew(used) ? await this.#inUnits(most) : undefined;
      if (inUnits !== undefined && this.#program.partsOf(inUnits) <= this.#mostParts) return inUnits;
      if (found !== undefined && this.#program.partsOf(found) <= this.#mostParts) return found;
    }
    return undefined;
  }

  /** Weights in the least unit in which the links' loads can be integers, or a few times that: few and even chunks. */
  async #inUnits(most: number): Promise<Mix | undefined> {
    this.#program.varyColumns(most);
    const used = this.#program.columns.filter(({ height }) => height <= most);
    if (!this.#isFew(used)) return undefined;
    // What fits into a coarse unit fits into one that divides it: without a mix in the finest there is none.
    const finest = await this.#inUnit(used, FINEST * this.#unit);
    if (finest === undefined) return undefined;
    for (const multiple of COARSER) {
      const mix = await this.#inUnit(used, multiple * this.#unit);
      if (mix !== undefined) return mix;
    }
    return finest;
  }

  /** Few enough for integer programs: for the trees of a large network, more to choose from would take minutes. */
  #isFew(used: readonly Column[]): boolean {
    return used.length <= MOST_INTEGERS && this.#program.capacities.length <= MOST_INTEGERS;
  }

  async #inUnit(used: readonly Column[], q: number): Promise<Mix | undefined> {
    const seconds = Math.min(INTEGER_SECONDS, this.#integerSeconds);
    if (seconds <= 0) return undefined;
    const master = this.#program.linearProgram(used, this.#time);
    const rows = master.rows.map((row) => ({ ...row, right: row.right * q }));
    const { clock } = this.#program;
    const began = clock.seconds;
    const solution = await solveIntegerProgram({ ...master, rows }, clock.wallSeconds(seconds));
    this.#integerSeconds -= clock.seconds - began;
    if (solution === undefined) return undefined;
    const amounts = Array.from(used, (_, i) => Math.round(solution[i] as number));
    return this.#program.holds(used, amounts, q, this.#bound) ? { columns: used, amounts } : undefined;
  }

  /** The weights as the solution of the constraints that bind, where they need denominators of many digits. */
  #vertex(all: readonly Column[], weights: Float64Array): Mix | undefined {
    const used = all.filter((_, i) => (weights[i] as number) > 1e-9);
    if (used.length > MOST_UNKNOWNS) return undefined;
    const { above, below } = this.#bound;
    const values = weights.filter((weight) => weight > 1e-9);
    const integer = (value: number) => new Rational(BigInt(value));
    const rows: Rational[][] = [];
    for (const [root, weight] of this.#program.weights.entries()) {
      if (weight > 0) rows.push([...used.map((column) => integer(column.root === root ? 1 : 0)), integer(weight)]);
    }
    for (const [orbit, capacity] of this.#program.capacities.entries()) {
      const busy = used.reduce((sum, column, i) => sum + this.#program.load(column, orbit) * (values[i] as number), 0);
      if (busy < (above / below) * capacity * (1 - 1e-7)) continue;
      const most = integer(above).times(integer(capacity)).over(integer(below));
      const size = integer(this.#program.symmetry.edgeOrbitSizes[orbit] as number);
      rows.push([
        ...used.map(({ root, uses }) => integer((uses[orbit] as number) * this.#program.multiplicity(root))),
        most.times(size),
      ]);
    }
    const exact = solveExactly(rows, used.length);
    if (exact === undefined || exact.some(({ numerator }) => numerator < 0n)) return undefined;
    const q = Number(commonDenominator(exact));
    const amounts = commonIntegerWeights(exact);
    if (!amounts.every(Number.isSafeInteger)) return undefined;
    return this.#program.holds(used, amounts, q, this.#bound) ? { columns: used, amounts } : undefined;
  }

  /** Seeks an exact mix of lower trees than one that is known, one step lower each time, down to `least`. */
  async lowered(from: Mix, least: number): Promise<Mix> {
    const target = this.#bound.above / this.#bound.below;
    const { clock } = this.#program;
    const deadline = clock.seconds + LOWERING_SECONDS;
    for (let best = from; ; ) {
      const most = heightOfMix(best) - 1;
      const left = deadline - clock.seconds;
      if (most < least || left <= 0) return best;
      const reached = await this.#program.generate(target, most, left);
      const lower = reached !== undefined && reached <= target * (1 + 1e-9) ? await this.exact(most) : undefined;
      if (lower === undefined) return best;
      best = lower;
    }
  }

  /**
   * Most of the fastest mix in whole units, and trees packed into what is left: fractions of trees fit there, so whole ones do
   * (Edmonds' theorem). Those may be high, but carry little.
   */
  async withPackedRest(multiple: number): Promise<RoutedTree[] | undefined> {
    const program = this.#program;
    const { above, below } = this.#bound;
    const unit = this.#unit * multiple;
    const numParts = program.graph.ranks.reduce((sum, node) => sum + program.weightOf(node) * unit, 0);
    if (numParts > this.#mostParts) return undefined;
    const { columns } = program;
    const solution = await solveLinearProgram(
      program.linearProgram(columns, this.#time),
      program.clock.wallSeconds(LP_SECONDS),
    );
    if (solution === undefined) return undefined;
    const size = program.symmetry.elements.length;
    const amounts = columns.map(({ root }, i) =>
      Math.floor(((solution.columns[i] as number) * unit * program.multiplicity(root)) / size + 1e-9),
    );
    const trees = columns.flatMap((column, i) => program.imagesOf(column, amounts[i] as number));
    const capacities = program.graph.edges.map(({ capacity }) => (capacity * unit * above) / below);
    const roots = new Map(program.graph.ranks.map((node) => [node, program.weightOf(node) * unit]));
    for (const { root, amount, routes } of trees) {
      roots.set(root, (roots.get(root) as number) - amount);
      for (const route of routes) {
        for (const edge of program.edgesOf(route)) capacities[edge] = (capacities[edge] as number) - amount;
      }
    }
    if (Math.min(...capacities, ...roots.values()) < 0) return undefined;
    try {
      return [...trees, ...buildForest(program.graph, { capacities, roots }).trees];
    } catch (error) {
      // The solver's rounding took a whole tree for what was a little less.
      if (error instanceof InvariantError) return undefined;
      throw error;
    }
  }
}

/** The fastest mix of at most `most` trees for each unit of weight, by rounding the fastest one. */
export async function roundedMix(program: OrbitProgram, reached: number, most: number): Promise<Mix | undefined> {
  const solution = await solveLinearProgram(
    program.linearProgram(program.columns, reached * (1 + 1e-9)),
    program.clock.wallSeconds(LP_SECONDS),
  );
  if (solution === undefined) return undefined;
  const { columns, weights, capacities } = program;
  const parts = solution.columns;
  const ofRoot: number[][] = weights.map(() => []);
  for (const [i, { root }] of columns.entries()) (ofRoot[root] as number[]).push(i);
  // A tree is on few of the orbits of a large network.
  const loads = columns.map((column) =>
    [...capacities.keys()]
      .filter((orbit) => (column.uses[orbit] as number) > 0)
      .map((orbit) => ({ orbit, load: program.load(column, orbit) })),
  );
  let best: { amounts: number[]; time: number } | undefined;
  for (const k of [...Array(MOST_ROUNDED).keys()].map((i) => i + 1).concat(FINE)) {
    if (k > most) break;
    const amounts = columns.map((_, i) => Math.floor((parts[i] as number) * k + 1e-9));
    const lost = (i: number) => (parts[i] as number) * k - (amounts[i] as number);
    for (const [root, weight] of weights.entries()) {
      // What rounding down left out goes to those that lost most.
      const order = (ofRoot[root] as number[]).toSorted((a, b) => lost(b) - lost(a));
      let left = weight * k - order.reduce((sum, i) => sum + (amounts[i] as number), 0);
      for (const i of order) {
        if (left-- <= 0) break;
        amounts[i] = (amounts[i] as number) + 1;
      }
    }
    const sums = new Float64Array(capacities.length);
    for (const [i, amount] of amounts.entries()) {
      if (amount === 0) continue;
      for (const { orbit, load } of loads[i] as (typeof loads)[number]) {
        sums[orbit] = (sums[orbit] as number) + load * amount;
      }
    }
    const busiest = sums.reduce((longest, sum, orbit) => Math.max(longest, sum / (capacities[orbit] as number) / k), 0);
    if (best === undefined || busiest < best.time * (1 - 1e-9)) best = { amounts, time: busiest };
  }
  return best === undefined ? undefined : { columns, amounts: best.amounts };
}
