/**
 * What `sim` chooses for a library's algorithm where the user does not: as many instances as fill a device's links, the
 * machine's hosts as nodes, and, for algorithms whose steps overlap in pieces, several numbers of pieces, the fastest of
 * which is taken for each size.
 */
import { existsSync } from "node:fs";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import { instancesToFill, type SimulatedMachine, type SystemParameters } from "../../authoring/simulator/index.ts";
import { isScript, type ProgramArgs } from "./program-args.ts";
import { loadPlan } from "./program-file.ts";

/** Numbers of pieces that are tried. */
const PIECES = [1, 2, 8];
/** Plans of more strands than this are simulated in one variant. */
const MOST_STRANDS = 16_384;

export interface PlanVariant {
  readonly plan: ExecutionPlan;
  /** What `sim` chose of its arguments. */
  readonly chosen: Readonly<Record<string, number>>;
}

/** Ranks of a host, where every host has as many and they follow each other. */
function ranksPerHost(machine: SimulatedMachine): number | undefined {
  const hosts = machine.devices.map((id) => machine.hostOf(id));
  const first = hosts.findIndex((host) => host !== hosts[0]);
  if (first < 1 || hosts.length % first !== 0) return undefined;
  const isRegular = hosts.every((host, rank) => host === hosts[rank - (rank % first)]);
  return isRegular && new Set(hosts).size === hosts.length / first ? first : undefined;
}

/**
 * Loads a plan, or what is to be tried of an algorithm of the library.
 * @throws as `loadPlan`
 */
export async function loadVariants(
  file: string,
  args: ProgramArgs,
  machineOf: (plan: ExecutionPlan) => SimulatedMachine,
  parameters: SystemParameters,
): Promise<{ readonly variants: readonly [PlanVariant, ...PlanVariant[]]; readonly machine: SimulatedMachine }> {
  const plan = await loadPlan(file, args, { verify: false });
  const machine = machineOf(plan);
  if (isScript(file) || existsSync(file)) return { variants: [{ plan, chosen: {} }], machine };
  const { algorithm } = await import("../../authoring/algorithms/index.ts");
  const { overlaps, hasLevels } = algorithm(file);
  const chosen: Record<string, number> = {};
  const perNode = hasLevels && args["ranksPerNode"] === undefined ? ranksPerHost(machine) : undefined;
  if (perNode !== undefined) chosen["ranksPerNode"] = perNode;
  if (args["instances"] === undefined) {
    const instances = instancesToFill(plan, machine, parameters);
    if (instances > 1) chosen["instances"] = instances;
  }
  const make = async (extra: Readonly<Record<string, number>>): Promise<PlanVariant> => ({
    plan: Object.keys(extra).length === 0 ? plan : await loadPlan(file, { ...args, ...extra }, { verify: false }),
    chosen: extra,
  });
  const first = await make(chosen);
  const numStrands = first.plan.ranks.reduce((sum, { strands }) => sum + strands.length, 0);
  if (!overlaps || args["chunks"] !== undefined || numStrands > MOST_STRANDS) return { variants: [first], machine };
  const others = await Promise.all(PIECES.slice(1).map((chunks) => make({ ...chosen, chunks })));
  return { variants: [first, ...others], machine };
}
