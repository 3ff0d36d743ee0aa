/** Topologies and constants for `sim` and `tune`. */
import {
  parametersFor,
  parseParameters,
  readAstraNetwork,
  SYSTEMS,
  type SystemParameters,
  simulatedDevices,
} from "../../authoring/simulator/index.ts";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import { readJsonFile, readTextFile } from "../../foreign/formats/index.ts";
import { resolveHardware } from "../../machine/hardware/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";

/** Larger files are no constants and no network: both have some kilobytes. */
const MAX_FILE_BYTES = 16 * 2 ** 20;

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
  return readAstraNetwork(readTextFile(what, MAX_FILE_BYTES), what);
}

/** Loads the constants that `--params` names; by the accelerators' name, or ideal for ASTRA-sim's by default. */
export async function loadParameters(
  params: string | undefined,
  topology: string,
  inventory: Inventory,
): Promise<SystemParameters> {
  const [first] = simulatedDevices(inventory);
  const device = inventory.devices.find((candidate) => candidate.id === first);
  const own = parametersFor(device?.name ?? "generic", device?.arch);
  if (params === undefined) return isAstra(topology) ? parametersFor("ideal") : own;
  if (!params.endsWith(".json")) {
    const found = Object.hasOwn(SYSTEMS, params) ? SYSTEMS[params] : undefined;
    if (found !== undefined) return found;
    throw new InvalidArgumentError("--params", params, `one of ${Object.keys(SYSTEMS).join(", ")}, or a .json file`);
  }
  const value = readJsonFile(params, MAX_FILE_BYTES);
  try {
    return parseParameters(value, own.name);
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    const isWhole = error.argument === "parameters";
    throw new FormatError(params, isWhole ? `holds no constants: ${error.accepted}` : error.message, { cause: error });
  }
}
