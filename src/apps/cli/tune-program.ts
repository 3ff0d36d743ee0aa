/** `chorale tune FILE --backend threads|cuda`: which variant of a user's program runs fastest on this machine, size by size. */
import { existsSync } from "node:fs";
import { ALGORITHMS } from "../../authoring/algorithms/index.ts";
import { compile, type Program } from "../../authoring/compiler/index.ts";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import { placeRanks, SimulatedMachine } from "../../authoring/simulator/index.ts";
import { OPERATION_NAMES } from "../../collectives/index.ts";
import { ChoraleError, formatSize, InvalidArgumentError, printableLine, UnsupportedError } from "../../core/index.ts";
import { assignments, described } from "../../core/internal.ts";
import { cpuCostsFor, thisMachine } from "../../machine/cost/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { PACKET_FORMATS, type PacketFormat } from "../../runtime/executor/index.ts";
import { type BackendName, backendKind, version } from "../../runtime/world/index.ts";
import {
  type ProgramSearch,
  type ProgramSource,
  type RankingMachine,
  storeProgramTuning,
  type TunedMachine,
  type TuneProgramResult,
  tuneProgram,
} from "../tune/index.ts";
import { EXIT } from "./exit-codes.ts";
import { print, printError, printJson, showProgress } from "./output.ts";
import { isScript, type ProgramArgs, parseProgramArg } from "./program-args.ts";
import { loadPlan } from "./program-file.ts";
import { loadForRanks } from "./program-ranks.ts";
import { loadParameters, loadTopology } from "./sim-input.ts";
import { elementSizesOf } from "./size-options.ts";
import { DEFAULT_SIZES, measuringOf, type TuneHereFlags, us } from "./tune-flags.ts";

/** What is tuned is a program: a file, or an algorithm of the library. An operation's name is never a file's. */
export function isTunedProgram(what: string): boolean {
  if ((OPERATION_NAMES as readonly string[]).includes(what)) return false;
  return (
    isScript(what) || /\.(json|xml)$/.test(what) || existsSync(what) || ALGORITHMS.some(({ name }) => name === what)
  );
}

/** More variants than these are not compiled. */
const MOST_SOURCES = 32;
/** Where the links of this machine are not known, variants are ranked as on this one. */
const ASSUMED = "hgx-h200-8";

/** What `--try` varies of a kernel, which only devices have. */
const OF_KERNELS = ["threads", "unroll", "packets", "blocks"] as const;
/** Of a strand: as `blocksPerStrand` of `generateCuda` says. */
const BLOCKS: readonly number[] = [1, 2, 4, 8];

interface Tries {
  readonly search: ProgramSearch;
  /** Values of the program's own arguments. */
  readonly args: Readonly<Record<string, readonly unknown[]>>;
}

/** Reads `--try NAME=VALUE,VALUE`. @throws InvalidArgumentError */
function parseTries(list: readonly string[]): Tries {
  const tried: Record<string, readonly unknown[]> = {};
  for (const [name, text] of assignments(list, "--try", "name=value,value")) {
    const values = text.split(",");
    if (values.includes("")) throw new InvalidArgumentError("--try", `${name}=${text}`, "name=value,value");
    tried[name] = values.map(parseProgramArg);
  }
  const { instances, threads, unroll, packets, blocks, ...args } = tried;
  const whole = (name: string, values: readonly unknown[] | undefined, least: number, most: number, unit = 1) => {
    for (const value of values ?? []) {
      const isOne = Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
      if (isOne && (value as number) % unit === 0) continue;
      const multiple = unit === 1 ? "whole numbers" : `multiples of ${unit}`;
      throw new InvalidArgumentError(`--try ${name}`, value, `${multiple} from ${least} to ${most}`);
    }
    return values === undefined ? {} : { [name]: values as readonly number[] };
  };
  const wrong = packets?.find((format) => !PACKET_FORMATS.includes(format as PacketFormat));
  if (wrong !== undefined) throw new InvalidArgumentError("--try packets", wrong, PACKET_FORMATS.join(", "));
  const odd = blocks?.find((many) => !BLOCKS.includes(many as number));
  if (odd !== undefined) throw new InvalidArgumentError("--try blocks", odd, BLOCKS.join(", "));
  const search: ProgramSearch = {
    ...whole("instances", instances, 1, 256),
    ...whole("threads", threads, 32, 1024, 32),
    ...whole("unroll", unroll, 1, 16),
    ...(packets === undefined ? {} : { packets: packets as readonly PacketFormat[] }),
    ...(blocks === undefined ? {} : { blocks: blocks as readonly number[] }),
  };
  return { search, args };
}

/** Every combination of the values. */
function combinations(args: Tries["args"]): ProgramArgs[] {
  let all: ProgramArgs[] = [{}];
  for (const [name, values] of Object.entries(args)) {
    all = all.flatMap((one) => values.map((value) => ({ ...one, [name]: value })));
  }
  if (all.length > MOST_SOURCES) {
    const accepted = `at most ${MOST_SOURCES} combinations of the program's arguments`;
    throw new InvalidArgumentError("--try", described(`${all.length} combinations`), accepted);
  }
  return all;
}

/** An argument that is wrong was given by `--try`: without those the program has been made. */
function blameTry(error: unknown): never {
  if (!(error instanceof InvalidArgumentError) || !error.argument.startsWith("--arg ")) throw error;
  throw new InvalidArgumentError(error.argument.replace("--arg", "--try"), error.value, error.accepted);
}

/** The program as written and with the arguments that are tried. @throws PlanError for a program that is wrong */
async function sourcesOf(file: string, backend: BackendName, flags: TuneHereFlags, args: Tries["args"]) {
  const isProgram = !/\.(json|xml)$/.test(file);
  const load = async (given: ProgramArgs): Promise<Program | ExecutionPlan> => {
    if (!isProgram) return loadPlan(file, given);
    const { isProgramFile, loadProgram } = await import("./load-program.ts");
    if (!isProgramFile(file)) return loadPlan(file, given);
    return loadProgram(file, given);
  };
  const { made, args: own } = await loadForRanks(file, { ...flags, backend }, load);
  if ("recorder" in made) compile(made);
  const sources: [ProgramSource, ...ProgramSource[]] = [{ differs: "", program: made }];
  for (const tried of combinations(args)) {
    const differs = Object.entries(tried).map(([name, value]) => `${name}=${String(value)}`);
    if (differs.length === 0) continue;
    if (!isProgram) throw new InvalidArgumentError("--try", differs[0] ?? "", "nothing of a plan: it has no arguments");
    sources.push({ differs: differs.join(", "), program: await load({ ...own, ...tried }).catch(blameTry) });
  }
  return sources;
}

/** The machine on which variants are ranked: this one, where its links are known, or as `--topology` says. */
async function rankingMachine(
  numRanks: number,
  topology: string | undefined,
): Promise<RankingMachine & { readonly name: string }> {
  const of = (inventory: Inventory) => placeRanks(numRanks, inventory);
  const made = async (name: string, inventory: Inventory) => {
    const parameters = await loadParameters(undefined, name, inventory);
    return { name, inventory, machine: new SimulatedMachine(inventory, of(inventory), parameters) };
  };
  if (topology !== undefined) return made(topology, await loadTopology(topology));
  try {
    const here = await loadTopology("detect");
    const isKnown = here.devices.filter(({ family }) => family !== "cpu").length >= numRanks;
    if (isKnown) return await made("this machine", here);
  } catch (error) {
    if (!(error instanceof ChoraleError)) throw error;
  }
  return made(ASSUMED, await loadTopology(ASSUMED));
}

/** Tunes a program. @returns the exit code */
export async function tuneProgramHere(
  file: string,
  backend: BackendName,
  stored: TunedMachine,
  flags: TuneHereFlags,
): Promise<number> {
  if (flags.nnodes !== undefined) throw new UnsupportedError("--nnodes with a program", "it is tuned on one host");
  const { search, args } = parseTries(flags.try ?? []);
  const { usesDevices } = await backendKind(backend);
  const ofKernels = usesDevices ? undefined : OF_KERNELS.find((one) => search[one] !== undefined);
  if (ofKernels !== undefined) {
    const accepted = `what there is on ${backend}: instances, and the program's arguments`;
    throw new InvalidArgumentError("--try", ofKernels, accepted);
  }
  const how = measuringOf(flags);
  let result: TuneProgramResult;
  let ranked: string | undefined;
  try {
    const sources = await sourcesOf(file, backend, flags, args);
    const [{ program }] = sources;
    const numRanks = "recorder" in program ? program.recorder.ranks.length : program.ranks.length;
    if (flags.ranks !== undefined && flags.ranks !== numRanks) {
      throw new InvalidArgumentError("-n", flags.ranks, `${numRanks}, the ranks of ${file}`);
    }
    const on = usesDevices ? await rankingMachine(numRanks, flags.topology) : undefined;
    ranked = on?.name;
    result = await tuneProgram({
      sources,
      backend,
      search,
      sizes: elementSizesOf(flags, DEFAULT_SIZES, how.dtype),
      costs: cpuCostsFor(stored.costs, numRanks),
      ...(on === undefined ? {} : { rankedOn: on }),
      ...how,
      onProgress: showProgress,
    });
  } finally {
    showProgress("");
  }
  const target = flags.dryRun === true ? undefined : stored.file;
  if (target !== undefined) storeProgramTuning(target, result, version());
  if (flags.json === true) printJson({ schemaVersion: 1, machine: thisMachine(), ...result, ranked, file: target }, 2);
  else print(render(result, ranked, target));
  for (const one of result.wrong) printError(`wrong results: ${one}\n`);
  return result.wrong.length > 0 ? EXIT.checkFailed : EXIT.done;
}

function render(result: TuneProgramResult, ranked: string | undefined, file: string | undefined): string {
  const { program, hash, op, ranks, dtype, topology, variants, rows, skipped, table } = result;
  const hasNccl = rows.some(({ nccl }) => nccl !== undefined);
  const out = [
    `# chorale tune ${printableLine(program)} (${hash}): ${op}, ${ranks} ranks, ${dtype}, ${topology}, ${thisMachine().cpu}, ${thisMachine().cores} cores`,
    `# ${variants.length} ${variants.length === 1 ? "variant" : "variants"}, proved${ranked === undefined ? "" : `, ranked as on ${ranked}`}, measured with results checked`,
    `${"#      size".padEnd(12)}${"as written us".padStart(14)}   ${"built-in".padEnd(36)}${"us".padStart(9)}${hasNccl ? "NCCL us".padStart(10) : ""}   ${"best variant".padEnd(44)}${"us".padStart(9)}   chosen`,
  ];
  for (const { sizeBytes, shipped, builtIn, nccl, measured, chosen, ratio } of rows) {
    const [best] = measured;
    const variant = best === undefined ? "".padEnd(53) : `${best.label.padEnd(44)}${us(best.timeUs).padStart(9)}`;
    const ncclUs = nccl === undefined ? "" : us(nccl.timeUs);
    out.push(
      `${formatSize(sizeBytes).padStart(11)} ${us(shipped.timeUs).padStart(14)}   ${builtIn.label.padEnd(36)}${us(builtIn.timeUs).padStart(9)}${hasNccl ? ncclUs.padStart(10) : ""}   ${variant}   ${chosen}${ratio === 1 ? "" : `, ${ratio.toFixed(2)}x`}`,
    );
  }
  const named = variants.filter(({ label }) => table?.rows.some(({ use }) => use.split("@", 1)[0] === label));
  for (const { label, differs } of named) out.push(`# ${label}: ${differs}`);
  if (skipped.length > 0) out.push(`# not measured for want of time: ${skipped.map(formatSize).join(", ")} (--budget)`);
  out.push(
    table === undefined
      ? "# nothing is clearly faster than the program as written, which stays"
      : `# ${table.rows.length} ranges of sizes; comm.run of this program uses them`,
    file === undefined ? "# nothing was stored" : `# stored in ${file}`,
  );
  return `${out.join("\n")}\n`;
}
