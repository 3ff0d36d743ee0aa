/** NCCL's own view of a machine, for its tuning model, and the one constant of that model that is fitted. */
import {
  collectiveMachineOf,
  NCCL_GENERATIONS,
  type NcclMachine,
  ncclEstimate,
  nvidiaGeneration,
} from "../../machine/cost/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { type ErrorSummary, errorSummary } from "./fit.ts";
import type { MeasuredRow } from "./measurements.ts";

import type { SystemParameters } from "./parameters.ts";
import { simulatedDevices } from "./simulate.ts";

/** What NCCL's own tuning model counts for the first ranks' devices: link rates by architecture, nodes, and LL's ceiling. */
export function ncclMachineOf(
  inventory: Inventory,
  numRanks: number,
  parameters: SystemParameters,
  switchOps = false,
): NcclMachine {
  const devices = simulatedDevices(inventory).slice(0, numRanks);
  const { arch, fabric, numNodes, network } = collectiveMachineOf(inventory, devices);
  const { linkGBps, llMaxGBps } = NCCL_GENERATIONS[nvidiaGeneration(arch) ?? "volta"];
  const onFabric = fabric.kind === "fabric";
  return {
    numRanks,
    numNodes,
    intraGBps: onFabric ? fabric.numLinks * linkGBps : 20,
    interGBps: (network?.nodeGBps ?? 12.5) * parameters.networkEfficiency,
    llMaxGBps,
    ...(parameters.ncclLLGBps === undefined ? {} : { llGBps: parameters.ncclLLGBps }),
    nvlink: onFabric,
    nvls: switchOps,
  };
}

export interface NcclFit {
  readonly before: number | undefined;
  readonly after: number;
  /** Relative standard error. */
  readonly uncertainty: number;
  readonly numRows: number;
  readonly errorBefore: ErrorSummary;
  readonly errorAfter: ErrorSummary;
}

/** Candidates for LL's rate, GB/s, a percent apart. */
const LEAST_GBPS = 10;
const MOST_GBPS = 2000;

/**
 * Fits what LL reaches to measured all-reduces of NCCL: the rate of least squared relative error, and how far it can be
 * moved before that error is twice what chance explains. Undefined without rows, or where they do not depend on it.
 */
export function fitNcclLL(
  others: readonly MeasuredRow[],
  machineOf: (numRanks: number) => NcclMachine,
  numRanksOf: (row: MeasuredRow) => number | undefined,
): NcclFit | undefined {
  const rows = others.flatMap((row) => {
    const numRanks = numRanksOf(row);
    if (row.backend !== "nccl" || row.op !== "all_reduce" || numRanks === undefined || row.sizeBytes <= 0) return [];
    return [{ row, machine: machineOf(numRanks) }];
  });
  const first = rows[0];
  if (first === undefined) return undefined;
  const ratios = (llGBps: number | undefined) =>
    rows.map(({ row, machine }) => {
      const { llGBps: _present, ...rest } = machine;
      const fitted = llGBps === undefined ? machine : { ...rest, llGBps };
      return ncclEstimate("all_reduce", row.sizeBytes, fitted).timeUs / row.timeUs;
    });
  const cost = (off: readonly number[]) => off.reduce((sum, ratio) => sum + Math.log(ratio) ** 2, 0);
  let after = LEAST_GBPS;
  let least = Number.POSITIVE_INFINITY;
  const scan: { rate: number; cost: number }[] = [];
  for (let rate = LEAST_GBPS; rate <= MOST_GBPS; rate *= 1.01) {
    const at = cost(ratios(rate));
    scan.push({ rate, cost: at });
    if (at < least) [least, after] = [at, rate];
  }
  const worst = scan.reduce((most, point) => Math.max(most, point.cost), 0);
  if (worst - least < 1e-9) return undefined;
  const limit = least + least / Math.max(1, rows.length - 1);
  const inside = scan.filter((point) => point.cost <= limit);
  const width = Math.log((inside.at(-1)?.rate ?? after) / (inside[0]?.rate ?? after)) / 2;
  return {
    before: first.machine.llGBps,
    after: Number(after.toPrecision(3)),
    uncertainty: Math.max(width, 0.01),
    numRows: rows.length,
    errorBefore: errorSummary(ratios(undefined)),
    errorAfter: errorSummary(ratios(after)),
  };
}
