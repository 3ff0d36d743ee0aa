/** What share of the optimum a simulated plan reaches: `chorale sim` prints it beside the times. */
import { CERTIFIED_COLLECTIVES, type CertifiedCollective } from "../../authoring/certificate/index.ts";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import type { SimulatedMachine, Simulation } from "../../authoring/simulator/index.ts";
import { checkNetwork, lowerBound, networkOf, simulatedLatencyUs } from "../../authoring/synthesis/index.ts";
import { formatSize } from "../../core/index.ts";
import { FAST_KINDS, type Inventory, LINK_KINDS, type LinkKind } from "../../machine/topology/index.ts";

/** Larger networks take longer than the simulation. */
const MOST_RANKS = 64;
const MOST_FLOWS = 2000;

export interface Optimum {
  /** Seconds for 1 GB of the larger of a rank's two buffers, exact: what no schedule is faster than, by bandwidth. */
  readonly secondsPerGB: string;
  readonly latencyUs: number;
  /** Of each size in turn: the larger of the two bounds over the simulated time; undefined of runs that never end. */
  readonly shares: readonly (number | undefined)[];
}

/**
 * The optimum of a plan's collective over the links that it may use. Undefined for what has no bound: operations that
 * are no collective, devices that are not joined, and networks too large to be solved beside a simulation.
 */
export async function optimumOf(
  plan: ExecutionPlan,
  inventory: Inventory,
  machine: SimulatedMachine,
  results: readonly Simulation[],
): Promise<Optimum | undefined> {
  const collective = CERTIFIED_COLLECTIVES.find((name) => name === plan.collective.operation) as
    | CertifiedCollective
    | undefined;
  const { devices } = machine;
  if (
    collective === undefined ||
    devices.length < 2 ||
    devices.length > MOST_RANKS ||
    new Set(devices).size < devices.length
  )
    return undefined;
  // A plan that leaves the fabric is held against all links, or it could be faster than its bound.
  const leaves = results.some(({ links }) =>
    links.some(({ kind }) => kind !== "memory" && !FAST_KINDS.has(kind as LinkKind)),
  );
  try {
    const network = networkOf(inventory, { devices, ...(leaves ? { links: LINK_KINDS } : {}) });
    const { ranks, edges } = checkNetwork(network);
    if (collective === "all_to_all" && ranks.length * edges.length > MOST_FLOWS) return undefined;
    const root = plan.collective.root ?? 0;
    const { bound } = await lowerBound(network, collective, { root });
    const latencyUs = simulatedLatencyUs(machine, collective, root);
    const shares = results.map(({ completed, sizeBytes, timeUs }) =>
      completed ? Math.max((bound.toNumber() * sizeBytes) / 1000, latencyUs) / timeUs : undefined,
    );
    return { secondsPerGB: bound.toString(), latencyUs, shares };
  } catch (error) {
    // The plan was simulated all the same: without links between them, devices have no optimum.
    const { code, argument } = error as { code?: string; argument?: string };
    if (code === "UNSUPPORTED" || (code === "INVALID_ARGUMENT" && argument === "topology")) return undefined;
    throw error;
  }
}

export function renderOptimum({ secondsPerGB, shares }: Optimum, results: readonly Simulation[]): string {
  const rows = results.flatMap(({ sizeBytes }, i) => {
    const share = shares[i];
    return share === undefined ? [] : [`${formatSize(sizeBytes)} ${(100 * share).toFixed(1)} %`];
  });
  return `# share of the optimum (no schedule is faster than ${secondsPerGB} s/GB, nor than the links' latency): ${rows.join(", ")}`;
}
