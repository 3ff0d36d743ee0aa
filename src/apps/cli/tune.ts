/** `chorale tune`: on this machine (tune-here.ts, tune-program.ts), and with `--fit`, which refits the simulator's constants to measurements, and says how sure each one is. */
import { type Command, Option } from "commander";
import {
  FITTED_CONSTANTS,
  type Fit,
  type FittedConstant,
  fitNcclLL,
  fitParameters,
  type Measurements,
  type NcclFit,
  ncclMachineOf,
  readMeasurements,
  type SystemParameters,
} from "../../authoring/simulator/index.ts";
import { formatSize, InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { readJsonFile } from "../../foreign/formats/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { addHostOptions, measuredHostsHelp } from "./host-options.ts";
import { collect, factor, whole } from "./option-readers.ts";
import { print, printJson, showProgress } from "./output.ts";
import { loadParameters, loadTopology } from "./sim-input.ts";
import type { TuneHereFlags } from "./tune-flags.ts";
import { writeOutput } from "./write-output.ts";

interface Flags {
  readonly fit?: string;
  readonly topology?: string;
  readonly params?: string;
  readonly plan?: string;
  readonly only?: string;
  readonly output?: string;
  readonly json?: boolean;
}

/** Larger files are no table of measurements. */
const MAX_FILE_BYTES = 16 * 2 ** 20;

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument(
      "[what]",
      "an operation such as all_reduce, or a program of yours (.ts, .js), a plan (.json) or an algorithm's name, to be tuned; with --fit, the only operation whose rows are used",
    )
    .addOption(
      new Option(
        "--backend <name>",
        "measure which algorithm serves the operation, or which variant of the program runs, fastest here, and store it",
      ).choices(["threads", "cuda", "tcp"]),
    )
    .option(
      "-n, --ranks <n>",
      "number of ranks, of each host where there are several (default: the cores, or the devices; at most 8)",
      whole(1),
    )
    .option("--arg <key=value>", "an argument of the program; may be given again", collect)
    .option(
      "--try <name=value,value>",
      "values that are searched: of an argument of the program, or of instances, threads, unroll (units of 16 bytes), packets (lines, sheets, words), blocks (of a strand: 1, 2, 4, 8); may be given again",
      collect,
    )
    .addOption(
      new Option("--isolation <kind>", "what ranks run in (cuda: thread; tcp: process)").choices(["thread", "process"]),
    )
    .option("-b, --min <size>", "first size, as the larger of a rank's two buffers (default: 64)")
    .option("-e, --max <size>", "last size (default: 16M)")
    .option("-f, --factor <f>", "each size is this times the one before", factor, 4)
    .option("--dtype <dtype>", "element type of a reduction (default: f32)")
    .option("--budget <seconds>", "time for measuring (default: 40)", whole(1))
    .option("--dry-run", "measure, but store nothing")
    .option("--show", "show what is stored for this machine")
    .option("--reset", "remove what is stored for this machine")
    .option(
      "--fit <measurements>",
      "refit the simulator's constants to this JSON file: {rows: [{op, plan, instances, sizeBytes, timeUs, ...}]}",
    )
    .option(
      "--topology <what>",
      "with --fit, the machine that was measured: preset, inventory file or recorded root; with a program on cuda, the one that variants are ranked for (default: this one)",
    )
    .option("--params <what>", "constants to begin with: a system's name or a file (default: by the accelerators)")
    .option("--plan <algorithm>", "the library's algorithm that ran where rows name none")
    .option("--only <constants>", "fit these constants alone, comma-separated")
    .option("-o, --output <file>", "write the constants, for `chorale sim --params`")
    .option("--json", "print one JSON document");
  addHostOptions(command)
    .addHelpText("after", measuredHostsHelp("chorale tune all_reduce --backend tcp", "tcp"))
    .action(async (operation: string | undefined, flags: Flags & TuneHereFlags) => {
      const { fit, topology } = flags;
      if (fit !== undefined && topology !== undefined) exit(await run(operation, { ...flags, fit, topology }));
      else if (fit !== undefined)
        throw new InvalidArgumentError("--topology", described("not given"), "the machine that was measured");
      else exit(await (await import("./tune-here.ts")).tuneHere(operation, flags));
    });
}

function constantsOf(text: string | undefined): readonly FittedConstant[] | undefined {
  return text?.split(",").map((name) => {
    const found = FITTED_CONSTANTS.find((constant) => constant === name.trim());
    if (found === undefined) throw new InvalidArgumentError("--only", name, `some of ${FITTED_CONSTANTS.join(", ")}`);
    return found;
  });
}

/** Rows of one operation; with none left, what there is. */
function rowsOf(value: unknown, operation: string | undefined): unknown {
  if (operation === undefined || typeof value !== "object" || value === null) return value;
  const { rows } = value as { rows?: unknown };
  if (!Array.isArray(rows)) return value;
  const kept = rows.filter((row: { op?: unknown } | null) => row?.op === operation);
  if (kept.length === 0) {
    const known = [...new Set(rows.map((row: { op?: unknown } | null) => String(row?.op)))];
    throw new InvalidArgumentError("operation", operation, `one that was measured: ${known.slice(0, 12).join(", ")}`);
  }
  return { ...value, rows: kept };
}

async function run(
  operation: string | undefined,
  flags: Flags & { readonly fit: string; readonly topology: string },
): Promise<number> {
  const only = constantsOf(flags.only);
  const inventory = await loadTopology(flags.topology);
  const base = await loadParameters(flags.params, flags.topology, inventory);
  const measurements = readMeasurements(
    rowsOf(readJsonFile(flags.fit, MAX_FILE_BYTES), operation),
    flags.fit,
    flags.plan,
  );
  const nccl = ncclOf(measurements, inventory, base);
  if (measurements.usable.length === 0 && nccl === undefined) {
    throw new InvalidArgumentError(
      "--fit",
      flags.fit,
      "rows with a `plan` of the library (or --plan to name it), or all-reduces of NCCL",
    );
  }
  const fit =
    measurements.usable.length === 0
      ? undefined
      : fitParameters(measurements.usable, {
          inventory,
          parameters: base,
          source: flags.fit,
          ...(only === undefined ? {} : { only }),
          onProgress: (round, rms) => {
            showProgress(`round ${round}: ${(100 * rms).toFixed(2)} % off`);
          },
        });
  const parameters: SystemParameters = {
    ...(fit?.parameters ?? base),
    ...(nccl === undefined ? {} : { ncclLLGBps: nccl.after }),
  };
  if (flags.output !== undefined) writeOutput("-o", flags.output, `${JSON.stringify(parameters, null, 2)}\n`);
  showProgress("");
  if (flags.json === true)
    printJson({ schemaVersion: 1, parameters, fit, nccl, numOtherRows: measurements.others.length });
  else print(render(base, measurements, fit, nccl, flags.output));
  return 0;
}

function ncclOf(measurements: Measurements, inventory: Inventory, base: SystemParameters): NcclFit | undefined {
  return fitNcclLL(
    measurements.others,
    (numRanks) => ncclMachineOf(inventory, numRanks, base),
    (row) => row.numRanks ?? measurements.numRanks,
  );
}

const percent = (value: number) => `${(100 * value).toFixed(1)} %`;
const number = (value: number) => String(Number(value.toPrecision(4)));

function render(
  base: SystemParameters,
  measurements: Measurements,
  fit: Fit | undefined,
  nccl: NcclFit | undefined,
  output: string | undefined,
): string {
  const out: string[] = [];
  if (fit !== undefined) {
    out.push(
      `# ${fit.rows.length} rows of the library's plans, from the constants of ${base.name} (${base.source})`,
      `${"constant".padEnd(22)}${"before".padStart(10)}${"after".padStart(10)}   +-      from`,
    );
    for (const { constant, before, after, uncertainty, determined } of fit.constants) {
      out.push(
        `${constant.padEnd(22)}${number(before).padStart(10)}${number(after).padStart(10)}   ${percent(uncertainty).padEnd(7)} ${
          determined ? "these measurements" : `${base.name}: these measurements say little about it`
        }`,
      );
    }
    for (const [name, { medianRelative, largestRelative, rms }] of [
      ["before", fit.before],
      ["after", fit.after],
    ] as const)
      out.push(
        `# ${name}: median ${percent(medianRelative)} off, ${percent(largestRelative)} at most, rms ${percent(rms)}`,
      );
    const worst = [...fit.rows].sort((a, b) => offBy(b) - offBy(a)).slice(0, 5);
    out.push("# furthest off:");
    for (const row of worst)
      out.push(
        `#   ${row.name}, ${formatSize(row.sizeBytes)}: ${number(row.measuredUs)} us measured, ${number(row.afterUs)} simulated`,
      );
  }
  if (nccl !== undefined) {
    out.push(
      `${"ncclLLGBps".padEnd(22)}${(nccl.before === undefined ? "NCCL's" : number(nccl.before)).padStart(10)}${number(nccl.after).padStart(10)}   ${percent(nccl.uncertainty).padEnd(7)} ${nccl.numRows} all-reduces of NCCL`,
      `# NCCL's model: median ${percent(nccl.errorBefore.medianRelative)} off before, ${percent(nccl.errorAfter.medianRelative)} after (${percent(nccl.errorAfter.largestRelative)} at most)`,
    );
  }
  const unused = measurements.others.length - (nccl?.numRows ?? 0);
  if (unused > 0) out.push(`# ${unused} rows name no plan of the library and were not used`);
  if (output !== undefined) out.push(`# written to ${output}; use: chorale sim FILE --params ${output} --topology …`);
  return `${out.join("\n")}\n`;
}

const offBy = (row: { readonly measuredUs: number; readonly afterUs: number }) =>
  Math.abs(Math.log(row.afterUs / row.measuredUs));
