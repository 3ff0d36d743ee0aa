/**
 * The simulator's front: a plan, a machine and a size in; time, bandwidths, link use, what got stuck and why out.
 * Deterministic: the same input gives the same output, bit for bit.
 */

import { busFactor, OPERATION_NAMES, type OperationName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import type { ExecutionPlan } from "../plan/index.ts";
import { requireShape } from "../verifier/index.ts";
import { applyFaults, type Fault } from "./faults.ts";
import { parametersFor, planUncertainty, type SystemParameters } from "./parameters.ts";
import { runPlan } from "./run-plan.ts";
import type { OpRecord, StuckStrand } from "./run-state.ts";
import { SimulatedMachine } from "./simulated-machine.ts";

/** Beyond this, byte counts are no longer exact. */
const MAX_SIZE_BYTES = 2 ** 60;

export interface SimulateOptions {
  readonly inventory: Inventory;
  /** The size that nccl-tests prints: bytes of the larger of a rank's two buffers. */
  readonly sizeBytes: number;
  /** Device of each rank; the accelerators in the inventory's order by default. */
  readonly devices?: readonly string[];
  /** What things cost; found by the accelerators' name by default. */
  readonly parameters?: SystemParameters;
  /** The fabric multicasts and reduces in its switches. Off by default. */
  readonly switchOps?: boolean;
  readonly faults?: readonly Fault[];
  /** The machine of the inventory, devices and parameters, where the caller has made it for several sizes. */
  readonly machine?: SimulatedMachine;
  /** Gives up at this time, us: the run is then not completed, and nothing is stuck. For whoever looks for a faster plan. */
  readonly untilUs?: number;
}

export interface LinkUse {
  readonly link: string;
  readonly kind: string;
  readonly bytes: number;
  /** Share of the link's capacity over the whole run. */
  readonly utilization: number;
}

export interface Simulation {
  readonly sizeBytes: number;
  readonly timeUs: number;
  readonly algbwGBps: number;
  readonly busbwGBps: number;
  /** False when ranks got stuck, or at `untilUs`: the time is then that of the last thing that happened. */
  readonly completed: boolean;
  readonly stuck: readonly StuckStrand[];
  /** Ranks that a fault killed. */
  readonly deadRanks: readonly number[];
  readonly rankEndUs: readonly number[];
  /** Links that carried anything, the busiest first. */
  readonly links: readonly LinkUse[];
  readonly records: readonly OpRecord[];
  readonly parameters: SystemParameters;
  /** Relative error to expect. */
  readonly uncertainty: number;
}

/** The factor from algorithm to bus bandwidth of a plan's collective, as nccl-tests has it; 1 where it has none. */
export function planBusFactor(plan: ExecutionPlan): number {
  const { operation, numRanks } = plan.collective;
  return (OPERATION_NAMES as readonly string[]).includes(operation)
    ? busFactor(operation as OperationName, numRanks)
    : 1;
}

/** The accelerators of an inventory, or its CPUs when there are none. */
export function simulatedDevices(inventory: Inventory): readonly string[] {
  const usable = inventory.devices.filter((device) => device.visible && device.parent === undefined);
  const accelerators = usable.filter((device) => device.family !== "cpu");
  return (accelerators.length > 0 ? accelerators : usable).map((device) => device.id);
}

/** @throws InvalidArgumentError when the machine has fewer devices than the plan has ranks */
export function placeRanks(numRanks: number, inventory: Inventory, given?: readonly string[]): readonly string[] {
  const devices = given ?? simulatedDevices(inventory);
  if (devices.length < numRanks) {
    const [what, accepted] = given === undefined ? ["topology", "a system of"] : ["devices", "a list of"];
    throw new InvalidArgumentError(
      what,
      described(`${devices.length} ${devices.length === 1 ? "device" : "devices"}`),
      `${accepted} ${numRanks} devices or more, one for each rank`,
    );
  }
  return devices.slice(0, numRanks);
}

/** What the device of rank 0 costs. */
function parametersOf(inventory: Inventory, device: string | undefined): SystemParameters {
  const own = inventory.devices.find((candidate) => candidate.id === device);
  return parametersFor(own?.name ?? "generic", own?.arch);
}

/** Bytes of a chunk when the larger buffer of a rank has `sizeBytes`. */
function chunkBytesOf(plan: ExecutionPlan, sizeBytes: number): number {
  let chunks = 0;
  for (const rank of plan.ranks) chunks = Math.max(chunks, rank.input.chunks, rank.output.chunks);
  return chunks === 0 ? 0 : sizeBytes / chunks;
}

/** Share of what a link, slow as a fault may have made it, could have carried; none of one that is down. */
function shareOf(bytes: number, capacityGBps: number, timeUs: number): number {
  const most = capacityGBps * 1000 * timeUs;
  return most > 0 ? bytes / most : 0;
}

/**
 * Runs a plan in simulated time.
 * @throws InvalidArgumentError when the machine is too small, or a size is not positive
 * @throws PlanError when the plan does not hold together
 * @example
 * import { presetInventory } from "chorale/topology";
 * import { compile } from "chorale/language";
 * import { ringAllReduce } from "chorale/algorithms";
 * import { simulate } from "chorale/simulator";
 * const plan = compile(ringAllReduce({ numRanks: 8 }));
 * simulate(plan, { inventory: presetInventory("hgx-h100-8"), sizeBytes: 2 ** 20 }).completed // true
 */
export function simulate(plan: ExecutionPlan, options: SimulateOptions): Simulation {
  const { inventory, sizeBytes } = options;
  if (!(sizeBytes > 0 && sizeBytes <= MAX_SIZE_BYTES)) {
    throw new InvalidArgumentError("sizeBytes", sizeBytes, "a size above 0, up to 2^60 bytes");
  }
  if (inventory?.devices?.length === undefined) {
    throw new InvalidArgumentError("inventory", inventory, "an Inventory, such as presetInventory(name) returns");
  }
  requireShape(plan);
  const devices = placeRanks(plan.ranks.length, inventory, options.devices);
  const parameters = options.parameters ?? parametersOf(inventory, devices[0]);
  const faults = options.faults ?? [];
  const tracksFreeLinks = faults.length > 0;
  const machine =
    (tracksFreeLinks ? undefined : options.machine) ??
    new SimulatedMachine(inventory, devices, parameters, { tracksFreeLinks });
  const { capacities, deadAt } = applyFaults(machine, faults, plan);
  const run = runPlan({
    plan,
    machine,
    parameters,
    chunkBytes: chunkBytesOf(plan, sizeBytes),
    switchOps: options.switchOps ?? false,
    capacities,
    deadAt,
    untilUs: options.untilUs,
  });
  const links = machine.links
    .map((link, index) => ({
      link: link.name,
      kind: link.kind as string,
      bytes: run.linkBytes[index]!,
      utilization: shareOf(run.linkBytes[index]!, capacities[index]!, run.timeUs),
    }))
    .filter((use) => use.bytes > 0)
    .sort((a, b) => b.utilization - a.utilization);
  const algbwGBps = run.timeUs > 0 ? sizeBytes / (run.timeUs * 1000) : 0;
  return {
    sizeBytes,
    timeUs: run.timeUs,
    algbwGBps,
    busbwGBps: algbwGBps * planBusFactor(plan),
    completed: run.ended && run.stuck.length === 0 && deadAt.size === 0,
    stuck: run.stuck,
    deadRanks: [...deadAt.keys()],
    rankEndUs: run.rankEndUs,
    links,
    records: run.records,
    parameters,
    uncertainty: planUncertainty(parameters, new Set(devices.map((id) => machine.hostOf(id))).size > 1),
  };
}
