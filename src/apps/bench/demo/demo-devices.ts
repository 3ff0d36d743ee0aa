/** The demo on accelerators: which backend can use those of this machine, and what is run on them. */
import { ChoraleError, UnavailableError } from "../../../core/index.ts";
import type { Inventory } from "../../../machine/topology/index.ts";
import { type BackendName, backendKind, LAUNCH_BACKENDS } from "../../../runtime/world/index.ts";
import type { BenchRow } from "../collectives/bench-types.ts";
import { bench } from "../collectives/run-bench.ts";
import { type Golden, maxDifference, runGeneration } from "./demo-model.ts";
import { type DemoPlan, planDevices } from "./demo-plans.ts";
import type { DeviceRun } from "./demo-report.ts";

/** Accelerators that a backend can use here. */
export interface UsableDevices {
  readonly backend: BackendName;
  /** Their number: every rank wants one of its own. */
  readonly count: number;
  readonly plan: DemoPlan;
}

/** Why accelerators that are here are not used. */
export interface UnusedDevices {
  readonly unused: string;
}

/** Finds the first backend with devices whose engine is here; undefined where the machine has no such devices. */
export async function findDevices(inventory: Inventory): Promise<UsableDevices | UnusedDevices | undefined> {
  let unused: string | undefined;
  for (const backend of LAUNCH_BACKENDS) {
    const kind = await backendKind(backend);
    const found = inventory.devices.filter(
      ({ family, visible, parent }) => family === kind.deviceFamily && visible && parent === undefined,
    );
    if (found.length === 0) continue;
    try {
      const count = Math.min(await kind.availableRanks(), found.length);
      return { backend, count, plan: planDevices(inventory, found.slice(0, count)) };
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      unused ??= error.message;
    }
  }
  return unused === undefined ? undefined : { unused };
}

export interface DeviceJob {
  readonly devices: UsableDevices;
  readonly golden: Golden;
  readonly maxNewTokens: number;
}

/** Runs the model as its plan says, one rank on each device. */
export async function generateOnDevices({ devices, golden, maxNewTokens }: DeviceJob): Promise<DeviceRun> {
  const { backend } = devices;
  const { plan } = devices.plan;
  try {
    const { lastLogits, ...run } = await runGeneration({ golden, maxNewTokens, plan, backend });
    const expected = golden.tokens.slice(0, maxNewTokens);
    const equalsReference = run.tokens.length === expected.length && run.tokens.every((t, i) => t === expected[i]);
    return { backend, plan, run, equalsReference, maxLogitDifference: maxDifference(lastLogits, golden.lastLogits) };
  } catch (error) {
    if (!(error instanceof ChoraleError)) throw error;
    return { backend, plan, failed: error.message };
  }
}

/** Measures an all-reduce over the devices. One device has nobody to reduce with. */
export async function sweepDevices(
  { backend, count }: UsableDevices,
  sizes: readonly number[],
  onRow: ((row: BenchRow) => void) | undefined,
): Promise<{ readonly ranks: number; readonly rows: readonly BenchRow[] }> {
  const options = { op: "all_reduce", ranks: count, sizes, backend, check: true, inPlace: false } as const;
  return { ranks: count, rows: await bench({ ...options, ...(onRow === undefined ? {} : { onRow }) }) };
}
