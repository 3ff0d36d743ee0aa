/** `chorale sim`: times plans on a machine that need not be here, with nccl-tests' columns. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Command, Option } from "commander";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import {
  type Crossover,
  type Curve,
  collectiveMachineOf,
  crossovers,
  describeCriticalPath,
  explainStuck,
  type Fault,
  parseFault,
  placeRanks,
  SimulatedMachine,
  type SimulateOptions,
  type Simulation,
  type SystemParameters,
  sideBySide,
  simulate,
  simulatedDevices,
  toChakra,
  toTrace,
} from "../../authoring/simulator/index.ts";
import { DTYPES, formatSize, InvalidArgumentError, parseDType, printableLine } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { collect, deviceIds, factor, refuseGiven } from "./option-readers.ts";
import { print, printJson } from "./output.ts";
import { parseProgramArgs } from "./program-args.ts";
import { CPU_TOPOLOGY, simulateHere } from "./sim-cpu.ts";
import { loadParameters, loadTopology } from "./sim-input.ts";
import {
  DEFAULT_SIZES,
  type LibraryCurve,
  type LibraryFlags,
  type LibraryRow,
  libraryCurve,
  printLibrary,
  requireSwitch,
  timedOperation,
} from "./sim-library.ts";
import { type Comparison, compareWithMeasured, printComparison, readMeasured } from "./sim-measured.ts";
import { type Optimum, optimumOf, renderOptimum } from "./sim-optimum.ts";
import { loadVariants, type PlanVariant } from "./sim-variants.ts";
import { elementSizesOf, type SizeFlags } from "./size-options.ts";
import { makeOutputFolder, writeOutput } from "./write-output.ts";

interface Flags extends LibraryFlags, SizeFlags {
  readonly topology: string;
  readonly op?: string;
  readonly ranks?: number;
  readonly measured?: string;
  readonly dtype: string;
  readonly arg?: readonly string[];
  readonly fault?: readonly string[];
  readonly devices?: string;
  readonly params?: string;
  /** The same by its former name. */
  readonly parameters?: string;
  readonly nccl?: boolean;
  readonly trace?: string;
  readonly chakra?: string;
  readonly json?: boolean;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument(
      "[file...]",
      "programs (.ts, .js) and plans (chorale's or MSCCL++'s .json); several, or one list with commas, are compared side by side",
    )
    .requiredOption(
      "--topology <what>",
      "preset, N x PRESET, inventory file, recorded root, ASTRA-sim network (.yml), or cpu: threads of this machine",
    )
    .option(
      "-b, --min <size>",
      "first size: the larger of a rank's two buffers (default: 1K); sizes are rounded down to whole elements",
    )
    .option("-e, --max <size>", "last size (default: 256M)")
    .option("-f, --factor <f>", "each size is this times the one before", factor, 4)
    .option("--dtype <dtype>", "element type of the columns", "f32")
    .option("--arg <name=value>", "argument of the program; may be repeated", collect)
    .option("--devices <ids>", "device of each rank, comma-separated (default: the accelerators in order)")
    .option("--params <what>", "what things cost: a system's name, or a file that `chorale tune --fit` wrote")
    .addOption(new Option("--parameters <what>").hideHelp())
    .option("--switch", "the fabric multicasts and reduces in its switches")
    .option("--nccl", "add what the vendor's library takes: NCCL, RCCL, HCCL, Neuron or XLA; with --op, without a file")
    .option("--op <operation>", "operation of --nccl where no file is given, such as all_reduce or sendrecv")
    .option("--ranks <n>", "ranks of --op (default: every device of the topology)", ranks)
    .option("--processes <what>", "rank: one process a rank (default), host: one a host, or the ranks of a process")
    .option("--blocking", "the host waits for every call of the library")
    .option("--nvls <on|off>", "the library may reduce in the switches; on with --switch")
    .option("--p2p <on|off>", "devices reach each other over PCIe (default on); off: through host memory")
    .option("--algorithm <name>", "only this algorithm of NCCL: ring, tree, nvls, nvlstree, pat or p2p")
    .option("--protocol <name>", "only this protocol of NCCL: LL, LL128 or Simple")
    .option(
      "--nccl-version <version>",
      "what this version of NCCL may choose, such as 2.18.3 (default: 2.30; later ones are timed as it is)",
    )
    .option("--measured <file>", "set the output of nccl-tests beside the simulated times; its sizes are taken")
    .option(
      "--fault <what>",
      "slow:LINK:FACTOR (what is left, 0 to 1), dead:RANK@OP or nic:NODE; may be repeated",
      collect,
    )
    .option("--trace <file>", "write the last size's run as a trace for Perfetto")
    .option("--chakra <folder>", "write the last size's run as Chakra execution traces, one file a rank")
    .option("--json", "print one JSON document")
    .action(async (files: string[], flags: Flags) => exit(await run(files.flatMap(listed), flags)));
}

/** `a,b,c`, unless a file is called so. */
const listed = (file: string) => (existsSync(file) ? [file] : file.split(",").filter((name) => name !== ""));

function ranks(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 2 || value > 65_536)
    throw new InvalidArgumentError("--ranks", text, "an integer, 2 to 65536");
  return value;
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

interface PlanRun {
  readonly file: string;
  /** Of the last size, where `sim` chose among several. */
  readonly plan: ExecutionPlan;
  /** Of each size, the variant that `sim` chose. */
  readonly chosen: readonly Pick<PlanVariant, "chosen" | "form">[];
  readonly results: readonly Simulation[];
  readonly optimum?: Optimum | undefined;
}

const rounded = (row: LibraryRow) => ({
  ...row,
  timeUs: round(row.timeUs, 4),
  algbwGBps: round(row.algbwGBps, 4),
  busbwGBps: round(row.busbwGBps, 4),
  lowUs: round(row.lowUs, 4),
  highUs: round(row.highUs, 4),
});

/** Options that would be ignored are refused. */
function checkMode(files: readonly string[], flags: Flags): void {
  const { nvls, p2p, processes, blocking, algorithm, protocol, ncclVersion } = flags;
  if (flags.nccl !== true)
    refuseGiven(
      {
        ...{ "--nvls": nvls, "--p2p": p2p, "--processes": processes, "--blocking": blocking },
        ...{ "--algorithm": algorithm, "--protocol": protocol, "--nccl-version": ncclVersion },
      },
      "--nccl",
    );
  if (files.length > 0) return;
  const { arg, fault, trace, chakra } = flags;
  refuseGiven({ "--arg": arg, "--fault": fault, "--trace": trace, "--chakra": chakra }, "a program or a plan");
}

async function run(files: readonly string[], flags: Flags): Promise<number> {
  if (files.length === 0 && (flags.nccl !== true || flags.op === undefined))
    throw new InvalidArgumentError(
      "file",
      described("not given"),
      "programs or plans; or, for the library alone, --nccl --op OPERATION",
    );
  if (files.length > 0 && (flags.op !== undefined || flags.ranks !== undefined))
    throw new InvalidArgumentError(
      "--op, --ranks",
      files.join(" "),
      "no file: a plan says its operation and ranks itself",
    );
  checkMode(files, flags);
  if (flags.topology === CPU_TOPOLOGY) return simulateHere(files, flags);
  const dtype = parseDType(flags.dtype, "--dtype");
  const measurement = flags.measured === undefined ? undefined : readMeasured(flags.measured);
  const measured = measurement?.points;
  const list = measured?.map(({ sizeBytes }) => sizeBytes) ?? elementSizesOf(flags, DEFAULT_SIZES, dtype);
  const faults: Fault[] = (flags.fault ?? []).map(parseFault);
  const inventory = await loadTopology(flags.topology);
  const parameters = await loadParameters(flags.params ?? flags.parameters, flags.topology, inventory);
  const args = parseProgramArgs(flags.arg ?? []);
  const runs: PlanRun[] = [];
  for (const file of files) {
    const placed = (numRanks: number) => placeRanks(numRanks, inventory, deviceIds(flags.devices));
    const { variants, machine } = await loadVariants(
      file,
      args,
      ({ ranks: { length } }) => new SimulatedMachine(inventory, placed(length), parameters),
      parameters,
    );
    const devices = placed(variants[0].plan.ranks.length);
    requireSwitch({ ...flags, nvls: "off" }, collectiveMachineOf(inventory, devices));
    const options = (sizeBytes: number): SimulateOptions => ({
      inventory,
      sizeBytes,
      parameters,
      switchOps: flags.switch === true,
      faults,
      devices,
      machine,
    });
    const fastest = list.map((sizeBytes) => fastestOf(variants, options(sizeBytes)));
    const results = fastest.map(({ result }) => result);
    const { plan } = fastest.at(-1)?.variant ?? variants[0];
    // A multicasting switch and a broken link have other optima.
    const isPlain = flags.switch !== true && faults.length === 0;
    const optimum = isPlain ? await optimumOf(plan, inventory, machine, results) : undefined;
    runs.push({ file, plan, chosen: fastest.map(({ variant }) => variant), results, optimum });
  }
  const nccl =
    flags.nccl === true
      ? libraryOf(runs[0]?.plan, inventory, list, parameters, flags, measurement?.ranksPerProcess)
      : undefined;
  const curves: Curve[] = runs.map(({ file, results }) => ({ name: file, points: results }));
  if (nccl !== undefined) curves.push({ name: nccl.rows[0]?.library ?? "library", points: nccl.rows });
  const operations = new Set([...runs.map(({ plan }) => plan.collective.operation), ...(nccl ? [nccl.operation] : [])]);
  // Times of different operations say nothing beside each other.
  const comparable = curves.length > 1 && operations.size === 1;
  const changes = comparable ? crossovers(curves) : [];
  const comparisons =
    measured === undefined
      ? []
      : [
          ...runs.map(({ file, results }) => compareWithMeasured(file, results, measured)),
          ...(nccl === undefined ? [] : [compareWithMeasured(curves.at(-1)?.name ?? "", nccl.rows, measured)]),
        ];
  writeFiles(runs, flags);
  if (flags.json === true) printJson(documentOf(runs, nccl, changes, comparisons, parameters, flags));
  else {
    const parts = [render(runs, parameters, dtype), ...(nccl === undefined ? [] : [printLibrary(nccl)])];
    if (comparable) parts.push(sideBySide(curves), renderChanges(changes));
    else if (curves.length > 1) parts.push(`# not set side by side: ${[...operations].join(", ")}`);
    print(`${[...parts, ...comparisons.map(printComparison)].filter((part) => part !== "").join("\n")}\n`);
  }
  return runs.every(({ results }) => results.every((result) => result.completed)) ? 0 : 1;
}

/** The variant that takes least; the first of those that never end. */
function fastestOf(variants: readonly [PlanVariant, ...PlanVariant[]], options: SimulateOptions) {
  const [first, ...others] = variants.map((variant) => ({ variant, result: simulate(variant.plan, options) }));
  const isBetter = (a: Simulation, b: Simulation) => a.completed && (!b.completed || a.timeUs < b.timeUs);
  return others.reduce((best, other) => (isBetter(other.result, best.result) ? other : best), first!);
}

/** The library's curve for the first plan's operation and ranks, or for --op and --ranks. */
function libraryOf(
  plan: ExecutionPlan | undefined,
  inventory: Inventory,
  list: readonly number[],
  parameters: SystemParameters,
  flags: Flags,
  ranksPerProcess: number | undefined,
): LibraryCurve {
  const operation = timedOperation(
    plan?.collective.operation ?? flags.op ?? "",
    plan === undefined ? "--op" : "--nccl",
  );
  const given = deviceIds(flags.devices);
  const numRanks = plan?.ranks.length ?? flags.ranks ?? (given ?? simulatedDevices(inventory)).length;
  const devices = placeRanks(numRanks, inventory, given);
  return libraryCurve(operation, inventory, devices, list, flags, parameters.ncclLLGBps, ranksPerProcess);
}

function documentOf(
  runs: readonly PlanRun[],
  nccl: LibraryCurve | undefined,
  changes: readonly Crossover[],
  comparisons: readonly Comparison[],
  parameters: SystemParameters,
  flags: Flags,
): object {
  const documents = runs.map(({ file, plan, chosen, results, optimum }) => {
    const last = results.at(-1)!;
    const { instances } = chosen[0]?.chosen ?? {};
    return {
      file,
      ...(instances === undefined ? {} : { instances }),
      rows: results.map((result, i) => ({
        ...row(result),
        ...chosen[i]?.chosen,
        ...(chosen[i]?.form !== undefined && { form: chosen[i].form }),
      })),
      links: last.links.slice(0, 64).map((use) => ({ ...use, utilization: round(use.utilization, 4) })),
      criticalPath: describeCriticalPath(plan, last),
      ...(last.completed ? {} : { stuck: last.stuck }),
      ...(optimum === undefined ? {} : { optimum }),
    };
  });
  const shared = {
    topology: flags.topology,
    ...(nccl === undefined ? {} : { nccl: nccl.rows.map(rounded), ncclMachine: nccl.machine }),
    ...(nccl?.timedAs === undefined ? {} : { ncclTimedAs: nccl.timedAs }),
    ...(comparisons.length === 0 ? {} : { measured: comparisons }),
  };
  if (runs.length === 0) return { rows: nccl?.rows.map(rounded) ?? [], ...shared };
  const plans = { parameters: parameters.name, uncertainty: runs[0]?.results[0]?.uncertainty };
  if (runs.length === 1) return { ...documents[0], ...plans, ...shared };
  return { results: documents, crossovers: changes, ...plans, ...shared };
}

function writeFiles(runs: readonly { plan: ExecutionPlan; results: readonly Simulation[] }[], flags: Flags): void {
  const [first] = runs;
  if (first === undefined) return;
  const { plan, results } = first;
  const last = results.at(-1)!;
  if (flags.trace !== undefined) writeOutput("--trace", flags.trace, JSON.stringify(toTrace(plan, last)));
  if (flags.chakra === undefined) return;
  makeOutputFolder("--chakra", flags.chakra);
  for (const [rank, bytes] of toChakra(plan, last).entries())
    writeOutput("--chakra", join(flags.chakra, `trace.${rank}.et`), bytes);
}

function render(runs: readonly PlanRun[], parameters: SystemParameters, dtype: keyof typeof DTYPES): string {
  if (runs.length === 0) return "";
  const out: string[] = [
    `# costs: ${parameters.name} (${parameters.source}); expect +-${Math.round(100 * (runs[0]?.results[0]?.uncertainty ?? parameters.uncertainty))} %`,
  ];
  for (const { file, plan, chosen, results, optimum } of runs) {
    const last = results.at(-1)!;
    out.push(
      `# ${file}: ${printableLine(plan.name ?? "plan")}, ${plan.ranks.length} ranks${describeChosen(file, chosen, results)}`,
      printTable(plan, results, dtype),
    );
    const stuck = explainStuck(last);
    if (stuck !== undefined) out.push(`# it does not end:\n${stuck}`);
    out.push(`# at ${formatSize(last.sizeBytes)}: ${describeCriticalPath(plan, last)}`);
    if (optimum !== undefined) out.push(renderOptimum(optimum, results));
    for (const use of last.links.slice(0, 8))
      out.push(`#   ${use.link}: ${(100 * use.utilization).toFixed(1)} % used, ${formatSize(Math.round(use.bytes))}`);
  }
  return out.join("\n");
}

/** `2 from 1 KiB, 8 from 16 MiB`: a value of each size, where it changes. */
function spansOf(values: readonly (string | number)[], results: readonly Simulation[]): string {
  return values
    .flatMap((value, i) => (value === values[i - 1] ? [] : [`${value} from ${formatSize(results[i]!.sizeBytes)}`]))
    .join(", ");
}

/** What `sim` chose, and where it chose another number of pieces or another form. */
function describeChosen(file: string, chosen: PlanRun["chosen"], results: readonly Simulation[]): string {
  const parts: string[] = [];
  const forms = chosen.map(({ form }) => form ?? file);
  if (forms.some((form) => form !== file)) parts.push(`all links of the mesh at once: as ${spansOf(forms, results)}`);
  const instances = chosen.map(({ chosen: { instances = 1 } }) => instances);
  const fewest = Math.min(...instances);
  const most = Math.max(...instances);
  if (fewest < most) parts.push(`instances to fill the links: ${spansOf(instances, results)} (--arg instances=N)`);
  else if (most > 1) parts.push(`${most} instances to fill the links (--arg instances=N)`);
  const { ranksPerNode } = chosen[0]?.chosen ?? {};
  if (ranksPerNode !== undefined) parts.push(`${ranksPerNode} ranks a node (--arg ranksPerNode=N)`);
  const pieces = chosen.map(({ chosen: { chunks = 1 } }) => chunks);
  if (pieces.some((count) => count > 1))
    parts.push(`pieces that overlap: ${spansOf(pieces, results)} (--arg chunks=N)`);
  return parts.map((part) => `, ${part}`).join("");
}

function renderChanges(changes: readonly Crossover[]): string {
  if (changes.length === 0) return "# one is fastest at all sizes";
  return changes
    .map((change) => `# below ${formatSize(change.sizeBytes)} ${change.below} is faster, above it ${change.above}`)
    .join("\n");
}
