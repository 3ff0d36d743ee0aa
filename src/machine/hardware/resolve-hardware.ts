/** What `--hardware` means: a preset, a composition, an inventory file, or a recorded root. */
import { stat } from "node:fs/promises";
import { InvalidArgumentError } from "../../core/index.ts";
import { checkSchema, readJsonFile, readTextFile } from "../../foreign/formats/index.ts";
import {
  composeInventory,
  type Inventory,
  inventorySchema,
  PRESET_NAMES,
  parseNic,
  parseSystem,
} from "../topology/index.ts";
import { detect } from "./detect.ts";
import { inventoryOfNcclTopology } from "./nccl-inventory.ts";

/** Largest inventory file: 4096 hosts of 8 devices are about 40 MB. */
const MAX_INVENTORY_BYTES = 64 * 1024 * 1024;

/**
 * Gives the inventory that `text` names: a preset (`hgx-h100-8`), a composition (`16x hgx-h100-8 --nic 8xNDR`, `16x FILE.json`),
 * accelerators by name (`8x h100`, `rtx 4090`), an inventory file or NCCL's XML, a recorded root, or `detect` for this machine.
 * @throws InvalidArgumentError when it is none of these
 * @throws FormatError when it is a file that holds no inventory
 */
export async function resolveHardware(text: string): Promise<Inventory> {
  if (text === "detect") return detect();
  const several = /^\s*(\d{1,6})\s*x\s*(.+?\.(?:json|xml))(?:\s+--nic[\s=]+(\S+))?\s*$/i.exec(text);
  if (several !== null) {
    // A network joins the copies as it joins presets; eight NDR ports a host where none is named.
    const unit = await readInventory(several[2] ?? "");
    return composeInventory(unit, Number(several[1]), parseNic(several[3] ?? "8xNDR"));
  }
  const system = parseSystem(text);
  if (system !== undefined) return system;
  const kind = await stat(text).then(
    (found) => (found.isDirectory() ? "folder" : "file"),
    () => undefined,
  );
  if (kind === "folder") return detect({ root: text });
  if (kind === "file") return readInventory(text);
  throw new InvalidArgumentError(
    "--hardware",
    text,
    `an inventory file or XML of NCCL or RCCL, a recorded root, "detect", or a preset such as ${PRESET_NAMES.slice(0, 8).join(", ")}, or accelerators by name such as h100 or 4x rtx4090 (16x PRESET --nic 8xNDR joins several hosts)`,
  );
}

/**
 * Reads an inventory from a JSON file, as `chorale detect --json` prints it, or from the XML of NCCL's or RCCL's dump.
 * @throws FormatError naming the first field that is wrong
 */
export async function readInventory(path: string): Promise<Inventory> {
  if (path.endsWith(".xml")) return inventoryOfNcclTopology(readTextFile(path, MAX_INVENTORY_BYTES), path);
  return checkSchema(inventorySchema, readJsonFile(path, MAX_INVENTORY_BYTES), path, "inventory");
}
