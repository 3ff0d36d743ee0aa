/** How many instances of a library's algorithm `sim` takes where nobody says: enough thread blocks to fill a device's links. */
import { existsSync } from "node:fs";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import type { SimulatedMachine, SystemParameters } from "../../authoring/simulator/index.ts";
import { isScript, type ProgramArgs } from "./program-args.ts";
import { loadPlan } from "./program-file.ts";

/** More blocks than this help no kernel of the library, and all ranks' strands together stay quick to simulate. */
const MOST_INSTANCES = 32;
const MOST_STRANDS = 4096;

/** What a device sends at most, GB/s: all of its fabric links, or the widest of what else leaves it. */
function deviceGBps(machine: SimulatedMachine, device: string): number {
  const own = machine.links.filter((link) => link.from === device && link.to !== device);
  const fabric = own.filter((link) => link.kind !== "pcie" && link.kind !== "memory" && link.kind !== "nvlink-c2c");
  if (fabric.length > 0) return fabric.reduce((sum, link) => sum + link.capacityGBps, 0);
  return Math.max(0, ...own.map((link) => link.capacityGBps));
}

/** Instances with which a plan's strands fill the links of rank 0's device. */
export function instancesToFill(plan: ExecutionPlan, machine: SimulatedMachine, parameters: SystemParameters): number {
  const strands = Math.max(1, ...plan.ranks.map((rank) => rank.strands.length));
  const wanted =
    deviceGBps(machine, machine.devices[0] ?? "") * Math.max(parameters.efficiency, parameters.efficiencyCached);
  // A fifth more: strands also wait for one another.
  const needed = Math.ceil((1.2 * wanted) / (parameters.blockRemoteGBps * strands));
  const affordable = Math.floor(MOST_STRANDS / (strands * plan.ranks.length));
  return Math.max(1, Math.min(needed, MOST_INSTANCES, affordable));
}

/**
 * Loads a plan; of a library's algorithm without `instances` as many as fill the links.
 * @throws as `loadPlan`
 */
export async function loadPlanToSimulate(
  file: string,
  args: ProgramArgs,
  machineOf: (plan: ExecutionPlan) => SimulatedMachine,
  parameters: SystemParameters,
): Promise<{ readonly plan: ExecutionPlan; readonly machine: SimulatedMachine; readonly instances?: number }> {
  const plan = await loadPlan(file, args, { verify: false });
  const machine = machineOf(plan);
  const isAlgorithm = !isScript(file) && !existsSync(file);
  if (!isAlgorithm || args["instances"] !== undefined) return { plan, machine };
  const instances = instancesToFill(plan, machine, parameters);
  if (instances === 1) return { plan, machine };
  return { plan: await loadPlan(file, { ...args, instances }, { verify: false }), machine, instances };
}
