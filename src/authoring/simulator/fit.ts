/**
 * Refits the simulator's constants to measurements: damped least squares (Levenberg, Marquardt) on the logarithm of
 * simulated over measured time, in the logarithms of the constants, with the present values as prior. What the measurements
 * do not determine therefore stays where it was, and its uncertainty says so. Standard errors are those of the linearised
 * posterior: residual variance x (J'J + P)^-1 (Nocedal, Wright: "Numerical Optimization", 10; Gelman et al.: "Bayesian Data
 * Analysis", 14.8).
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import type { Measurement } from "./measurements.ts";
import type { SystemParameters } from "./parameters.ts";
import { simulate } from "./simulate.ts";

const FITTED_SHARES = [
  "efficiencyCached",
  "efficiency",
  "storeEfficiency",
  "packetEfficiency",
  "networkEfficiency",
  "pcieEfficiency",
] as const;
/** Constants that can be fitted: times, rates, and shares of at most 1. */
export const FITTED_CONSTANTS = [
  "launchUs",
  "endUs",
  "opUs",
  "syncUs",
  "barrierUs",
  "signalUs",
  "waitUs",
  "fenceUs",
  "fencePerStrandUs",
  "loadUs",
  "latencyUs.nvlink",
  "latencyUs.pcie",
  "latencyUs.infiniband",
  "latencyUs.roce",
  "latencyUs.ethernet",
  "portPushUs",
  "proxyUs",
  "blockRemoteGBps",
  "blockLocalGBps",
  "blockPacketGBps",
  ...FITTED_SHARES,
] as const;
export type FittedConstant = (typeof FITTED_CONSTANTS)[number];

const SHARES: ReadonlySet<FittedConstant> = new Set(FITTED_SHARES);
/** How far a constant may be expected from its present value: a factor of e^0.7, 2, one standard deviation. */
const PRIOR_DEVIATION = 0.7;
/** No model of ours is better than this, however well it fits. */
const LEAST_NOISE = 0.02;
/** Below 1 MiB, latencies of a microsecond that vary from run to run make up the time: three times the error is expected. */
const SMALL_BYTES = 2 ** 20;
const SMALL_SCALE = 3;
const MAX_ROUNDS = 25;
/** A constant counts as determined when the measurements halve its prior's variance. */
const DETERMINED = PRIOR_DEVIATION * Math.SQRT1_2;
const STEP = 0.02;

export interface FittedValue {
  readonly constant: FittedConstant;
  readonly before: number;
  readonly after: number;
  /** Relative standard error after the fit. */
  readonly uncertainty: number;
  /** Whether the measurements say anything about it; otherwise it is the prior's. */
  readonly determined: boolean;
}
export interface FitRow {
  readonly name: string;
  readonly sizeBytes: number;
  readonly measuredUs: number;
  readonly beforeUs: number;
  readonly afterUs: number;
}
export interface ErrorSummary {
  readonly medianRelative: number;
  readonly largestRelative: number;
  /** Root of the mean square of the logarithm of simulated over measured. */
  readonly rms: number;
}
export interface Fit {
  readonly parameters: SystemParameters;
  readonly constants: readonly FittedValue[];
  readonly rows: readonly FitRow[];
  readonly before: ErrorSummary;
  readonly after: ErrorSummary;
}
export interface FitOptions {
  readonly inventory: Inventory;
  readonly parameters: SystemParameters;
  /** Where the measurements come from, for the source of the result. */
  readonly source: string;
  /** Constants to fit; all by default. */
  readonly only?: readonly FittedConstant[];
  readonly onProgress?: (round: number, rms: number) => void;
}

/** Value of a constant, where the system has one. */
export function constantOf(parameters: SystemParameters, constant: FittedConstant): number | undefined {
  if (constant.startsWith("latencyUs.")) return parameters.latencyUs[constant.slice(10) as "nvlink"];
  return parameters[constant as Exclude<FittedConstant, `latencyUs.${string}`>];
}

function withConstants(
  base: SystemParameters,
  constants: readonly FittedConstant[],
  values: readonly number[],
): SystemParameters {
  const latencyUs = { ...base.latencyUs };
  const changes: Record<string, number> = {};
  constants.forEach((constant, i) => {
    const value = SHARES.has(constant) ? Math.min(1, values[i]!) : values[i]!;
    if (constant.startsWith("latencyUs.")) latencyUs[constant.slice(10) as "nvlink"] = value;
    else changes[constant] = value;
  });
  return { ...base, ...changes, latencyUs };
}

function timeOf(measurement: Measurement, inventory: Inventory, parameters: SystemParameters): number {
  const run = simulate(measurement.plan, { inventory, sizeBytes: measurement.sizeBytes, parameters });
  if (!run.completed)
    throw new InvalidArgumentError("measurements", measurement.name, "plans that end in the simulator");
  return run.timeUs;
}

/** Sums errors up. @param ratios of simulated to measured times */
export function errorSummary(ratios: readonly number[]): ErrorSummary {
  const relative = ratios.map((ratio) => Math.abs(ratio - 1)).sort((a, b) => a - b);
  return {
    medianRelative: relative[Math.floor(relative.length / 2)] ?? 0,
    largestRelative: relative.at(-1) ?? 0,
    rms: Math.sqrt(ratios.reduce((sum, ratio) => sum + Math.log(ratio) ** 2, 0) / Math.max(1, ratios.length)),
  };
}

/**
 * Fits constants to measurements.
 * @throws InvalidArgumentError when there is nothing to fit to, or a plan does not end
 */
export function fitParameters(measurements: readonly Measurement[], options: FitOptions): Fit {
  const { inventory, parameters: base } = options;
  if (measurements.length === 0)
    throw new InvalidArgumentError(
      "measurements",
      described("without a row"),
      "rows whose `plan` is an algorithm of the library",
    );
  const constants = (options.only ?? FITTED_CONSTANTS).filter((constant) => (constantOf(base, constant) ?? 0) > 0);
  if (constants.length === 0)
    throw new InvalidArgumentError(
      "constants",
      (options.only ?? []).join(", "),
      "constants that the system has, above 0",
    );
  const start = constants.map((constant) => constantOf(base, constant)!);
  const run = (x: readonly number[]): number[] => {
    const at = withConstants(
      base,
      constants,
      x.map((value, i) => start[i]! * Math.exp(value)),
    );
    return measurements.map((measurement) => timeOf(measurement, inventory, at));
  };
  const scale = measurements.map(({ sizeBytes }) => (sizeBytes < SMALL_BYTES ? SMALL_SCALE : 1));
  const residuals = (times: readonly number[]) =>
    times.map((time, i) => Math.log(time / measurements[i]!.timeUs) / scale[i]!);
  const first = run(constants.map(() => 0));
  let x = constants.map(() => 0);
  let r = residuals(first);
  let noise = noiseOf(r);
  const cost = (at: readonly number[], off: readonly number[]) =>
    off.reduce((sum, value) => sum + robust(value / noise), 0) +
    at.reduce((sum, value) => sum + (value / PRIOR_DEVIATION) ** 2, 0);
  let damping = 1e-2;
  let jacobian: number[][] = [];
  // What nothing depends on is looked at once.
  const still = constants.map(() => false);
  for (let round = 0; round < MAX_ROUNDS; round++) {
    // Columns of derivatives; a constant that nothing depends on has none, and stays.
    jacobian = constants.map((constant, i) => {
      if (still[i]) return r.map(() => 0);
      const down = SHARES.has(constant) && start[i]! * Math.exp(x[i]! + STEP) > 1;
      const by = down ? -STEP : STEP;
      return residuals(run(x.map((value, k) => (k === i ? value + by : value)))).map(
        (value, k) => (value - r[k]!) / by,
      );
    });
    noise = noiseOf(r);
    const before = cost(x, r);
    let improved = false;
    for (let attempt = 0; attempt < 8 && !improved; attempt++) {
      const step = solve(normal(jacobian, r, noise, damping), gradient(jacobian, r, x, noise));
      const next = x.map((value, i) => {
        const moved = value - Math.max(-0.5, Math.min(0.5, step[i]!));
        return SHARES.has(constants[i]!) ? Math.min(moved, -Math.log(start[i]!)) : moved;
      });
      const off = residuals(run(next));
      const after = cost(next, off);
      if (after < before) {
        improved = before - after > 1e-3 * before;
        x = next;
        r = off;
        damping = Math.max(1e-6, damping / 4);
        if (!improved) break;
      } else damping *= 5;
    }
    options.onProgress?.(round + 1, Math.sqrt(r.reduce((sum, value) => sum + value * value, 0) / r.length));
    if (!improved) break;
  }
  const values = x.map((value, i) => start[i]! * Math.exp(value));
  const deviations = posterior(jacobian, r, noiseOf(r));
  const fitted = constants.map((constant, i): FittedValue => {
    const determined = deviations[i]! < DETERMINED;
    return { constant, before: start[i]!, after: round6(values[i]!), uncertainty: deviations[i]!, determined };
  });
  const times = run(fitted.map(({ after }, i) => Math.log(after / start[i]!)));
  const summary = (simulatedUs: readonly number[]) =>
    errorSummary(measurements.map(({ timeUs }, i) => simulatedUs[i]! / timeUs));
  const after = summary(times);
  const parameters: SystemParameters = {
    ...withConstants(
      base,
      constants,
      fitted.map((value) => value.after),
    ),
    name: `${base.name}-fitted`,
    source: `fitted to ${options.source} (${measurements.length} rows); what they do not determine as ${base.name}`,
    uncertainty: Math.round(1000 * expectedError(after.rms, measurements.length, deviations, base)) / 1000,
    uncertainties: Object.fromEntries(
      fitted.map((value) => [value.constant, Math.round(1000 * value.uncertainty) / 1000]),
    ),
  };
  return {
    parameters,
    constants: fitted,
    rows: measurements.map(({ name, sizeBytes, timeUs }, i) => ({
      name,
      sizeBytes,
      measuredUs: timeUs,
      beforeUs: first[i]!,
      afterUs: times[i]!,
    })),
    before: summary(first),
    after,
  };
}

/**
 * Relative error to expect of other runs: the fit's own, corrected for what it used up of the measurements (each constant
 * counts by how much they narrowed it). Where nothing is left over, they confirm nothing: as before.
 */
function expectedError(rms: number, rows: number, deviations: readonly number[], base: SystemParameters): number {
  const used = deviations.reduce((sum, deviation) => sum + Math.max(0, 1 - (deviation / PRIOR_DEVIATION) ** 2), 0);
  if (rows - used < 1) return Math.max(base.uncertainty, rms, LEAST_NOISE);
  return Math.max(rms * Math.sqrt(rows / (rows - used)), LEAST_NOISE);
}

const round6 = (value: number) => Number(value.toPrecision(6));

/** Scale of the residuals, from their median: a few rows that no constant explains do not blur the rest. */
function noiseOf(r: readonly number[]): number {
  const sorted = r.map(Math.abs).sort((a, b) => a - b);
  return Math.max(LEAST_NOISE, 1.4826 * (sorted[Math.floor(sorted.length / 2)] ?? 0));
}
/** Huber's loss: square near zero, straight beyond two deviations. */
function robust(z: number): number {
  const a = Math.abs(z);
  return a <= 2 ? a * a : 4 * a - 4;
}
const weight = (z: number) => (Math.abs(z) <= 2 ? 1 : 2 / Math.abs(z));

function normal(jacobian: readonly number[][], r: readonly number[], noise: number, damping: number): number[][] {
  return jacobian.map((a, i) =>
    jacobian.map((b, j) => {
      let sum = 0;
      for (let k = 0; k < r.length; k++) sum += (weight(r[k]! / noise) * a[k]! * b[k]!) / noise ** 2;
      return i === j ? (sum + PRIOR_DEVIATION ** -2) * (1 + damping) : sum;
    }),
  );
}
function gradient(jacobian: readonly number[][], r: readonly number[], x: readonly number[], noise: number): number[] {
  return jacobian.map((a, i) => {
    let sum = x[i]! / PRIOR_DEVIATION ** 2;
    for (let k = 0; k < r.length; k++) sum += (weight(r[k]! / noise) * a[k]! * r[k]!) / noise ** 2;
    return sum;
  });
}
/** Standard deviations of the posterior, from the inverse of the normal matrix. */
function posterior(jacobian: readonly number[][], r: readonly number[], noise: number): number[] {
  const matrix = normal(jacobian, r, noise, 0);
  return matrix.map((_, i) =>
    Math.sqrt(
      Math.max(
        0,
        solve(
          matrix,
          matrix.map((_, k) => (k === i ? 1 : 0)),
        )[i]!,
      ),
    ),
  );
}
/** Solves a symmetric positive definite system by elimination; the prior keeps it from being singular. */
function solve(matrix: readonly number[][], right: readonly number[]): number[] {
  const n = right.length;
  const rows = matrix.map((row, i) => [...row, right[i]!]);
  for (let c = 0; c < n; c++) {
    let pivot = c;
    for (let i = c + 1; i < n; i++) if (Math.abs(rows[i]![c]!) > Math.abs(rows[pivot]![c]!)) pivot = i;
    [rows[c], rows[pivot]] = [rows[pivot]!, rows[c]!];
    for (let i = c + 1; i < n; i++) {
      const factor = rows[i]![c]! / rows[c]![c]!;
      for (let k = c; k <= n; k++) rows[i]![k] = rows[i]![k]! - factor * rows[c]![k]!;
    }
  }
  const result = new Array<number>(n).fill(0);
  for (let c = n - 1; c >= 0; c--) {
    let sum = rows[c]![n]!;
    for (let k = c + 1; k < n; k++) sum -= rows[c]![k]! * result[k]!;
    result[c] = sum / rows[c]![c]!;
  }
  return result;
}
