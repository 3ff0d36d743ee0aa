/**
 * Fits the constants of CPU hosts to measured times: a search along one constant after the other, with steps that shrink,
 * on the mean absolute logarithm of simulated over measured time. That is robust: a row that was disturbed counts once.
 */
import { CPU_COST_NAMES, type CpuCosts } from "../../machine/cost/index.ts";
import type { ExecutionPlan } from "../plan/index.ts";
import { simulateCpu } from "./cpu-host.ts";

/** A plan's measured time. */
export interface CpuMeasurement {
  readonly name: string;
  readonly plan: ExecutionPlan;
  readonly sizeBytes: number;
  readonly timeUs: number;
  readonly endsAlone: boolean;
}

export interface CpuFit {
  readonly costs: CpuCosts;
  /** Median relative error over the rows, before and after: see `cpuError`. */
  readonly before: number;
  readonly after: number;
}

/** Factors that are tried, round by round. */
const STEPS = [3, 2, 1.5, 1.25, 1.12, 1.06, 1.03];
/** How much a constant that the rows say nothing about is held where it was. */
const HOLD = 0.002;

const median = (values: readonly number[]) => [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0;

/** Median relative error of simulated times: 1 is off by a factor of two, either way. */
export function cpuError(costs: CpuCosts, rows: readonly CpuMeasurement[]): number {
  const logs = rows.map((row) => Math.abs(Math.log(simulateCpu(row.plan, { ...row, costs }).timeUs / row.timeUs)));
  return Math.expm1(median(logs));
}

/** Fits all constants to measurements of one number of ranks. */
export function fitCpuCosts(rows: readonly CpuMeasurement[], base: CpuCosts): CpuFit {
  const loss = (costs: CpuCosts) => {
    let sum = 0;
    for (const row of rows) {
      sum += Math.abs(Math.log(simulateCpu(row.plan, { ...row, costs }).timeUs / row.timeUs));
    }
    const held = CPU_COST_NAMES.reduce((total, name) => total + Math.abs(Math.log(costs[name] / base[name])), 0);
    return sum / Math.max(1, rows.length) + HOLD * held;
  };
  let costs = base;
  let best = loss(costs);
  for (const step of STEPS) {
    for (let round = 0; round < 3; round++) {
      const before = best;
      for (const name of CPU_COST_NAMES) {
        for (const factor of [step, 1 / step]) {
          const changed = { ...costs, [name]: costs[name] * factor };
          const found = loss(changed);
          if (found >= best) continue;
          best = found;
          costs = changed;
          break;
        }
      }
      if (best > before - 1e-4) break;
    }
  }
  return { costs, before: cpuError(base, rows), after: cpuError(costs, rows) };
}
