/**
 * Asks `nvidia-smi`, whatever state the GPUs are in: old drivers with fewer columns, sick GPUs (exit 14 and 15) without
 * losing the answers of the healthy ones, and one by one where a lost GPU keeps it from telling anything (exit 255).
 */
import { type Answer, ask } from "../ask-tool.ts";
import { line, linesOf, pciAddress, plain } from "../field-readers.ts";
import type { CommandRequest, CommandResult } from "../machine.ts";
import type { ProbeContext, ProbeWarning } from "../probe.ts";
import type { NvidiaReading } from "./nvidia-reading.ts";

/** Most GPUs of one host; an index above it is a misreading. */
export const MAX_GPUS = 128;
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
export const FORMAT = "--format=csv,noheader,nounits";

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

/**
 * Asks nvidia-smi for what not every GPU and driver has: only what a user can mend is a warning. Return values that mean
 * one sick GPU do not cost the answers of the others.
 */
export async function askSmi(
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

export function hasArg(start: string) {
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
export async function query(context: ProbeContext, warnings: ProbeWarning[]): Promise<Table | undefined> {
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
export async function linksSingly(
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
