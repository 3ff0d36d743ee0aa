/** What the doctor examines, read once for all of its checks. */
import { inBatches, listPci, type Machine } from "../../machine/hardware/index.ts";
import type { Device, Inventory } from "../../machine/topology/index.ts";
import type { Finding } from "./finding.ts";
import type { GpuFacts } from "./gpu-facts.ts";

/** One function on the PCI bus, with ids as the kernel writes them: `0x10de`, `0x030200`. */
export interface PciFunction {
  readonly address: string;
  readonly vendor: string;
  readonly kind: string;
  /** The kernel module that holds it. */
  readonly driver: string | undefined;
}

/** What every check gets. */
export interface ExaminedMachine {
  readonly inventory: Inventory;
  readonly machine: Machine;
  readonly facts: GpuFacts;
  /** The NVIDIA GPUs themselves, without their MIG instances. */
  readonly gpus: readonly Device[];
  readonly bus: readonly PciFunction[];
}
/** One finding, or any number of them. */
export type Check = (about: ExaminedMachine) => Promise<Finding | Finding[]> | Finding | Finding[];

/** Most functions that the checks look at. */
const MAX_FUNCTIONS = 4096;

export async function examineMachine(
  inventory: Inventory,
  machine: Machine,
  facts: GpuFacts,
): Promise<ExaminedMachine> {
  const { files } = machine;
  const gpus = inventory.devices.filter((device) => device.family === "nvidia-gpu" && device.parent === undefined);
  const all = await inBatches(await listPci(files), async (address): Promise<PciFunction> => {
    const at = `/sys/bus/pci/devices/${address}`;
    const read = async (name: string) => ((await files.readText(`${at}/${name}`, 64)) ?? "").trim();
    const [vendor, kind, driver] = await Promise.all([read("vendor"), read("class"), files.realPath(`${at}/driver`)]);
    return { address, vendor, kind, driver: driver?.split("/").at(-1) };
  });
  // Accelerators and bridges first: thousands of virtual network functions must not crowd them out.
  const matters = ({ kind }: PciFunction) => /^0x(03|06|0b|12|0880)/.test(kind);
  const bus = [...all.filter(matters), ...all.filter((entry) => !matters(entry))].slice(0, MAX_FUNCTIONS);
  return { inventory, machine, facts, gpus, bus };
}
