/** Intel GPUs: the xe and i915 drivers' sysfs, names and memory from xpu-smi where it is installed. */
import { findPart, partFields } from "../../topology/index.ts";
import { ask } from "../ask-tool.ts";
import {
  count,
  csvLine,
  field,
  hex,
  json,
  linesOf,
  memory,
  number,
  pciAddress,
  record,
  scalar,
  unreadableRow,
} from "../field-readers.ts";
import { defined } from "../pci.ts";
import type { DeviceDraft, Probe, ProbeContext, ProbeResult, ProbeWarning } from "../probe.ts";
import { type Card, readCards, readSensors } from "./drm-class.ts";
import { readXeLinks } from "./xe-links.ts";

/** PCI device ids (pci.ids). */
const NAMES: Readonly<Record<number, string>> = {
  3029: "Intel Data Center GPU Max 1550",
  3030: "Intel Data Center GPU Max 1550",
  3034: "Intel Data Center GPU Max 1100",
  22208: "Intel Data Center GPU Flex 170",
  22209: "Intel Data Center GPU Flex 140",
  22176: "Intel Arc A770",
  22177: "Intel Arc A750",
  22181: "Intel Arc A380",
  57867: "Intel Arc B580",
  57868: "Intel Arc B570",
  57873: "Intel Arc Pro B60",
  57874: "Intel Arc Pro B50",
};
const MAX_GPUS = 128;

export const intelProbe: Probe = {
  name: "intel-gpu",
  families: ["intel-gpu"],
  platforms: ["linux"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    const [cards, tool] = await Promise.all([
      readCards(context.files, "drm").then((all) =>
        all.filter((card) => card.driver === "xe" || card.driver === "i915"),
      ),
      discover(context, warnings),
    ]);
    const devices = await Promise.all(cards.map((card, index) => ofCard(context, card, index, tool)));
    const seen = new Set(devices.map((device) => device.pciAddress));
    // The tool's devices that sysfs does not show; without addresses, only where sysfs shows none at all.
    const rest = tool.filter((entry) =>
      entry.pciAddress === undefined ? cards.length === 0 : !seen.has(entry.pciAddress),
    );
    const all = [...devices, ...rest.map((entry) => ofTool(entry))];
    const fabric = all.length > 1 ? await readXeLinks(context, all, warnings) : {};
    return { devices: all.map(withPart), ...fabric, warnings } satisfies ProbeResult;
  },
};

/** What is known of the part: its rates, by its name and not by the vendor. */
function withPart(draft: DeviceDraft): DeviceDraft {
  const part = findPart("intel-gpu", draft.name);
  return part === undefined ? draft : { ...partFields(part), arch: part.arch, ...draft };
}

interface ToolDevice {
  readonly index: number;
  readonly name?: string;
  readonly uuid?: string;
  readonly pciAddress?: string;
  readonly memoryBytes?: number;
  readonly driverVersion?: string;
}

async function discover(context: ProbeContext, warnings: ProbeWarning[]): Promise<ToolDevice[]> {
  const accepts = (args: readonly string[]) =>
    args[0] === "discovery" && !args.includes("-d") && !args.includes("--device");
  // Properties by number: id, name, vendor, UUID, driver, PCI address, physical memory (XPU Manager, "discovery").
  const answer = await ask(
    context,
    { tool: "xpu-smi", args: ["discovery", "--dump", "1,2,3,4,8,11,16"], accepts },
    warnings,
  );
  if (answer === undefined) return [];
  return answer.stdout.trimStart().startsWith("{")
    ? fromJson(answer.stdout, warnings)
    : fromCsv(answer.stdout, warnings);
}

/** Columns are found by their headings, whatever was asked for and in which order. */
function fromCsv(text: string, warnings: ProbeWarning[]): ToolDevice[] {
  const [head, ...rows] = linesOf(text).filter((row) => row.trim() !== "");
  const columns = csvLine(head ?? "").map((name) => name.trim().toLowerCase());
  const idAt = columns.indexOf("device id");
  if (idAt < 0) {
    if (head !== undefined)
      warnings.push({ source: "xpu-smi", message: "xpu-smi printed a table without a Device ID column" });
    return [];
  }
  return rows.slice(0, MAX_GPUS).flatMap((row) => {
    const cells = csvLine(row);
    if (cells.length !== columns.length) {
      warnings.push(unreadableRow("xpu-smi", row));
      return [];
    }
    const get = (name: string) => (columns.includes(name) ? field(cells[columns.indexOf(name)]) : undefined);
    const index = count(get("device id"));
    if (index === undefined) return [];
    return {
      index,
      ...defined({
        name: get("device name"),
        uuid: get("uuid") ?? get("soc uuid"),
        pciAddress: pciAddress(get("pci bdf address")),
        memoryBytes: mibOrBytes(get("memory physical size")),
        driverVersion: get("driver version"),
      }),
    };
  });
}

/** `49152.00 MiB`; a bare number is bytes, as the JSON form has it. */
function mibOrBytes(text: string | undefined): number | undefined {
  const value = number(text);
  if (value === undefined) return undefined;
  return memory(/MiB/i.test(text ?? "") ? value * 1024 ** 2 : value);
}

function fromJson(text: string, warnings: ProbeWarning[]): ToolDevice[] {
  const list = record(json(text))?.["device_list"];
  if (!Array.isArray(list)) {
    warnings.push({ source: "xpu-smi", message: "xpu-smi printed no JSON list of devices" });
    return [];
  }
  return (list as readonly unknown[]).slice(0, MAX_GPUS).flatMap((entry) => {
    const get = (name: string) => field(scalar(record(entry)?.[name]));
    const index = count(get("device_id"));
    if (index === undefined) {
      warnings.push({ source: "xpu-smi", message: "an entry without a usable device_id is left out" });
      return [];
    }
    return {
      index,
      ...defined({
        name: get("device_name"),
        uuid: get("uuid"),
        pciAddress: pciAddress(get("pci_bdf_address")),
        memoryBytes: mibOrBytes(get("memory_physical_size_byte")),
        driverVersion: get("driver_version"),
      }),
    };
  });
}

async function ofCard(
  context: ProbeContext,
  card: Card,
  index: number,
  tool: readonly ToolDevice[],
): Promise<DeviceDraft> {
  const known = tool.find((entry) => entry.pciAddress !== undefined && entry.pciAddress === card.pciAddress);
  const [vram, sensors] = await Promise.all([localMemory(context, card), readSensors(context.files, card.folder)]);
  // Integrated graphics of Intel's processors sit at 00:02.0 and use main memory.
  const integrated = card.pciAddress === "0000:00:02.0";
  const system = integrated ? await context.systemMemory() : {};
  const { index: _, ...facts } = known ?? { index };
  return {
    key: `intel:${card.name}`,
    family: "intel-gpu",
    vendor: "Intel",
    name:
      NAMES[card.device ?? 0] ?? (card.device === undefined ? "Intel GPU" : `Intel GPU 0x${card.device.toString(16)}`),
    index: known?.index ?? index,
    ...defined({ pciAddress: card.pciAddress, memoryBytes: vram ?? system.totalBytes }),
    ...facts,
    ...(integrated && { unifiedMemory: true }),
    ...sensors,
    details: { kernelDriver: card.driver ?? "unknown" },
  };
}

async function localMemory(context: ProbeContext, card: Card): Promise<number | undefined> {
  const direct = count(await context.files.readText(`/sys/class/drm/${card.name}/lmem_total_bytes`, 64));
  if (direct !== undefined) return memory(direct);
  const tiles = (await context.files.list(card.folder)).filter((name) => /^tile\d$/.test(name));
  const sizes = await Promise.all(
    tiles.map((tile) => context.files.readText(`${card.folder}/${tile}/physical_vram_size_bytes`, 64)),
  );
  const total = sizes.reduce(
    (sum, text) => sum + ((text?.startsWith("0x") === true ? hex(text) : count(text)) ?? 0),
    0,
  );
  return total > 0 ? memory(total) : undefined;
}

function ofTool({ index, ...facts }: ToolDevice): DeviceDraft {
  return {
    key: `intel:tool${index}`,
    family: "intel-gpu",
    vendor: "Intel",
    index,
    ...facts,
    name: facts.name ?? "Intel GPU",
  };
}
