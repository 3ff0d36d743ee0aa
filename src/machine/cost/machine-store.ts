/**
 * What was measured on this machine, in one file of its user: fitted constants and choices of algorithms, each with the
 * version that measured it and the date. The file is read by launchers, never by ranks. It holds data alone; who put a
 * section there says what its `data` means and checks it.
 */
import { accessSync, constants, existsSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";
import { dirname, join } from "node:path";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import { makeFolder, parseStrictJson, readTextFile, userFolder } from "../../foreign/formats/internal.ts";

export const STORE_SCHEMA_VERSION = 1;
/** Sections of the file. */
const STORE_SECTIONS = ["choices", "cpuCosts"] as const;
export type StoreSection = (typeof STORE_SECTIONS)[number];

/** What tells machines apart whose measurements differ. */
export interface MachineId {
  /** Name of the file. */
  readonly key: string;
  readonly arch: string;
  readonly cpu: string;
  /** Cores that this process may use. */
  readonly cores: number;
}

export interface StoredSection {
  /** Version of chorale that measured it. */
  readonly chorale: string;
  /** Day of the measurement, ISO 8601. */
  readonly date: string;
  readonly data: unknown;
}

export interface MachineRecord extends Partial<Readonly<Record<StoreSection, StoredSection>>> {
  readonly schemaVersion: typeof STORE_SCHEMA_VERSION;
  readonly machine: MachineId;
}

const VARIABLE = "CHORALE_CHOICES";
/** The word that makes the variable leave the machine's file alone. */
const SHIPPED = "shipped";

let machine: MachineId | undefined;

/** Identifies this machine by its processor and the cores that this process may use. */
export function thisMachine(): MachineId {
  if (machine !== undefined) return machine;
  const cpu = cpus()[0]?.model.trim() ?? "unknown";
  const cores = availableParallelism();
  const words = cpu
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
  machine = Object.freeze({ key: `${process.arch}-${words || "cpu"}-${cores}c`, arch: process.arch, cpu, cores });
  return machine;
}

/** What ranks that are threads or processes of one host depend on, beside their number: whether each has a core. */
export type CpuTopology = "own-cores" | "shared-cores";

/** How so many ranks lie on the cores of a host. */
export function cpuTopology(numRanks: number, cores = thisMachine().cores): CpuTopology {
  return numRanks > cores ? "shared-cores" : "own-cores";
}

/**
 * The file of this machine's measurements, whether or not it exists: what `CHORALE_CHOICES` names, or one below
 * `XDG_DATA_HOME` (`~/.local/share`). `undefined` with `CHORALE_CHOICES=shipped`, and for a user without a home.
 */
export function machineFile(env: NodeJS.ProcessEnv = process.env): string | undefined {
  const named = env[VARIABLE];
  if (named === SHIPPED) return undefined;
  if (named !== undefined && named !== "") return named;
  const folder = userFolder("XDG_DATA_HOME", env);
  return folder === undefined ? undefined : join(folder, "chorale", "machines", `${thisMachine().key}.json`);
}

/** Larger files were not written by `chorale tune`: a plan of 64 ranks takes some megabytes. */
const MAX_STORE_BYTES = 2 ** 28;

/**
 * Reads a machine's file. @returns `undefined` when there is none, and for one of another machine or another schema
 * @throws FormatError for a file that is no regular file, or not what `writeMachineFile` wrote
 */
export function readMachineFile(path: string): MachineRecord | undefined {
  let text: string;
  try {
    text = readTextFile(path, MAX_STORE_BYTES);
  } catch (error) {
    // What is not there, or another user's, is no file of ours; what is no regular file was named by mistake.
    const { cause } = error as { readonly cause?: NodeJS.ErrnoException };
    if (cause?.code === undefined) throw error;
    return undefined;
  }
  const refuse = (problem: string, cause?: unknown) =>
    new FormatError(path, `${problem}; ${howToMend(path)}`, { cause });
  let value: Partial<MachineRecord> | null;
  try {
    value = parseStrictJson(text, path) as Partial<MachineRecord> | null;
  } catch (error) {
    throw refuse("is not valid JSON, or is nested too deep", error);
  }
  if (typeof value !== "object" || value === null || typeof value.schemaVersion !== "number") {
    throw refuse("has no schemaVersion");
  }
  if (value.schemaVersion !== STORE_SCHEMA_VERSION || value.machine?.key !== thisMachine().key) return undefined;
  for (const name of STORE_SECTIONS) {
    const section = value[name];
    if (section === undefined) continue;
    if (typeof section?.chorale !== "string" || typeof section.date !== "string" || section.data === undefined) {
      throw refuse(`has a section ${name} without chorale, date or data`);
    }
  }
  return value as MachineRecord;
}

/**
 * Reads the file whose measurements are to be used: as `readMachineFile`, but a file that the user named has to be one.
 * @throws FormatError; InvalidArgumentError when `CHORALE_CHOICES` names a file that is not there, or another machine's
 */
export function readUsedMachineFile(path: string): MachineRecord | undefined {
  const record = readMachineFile(path);
  if (record !== undefined || !isNamed(path)) return record;
  throw new InvalidArgumentError(VARIABLE, path, `${whyUnused(path)}; "${SHIPPED}" uses no file`);
}

/** What is wrong with a named file of which nothing was read. */
function whyUnused(path: string): string {
  try {
    accessSync(path, constants.R_OK);
  } catch (error) {
    return `a file that can be read, such as \`chorale tune\` writes (${(error as Error).message})`;
  }
  return `measurements of this machine, ${thisMachine().key}, by this version of chorale`;
}

/** Replaces one section of a machine's file; the others stay. A crash leaves the old file or the new one. */
export function writeMachineSection(path: string, name: StoreSection, section: StoredSection): void {
  let kept: MachineRecord | undefined;
  try {
    kept = readMachineFile(path);
  } catch {
    // A broken file has nothing worth keeping.
  }
  const record: MachineRecord = {
    ...kept,
    schemaVersion: STORE_SCHEMA_VERSION,
    machine: thisMachine(),
    [name]: section,
  };
  makeFolder(dirname(path));
  const draft = `${path}.${process.pid}.tmp`;
  try {
    writeFileSync(draft, `${JSON.stringify(record, null, 2)}\n`);
    renameSync(draft, path);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
}

/** Whether the user named the file, so that it may be anything, such as a plan. */
const isNamed = (path: string) => path === process.env[VARIABLE];
const FILE_OF_MACHINE = "the file of this machine's measurements";
const NAMES_ANOTHER = "CHORALE_CHOICES must name a new file, or one that `chorale tune` wrote on this machine";

function howToMend(path: string): string {
  if (isNamed(path)) return NAMES_ANOTHER;
  if (path === machineFile()) return "`chorale tune --reset` removes the file";
  return "expected a new file, or one that `chorale tune` wrote on this machine";
}

/**
 * Makes sure that a file is not there yet, or holds measurements of this machine.
 * @throws FormatError, InvalidArgumentError
 */
export function requireMachineFile(path: string, argument: string): void {
  if (existsSync(path) && readMachineFile(path) === undefined)
    throw new InvalidArgumentError(argument, path, "a new file, or one that `chorale tune` wrote on this machine");
}

/**
 * Makes sure, before anything is measured, that measurements can be written to a file: makes its folder.
 * @throws FormatError, InvalidArgumentError
 */
export function requireWritable(path: string): void {
  requireMachineFile(path, FILE_OF_MACHINE);
  try {
    makeFolder(dirname(path));
    accessSync(dirname(path), constants.W_OK);
  } catch (cause) {
    const why = (cause as Error).message;
    throw new InvalidArgumentError(FILE_OF_MACHINE, path, `one that can be written (${why}): see CHORALE_CHOICES`);
  }
}

/**
 * Removes a machine's file. @returns whether there was one
 * @throws FormatError, InvalidArgumentError for a file that the user named and that is something else: it stays
 */
export function removeMachineFile(path: string): boolean {
  if (isNamed(path)) requireMachineFile(path, VARIABLE);
  try {
    rmSync(path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}
