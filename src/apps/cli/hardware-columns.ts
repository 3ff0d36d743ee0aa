/** The columns of `chorale detect`: what each shows to people, gives to programs, and sorts by. */
import { formatSize, InvalidArgumentError, parseSize, wordTable } from "../../core/index.ts";
import type { Device } from "../../machine/topology/index.ts";

export interface Column {
  readonly heading: string;
  readonly value: (device: Device) => string | number | undefined;
  readonly show?: (value: number) => string;
  readonly alignRight?: boolean;
}

const rate = (gbps: number) =>
  gbps >= 1000 ? `${Number((gbps / 1000).toFixed(2))} TB/s` : `${Number(gbps.toFixed(1))} GB/s`;

export const COLUMNS: Readonly<Record<string, Column>> = wordTable({
  id: { heading: "ID", value: (d) => d.id },
  family: { heading: "FAMILY", value: (d) => d.family },
  vendor: { heading: "VENDOR", value: (d) => d.vendor },
  name: { heading: "NAME", value: (d) => d.name },
  index: { heading: "INDEX", value: (d) => d.index, alignRight: true },
  memory: { heading: "MEMORY", value: (d) => d.memoryBytes, show: formatSize, alignRight: true },
  used: { heading: "USED", value: (d) => d.memoryUsedBytes, show: formatSize, alignRight: true },
  free: { heading: "FREE", value: (d) => d.memoryFreeBytes, show: formatSize, alignRight: true },
  bandwidth: { heading: "BANDWIDTH", value: (d) => d.memoryBandwidthGBps, show: rate, alignRight: true },
  arch: { heading: "ARCH", value: (d) => d.arch },
  driver: { heading: "DRIVER", value: (d) => d.driverVersion },
  runtime: { heading: "RUNTIME", value: (d) => d.runtimeVersion },
  pci: { heading: "PCI", value: (d) => d.pciAddress },
  pcie: { heading: "PCIE", value: (d) => pcieText(d) },
  numa: { heading: "NUMA", value: (d) => d.numaNode, alignRight: true },
  temperature: { heading: "TEMP", value: (d) => d.temperatureC, show: (v) => `${v} C`, alignRight: true },
  power: { heading: "POWER", value: (d) => d.powerWatts, show: (v) => `${Math.round(v)} W`, alignRight: true },
  utilization: { heading: "UTIL", value: (d) => d.utilizationPercent, show: (v) => `${v} %`, alignRight: true },
  uuid: { heading: "UUID", value: (d) => d.uuid },
  unified: { heading: "UNIFIED", value: (d) => (d.unifiedMemory === true ? "yes" : undefined) },
  status: { heading: "STATUS", value: (d) => (d.visible ? "visible" : "masked") },
});

/** Other words for the same columns: those of ai-hwaccel's command line, and obvious ones. */
const ALIASES: Readonly<Record<string, string>> = wordTable({
  device: "name",
  mem: "memory",
  bw: "bandwidth",
  temp: "temperature",
  util: "utilization",
  gpu: "utilization",
});

export const DEFAULT_COLUMNS = ["id", "family", "name", "memory", "free", "bandwidth", "arch", "numa", "status"];

/** Reads one column's name. @throws InvalidArgumentError naming the columns */
export function parseColumn(text: string, argument: string): string {
  const name = ALIASES[text.trim().toLowerCase()] ?? text.trim().toLowerCase();
  if (!Object.hasOwn(COLUMNS, name)) {
    throw new InvalidArgumentError(argument, text, `one of ${Object.keys(COLUMNS).join(", ")}`);
  }
  return name;
}

/** Reads `id,name,memory`. @throws InvalidArgumentError naming the columns */
export function parseColumns(text: string): string[] {
  return text.split(",").map((name) => parseColumn(name, "--columns"));
}

function pcieText({ pcie }: Device): string | undefined {
  if (pcie === undefined) return undefined;
  const side = (generation: number | undefined, width: number | undefined) =>
    generation === undefined && width === undefined ? undefined : `${generation ?? "?"}x${width ?? "?"}`;
  const [now, most] = [side(pcie.generation, pcie.width), side(pcie.maxGeneration, pcie.maxWidth)];
  return now === undefined || most === undefined || now === most ? (now ?? most) : `${now} of ${most}`;
}

/** Sorts by a column: numbers downwards, text upwards; devices without a value stand last. */
export function sortDevices(devices: readonly Device[], column: string): Device[] {
  const value = (COLUMNS[column] as Column).value;
  return [...devices].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === undefined || y === undefined) return (x === undefined ? 1 : 0) - (y === undefined ? 1 : 0);
    return typeof x === "number" && typeof y === "number"
      ? y - x
      : String(x).localeCompare(String(y), "en", { numeric: true });
  });
}

/** The cells of a device: for people with units, for programs bare. */
export function cells(device: Device, columns: readonly string[], forPeople: boolean): string[] {
  return columns.map((name) => {
    const column = COLUMNS[name] as Column;
    const value = column.value(device);
    if (value === undefined) return forPeople ? "-" : "";
    if (!forPeople) return String(value);
    return typeof value === "number" && column.show !== undefined ? column.show(value) : cut(String(value));
  });
}

/** Longest text that a table for people shows; other formats have it whole. */
const MAX_SHOWN = 48;

/** Cuts what is too long for a table. */
export function cut(text: string): string {
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN - 3)}...` : text;
}

/** Lays rows out under headings, with two spaces between columns. */
export function table(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  alignRight: readonly boolean[] = [],
): string {
  const widths = headings.map((heading, i) => Math.max(heading.length, ...rows.map((row) => row[i]?.length ?? 0)));
  const row = (values: readonly string[]) =>
    values
      .map((value, i) => (alignRight[i] === true ? value.padStart(widths[i] ?? 0) : value.padEnd(widths[i] ?? 0)))
      .join("  ")
      .trimEnd();
  return [headings, ...rows].map(row).join("\n");
}

export interface Alert {
  readonly text: string;
  /** The devices' values that fulfil the condition, in words. */
  readonly check: (device: Device) => string | undefined;
}

const PERCENT_OF: Readonly<Record<string, (d: Device) => number | undefined>> = wordTable({
  memory: (d) => ratio(d.memoryUsedBytes ?? usedFromFree(d), d.memoryBytes),
  used: (d) => ratio(d.memoryUsedBytes ?? usedFromFree(d), d.memoryBytes),
  free: (d) => ratio(d.memoryFreeBytes, d.memoryBytes),
  power: (d) => ratio(d.powerWatts, d.powerLimitWatts),
  utilization: (d) => d.utilizationPercent,
});

function usedFromFree(d: Device): number | undefined {
  return d.memoryBytes === undefined || d.memoryFreeBytes === undefined ? undefined : d.memoryBytes - d.memoryFreeBytes;
}

function ratio(part: number | undefined, whole: number | undefined): number | undefined {
  return part === undefined || whole === undefined || whole === 0 ? undefined : (100 * part) / whole;
}

/**
 * Reads a condition such as `memory>90%`, `temperature>=80`, `free<2G`, `power>600`. A memory in percent is what is used.
 * @throws InvalidArgumentError saying what is accepted
 */
export function parseAlert(text: string): Alert {
  const accepted =
    "COLUMN, one of > >= < <=, and a number with % or a size suffix, such as memory>90% or temperature>=80";
  const match = /^\s*([a-z]+)\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?)\s*([KMGT%]?)\s*$/i.exec(text);
  if (match === null) throw new InvalidArgumentError("--alert", text, accepted);
  const [, columnText = "", operator = ">", amount = "0", suffix = ""] = match;
  const name = parseColumn(columnText, "--alert");
  const column = COLUMNS[name] as Column;
  const percent = suffix === "%";
  const isSize = ["memory", "used", "free"].includes(name);
  if ((percent && PERCENT_OF[name] === undefined) || (suffix !== "" && !percent && !isSize)) {
    throw new InvalidArgumentError("--alert", text, accepted);
  }
  const limit = suffix === "" || percent ? Number(amount) : parseSize(`${amount}${suffix}`, "--alert");
  const holds = (value: number) =>
    operator === ">"
      ? value > limit
      : operator === ">="
        ? value >= limit
        : operator === "<"
          ? value < limit
          : value <= limit;
  return {
    text,
    check: (device) => {
      const value = percent ? PERCENT_OF[name]?.(device) : column.value(device);
      if (typeof value !== "number" || !holds(value)) return undefined;
      const shown = percent ? `${value.toFixed(1)} %` : (column.show?.(value) ?? String(value));
      return `${device.id} (${device.name}): ${name} is ${shown}`;
    },
  };
}
