/**
 * `chorale tune OP --backend threads|cuda|tcp`, `--show` and `--reset`: which algorithm serves a collective fastest on this machine.
 * Programs are tune-program.ts's.
 */
import { parseOperation } from "../../collectives/index.ts";
import { formatSize, InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { cpuCostsFor, machineFile, removeMachineFile, requireWritable, thisMachine } from "../../machine/cost/index.ts";
import { type BackendName, version } from "../../runtime/world/index.ts";
import { defaultRanks } from "../bench/index.ts";
import {
  machineToTune,
  storeTuning,
  type TunedMachine,
  type TuneResult,
  tuneCollective,
  tunedMachine,
} from "../tune/index.ts";
import { MOST_UNASKED } from "./bench-flags.ts";
import { EXIT } from "./exit-codes.ts";
import { measuredHosts } from "./host-options.ts";
import { print, printError, printJson, showProgress } from "./output.ts";
import { sizesOf } from "./size-options.ts";
import { DEFAULT_SIZES, measuringOf, type TuneHereFlags, us } from "./tune-flags.ts";

/** What CHORALE_CHOICES is where there is no file of this machine. */
const whyNoFile = () =>
  process.env["CHORALE_CHOICES"] === "shipped" ? "shipped" : "not set, and this user has no home";

/** Tunes, shows or removes. @returns the exit code */
export async function tuneHere(operation: string | undefined, flags: TuneHereFlags): Promise<number> {
  if (flags.show === true && flags.reset === true)
    throw new InvalidArgumentError("--show", described("given with --reset"), "one of the two");
  if (operation !== undefined && (flags.show === true || flags.reset === true)) {
    const what = flags.show === true ? "--show" : "--reset";
    throw new InvalidArgumentError(
      what,
      described(`given with ${operation}`),
      "nothing beside it: it is for all that is stored",
    );
  }
  if (flags.reset === true) return reset(flags);
  if (flags.show === true) return show(tunedMachine(), flags);
  const stored = machineToTune();
  if (operation === undefined || flags.backend === undefined) {
    const accepted =
      "an operation, and --backend threads, cuda or tcp; a program, and threads or cuda; --show, --reset, or --fit <measurements> --topology <what>";
    const given = operation === undefined ? "not given" : `${operation} without --backend`;
    throw new InvalidArgumentError("what to tune", described(given), accepted);
  }
  if (stored.file === undefined && flags.dryRun !== true) {
    throw new InvalidArgumentError("CHORALE_CHOICES", described(whyNoFile()), "a file to store to; or --dry-run");
  }
  if (stored.file !== undefined && flags.dryRun !== true) requireWritable(stored.file);
  const { isTunedProgram, tuneProgramHere } = await import("./tune-program.ts");
  if (isTunedProgram(operation)) return tuneProgramHere(operation, flags.backend, stored, flags);
  for (const name of ["arg", "try", "topology"] as const) {
    if (flags[name] === undefined) continue;
    throw new InvalidArgumentError(`--${name}`, String(flags[name]), `nothing: ${operation} is not a program`);
  }
  return tune(operation, flags.backend, stored, flags);
}

async function tune(
  operation: string,
  backend: BackendName,
  stored: TunedMachine,
  flags: TuneHereFlags,
): Promise<number> {
  const op = parseOperation(operation);
  const hosts = measuredHosts(flags);
  const ranks = hosts?.ranks ?? flags.ranks ?? (await defaultRanks(backend, MOST_UNASKED));
  const how = measuringOf(flags);
  let result: TuneResult;
  try {
    result = await tuneCollective({
      op: op as never,
      backend,
      ranks,
      sizes: sizesOf(flags, DEFAULT_SIZES, { op, ranks, dtype: how.dtype ?? "f32" }),
      costs: cpuCostsFor(stored.costs, ranks),
      ...how,
      ...(hosts === undefined ? {} : { nodes: hosts.nodes }),
      onProgress: showProgress,
    });
  } finally {
    showProgress("");
  }
  if (hosts?.isFirst === false) {
    if (flags.json !== true) print("# host 0 prints and stores what was measured\n");
    return EXIT.done;
  }
  const file = flags.dryRun === true ? undefined : stored.file;
  if (file !== undefined) storeTuning(file, result, version());
  if (flags.json === true) {
    const { measurements: _, ...told } = result;
    printJson({ schemaVersion: 1, machine: thisMachine(), ...told, file }, 2);
  } else print(render(result, file));
  for (const one of result.wrong) printError(`wrong results: ${one}\n`);
  return result.wrong.length > 0 ? EXIT.checkFailed : EXIT.done;
}

const usesText = (use: string, captured: string | undefined) =>
  captured === undefined ? use : `${use}, in graphs ${captured}`;

const percent = (share: number) => `${Math.round(100 * share)} %`;

function render(
  { op, ranks, dtype, topology, rows, skipped, table, fit, measurements }: TuneResult,
  file?: string,
): string {
  const out = [
    `# chorale tune ${op}: ${ranks} ranks, ${dtype}, ${topology}, ${thisMachine().cpu}, ${thisMachine().cores} cores`,
    `${"#      size".padEnd(12)}${"shipped".padStart(20)}${"us".padStart(9)}   ${"best other".padEnd(36)}${"us".padStart(9)}   chosen`,
  ];
  for (const { sizeBytes, shipped, measured, chosen, captured, ratio } of rows) {
    const [best] = measured;
    const other = best === undefined ? "" : `${best.label.padEnd(36)}${us(best.timeUs).padStart(9)}`;
    const gain = ratio === 1 ? "" : `, ${ratio.toFixed(2)}x`;
    out.push(
      `${formatSize(sizeBytes).padStart(11)} ${shipped.label.padStart(20)}${us(shipped.timeUs).padStart(9)}   ${other.padEnd(45)}   ${usesText(chosen, captured)}${gain}`,
    );
  }
  if (skipped.length > 0) out.push(`# not measured for want of time: ${skipped.map(formatSize).join(", ")} (--budget)`);
  out.push(
    table === undefined
      ? "# nothing is clearly faster than the shipped choice, which stays"
      : `# ${table.rows.length} ranges of sizes; clearly faster is 5 % in the median of 9 loops in turn, and in 8 of 10 of them`,
    ...(fit === undefined
      ? []
      : [
          `# simulator: ${measurements.length} times fitted, ${percent(fit.before)} off before, ${percent(fit.after)} after (median)`,
        ]),
    file === undefined ? "# nothing was stored" : `# stored in ${file}`,
  );
  return `${out.join("\n")}\n`;
}

function show(stored: TunedMachine, flags: TuneHereFlags): number {
  const { file, choices, costs, stamps } = stored;
  if (flags.json === true) {
    printJson({ schemaVersion: 1, machine: thisMachine(), file, stamps, choices, costs }, 2);
    return EXIT.done;
  }
  const out = [`# ${thisMachine().key}: ${file ?? `CHORALE_CHOICES is ${whyNoFile()}: nothing is read`}`];
  if (choices === undefined && costs === undefined) out.push("# nothing is stored: the shipped choices serve");
  if (stamps.choices !== undefined) out.push(`# choices of ${stamps.choices.date}, chorale ${stamps.choices.chorale}`);
  for (const { backend, collective, ranks, dtypes, topology, program, rows } of choices?.tables ?? []) {
    const [least, most] = ranks;
    const what = program === undefined ? collective : `the program ${program}, ${collective}`;
    const those = least === most ? `${least} ranks` : `${least} to ${most} ranks`;
    out.push(`${what} on ${backend}, ${those}, ${dtypes?.join(", ") ?? "all dtypes"}, ${topology ?? "any topology"}`);
    for (const { fromBytes, use, captured } of rows) {
      out.push(`  from ${formatSize(fromBytes).padEnd(10)} ${usesText(use, captured)}`);
    }
  }
  if (stamps.cpuCosts !== undefined) {
    out.push(
      `# constants of ${stamps.cpuCosts.date}, chorale ${stamps.cpuCosts.chorale}, for \`chorale sim --topology cpu\``,
    );
    for (const [ranks, constants] of Object.entries(costs?.byRanks ?? {})) {
      const list = Object.entries(constants).map(([name, value]) => `${name} ${Number(value.toPrecision(3))}`);
      out.push(`${ranks} ranks: ${list.join(", ")}`);
    }
  }
  print(`${out.join("\n")}\n`);
  return EXIT.done;
}

function reset(flags: TuneHereFlags): number {
  // Not by way of the file's content: a broken one is to be removed too.
  const file = machineFile();
  const existed = file !== undefined && removeMachineFile(file);
  if (flags.json === true) printJson({ schemaVersion: 1, file, removed: existed });
  else print(existed ? `removed ${file}\n` : `nothing is stored${file === undefined ? "" : ` in ${file}`}\n`);
  return EXIT.done;
}
