/** Where the machine stands. Refined below; every fact carries the evidence it rests on in its name. */
import type { Inventory } from "../topology/index.ts";
import type { ProbeContext } from "./probe.ts";

/** Reads the environment. */
export async function readEnvironment(context: ProbeContext): Promise<NonNullable<Inventory["environment"]>> {
  return { platform: context.platform, arch: context.arch };
}
