/**
 * NVIDIA GPUs as `nvidia-smi` prints them. The query's columns are read by the names in the arguments, so that a recording
 * made with other columns is read as well. A driver too old for a column refuses the whole query: it is asked again with
 * fewer.
 */

import { wordTable } from "../../../core/index.ts";
import { type Answer, ask } from "../ask-tool.ts";
import { count, field, line, linesOf, mib, number, pciAddress, unreadableRow } from "../field-readers.ts";
import type { CommandRequest } from "../machine.ts";
import { defined } from "../pci.ts";
import type { ProbeContext, ProbeWarning } from "../probe.ts";
import {
  isSuperchip,
  type NvidiaMig,
  type NvidiaReading,
  type NvidiaReadings,
  PRODUCT_WITHOUT_PEERS,
  pairKey,
} from "./nvidia-reading.ts";
import { askSmi, FORMAT, hasArg, linksSingly, MAX_GPUS, query } from "./nvidia-smi-query.ts";

/** Cells of `topo -p2p r` (its legend). */
const PEER_CELLS: Readonly<Record<string, string>> = wordTable({
  CNS: "the chipset does not support it",
  GNS: PRODUCT_WITHOUT_PEERS,
  TNS: "the topology does not support it",
  DR: "it is disabled by a registry key",
  NS: "it is not supported",
});
/** Most rows of one table that are read: a GPU or a process each. */
const MAX_ROWS = 1024;
/** Most processes that are kept of one host. */
const MAX_PROCESSES = 256;

/** Runs nvidia-smi's queries side by side. Undefined when there is no usable answer. */
export async function readNvidiaSmi(
  context: ProbeContext,
  warnings: ProbeWarning[],
): Promise<NvidiaReadings | undefined> {
  const smi = (args: readonly string[], accepts?: CommandRequest["accepts"]) =>
    askSmi(context, { tool: "nvidia-smi", args, ...(accepts !== undefined && { accepts }) }, warnings);
  const isLinks = (args: readonly string[]) =>
    args[0] === "nvlink" && (args.includes("-s") || args.includes("--status")) && !args.includes("-i");
  const isTopo = (flags: readonly string[]) => (args: readonly string[]) =>
    args[0] === "topo" && args.some((arg) => flags.includes(arg));
  const [table, apps, links, topo, peers, header] = await Promise.all([
    query(context, warnings),
    smi(["--query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory", FORMAT], hasArg("--query-compute-apps")),
    smi(["nvlink", "-s"], isLinks),
    smi(["topo", "-m"], isTopo(["-m", "--matrix"])),
    smi(["topo", "-p2p", "r"], isTopo(["-p2p"])),
    smi([]),
  ]);
  if (table === undefined) return undefined;
  const { gpus, driverVersion } = parseQuery(table, warnings);
  const states = parseLinks(links?.stdout ?? (await linksSingly(context, gpus, table, warnings)));
  const processes = parseApps(apps, warnings);
  const migs = gpus.some((gpu) => gpu.migEnabled === true)
    ? await readMig(context, warnings)
    : new Map<number, NvidiaMig[]>();
  const c2c = gpus.some((gpu) => isSuperchip(gpu.name))
    ? parseC2c((await smi(["c2c", "-s"], (args) => args[0] === "c2c"))?.stdout ?? "")
    : new Map<number, NonNullable<NvidiaReading["c2c"]>>();
  const cudaVersion = /CUDA Version:\s*([\d.]+)/.exec(header?.stdout ?? "")?.[1];
  return {
    ...defined({ driverVersion, cudaVersion }),
    ...(table.lost.length > 0 && { lost: table.lost }),
    matrix: parseMatrix(topo?.stdout ?? ""),
    nics: parseNics(topo?.stdout ?? ""),
    peerDenied: parsePeers(peers?.stdout ?? ""),
    gpus: gpus.map((gpu) => ({
      ...gpu,
      ...defined({
        links: states.get(gpu.index),
        c2c: c2c.get(gpu.index),
        mig: migs.get(gpu.index),
        processes:
          apps === undefined
            ? undefined
            : processes.filter((p) => p.gpu === gpu.uuid).map(({ gpu: _, ...rest }) => rest),
      }),
    })),
  };
}

/** Reads the rows of `--query-gpu`. */
function parseQuery(answer: Answer, warnings: ProbeWarning[]): { gpus: NvidiaReading[]; driverVersion?: string } {
  const columns = (answer.argv.find((arg) => arg.startsWith("--query-gpu=")) ?? "")
    .slice("--query-gpu=".length)
    .split(",");
  const gpus: NvidiaReading[] = [];
  let driverVersion: string | undefined;
  for (const row of linesOf(answer.stdout)
    .filter((text) => text.trim() !== "")
    .slice(0, MAX_ROWS)) {
    // What nvidia-smi says of a sick GPU stands among the rows.
    if (/^\s*warning:/i.test(row)) continue;
    const cells = row.split(",");
    const get = (column: string) => {
      const at = columns.indexOf(column);
      return at < 0 ? undefined : field(cells[at]);
    };
    if (columns.includes("index") && row.trim().toLowerCase().startsWith("index")) continue;
    const index = columns.includes("index") ? count(get("index")) : gpus.length;
    if (
      index === undefined ||
      index >= MAX_GPUS ||
      cells.length !== columns.length ||
      gpus.some((g) => g.index === index)
    ) {
      if (warnings.length < 32) warnings.push(unreadableRow("nvidia-smi", row));
      continue;
    }
    driverVersion ??= get("driver_version");
    const ecc = get("ecc.mode.current");
    const mig = get("mig.mode.current");
    gpus.push({
      index,
      ...defined({
        name: get("name") ?? get("gpu_name"),
        uuid: get("uuid") ?? get("gpu_uuid"),
        pciAddress: pciAddress(get("pci.bus_id") ?? get("gpu_bus_id")),
        memoryTotalBytes: mib(get("memory.total")),
        memoryUsedBytes: mib(get("memory.used")),
        memoryFreeBytes: mib(get("memory.free")),
        computeCapability: /^\d{1,2}\.\d$/.exec(get("compute_cap") ?? "")?.[0],
        temperatureC: number(get("temperature.gpu")),
        powerWatts: number(get("power.draw")),
        powerLimitWatts: number(get("power.limit")),
        utilizationPercent: number(get("utilization.gpu")),
        pcieGeneration: count(get("pcie.link.gen.current")),
        pcieMaxGeneration: count(get("pcie.link.gen.max")),
        pcieWidth: count(get("pcie.link.width.current")),
        pcieMaxWidth: count(get("pcie.link.width.max")),
        eccEnabled: ecc === undefined ? undefined : /^enabled$/i.test(ecc),
        eccCorrected: count(get("ecc.errors.corrected.volatile.total")),
        eccUncorrected: count(get("ecc.errors.uncorrected.volatile.total")),
        smClockMHz: count(get("clocks.sm") ?? get("clocks.current.sm")),
        memoryClockMHz: count(get("clocks.mem") ?? get("clocks.current.memory")),
        maxSmClockMHz: count(get("clocks.max.sm")),
        maxMemoryClockMHz: count(get("clocks.max.mem") ?? get("clocks.max.memory")),
        throttleReasons: get("clocks_throttle_reasons.active") ?? get("clocks_event_reasons.active"),
        migEnabled: mig === undefined ? undefined : /^enabled$/i.test(mig),
        fabricState: get("fabric.state"),
        fabricStatus: get("fabric.status"),
      }),
    });
  }
  if (gpus.length === 0 && warnings.length === 0) {
    warnings.push({ source: "nvidia-smi", message: "nvidia-smi printed no row that can be read" });
  }
  return { gpus, ...defined({ driverVersion }) };
}

/** Reads `nvlink -s`: active links, inactive links and the rate of one, per GPU. */
function parseLinks(text: string): Map<number, NonNullable<NvidiaReading["links"]>> {
  const found = new Map<number, { active: number; inactive: number; linkGBps?: number }>();
  let current: { active: number; inactive: number; linkGBps?: number } | undefined;
  for (const row of linesOf(text)) {
    const gpu = /^GPU (\d{1,3}):/.exec(row);
    if (gpu !== null) {
      current = { active: 0, inactive: 0 };
      found.set(Number(gpu[1]), current);
      continue;
    }
    const state = /^\s*Link (\d{1,2}): (.*)$/.exec(row);
    if (state === null || current === undefined) continue;
    const rate = number(state[2]);
    if (rate !== undefined && rate > 0) {
      current.active++;
      current.linkGBps ??= rate;
    } else current.inactive++;
  }
  return found;
}

/** The cells of `topo -m`: a row's GPU, the column's name, and what stands there. */
function topoCells(text: string): { gpu: number; column: string; value: string }[] {
  const rows = linesOf(text);
  const header = rows.find((row) => /^GPU\d/.test(row.trimStart()) && !/\bX\b/.test(row));
  const columns = (header ?? "").trim().split(/\s+/).slice(0, MAX_ROWS);
  return rows.flatMap((row) => {
    const match = row === header ? null : /^\s*GPU(\d{1,3})\s+(\S.*)$/.exec(row);
    if (match === null) return [];
    const values = (match[2] ?? "").trim().split(/\s+/);
    return columns.flatMap((column, i) => {
      const value = values[i];
      return value === undefined ? [] : [{ gpu: Number(match[1]), column, value: value === "SOC" ? "SYS" : value }];
    });
  });
}

/** Reads the cells between GPUs of `topo -m`. */
function parseMatrix(text: string): Map<string, string> {
  const cells = new Map<string, string>();
  for (const { gpu, column, value } of topoCells(text)) {
    const other = /^GPU(\d{1,3})$/.exec(column);
    if (other !== null && /^(NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|PIXB)$/.test(value))
      cells.set(pairKey(gpu, Number(other[1])), value);
  }
  return cells;
}

/** Reads `topo -p2p r`: the pairs whose peer reads the driver refuses, and why. */
function parsePeers(text: string): Map<string, string> {
  const denied = new Map<string, string>();
  for (const { gpu, column, value } of topoCells(text)) {
    const other = /^GPU(\d{1,3})$/.exec(column);
    const why = PEER_CELLS[value];
    if (other !== null && why !== undefined && Number(other[1]) !== gpu)
      denied.set(pairKey(gpu, Number(other[1])), why);
  }
  return denied;
}

/** Reads `c2c -s`: the links between a superchip's GPU and its CPU, in the form of `nvlink -s`. */
function parseC2c(text: string): Map<number, NonNullable<NvidiaReading["c2c"]>> {
  const links = parseLinks(text.replaceAll(/C2C Link/g, "Link"));
  return new Map(
    [...links].flatMap(([gpu, { active, linkGBps }]) =>
      active > 0 ? [[gpu, { count: active, ...defined({ linkGBps }) }] as const] : [],
    ),
  );
}

/** The NICs of `topo -m` by their real names, and how each GPU reaches them. */
function parseNics(text: string): { gpu: number; nic: string; relation: string }[] {
  const legend = new Map(
    linesOf(text).flatMap((row) => {
      const match = /^\s{0,8}(NIC\d{1,3}): (\S{1,64})\s*$/.exec(row);
      return match === null ? [] : [[match[1] ?? "", match[2] ?? ""] as const];
    }),
  );
  return topoCells(text)
    .filter(({ column }) => /^(NIC\d|mlx\d|hfi\d|bnxt_re|irdma|rocep|ibp)/.test(column))
    .filter(({ value }) => /^(PIX|PXB|PHB|NODE|SYS)$/.test(value))
    .map(({ gpu, column, value }) => ({ gpu, nic: line(legend.get(column) ?? column), relation: value }));
}

function parseApps(
  answer: Answer | undefined,
  warnings: ProbeWarning[],
): { gpu: string; pid: number; name?: string; usedBytes?: number }[] {
  const columns = (answer?.argv.find((arg) => arg.startsWith("--query-compute-apps=")) ?? "").slice(21).split(",");
  return linesOf(answer?.stdout ?? "")
    .filter((row) => row.trim() !== "" && !/^\s*warning:/i.test(row))
    .slice(0, MAX_PROCESSES)
    .flatMap((row) => {
      const cells = row.split(",");
      if (cells.length !== columns.length) {
        warnings.push(unreadableRow("nvidia-smi", row));
        return [];
      }
      const get = (column: string) => field(cells[columns.indexOf(column)]);
      const [gpu, pid] = [get("gpu_uuid"), count(get("pid"))];
      if (gpu === undefined || pid === undefined) return [];
      return {
        gpu,
        pid,
        ...defined({
          name: get("process_name") ?? get("name"),
          usedBytes: mib(get("used_gpu_memory") ?? get("used_memory")),
        }),
      };
    });
}

/** MIG instances: names and UUIDs from `-L`, memory from the XML of `-q -x`. */
async function readMig(context: ProbeContext, warnings: ProbeWarning[]): Promise<Map<number, NvidiaMig[]>> {
  const [list, xml] = await Promise.all([
    ask(context, { tool: "nvidia-smi", args: ["-L"], accepts: (args) => args[0] === "--list-gpus" }, warnings),
    ask(
      context,
      {
        tool: "nvidia-smi",
        args: ["-q", "-x"],
        accepts: (args) => args.includes("-x") || args.includes("--xml-format"),
      },
      [],
    ),
  ]);
  const memoryByKey = parseMigMemory(xml?.stdout ?? "");
  const found = new Map<number, NvidiaMig[]>();
  let gpu = -1;
  for (const row of linesOf(list?.stdout ?? "")) {
    const parent = /^GPU (\d{1,3}):/.exec(row);
    if (parent !== null) gpu = Number(parent[1]);
    const match = /^\s+MIG (\S+)\s+Device\s+(\d{1,2}): \(UUID: (MIG-[^)]+)\)/.exec(row);
    if (match === null || gpu < 0) continue;
    const index = Number(match[2]);
    const instances = found.get(gpu) ?? [];
    instances.push({
      index,
      name: line(`MIG ${match[1]}`),
      uuid: line(match[3] ?? ""),
      ...memoryByKey.get(`${gpu}/${index}`),
    });
    found.set(gpu, instances);
  }
  return found;
}

/** Memory of MIG devices by `gpu/index`, from the XML; only tags that hold plain text are looked at. */
function parseMigMemory(
  xml: string,
): Map<string, Pick<NvidiaMig, "memoryTotalBytes" | "memoryUsedBytes" | "memoryFreeBytes">> {
  const found = new Map<string, Pick<NvidiaMig, "memoryTotalBytes" | "memoryUsedBytes" | "memoryFreeBytes">>();
  for (const [gpu, block] of xml
    .split(/<gpu id=/)
    .slice(1)
    .entries()) {
    for (const part of block.split("<mig_device>").slice(1)) {
      const device = part.split("</mig_device>")[0] ?? "";
      const tag = (name: string, within: string) => new RegExp(`<${name}>([^<]{0,64})</${name}>`).exec(within)?.[1];
      const index = count(tag("index", device));
      const usage = device.split("<fb_memory_usage>")[1]?.split("</fb_memory_usage>")[0] ?? "";
      if (index === undefined) continue;
      found.set(
        `${gpu}/${index}`,
        defined({
          memoryTotalBytes: mib(tag("total", usage)),
          memoryUsedBytes: mib(tag("used", usage)),
          memoryFreeBytes: mib(tag("free", usage)),
        }),
      );
    }
  }
  return found;
}
