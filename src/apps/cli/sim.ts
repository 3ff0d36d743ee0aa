/** `chorale sim`: times plans on a machine that need not be here, with nccl-tests' columns. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Command, Option } from "commander";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import {
  type Curve,
  crossovers,
  describeCriticalPath,
  explainStuck,
  type Fault,
  ncclEstimate,
  ncclMachineOf,
  parseFault,
  placeRanks,
  SimulatedMachine,
  type SimulateOptions,
  type Simulation,
  type SystemParameters,
  simulate,
  toChakra,
  toTrace,
} from "../../authoring/simulator/index.ts";
import { OPERATION_NAMES, type OperationName } from "../../collectives/index.ts";
import { DTYPES, formatSize, InvalidArgumentError, parseDType, parseSize, printableLine } from "../../core/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { sizeRange } from "../bench/index.ts";
import { collect, factor } from "./option-readers.ts";
import { print, printJson } from "./output.ts";
import { parseProgramArgs } from "./program-args.ts";
import { loadPlan } from "./program-file.ts";
import { loadParameters, loadTopology } from "./sim-input.ts";

interface Flags {
  readonly topology: string;
  readonly min: string;
  readonly max: string;
  readonly factor: number;
  readonly dtype: string;
  readonly arg: readonly string[];
  readonly fault: readonly string[];
  readonly devices?: string;
  readonly params?: string;
  /** The same by its former name. */
  readonly parameters?: string;
  readonly switch?: boolean;
  readonly nccl?: boolean;
  readonly trace?: string;
  readonly chakra?: string;
  readonly json?: boolean;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument("<file...>", "programs (.ts, .js) and plans (chorale's or MSCCL++'s .json); several are compared")
    .requiredOption(
      "--topology <what>",
      "preset, N x PRESET, inventory file, recorded root, or ASTRA-sim network (.yml)",
    )
    .option("-b, --min <size>", "first size: the larger of a rank's two buffers", "1K")
    .option("-e, --max <size>", "last size", "256M")
    .option("-f, --factor <f>", "each size is this times the one before", factor, 4)
    .option("--dtype <dtype>", "element type of the columns", "f32")
    .option("--arg <name=value>", "argument of the program; may be repeated", collect, [])
    .option("--devices <ids>", "device of each rank, comma-separated; the accelerators in order unless given")
    .option("--params <what>", "what things cost: a system's name, or a file that `chorale tune --fit` wrote")
    .addOption(new Option("--parameters <what>").hideHelp())
    .option("--switch", "the fabric multicasts and reduces in its switches")
    .option("--nccl", "add what NCCL's own model expects of NCCL")
    .option(
      "--fault <what>",
      "slow:LINK:FACTOR (what is left, 0 to 1), dead:RANK@OP or nic:NODE; may be repeated",
      collect,
      [],
    )
    .option("--trace <file>", "write the last size's run as a trace for Perfetto")
    .option("--chakra <folder>", "write the last size's run as Chakra execution traces, one file a rank")
    .option("--json", "print one JSON document")
    .action(async (files: string[], flags: Flags) => exit(await run(files, flags)));
}

const round = (value: number, digits: number) => Number(value.toFixed(digits));

function row(result: Simulation) {
  return {
    sizeBytes: result.sizeBytes,
    timeUs: round(result.timeUs, 4),
    algbwGBps: round(result.algbwGBps, 4),
    busbwGBps: round(result.busbwGBps, 4),
    completed: result.completed,
  };
}

function printTable(plan: ExecutionPlan, results: readonly Simulation[], dtype: keyof typeof DTYPES): string {
  const { operation, reduceOp, root } = plan.collective;
  const redop = /reduce/.test(operation) ? (reduceOp ?? "sum") : "none";
  const lines = [
    "#       size         count    type   redop    root     time   algbw   busbw",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)",
  ];
  for (const { sizeBytes, timeUs, algbwGBps, busbwGBps, completed } of results) {
    const count = Math.floor(sizeBytes / DTYPES[dtype].sizeBytes);
    lines.push(
      `${String(sizeBytes).padStart(12)}  ${String(count).padStart(12)}  ${dtype.padStart(6)}  ${redop.padStart(6)}  ${String(root ?? -1).padStart(6)}  ` +
        (completed
          ? `${timeUs.toFixed(2).padStart(7)}  ${algbwGBps.toFixed(2).padStart(6)}  ${busbwGBps.toFixed(2).padStart(6)}`
          : "  never"),
    );
  }
  return lines.join("\n");
}

async function run(files: readonly string[], flags: Flags): Promise<number> {
  const dtype = parseDType(flags.dtype, "--dtype");
  const list = sizeRange(parseSize(flags.min, "-b"), parseSize(flags.max, "-e"), flags.factor);
  const faults: Fault[] = flags.fault.map(parseFault);
  const inventory = await loadTopology(flags.topology);
  const parameters = await loadParameters(flags.params ?? flags.parameters, flags.topology, inventory);
  const args = parseProgramArgs(flags.arg);
  const runs: { file: string; plan: ExecutionPlan; results: Simulation[] }[] = [];
  for (const file of files) {
    const plan = await loadPlan(file, args, { verify: false });
    const devices = placeRanks(plan.ranks.length, inventory, flags.devices?.split(","));
    const machine = new SimulatedMachine(inventory, devices, parameters);
    const options = (sizeBytes: number): SimulateOptions => ({
      inventory,
      sizeBytes,
      parameters,
      switchOps: flags.switch === true,
      faults,
      devices,
      machine,
    });
    runs.push({ file, plan, results: list.map((sizeBytes) => simulate(plan, options(sizeBytes))) });
  }
  const curves: Curve[] = runs.map(({ file, results }) => ({ name: file, points: results }));
  const nccl =
    flags.nccl === true ? ncclCurve(runs[0]!.plan, inventory, list, parameters, flags.switch === true) : undefined;
  if (nccl !== undefined) curves.push(nccl);
  const changes = curves.length > 1 ? crossovers(curves) : [];
  await writeFiles(runs, flags);
  if (flags.json === true) {
    const documents = runs.map(({ file, plan, results }) => {
      const last = results.at(-1)!;
      return {
        file,
        rows: results.map(row),
        links: last.links.slice(0, 64).map((use) => ({ ...use, utilization: round(use.utilization, 4) })),
        criticalPath: describeCriticalPath(plan, last),
        ...(last.completed ? {} : { stuck: last.stuck }),
      };
    });
    const shared = {
      topology: flags.topology,
      parameters: parameters.name,
      uncertainty: parameters.uncertainty,
      ...(nccl === undefined ? {} : { nccl: nccl.points.map((p) => ({ ...p, timeUs: round(p.timeUs, 4) })) }),
    };
    const document =
      runs.length === 1 ? { ...documents[0], ...shared } : { results: documents, crossovers: changes, ...shared };
    printJson(document);
  } else print(render(runs, curves, changes, parameters, nccl, dtype));
  return runs.every(({ results }) => results.every((result) => result.completed)) ? 0 : 1;
}

function ncclCurve(
  plan: ExecutionPlan,
  inventory: Inventory,
  list: readonly number[],
  parameters: SystemParameters,
  switchOps: boolean,
): Curve {
  const { operation, numRanks } = plan.collective;
  if (!(OPERATION_NAMES as readonly string[]).includes(operation))
    throw new InvalidArgumentError("--nccl", operation, "an operation that NCCL's model covers");
  const machine = ncclMachineOf(inventory, numRanks, parameters, switchOps);
  return {
    name: "NCCL's model",
    points: list.map((sizeBytes) => ({
      sizeBytes,
      timeUs: ncclEstimate(operation as OperationName, sizeBytes, machine).timeUs,
    })),
  };
}

async function writeFiles(
  runs: readonly { plan: ExecutionPlan; results: readonly Simulation[] }[],
  flags: Flags,
): Promise<void> {
  const { plan, results } = runs[0]!;
  const last = results.at(-1)!;
  if (flags.trace !== undefined) await writeFile(flags.trace, JSON.stringify(toTrace(plan, last)));
  if (flags.chakra === undefined) return;
  await mkdir(flags.chakra, { recursive: true });
  for (const [rank, bytes] of toChakra(plan, last).entries())
    await writeFile(join(flags.chakra, `trace.${rank}.et`), bytes);
}

function render(
  runs: readonly { file: string; plan: ExecutionPlan; results: readonly Simulation[] }[],
  curves: readonly Curve[],
  changes: ReturnType<typeof crossovers>,
  parameters: SystemParameters,
  nccl: Curve | undefined,
  dtype: keyof typeof DTYPES,
): string {
  const out: string[] = [
    `# costs: ${parameters.name} (${parameters.source}); expect +-${Math.round(100 * parameters.uncertainty)} %`,
  ];
  for (const { file, plan, results } of runs) {
    const last = results.at(-1)!;
    out.push(
      `# ${file}: ${printableLine(plan.name ?? "plan")}, ${plan.ranks.length} ranks`,
      printTable(plan, results, dtype),
    );
    const stuck = explainStuck(last);
    if (stuck !== undefined) out.push(`# it does not end:\n${stuck}`);
    out.push(`# at ${formatSize(last.sizeBytes)}: ${describeCriticalPath(plan, last)}`);
    for (const use of last.links.slice(0, 8))
      out.push(`#   ${use.link}: ${(100 * use.utilization).toFixed(1)} % used, ${formatSize(Math.round(use.bytes))}`);
  }
  if (nccl !== undefined) {
    out.push("# NCCL's model:");
    for (const point of nccl.points)
      out.push(`${String(point.sizeBytes).padStart(12)}  ${point.timeUs.toFixed(2).padStart(10)} us`);
  }
  if (curves.length > 1) {
    out.push(
      ...(changes.length === 0
        ? ["# one is fastest at all sizes"]
        : changes.map((c) => `# below ${formatSize(c.sizeBytes)} ${c.below} is faster, above it ${c.above}`)),
    );
  }
  return `${out.join("\n")}\n`;
}
