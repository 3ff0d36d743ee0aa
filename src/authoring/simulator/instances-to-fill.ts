/** How many instances of an algorithm have enough thread blocks to fill a device's links. */
import type { ExecutionPlan } from "../plan/index.ts";
import type { SystemParameters } from "./parameters.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";

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
