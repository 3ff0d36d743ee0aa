/**
 * What `sim` chooses for a library's algorithm where the user does not: as many instances as fill a device's links, the
 * machine's hosts as nodes, on a full mesh the form of an algorithm that uses all links at once, and, for algorithms whose steps overlap in pieces, several numbers of pieces, the fastest of
 * which is taken for each size.
 */
import { existsSync } from "node:fs";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import { instancesToFill, type SimulatedMachine, type SystemParameters } from "../../authoring/simulator/index.ts";
import { isScript, type ProgramArgs } from "./program-args.ts";
import { loadPlan } from "./program-file.ts";

/** Numbers of pieces that are tried. */
const PIECES = [1, 2, 8];
/** Costs of ASTRA-sim's networks. */
const IDEAL = "ideal";
/** Plans of more strands than this are simulated in one variant. */
const MOST_STRANDS = 16_384;

export interface PlanVariant {
  readonly plan: ExecutionPlan;
  /** What `sim` chose of its arguments. */
  readonly chosen: Readonly<Record<string, number>>;
  /** The algorithm that stands for the one that was asked for. */
  readonly form?: string;
}

const DIRECT: ReadonlySet<string> = new Set(["xgmi", "nvlink", "gaudi-roce"]);

/** Whether each of three or more devices has a link of its own to every other. */
function isFullMesh({ devices, links }: SimulatedMachine): boolean {
  const ids = new Set(devices);
  const pairs = new Set(
    links.flatMap(({ from, to, kind }) =>
      DIRECT.has(kind) && from !== to && ids.has(from) && ids.has(to) ? [`${from} ${to}`] : [],
    ),
  );
  return ids.size > 2 && pairs.size === ids.size * (ids.size - 1);
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
  const { overlaps, hasLevels, meshForm } = algorithm(file);
  const perNode = hasLevels && args["ranksPerNode"] === undefined ? ranksPerHost(machine) : undefined;
  const choose = (of: ExecutionPlan): Record<string, number> => {
    const instances = args["instances"] === undefined ? instancesToFill(of, machine, parameters) : 1;
    return {
      ...(perNode !== undefined && { ranksPerNode: perNode }),
      ...(instances > 1 && { instances }),
    };
  };
  const make = async (of: ExecutionPlan, name: string, extra: Record<string, number>): Promise<PlanVariant> => ({
    plan: Object.keys(extra).length === 0 ? of : await loadPlan(name, { ...args, ...extra }, { verify: false }),
    chosen: extra,
    ...(name !== file && { form: name }),
  });
  const chosen = choose(plan);
  const first = await make(plan, file, chosen);
  // A network of ASTRA-sim is there to compare plans as they are.
  if (meshForm !== undefined && parameters.name !== IDEAL && isFullMesh(machine)) {
    const form = await loadPlan(meshForm, args, { verify: false });
    return { variants: [first, await make(form, meshForm, choose(form))], machine };
  }
  const numStrands = first.plan.ranks.reduce((sum, { strands }) => sum + strands.length, 0);
  if (!overlaps || args["chunks"] !== undefined || numStrands > MOST_STRANDS) return { variants: [first], machine };
  const others = await Promise.all(PIECES.slice(1).map((chunks) => make(plan, file, { ...chosen, chunks })));
  return { variants: [first, ...others], machine };
}
