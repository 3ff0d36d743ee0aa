/** AMD GPUs as amd-smi and rocm-smi print them, in JSON; links from `rocm-smi --showtopo`. */
import { dtypesOf, findPart, partFields } from "../../topology/index.ts";
import { type Answer, ask } from "../ask-tool.ts";
import {
  count,
  field,
  hex,
  json,
  line,
  linesOf,
  memory,
  number,
  pciAddress,
  record,
  scalar,
} from "../field-readers.ts";
import { defined } from "../pci.ts";
import type { DeviceDraft, LinkDraft, ProbeContext, ProbeResult, ProbeWarning, RelationDraft } from "../probe.ts";
import { XGMI_HOP_WEIGHT } from "./amd-kfd.ts";
import { AMD_NAMES } from "./amd-names.ts";
import { percent } from "./nvidia.ts";

const MAX_GPUS = 128;

/** Asks both tools side by side. `keys` names devices found elsewhere, in their order: then only links are taken. */
export async function readAmdTools(
  context: ProbeContext,
  warnings: ProbeWarning[],
  keys?: readonly string[],
): Promise<ProbeResult> {
  const has = (flag: string) => (args: readonly string[]) => args.some((arg) => arg.startsWith(flag));
  const [fixed, metric, rocm, topo] = await Promise.all([
    ask(context, { tool: "amd-smi", args: ["static", "--json"], accepts: (args) => args[0] === "static" }, warnings),
    ask(context, { tool: "amd-smi", args: ["metric", "--json"], accepts: (args) => args[0] === "metric" }, warnings),
    ask(
      context,
      {
        tool: "rocm-smi",
        args: "--showproductname --showid --showuniqueid --showbus --showmeminfo vram --showuse --showtemp --showpower --showdriverversion --json".split(
          " ",
        ),
        accepts: (args) => args.includes("--json") && !args.includes("--showtopo"),
      },
      warnings,
    ),
    ask(context, { tool: "rocm-smi", args: ["--showtopo"], accepts: has("--showtopo") }, warnings),
  ]);
  const devices = keys === undefined ? fromAmdSmi(fixed?.stdout, metric?.stdout, warnings) : [];
  if (keys === undefined && devices.length === 0) {
    devices.push(...fromRocmSmi([rocm?.stdout, ...(await furtherAnswers(context, rocm))], warnings));
  }
  const names = keys ?? devices.map((device) => device.key);
  return { devices, ...parseTopo(topo?.stdout ?? "", names) };
}

/** A draft with what is common to both tools. */
function draft(index: number, name: string, arch: string | undefined, rest: Partial<DeviceDraft>): DeviceDraft {
  const part = findPart("amd-gpu", name);
  const architecture = arch ?? part?.arch;
  const dtypes = dtypesOf("amd-gpu", architecture);
  return {
    key: `amd:${index}`,
    family: "amd-gpu",
    vendor: "AMD",
    name,
    index,
    ...(part !== undefined && partFields(part)),
    ...defined({ arch: architecture, dtypes }),
    ...rest,
  };
}

/** amd-smi gives `{ value, unit }` or plain text; sizes in MB mean MiB there. */
function quantity(value: unknown): number | undefined {
  const own = record(value);
  return own === undefined ? number(scalar(value)) : number(scalar(own["value"]));
}

function at(value: unknown, ...path: readonly string[]): unknown {
  return path.reduce<unknown>((inner, key) => record(inner)?.[key], value);
}

function entries(text: string | undefined): readonly unknown[] {
  const value = json(text);
  const list = Array.isArray(value) ? value : at(value, "gpu_data");
  return Array.isArray(list) ? (list as readonly unknown[]).slice(0, MAX_GPUS) : [];
}

function fromAmdSmi(fixed: string | undefined, metric: string | undefined, warnings: ProbeWarning[]): DeviceDraft[] {
  if (fixed !== undefined && fixed.trim() !== "" && json(fixed) === undefined)
    warnings.push({ source: "amd-smi", message: "amd-smi printed no JSON" });
  const metrics = new Map(entries(metric).map((entry) => [quantity(at(entry, "gpu")), entry]));
  return entries(fixed).flatMap((entry): DeviceDraft[] => {
    const index = quantity(at(entry, "gpu"));
    if (index === undefined || !Number.isInteger(index) || index < 0 || index >= MAX_GPUS) {
      warnings.push({ source: "amd-smi", message: "an entry without a usable gpu number is left out" });
      return [];
    }
    const now = metrics.get(index);
    const name =
      field(scalar(at(entry, "asic", "market_name"))) ?? field(scalar(at(entry, "board", "product_name"))) ?? "AMD GPU";
    const mib = (value: unknown) => {
      const size = quantity(value);
      return memory(size === undefined ? undefined : size * 1024 ** 2);
    };
    const width = quantity(at(entry, "bus", "max_pcie_width"));
    const generation = number(/(\d)/.exec(scalar(at(entry, "bus", "pcie_interface_version")) ?? "")?.[1]);
    return [
      draft(index, name, field(scalar(at(entry, "asic", "target_graphics_version"))), {
        ...defined({
          pciAddress: pciAddress(field(scalar(at(entry, "bus", "bdf")))),
          memoryBytes: mib(at(entry, "vram", "size")) ?? mib(at(now, "mem_usage", "total_vram")),
          memoryUsedBytes: mib(at(now, "mem_usage", "used_vram")),
          memoryFreeBytes: mib(at(now, "mem_usage", "free_vram")),
          driverVersion: field(scalar(at(entry, "driver", "version"))),
          numaNode: count(field(scalar(at(entry, "numa", "node")))),
          temperatureC: quantity(at(now, "temperature", "hotspot")) ?? quantity(at(now, "temperature", "edge")),
          powerWatts: quantity(at(now, "power", "socket_power")),
          utilizationPercent: percent(quantity(at(now, "usage", "gfx_activity"))),
          pcie:
            width === undefined || width <= 0
              ? undefined
              : { maxWidth: width, ...defined({ maxGeneration: generation }) },
        }),
        details: defined({
          computePartition: field(
            scalar(at(entry, "partition", "compute_partition") ?? at(entry, "partition", "accelerator_partition")),
          ),
          memoryPartition: field(scalar(at(entry, "partition", "memory_partition"))),
        }),
      }),
    ];
  });
}

/** A recording may hold what we ask at once in several calls: product names in one, memory in another. */
async function furtherAnswers(context: ProbeContext, first: Answer | undefined): Promise<string[]> {
  if (first === undefined) return [];
  const flags = [
    "--showproductname",
    "--showmeminfo",
    "--showuse",
    "--showtemp",
    "--showpower",
    "--showbus",
    "--showuniqueid",
  ];
  const missing = flags.filter((flag) => !first.argv.includes(flag));
  const answers = await Promise.all(
    missing.map((flag) =>
      ask(
        context,
        {
          tool: "rocm-smi",
          args: [flag, ...(flag === "--showmeminfo" ? ["vram"] : []), "--json"],
          accepts: (args) => args.includes(flag) && args.includes("--json"),
        },
        [],
      ),
    ),
  );
  return answers.flatMap((answer) => answer?.stdout ?? []);
}

/** Reads rocm-smi's JSON; what further answers say of a card is added to what the first one says. */
function fromRocmSmi(texts: readonly (string | undefined)[], warnings: ProbeWarning[]): DeviceDraft[] {
  const value: Record<string, Readonly<Record<string, unknown>>> = Object.create(null);
  for (const text of texts) {
    const own = record(json(text?.slice(text.indexOf("{"))));
    if (own === undefined && text !== undefined && text.trim() !== "") {
      warnings.push({ source: "rocm-smi", message: "rocm-smi printed no JSON" });
    }
    for (const [key, card] of Object.entries(own ?? {}).slice(0, MAX_GPUS + 1))
      value[key] = { ...record(card), ...value[key] };
  }
  const driver = field(scalar(at(value, "system", "Driver version")));
  return Object.entries(value).flatMap(([key, card]): DeviceDraft[] => {
    const match = /^card(\d{1,3})$/.exec(key);
    if (match === null || record(card) === undefined) return [];
    const get = (...names: readonly string[]) =>
      names.map((name) => field(scalar(at(card, name)))).find((found) => found !== undefined);
    const total = memory(count(get("VRAM Total Memory (B)")));
    const used = memory(count(get("VRAM Total Used Memory (B)")));
    const series = get("Card Series", "Card series");
    const model = get("Card Model", "Card model");
    const named =
      series !== undefined && !/^0x/.test(series)
        ? series
        : model !== undefined && !/^0x/.test(model)
          ? model
          : undefined;
    const name = named ?? byId(get("Device ID", "GPU ID", "Card Model", "Card model"));
    const unique = get("Unique ID");
    return [
      draft(Number(match[1]), /AMD|Radeon/i.test(name) ? name : `AMD ${name}`, get("GFX Version"), {
        ...defined({
          uuid: unique === undefined ? undefined : `GPU-${unique.replace(/^0x/, "")}`,
          pciAddress: pciAddress(get("PCI Bus")),
          memoryBytes: total,
          memoryUsedBytes: used,
          memoryFreeBytes: total !== undefined && used !== undefined && used <= total ? total - used : undefined,
          driverVersion: driver,
          temperatureC: number(get("Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)")),
          powerWatts: number(get("Current Socket Graphics Package Power (W)", "Average Graphics Package Power (W)")),
          utilizationPercent: percent(number(get("GPU use (%)"))),
        }),
      }),
    ];
  });
}

/** A part by its PCI device id, `0x74a1`. */
function byId(id: string | undefined): string {
  return AMD_NAMES[hex(id) ?? 0] ?? (id === undefined ? "AMD GPU" : `AMD GPU ${id}`);
}

/** Reads `--showtopo`, as text or as JSON: which pairs XGMI joins directly, and which only PCIe. */
function parseTopo(text: string, keys: readonly string[]): { links: LinkDraft[]; relations: RelationDraft[] } {
  const types = new Map<string, string>();
  const weights = new Map<string, number>();
  const put = (a: number, b: number, kind: "type" | "weight", value: string): void => {
    if (a >= b || a >= keys.length || b >= keys.length) return;
    if (kind === "type") types.set(`${a} ${b}`, value);
    else weights.set(`${a} ${b}`, Number(value));
  };
  const system = record(at(json(text.slice(Math.max(text.indexOf("{"), 0))), "system"));
  for (const [name, value] of Object.entries(system ?? {})) {
    const match = /^\(Topology\) (Link type|Weight) between DRM devices (\d{1,3}) and (\d{1,3})$/i.exec(name);
    if (match !== null)
      put(
        Number(match[2]),
        Number(match[3]),
        /^link/i.test(match[1] ?? "") ? "type" : "weight",
        line(scalar(value) ?? ""),
      );
  }
  let section: "type" | "weight" | undefined;
  for (const row of linesOf(text)) {
    if (/(weight|link type) between two GPUs/i.test(row)) section = /weight/i.test(row) ? "weight" : "type";
    else if (row.startsWith("=")) section = undefined;
    const match = /^GPU(\d{1,3})\s+(\S.*)$/.exec(row);
    if (match === null || section === undefined || /^GPU\d/.test(match[2] ?? "")) continue;
    for (const [b, cell] of (match[2] ?? "").trim().split(/\s+/).entries()) put(Number(match[1]), b, section, cell);
  }
  const links: LinkDraft[] = [];
  const relations: RelationDraft[] = [];
  for (const [pair, type] of types) {
    const [a, b] = pair.split(" ").map((i) => keys[Number(i)]) as [string, string];
    const weight = weights.get(pair);
    if (type === "XGMI") {
      // Without the weight a way over a third GPU cannot be told from a link, save where there is no third.
      if (weight === undefined && keys.length > 2) relations.push({ a, b, relation: "XGMI" });
      else if ((weight ?? 0) <= XGMI_HOP_WEIGHT) links.push({ a, b, kind: "xgmi" });
    } else if (type === "PCIE") relations.push({ a, b, relation: (weight ?? 0) > 40 ? "SYS" : "PHB" });
  }
  return { links, relations };
}
