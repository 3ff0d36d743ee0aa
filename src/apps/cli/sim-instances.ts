/** How many instances of a library's algorithm `sim` takes where nobody says: enough thread blocks to fill a device's links. */
import { existsSync } from "node:fs";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import { instancesToFill, type SimulatedMachine, type SystemParameters } from "../../authoring/simulator/index.ts";
import { isScript, type ProgramArgs } from "./program-args.ts";
import { loadPlan } from "./program-file.ts";

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
