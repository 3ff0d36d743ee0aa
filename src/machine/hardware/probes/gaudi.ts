/**
 * Intel Gaudi 1, 2 and 3: hl-smi's query where the tool is, else the habanalabs driver's devices. Eight cards of a
 * baseboard are joined all to all by their Ethernet ports, a fixed number a pair.
 */
import { wordTable } from "../../../core/index.ts";
import { dtypesOf, findPart, partFields } from "../../topology/index.ts";
import { ask } from "../ask-tool.ts";
import { count, field, linesOf, mib, number, pciAddress, unreadableRow } from "../field-readers.ts";
import { defined } from "../pci.ts";
import type { DeviceDraft, LinkDraft, Probe, ProbeContext, ProbeWarning } from "../probe.ts";
import { readSensors } from "./drm-class.ts";
import { accelCards } from "./linux-accel-class.ts";
import { percent } from "./nvidia.ts";

const COLUMNS =
  "index,module_id,uuid,bus_id,name,memory.total,memory.used,memory.free,temperature.aip,power.draw,utilization.aip,driver_version".split(
    ",",
  );
/** PCI device ids of vendor 0x1da3 (pci.ids). */
const NAMES: Readonly<Record<number, string>> = {
  4096: "HL-205",
  4112: "HL-205",
  4128: "HL-225",
  4192: "HL-325L",
  4193: "HL-325L",
};
/** Ports of a pair on the baseboard and the rate of one, Gb/s (HLS-1, HLS-Gaudi2 and Gaudi 3 baseboard documents). */
const BOARDS: Readonly<Record<string, { readonly ports: number; readonly portGbps: number }>> = wordTable({
  gaudi: { ports: 1, portGbps: 100 },
  gaudi2: { ports: 3, portGbps: 100 },
  gaudi3: { ports: 3, portGbps: 200 },
});
const MAX_CARDS = 64;

export const gaudiProbe: Probe = {
  name: "gaudi",
  families: ["gaudi"],
  platforms: ["linux"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    const told = await readHlSmi(context, warnings);
    const devices = told.length > 0 ? told : await fromSysfs(context);
    return { devices, links: boardLinks(devices), warnings };
  },
};

async function readHlSmi(context: ProbeContext, warnings: ProbeWarning[]): Promise<DeviceDraft[]> {
  const accepts = (args: readonly string[]) => args.some((arg) => arg === "-Q" || arg.startsWith("--query-aip"));
  const answer = await ask(
    context,
    { tool: "hl-smi", args: ["-Q", COLUMNS.join(","), "-f", "csv,noheader,nounits"], accepts },
    warnings,
  );
  if (answer === undefined) return [];
  const { argv } = answer;
  const joined = argv.find((arg) => arg.startsWith("--query-aip="));
  const columns = (
    joined?.slice("--query-aip=".length) ??
    argv[argv.findIndex((arg) => arg === "-Q" || arg === "--query-aip") + 1] ??
    ""
  )
    .split(",")
    .map((c) => c.trim());
  return linesOf(answer.stdout)
    .filter((row) => row.trim() !== "")
    .slice(0, MAX_CARDS + 1)
    .flatMap((row) => {
      const cells = row.split(",").map((cell) => cell.trim());
      if (cells[0]?.toLowerCase() === columns[0]) return [];
      const get = (name: string) => (columns.includes(name) ? field(cells[columns.indexOf(name)]) : undefined);
      const index = count(get("index"));
      if (index === undefined || index >= MAX_CARDS || cells.length !== columns.length) {
        warnings.push(unreadableRow("hl-smi", row));
        return [];
      }
      return draft(index, get("name"), {
        ...defined({
          uuid: get("uuid"),
          pciAddress: pciAddress(get("bus_id")),
          memoryBytes: mib(get("memory.total")),
          memoryUsedBytes: mib(get("memory.used")),
          memoryFreeBytes: mib(get("memory.free")),
          temperatureC: number(get("temperature.aip")),
          powerWatts: number(get("power.draw")),
          utilizationPercent: percent(number(get("utilization.aip"))),
          driverVersion: get("driver_version"),
        }),
        details: defined({ moduleId: count(get("module_id")) }),
      });
    });
}

function draft(index: number, product: string | undefined, rest: Partial<DeviceDraft>): DeviceDraft {
  const name = product ?? "Intel Gaudi";
  const part = findPart("gaudi", name);
  const dtypes = part === undefined ? undefined : dtypesOf("gaudi", part.arch);
  return {
    key: `gaudi:${index}`,
    family: "gaudi",
    vendor: "Intel",
    name,
    index,
    ...(part !== undefined && partFields(part)),
    ...defined({ arch: part?.arch, dtypes }),
    ...rest,
  };
}

async function fromSysfs(context: ProbeContext): Promise<DeviceDraft[]> {
  const cards = await accelCards(context, "gaudi");
  return Promise.all(
    cards.map(async (card, index) => {
      const driver = field(await context.files.readText("/sys/module/habanalabs/version", 128));
      return draft(index, NAMES[card.device ?? 0], {
        ...(await readSensors(context.files, card.folder)),
        ...defined({ pciAddress: card.pciAddress, driverVersion: driver }),
      });
    }),
  );
}

function boardLinks(devices: readonly DeviceDraft[]): LinkDraft[] {
  const arch = devices[0]?.arch;
  const board = BOARDS[arch ?? ""];
  // PCIe cards (HL-288, HL-338) have no baseboard.
  const isCard = devices.some((device) => /HL-[23][38]8/.test(device.name));
  if (board === undefined || isCard || devices.length !== 8 || devices.some((device) => device.arch !== arch))
    return [];
  return devices.flatMap((a, i) =>
    devices.slice(i + 1).map(
      (b): LinkDraft => ({
        a: a.key,
        b: b.key,
        kind: "gaudi-roce",
        count: board.ports,
        bandwidthGBps: (board.ports * board.portGbps) / 8,
      }),
    ),
  );
}
