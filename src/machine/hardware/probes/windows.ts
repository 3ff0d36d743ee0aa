/**
 * GPUs of Windows: CIM's Win32_VideoController, and the driver's 64-bit memory size from the registry, since AdapterRAM
 * has 32 bits and stops at 4 GiB. Read from PowerShell as JSON or CSV, or from wmic.
 */

import { ask } from "../ask-tool.ts";
import {
  count,
  csvLine,
  field,
  json,
  linesOf,
  memory,
  number,
  record,
  scalar,
  unreadableRow,
} from "../field-readers.ts";
import { defined } from "../pci.ts";
import { type DeviceDraft, NOTHING, type Probe, type ProbeWarning } from "../probe.ts";

const CLASS_KEY = "HKLM:\\SYSTEM\\CurrentControlSet\\Control\\Class\\{4d36e968-e325-11ce-bfc1-08002be10318}\\0*";
const SCRIPT = [
  "$v=@(Get-CimInstance Win32_VideoController | Select-Object Name,AdapterRAM,DriverVersion,PNPDeviceID,VideoProcessor)",
  `$r=@(Get-ItemProperty '${CLASS_KEY}' -ErrorAction SilentlyContinue | Select-Object DriverDesc,@{n='Memory';e={$_.'HardwareInformation.qwMemorySize'}})`,
  "@{controllers=$v;registry=$r} | ConvertTo-Json -Depth 4 -Compress",
].join(";");
/** The largest figures that AdapterRAM can hold: they say "4 GiB or more", not how much. */
const ADAPTER_RAM_CAP = 0xfff0_0000;
const VIRTUAL =
  /basic (display|render)|remote (display|desktop)|hyper-v|virtual|parsec|citrix|teamviewer|displaylink|^microsoft/i;
const MAX_GPUS = 32;

export const windowsProbe: Probe = {
  name: "windows-gpu",
  families: ["windows-gpu"],
  platforms: ["win32"],
  run: async (context) => {
    if (context.platform !== "win32") return NOTHING;
    const warnings: ProbeWarning[] = [];
    const isVideo = (args: readonly string[]) => args.join(" ").includes("VideoController");
    const shell = await ask(
      context,
      { tool: "powershell", args: ["-NoProfile", "-NonInteractive", "-Command", SCRIPT], accepts: isVideo },
      warnings,
    );
    const text =
      shell ??
      (await ask(
        context,
        {
          tool: "wmic",
          args: ["path", "Win32_VideoController", "get", "Name,AdapterRAM,DriverVersion,PNPDeviceID", "/format:csv"],
          accepts: isVideo,
        },
        warnings,
      ));
    return { devices: devicesOf(text?.stdout ?? "", warnings), warnings };
  },
};

interface Controller {
  readonly name?: string;
  readonly ram?: number;
  readonly driverVersion?: string;
  readonly pnp?: string;
}

function devicesOf(text: string, warnings: ProbeWarning[]): DeviceDraft[] {
  const value = json(text.trim());
  const [controllers, sizes] =
    value === undefined ? [fromCsv(text, warnings), new Map<string, number>()] : fromJson(value);
  return controllers
    .filter((c) => c.name !== undefined && !VIRTUAL.test(c.name))
    .slice(0, MAX_GPUS)
    .map((c, index): DeviceDraft => {
      const ram = c.ram === undefined || c.ram >= ADAPTER_RAM_CAP || c.ram === 0 ? undefined : memory(c.ram);
      return {
        key: `windows:${index}`,
        family: "windows-gpu",
        vendor: vendorOf(c),
        name: c.name ?? "GPU",
        index,
        ...defined({ memoryBytes: sizes.get(c.name ?? "") ?? ram, driverVersion: c.driverVersion }),
        details: defined({ pnpDeviceId: c.pnp }),
      };
    });
}

function vendorOf({ pnp, name }: Controller): string {
  const id = /VEN_([0-9A-F]{4})/i.exec(pnp ?? "")?.[1]?.toLowerCase();
  const byId = (
    { "10de": "NVIDIA", "1002": "AMD", "8086": "Intel", "5143": "Qualcomm" } as Readonly<Record<string, string>>
  )[id ?? ""];
  return (
    byId ??
    (/nvidia|geforce|quadro/i.test(name ?? "")
      ? "NVIDIA"
      : /amd|radeon/i.test(name ?? "")
        ? "AMD"
        : /intel/i.test(name ?? "")
          ? "Intel"
          : "unknown")
  );
}

/** PowerShell gives an object instead of a list when there is one entry. */
function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]) : value === undefined || value === null ? [] : [value];
}

function fromJson(value: unknown): [Controller[], Map<string, number>] {
  const own = record(value);
  const controllers = own !== undefined && "controllers" in own ? listOf(own["controllers"]) : listOf(value);
  const sizes = new Map<string, number>();
  for (const entry of listOf(own?.["registry"]).slice(0, 64)) {
    const name = field(scalar(record(entry)?.["DriverDesc"]));
    const bytes = memory(number(scalar(record(entry)?.["Memory"])));
    if (name !== undefined && bytes !== undefined && bytes > 0) sizes.set(name, bytes);
  }
  return [controllers.slice(0, 64).map((entry) => controller((name) => scalar(record(entry)?.[name]))), sizes];
}

function controller(get: (name: string) => string | undefined): Controller {
  return defined({
    name: field(get("Name")),
    ram: count(get("AdapterRAM")),
    driverVersion: field(get("DriverVersion")),
    pnp: field(get("PNPDeviceID")),
  });
}

function fromCsv(text: string, warnings: ProbeWarning[]): Controller[] {
  const rows = linesOf(text)
    .map((row) => row.trim())
    .filter((row) => row !== "" && !row.startsWith("#TYPE"));
  const columns = csvLine(rows[0] ?? "");
  if (!columns.includes("Name")) return [];
  return rows.slice(1, 65).flatMap((row) => {
    const cells = csvLine(row);
    if (cells.length !== columns.length) {
      warnings.push(unreadableRow("wmic", row));
      return [];
    }
    return controller((name) => (columns.includes(name) ? cells[columns.indexOf(name)] : undefined));
  });
}
