/**
 * NVIDIA GPUs as `nvidia-smi` prints them. The query's columns are read by the names in the arguments, so that a recording
 * made with other columns is read as well. A driver too old for a column refuses the whole query: it is asked again with
 * fewer.
 */

import type { CommandRequest, CommandResult } from "../machine.ts";
import { defined } from "../pci.ts";
import type { ProbeContext, ProbeWarning } from "../probe.ts";
import { count, field, line, linesOf, mib, number, pciAddress, plain, unreadableRow } from "../text.ts";
import { type Answer, ask } from "../tool.ts";
import { isSuperchip, type NvidiaMig, type NvidiaReading, type NvidiaReadings, pairKey } from "./nvidia-reading.ts";

/** nvidia-smi's return value 2: a supplied argument or flag is invalid (its manual, "return value"). */
const INVALID_ARGUMENT = 2;
/** Return values that come with the answers of the healthy GPUs (same source), and what they mean. */
const SOFT_FAILURES: Readonly<Record<number, string>> = {
  14: "the infoROM of a GPU is corrupted",
  15: "a GPU has fallen off the bus or cannot be reached",
};
/** Exit 255: one lost GPU, and nothing is printed of the others. */
const LOST = /Unable to determine the device handle for (?:GPU)?\s*([0-9a-f:.]+?)[:.]?(?:\s|$)/i;
/** Most GPUs that are asked one by one where the bus does not say which there are. */
const MAX_ASKED_SINGLY = 16;
/** Cells of `topo -p2p r` (its legend). */
const PEER_CELLS: Readonly<Record<string, string>> = {
  CNS: "the chipset does not support it",
  GNS: "the GPU does not support it",
  TNS: "the topology does not support it",
  DR: "it is disabled by a registry key",
  NS: "it is not supported",
};
/** Most GPUs of one host; an index above it is a misreading. */
const MAX_GPUS = 128;
/** Most rows of one table that are read: a GPU or a process each. */
const MAX_ROWS = 1024;
/** Most processes that are kept of one host. */
const MAX_PROCESSES = 256;

const BASE_COLUMNS =
  "index,name,uuid,pci.bus_id,memory.total,memory.used,memory.free,driver_version,temperature.gpu,power.draw,utilization.gpu".split(
    ",",
  );
const ALL_COLUMNS = [
  ...BASE_COLUMNS,
  ..."compute_cap,power.limit,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,ecc.mode.current,ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,clocks_throttle_reasons.active,mig.mode.current".split(
    ",",
  ),
];
/** Asked in this order until one is understood: the fabric's state is known since driver 535. */
const QUERIES = [
  [...ALL_COLUMNS, "fabric.state", "fabric.status"],
  ALL_COLUMNS,
  [...BASE_COLUMNS, "compute_cap"],
  BASE_COLUMNS,
  ["index", "name", "uuid", "memory.total"],
];
const FORMAT = "--format=csv,noheader,nounits";

/** What replaces the whole table when there is nothing to tell. */
const MESSAGES: readonly (readonly [RegExp, string, string])[] = [
  [
    /No devices were found/i,
    "the NVIDIA driver is loaded but finds no device",
    "Look at dmesg for Xid and NVRM lines; a GPU may have fallen off the bus.",
  ],
  [
    /Driver\/library version mismatch/i,
    "the NVIDIA kernel module and NVML are of different versions",
    "Reload the kernel module or reboot after the driver's update.",
  ],
  [
    /couldn't communicate with the NVIDIA driver/i,
    "nvidia-smi cannot reach the NVIDIA driver",
    "Load the kernel module (modprobe nvidia) or install the driver.",
  ],
  [/Insufficient Permissions/i, "no permission to query the NVIDIA driver", "Give this user access to /dev/nvidia*."],
];

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

/**
 * Asks nvidia-smi for what not every GPU and driver has: only what a user can mend is a warning. Return values that mean
 * one sick GPU do not cost the answers of the others.
 */
async function askSmi(
  context: ProbeContext,
  request: CommandRequest,
  warnings: ProbeWarning[],
): Promise<Answer | undefined> {
  const result = await context.commands.run(request);
  if (result === undefined) return undefined;
  const soft = SOFT_FAILURES[result.exitCode ?? 0];
  const usable = soft !== undefined && !result.timedOut && result.stdout.trim() !== "";
  if (usable) warnings.push(softFailure(result, soft));
  const quiet: ProbeWarning[] = [];
  const answered = usable ? { ...result, exitCode: 0 } : result;
  const answer = await ask({ ...context, commands: { run: async () => answered } }, request, quiet);
  warnings.push(...quiet.filter((warning) => /deadline|1 MiB/.test(warning.message)));
  return answer;
}

/** One GPU is sick; the line that names it is part of what nvidia-smi prints. */
function softFailure({ exitCode, stdout, stderr }: CommandResult, soft: string): ProbeWarning {
  const named = /infoROM is corrupted at gpu ([0-9a-f:.]+\d)/i.exec(`${stdout}\n${stderr}`)?.[1];
  const address = pciAddress(named);
  return {
    source: "nvidia-smi",
    message: `nvidia-smi ended with exit code ${exitCode} (${soft}${address === undefined ? "" : `: ${address}`}); what it printed is used`,
    ...(exitCode === 14 && { hint: "Run NVIDIA's field diagnostics, or have the GPU serviced." }),
  };
}

function hasArg(start: string) {
  return (args: readonly string[]) => args.some((arg) => arg.startsWith(start));
}

/** Whether a table has a row that begins with an index. */
function hasRow(text: string): boolean {
  return linesOf(text).some((row) => /^\s*\d{1,9}\s*,/.test(row));
}

/** The table of all GPUs, and the addresses of those that could not be asked. */
interface Table extends Answer {
  readonly lost: readonly string[];
  /** Which GPUs were asked one by one, as `-i` names them; empty when one call told all. */
  readonly askedSingly: readonly string[];
}

/** Asks for all columns, then for those of old drivers. */
async function query(context: ProbeContext, warnings: ProbeWarning[]): Promise<Table | undefined> {
  for (const columns of QUERIES) {
    const request = {
      tool: "nvidia-smi",
      args: [`--query-gpu=${columns.join(",")}`, FORMAT],
      accepts: (args: readonly string[]) => hasArg("--query-gpu=")(args) && !args.includes("-i"),
    };
    const result = await context.commands.run(request);
    if (result === undefined) return undefined;
    const said = `${result.stdout}\n${result.stderr}`;
    const isLast = columns === QUERIES.at(-1);
    const refused = result.exitCode === INVALID_ARGUMENT || /is not a valid field to query/i.test(said);
    if (refused && !result.timedOut && !isLast) continue;
    const known = MESSAGES.find(([pattern]) => pattern.test(said));
    if (known !== undefined && (result.exitCode !== 0 || !hasRow(result.stdout))) {
      warnings.push({ source: "nvidia-smi", message: known[1], hint: known[2] });
      return undefined;
    }
    if (LOST.test(said) && !hasRow(result.stdout)) return askSingly(context, request.args, said, warnings);
    // One bad GPU makes the exit code 14 or 15 while the rows of the others are still printed.
    const usable = result.exitCode === 0 || hasRow(result.stdout);
    const answer = await ask(
      { ...context, commands: { run: async () => (usable && !result.timedOut ? { ...result, exitCode: 0 } : result) } },
      request,
      warnings,
    );
    if (answer === undefined) return undefined;
    let lost: readonly string[] = [];
    if (result.exitCode !== 0 && result.exitCode !== null) {
      const soft = SOFT_FAILURES[result.exitCode];
      warnings.push(
        soft !== undefined
          ? softFailure(result, soft)
          : {
              source: "nvidia-smi",
              message: `nvidia-smi ended with exit code ${result.exitCode}; what it printed is used`,
            },
      );
      lost = await missingRows(context, answer.stdout);
      warnings.push(...lost.map(lostWarning));
    }
    return { ...answer, lost, askedSingly: [] };
  }
  return undefined;
}

/** The addresses of NVIDIA's GPUs on the bus, in order. */
async function onBus(context: ProbeContext): Promise<string[]> {
  const gpus = [...(await context.pci()).values()].filter(
    (f) => f.vendor === 0x10de && [0x0300, 0x0302].includes(f.classCode >> 8) && f.driver !== "vfio-pci",
  );
  return gpus.map((f) => f.address);
}

/** GPUs on the bus that the table has no row of, where the table says all addresses. */
async function missingRows(context: ProbeContext, stdout: string): Promise<string[]> {
  const told = linesOf(stdout).flatMap((row) => row.split(",").flatMap((cell) => pciAddress(cell) ?? []));
  if (told.length === 0) return [];
  return (await onBus(context)).filter((address) => !told.includes(address));
}

function lostWarning(address: string): ProbeWarning {
  return {
    source: "nvidia-smi",
    message: `GPU ${address} is lost: the driver cannot reach it`,
    hint: "It has probably fallen off the bus (look for Xid 79 in dmesg): drain the host and reboot it; reseat or replace the card if it comes back.",
  };
}

/** Asks GPU by GPU, since one that is lost keeps nvidia-smi from telling anything of the others. */
async function askSingly(
  context: ProbeContext,
  args: readonly string[],
  said: string,
  warnings: ProbeWarning[],
): Promise<Table | undefined> {
  const addresses = await onBus(context);
  const targets =
    addresses.length > 0 ? addresses : Array.from({ length: MAX_ASKED_SINGLY }, (_, index) => String(index));
  const answers = await Promise.all(
    targets.slice(0, MAX_GPUS).map(async (target) => ({
      target,
      result: await context.commands.run({
        tool: "nvidia-smi",
        args: [...args, "-i", target],
        accepts: (given) => hasArg("--query-gpu=")(given) && isTarget(given, target),
      }),
    })),
  );
  const good = answers.flatMap(({ target, result }) =>
    result !== undefined && !result.timedOut && hasRow(result.stdout) ? [{ target, result }] : [],
  );
  const lost = new Set<string>();
  for (const text of [said, ...answers.map(({ result }) => `${result?.stdout ?? ""}\n${result?.stderr ?? ""}`)]) {
    const address = pciAddress(LOST.exec(text)?.[1]);
    if (address !== undefined) lost.add(address);
  }
  warnings.push(...[...lost].sort().map(lostWarning));
  if (lost.size === 0) warnings.push({ source: "nvidia-smi", message: line(said).slice(0, 160) });
  const [first] = good;
  if (first === undefined) return undefined;
  return {
    argv: first.result.argv,
    stdout: plain(good.map(({ result }) => result.stdout.replace(/\n?$/, "\n")).join("")),
    lost: [...lost],
    askedSingly: good.map(({ target }) => target),
  };
}

/** Whether a recorded call asks for this GPU: by index, or by an address in any of nvidia-smi's forms. */
function isTarget(args: readonly string[], target: string): boolean {
  const given = args[args.indexOf("-i") + 1];
  if (!args.includes("-i") || given === undefined) return false;
  return given === target || (pciAddress(given) !== undefined && pciAddress(given) === pciAddress(target));
}

/** NVLinks GPU by GPU, where the call for all failed because of a lost one. */
async function linksSingly(
  context: ProbeContext,
  gpus: readonly NvidiaReading[],
  { askedSingly }: Table,
  warnings: ProbeWarning[],
): Promise<string> {
  if (gpus.length === 0) return "";
  const answers = await Promise.all(
    askedSingly.map((target) =>
      askSmi(
        context,
        {
          tool: "nvidia-smi",
          args: ["nvlink", "-s", "-i", target],
          accepts: (args) => args[0] === "nvlink" && args.includes("-s") && isTarget(args, target),
        },
        warnings,
      ),
    ),
  );
  return answers.map((answer) => answer?.stdout ?? "").join("\n");
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
      return [
        {
          gpu,
          pid,
          ...defined({
            name: get("process_name") ?? get("name"),
            usedBytes: mib(get("used_gpu_memory") ?? get("used_memory")),
          }),
        },
      ];
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
