/**
 * How many units of a chunk have to be looked at for a verdict on all sizes of messages.
 *
 * A pipeline runs its body once per unit, so a plan with loops stands for one straight-line plan per size. The verifier
 * unrolls a few of them; why these decide for the rest:
 *
 * - *Counts.* A loop over n chunks of c bytes in units of u runs ceil(n c / u) times. Two ends of a channel agree at every
 *   size exactly if they use it equally often in loops of the same n / u: the functions ceil(r x) of different r are
 *   linearly independent (the first step of the largest r is matched by no other). `unequalRates` compares that, not runs.
 * - *Orders.* Iterations of a strand follow each other, so what comes before iteration k of a loop comes before k + 1: two
 *   accesses d iterations apart are ordered if the same two are ordered d - 1 apart. At c = m u, ranges that are shifted by
 *   s chunks meet m s iterations apart; between whole m, at the whole numbers next to it. The smallest distances are those
 *   of m = 1 and, where a unit holds several chunks, of the size at which every loop runs once; from there on up they
 *   only grow. Places that every iteration touches (packets, whole ranges) meet at distance 1, which m = 2 has.
 * - *Blocking.* How far one strand may run ahead of another is bounded by credits: initial values of semaphores, and signals
 *   that come before a loop. A cycle that closes only when they are used up closes within credits + 2 iterations.
 *
 * So: one run of every loop, one unit, two units, and credits + 2 units. `loops.test.ts` compares with more of them.
 */
import type { ExecutionPlan, PipelineOp } from "../plan/index.ts";
import { gcd } from "./cell-geometry.ts";
import { type Counter, type CounterTable, counterUse } from "./signal-counters.ts";

/** More units than these are not unrolled, however many credits there are. */
const MAX_UNITS = 8;

function loopsOf(plan: ExecutionPlan): PipelineOp[] {
  return plan.ranks.flatMap((rank) =>
    rank.strands.flatMap((strand) => strand.ops.filter((op) => op.kind === "pipeline" && op.body.length > 0)),
  ) as PipelineOp[];
}

/** Tokens of a rank that a loop may use up before anybody in it gives more. */
function creditsOf(plan: ExecutionPlan): number {
  let most = 0;
  for (const rank of plan.ranks) {
    const semaphores = new Set<number>();
    let early = 0;
    for (const strand of rank.strands) {
      for (const op of strand.ops) {
        if (op.kind === "signal" || op.kind === "release") early++;
        if (op.kind !== "pipeline") continue;
        for (const inner of op.body)
          if (inner.kind === "acquire") for (const id of inner.semaphores) semaphores.add(id);
      }
    }
    let credits = strandsLoop(plan, rank.rank) ? early : 0;
    for (const id of semaphores) credits += rank.semaphores[id]?.initialValue ?? 0;
    most = Math.max(most, credits);
  }
  return most;
}

const strandsLoop = (plan: ExecutionPlan, rank: number) =>
  plan.ranks[rank]!.strands.some((strand) => strand.ops.some((op) => op.kind === "pipeline"));

/**
 * The sizes of chunk, in bytes, at which a plan is checked.
 * @param units how many units a chunk has, instead
 */
export function chunkSizesToCheck(plan: ExecutionPlan, units?: readonly number[]): readonly number[] {
  const loops = loopsOf(plan);
  const largest = loops.reduce((most, op) => Math.max(most, op.unitBytes), 0);
  if (largest === 0) return [0];
  if (units !== undefined) return units.map((number) => number * largest);
  const sizes = [largest, 2 * largest];
  const many = Math.min(MAX_UNITS, 2 + creditsOf(plan));
  if (many > 2) sizes.push(many * largest);
  const numChunks = loops.reduce((most, op) => Math.max(most, op.numChunks), 1);
  const once = largest / 2 ** Math.ceil(Math.log2(numChunks));
  if (numChunks > 1 && Number.isInteger(once)) sizes.push(once);
  return sizes;
}

/** Says whether the two ends of a counter use it in loops that run differently often at some size. */
export function unequalRates(plan: ExecutionPlan, table: CounterTable): ReadonlySet<Counter> {
  const balance = new Map<Counter, Map<string, number>>();
  for (const rank of plan.ranks) {
    for (const strand of rank.strands) {
      for (const op of strand.ops) {
        if (op.kind !== "pipeline" || op.numChunks === 0) continue;
        const divisor = gcd(op.numChunks, op.unitBytes);
        const rate = `${op.numChunks / divisor}/${op.unitBytes / divisor}`;
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
