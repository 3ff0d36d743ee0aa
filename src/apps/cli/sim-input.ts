/** Topologies and constants for `sim` and `tune`. */
import { readFile } from "node:fs/promises";
import {
  parametersFor,
  parseParameters,
  readAstraNetwork,
  SYSTEMS,
  type SystemParameters,
  simulatedDevices,
} from "../../authoring/simulator/index.ts";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import { resolveHardware } from "../../machine/hardware/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";

const isAstra = (what: string) => /\.ya?ml$/.test(what);

/** Loads what `--topology` names: all that `chorale plan --hardware` takes, and ASTRA-sim's network files. */
export async function loadTopology(what: string): Promise<Inventory> {
  if (!isAstra(what)) {
    try {
      return await resolveHardware(what);
    } catch (error) {
      // The same by this flag's name.
      if (error instanceof InvalidArgumentError && error.argument === "--hardware")
        throw new InvalidArgumentError("--topology", error.value, error.accepted);
      throw error;
    }
  }
  let text: string;
  try {
    text = await readFile(what, "utf8");
  } catch {
    throw new InvalidArgumentError("--topology", what, "a file that can be read");
  }
  return readAstraNetwork(text, what);
}

/** Loads the constants that `--params` names; by the accelerators' name, or ideal for ASTRA-sim's, unless told. */
export async function loadParameters(
  params: string | undefined,
  topology: string,
  inventory: Inventory,
): Promise<SystemParameters> {
  const device = inventory.devices.find((d) => d.id === simulatedDevices(inventory)[0])?.name ?? "generic";
  if (params === undefined) return parametersFor(isAstra(topology) ? "ideal" : device);
  if (!params.endsWith(".json")) {
    const found = Object.hasOwn(SYSTEMS, params) ? SYSTEMS[params] : undefined;
    if (found !== undefined) return found;
    throw new InvalidArgumentError("--params", params, `one of ${Object.keys(SYSTEMS).join(", ")}, or a .json file`);
  }
  let value: unknown;
  try {
    value = JSON.parse(await readFile(params, "utf8"));
  } catch (error) {
    if (error instanceof SyntaxError) throw new FormatError(params, `is no JSON: ${error.message}`);
    throw new InvalidArgumentError("--params", params, "a JSON file that can be read");
  }
  return parseParameters(value, parametersFor(device).name);
}
