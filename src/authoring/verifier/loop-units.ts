/**
 * Which sizes of messages have to be looked at for a verdict on all of them.
 *
 * A pipeline runs its body once per unit, so a plan with loops stands for one straight-line plan per size. The verifier
 * unrolls a few of them; why these decide for the rest:
 *
 * - *Counts.* A loop over n chunks of c bytes in units of u runs ceil(n c / u) times. Two ends of a channel agree at every
 *   size exactly if they use it equally often in loops of the same n / u: the functions ceil(r x) of different r are
 *   linearly independent (the first step of the largest r is matched by no other). `unequalRates` compares that, not runs;
 *   `unequalBarriers` does it for the strands that meet at a barrier.
 * - *Orders.* Iterations of a strand follow each other, so what comes before iteration k of a loop comes before k + 1: two
 *   accesses d iterations apart are ordered if the same two are ordered d - 1 apart. At c = m u, ranges that are shifted by
 *   s chunks meet m s iterations apart, and `loop-windows.ts` lists the sizes at which that shows. Tokens that are there
 *   before a loop let one side run ahead, by at most the number of credits of the whole plan (initial values and everything
 *   raised outside loops, on counters that loops take from): every loop runs so often at credits + 2 units. Where loops have
 *   different rates n / u, also every size at which one of them runs once more is looked at.
 * - *Values.* Packets ignore the unit: every iteration does the whole range. What they carry has to be the same in every
 *   iteration (`data-moves.ts` compares); then the second iteration leaves what the first did, and so does every other.
 * - *Blocking.* `loop-progress.ts` argues that no size gets stuck, or says that it cannot.
 * - *Parts.* The parts of a strand group differ by one element where they do not divide a range. Which elements of a chunk
 *   belong to which part repeats with the number of elements to the chunk, with a period that divides the numbers of parts;
 *   in the first period the parts are off by most of a chunk, in the second they are where they stay. In loops this is looked
 *   at with one unit to the chunk; with more it is the same where every place is touched at one offset, and `undecided` elsewhere.
 *
 * What needs more sizes than `MAX_SIZES` is not called right. `loop-units.test.ts` compares with more of them.
 */
import { bodyOf, type ExecutionPlan, type PipelineOp, type SimpleOp } from "../plan/index.ts";
import { forEachOp, gcd, lcm, rangeSizes } from "./cell-geometry.ts";
import { windowSizes } from "./loop-windows.ts";
import { type Counter, type CounterTable, counterUse } from "./signal-counters.ts";

/** A size of message: bytes to the chunk, and where parts do not divide, elements to the chunk. */
export interface CheckedSize {
  readonly chunkBytes: number;
  /** Chunks have this many elements, so that parts of a strand group may differ by one. Parts divide by default. */
  readonly elementsPerChunk?: number;
}

/** Sizes that one plan is checked at for its units and rates; beyond, the verdict is `undecided`. */
const MAX_SIZES = 64;

/** Sizes beside these that show how ranges of loops lie over each other. */
const MAX_WINDOW_SIZES = 128;

interface Sizes {
  readonly list: readonly CheckedSize[];
  /** Why the list does not decide for all sizes; undefined when it does. */
  readonly notCovered?: { readonly message: string; readonly hint: string };
}

function loopsOf(plan: ExecutionPlan): PipelineOp[] {
  return plan.ranks.flatMap((rank) =>
    rank.strands.flatMap((strand) =>
      strand.ops.filter((op): op is PipelineOp => op.kind === "pipeline" && op.body.length > 0 && op.numChunks > 0),
    ),
  );
}

export const rateOf = ({ numChunks, unitBytes }: PipelineOp) => {
  const divisor = gcd(numChunks, unitBytes);
  return `${numChunks / divisor}/${unitBytes / divisor}`;
};

/** Names of the counters that an operation of a rank raises, and takes from: by pair of ranks, not by channel. */
function countersOf(plan: ExecutionPlan, rank: number, op: SimpleOp): { raise: string[]; take: string[] } {
  const peers = (kind: "memory" | "port", ids: readonly number[]) =>
    ids.map((id) => plan.ranks[rank]!.channels[kind][id]!);
  const semaphores = (ids: readonly number[]) => ids.map((id) => `semaphore ${rank} ${id}`);
  const signals = ({ channelKind: kind, channels }: { channelKind: "memory" | "port"; channels: readonly number[] }) =>
    peers(kind, channels).map((peer) => `${kind} ${rank} ${peer}`);
  switch (op.kind) {
    case "signal":
      return { raise: signals(op), take: [] };
    case "put":
      return { raise: op.notify === "none" ? [] : signals(op), take: [] };
    case "wait":
      return { raise: [], take: peers(op.channelKind, op.channels).map((peer) => `${op.channelKind} ${peer} ${rank}`) };
    case "release":
      return { raise: semaphores(op.semaphores), take: [] };
    case "acquire":
      return { raise: [], take: semaphores(op.semaphores) };
    default:
      return { raise: [], take: [] };
  }
}

/** Tokens that loops may use up before anybody in a loop gives more, all ranks and counters together. */
function creditsOf(plan: ExecutionPlan): number {
  const taken = new Set<string>();
  const raised = new Map<string, number>();
  for (const rank of plan.ranks) {
    rank.semaphores.forEach(({ initialValue }, id) => {
      raised.set(`semaphore ${rank.rank} ${id}`, initialValue);
    });
  }
  for (const { rank, strands } of plan.ranks) {
    for (const op of strands.flatMap((strand) => strand.ops)) {
      if (op.kind === "pipeline")
        for (const inner of op.body) for (const key of countersOf(plan, rank, inner).take) taken.add(key);
      else for (const key of countersOf(plan, rank, op).raise) raised.set(key, (raised.get(key) ?? 0) + 1);
    }
  }
  let credits = 0;
  for (const key of taken) credits += raised.get(key) ?? 0;
  return credits;
}

/** The periods, in elements to the chunk, of how the parts of strand groups lie, in all operations and in loops; 1 where they always divide. */
function periodsOfParts(plan: ExecutionPlan): { readonly all: number; readonly inLoops: number } {
  let all = 1;
  let inLoops = 1;
  forEachOp(plan, (op, loop) => {
    if (!("tbg" in op) || op.tbg === undefined) return;
    for (const size of rangeSizes(op)) {
      if (size === 0) continue;
      const period = op.tbg.size / gcd(size, op.tbg.size);
      all = lcm(all, period);
      if (loop !== undefined && loop.numChunks > 0) inLoops = lcm(inLoops, period);
    }
  });
  return { all, inLoops };
}

/** Sizes of chunk around which loops of different rates run once more, up to two of the largest unit. */
function stepsOfRates(loops: readonly PipelineOp[], largest: number): number[] | undefined {
  const steps = new Set<number>();
  for (const { numChunks, unitBytes } of loops) {
    for (let k = 1; (k * unitBytes) / numChunks <= 2 * largest; k++) {
      steps.add((k * unitBytes) / numChunks);
      if (steps.size > MAX_SIZES) return undefined;
    }
  }
  const sorted = [...steps].sort((a, b) => a - b);
  // At a step, and between it and the next.
  return sorted.flatMap((at, i) => [at, (at + (sorted[i + 1] ?? at + largest)) / 2]);
}

/**
 * The sizes at which a plan is checked.
 * @param units how many units a chunk has, instead
 */
export function sizesToCheck(plan: ExecutionPlan, units?: readonly number[]): Sizes {
  const loops = loopsOf(plan);
  const unitSizes = [...new Set(loops.map((op) => op.unitBytes))].sort((a, b) => b - a);
  const largest = unitSizes[0] ?? 0;
  if (units !== undefined)
    return { list: largest === 0 ? [{ chunkBytes: 0 }] : units.map((n) => ({ chunkBytes: n * largest })) };
  const bytes = new Set<number>(largest === 0 ? [0] : unitSizes.flatMap((unit) => [unit, 2 * unit]));
  let notCovered: Sizes["notCovered"];
  if (largest > 0) {
    const credits = creditsOf(plan);
    if (credits > 0) bytes.add((2 + credits) * largest);
    const numChunks = loops.reduce((most, op) => Math.max(most, op.numChunks), 1);
    // By a power of two: exact, whatever the unit is.
    bytes.add(unitSizes.at(-1)! / 2 ** Math.ceil(Math.log2(numChunks)));
    if (new Set(loops.map(rateOf)).size > 1) {
      const steps = stepsOfRates(loops, largest);
      for (const step of steps ?? []) bytes.add(step);
      if (steps === undefined || bytes.size > MAX_SIZES) {
        notCovered = {
          message: "loops run at rates that are too different to look at every size where one of them runs once more",
          hint: "give the loops units that are multiples of each other",
        };
      }
    } else if (bytes.size > MAX_SIZES) {
      notCovered = {
        message: `loops have ${unitSizes.length} different units, too many to look at one and two of each to the chunk`,
        hint: "give the loops the same unit",
      };
    }
  }
  const windows = windowSizes(plan, MAX_WINDOW_SIZES);
  for (const size of windows ?? []) bytes.add(size);
  if (windows === undefined)
    notCovered = {
      message: "operations in loops touch the same places at different distances, in too many ways to look at each",
      hint: "let all operations of a loop that touch a place have it in the same chunk of their ranges",
    };
  const list: CheckedSize[] = [...bytes].slice(0, MAX_SIZES + MAX_WINDOW_SIZES).map((chunkBytes) => ({ chunkBytes }));
  const { all: period, inLoops } = periodsOfParts(plan);
  if (windows !== undefined && windows.length > 0 && inLoops > 1) {
    notCovered = {
      message:
        "operations in loops touch the same places at different distances, and parts of strand groups in them do not divide their ranges: not every size of both is looked at",
      hint: "let the parts divide the ranges, or touch each place in the same chunk of every range",
    };
  }
  if (period > 1) {
    for (let elements = 1; elements <= Math.min(2 * period, MAX_SIZES); elements++)
      if (elements % period !== 0) list.push({ chunkBytes: largest, elementsPerChunk: elements });
    if (2 * period > MAX_SIZES) {
      notCovered = {
        message: "strand groups cut ranges into parts that do not divide them, in too many different ways",
        hint: "give each group's range as many chunks as the group has strands, or a multiple",
      };
    }
  }
  return { list, ...(notCovered === undefined ? {} : { notCovered }) };
}

/** Says whether the two ends of a counter use it in loops that run differently often at some size. */
export function unequalRates(plan: ExecutionPlan, table: CounterTable): ReadonlySet<Counter> {
  const balance = new Map<Counter, Map<string, number>>();
  for (const rank of plan.ranks) {
    for (const strand of rank.strands) {
      for (const op of strand.ops) {
        if (op.kind !== "pipeline" || op.numChunks === 0) continue;
        const rate = rateOf(op);
        for (const inner of op.body) {
          const { raise, take } = counterUse(table, rank.rank, inner);
          const add = (counter: Counter, change: number) => {
            const rates = balance.get(counter) ?? new Map<string, number>();
            rates.set(rate, (rates.get(rate) ?? 0) + change);
            balance.set(counter, rates);
          };
          for (const counter of raise) add(counter, 1);
          for (const counter of take) add(counter, -1);
        }
      }
    }
  }
  // Of one rate only, it is not the loops that differ but what is in them: counting at one and two units shows that.
  const differ = (rates: ReadonlyMap<string, number>) =>
    [...rates.values()].some((n) => n > 0) && [...rates.values()].some((n) => n < 0);
  return new Set([...balance].flatMap(([counter, rates]) => (differ(rates) ? [counter] : [])));
}

/** Barriers whose strands come to them in loops that run differently often at some size, with one of these strands. */
export function unequalBarriers(
  plan: ExecutionPlan,
): readonly { readonly rank: number; readonly barrier: number; readonly strand: number; readonly op: number }[] {
  return plan.ranks.flatMap(({ rank, strands }) => {
    const rates = new Map<number, Map<number, { counts: Map<string, number>; op: number }>>();
    strands.forEach((strand, s) => {
      strand.ops.forEach((outer, o) => {
        for (const op of bodyOf(outer)) {
          if (op.kind !== "barrier") continue;
          const byStrand = rates.get(op.barrier) ?? new Map<number, { counts: Map<string, number>; op: number }>();
          const entry = byStrand.get(s) ?? { counts: new Map<string, number>(), op: o };
          const rate = outer.kind === "pipeline" ? rateOf(outer) : "once";
          if (rate !== "once") entry.counts.set(rate, (entry.counts.get(rate) ?? 0) + 1);
          byStrand.set(s, entry);
          rates.set(op.barrier, byStrand);
        }
      });
    });
    return [...rates].flatMap(([barrier, byStrand]) => {
      const told = [...byStrand].map(([strand, { counts, op }]) => ({
        strand,
        op,
        text: [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).join(" "),
      }));
      const other = told.find(({ text }) => text !== told[0]!.text);
      return other === undefined ? [] : [{ rank, barrier, strand: other.strand, op: other.op }];
    });
  });
}
