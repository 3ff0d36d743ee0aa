/** This machine's file as the tuner reads and writes it: tables of choices, and constants by number of ranks. */
import {
  type CpuCostTable,
  checkCpuCosts,
  type MachineRecord,
  machineFile,
  readMachineFile,
  readUsedMachineFile,
  requireMachineFile,
  thisMachine,
  writeMachineSection,
} from "../../machine/cost/index.ts";
import {
  CHOICES_SCHEMA_VERSION,
  type ChoiceDocument,
  type ChoiceTable,
  checkChoices,
  parseServed,
  type StoredPlan,
} from "../../runtime/executor/internal.ts";
import type { TuneResult } from "./tune-collective.ts";
import type { TuneProgramResult } from "./tune-program.ts";

/** What is stored for this machine. */
export interface TunedMachine {
  /** `undefined` with `CHORALE_CHOICES=shipped`, and for a user without a home. */
  readonly file: string | undefined;
  readonly choices: ChoiceDocument | undefined;
  readonly costs: CpuCostTable | undefined;
  /** Versions and days of the two. */
  readonly stamps: Readonly<
    Partial<Record<"choices" | "cpuCosts", { readonly chorale: string; readonly date: string }>>
  >;
}

/**
 * Reads what is stored, to use it.
 * @throws FormatError for a broken file; InvalidArgumentError when `CHORALE_CHOICES` names a file that is not there, or another machine's
 */
export function tunedMachine(file: string | undefined = machineFile()): TunedMachine {
  return checked(file, file === undefined ? undefined : readUsedMachineFile(file));
}

/** Reads what is stored, to add to it: a file that is named may be new. @throws FormatError for a broken file */
export function machineToTune(file: string | undefined = machineFile()): TunedMachine {
  return checked(file, file === undefined ? undefined : readMachineFile(file));
}

function checked(file: string | undefined, record: MachineRecord | undefined): TunedMachine {
  const { choices, cpuCosts } = record ?? {};
  const stamp = (section: { chorale: string; date: string }) => ({ chorale: section.chorale, date: section.date });
  return {
    file,
    choices: choices === undefined ? undefined : checkChoices(choices.data, file ?? ""),
    costs: cpuCosts === undefined ? undefined : checkCpuCosts(cpuCosts.data, file ?? ""),
    stamps: {
      ...(choices === undefined ? {} : { choices: stamp(choices) }),
      ...(cpuCosts === undefined ? {} : { cpuCosts: stamp(cpuCosts) }),
    },
  };
}

/** Whether two tables are for the same calls. */
function isSameCase(a: ChoiceTable, b: Omit<ChoiceTable, "rows">) {
  const key = (t: typeof b) => JSON.stringify([t.backend, t.collective, t.ranks, t.topology, t.dtypes, t.program]);
  return key(a) === key(b);
}

/** Writes a machine's tables, the new one in place of those it replaces; plans that no row names any more are dropped. */
function writeTables(
  file: string,
  { choices }: TunedMachine,
  made: ChoiceTable | undefined,
  isReplaced: (one: ChoiceTable) => boolean,
  plans: Readonly<Record<string, StoredPlan>>,
  version: string,
): void {
  const date = new Date().toISOString().slice(0, 10);
  const tables = [...(made === undefined ? [] : [made]), ...(choices?.tables ?? []).filter((one) => !isReplaced(one))];
  const used = new Set(
    tables.flatMap(({ rows }) =>
      rows.flatMap(({ use, captured = use }) => [use, captured].map((label) => parseServed(label, []).name)),
    ),
  );
  const kept = Object.entries({ ...choices?.plans, ...plans }).filter(([name]) => used.has(name));
  const document: ChoiceDocument = {
    schemaVersion: CHOICES_SCHEMA_VERSION,
    source: thisMachine().key,
    date,
    tables,
    ...(kept.length === 0 ? {} : { plans: Object.fromEntries(kept) }),
  };
  writeMachineSection(file, "choices", { chorale: version, date, data: document });
}

/**
 * Refuses a file that tables cannot be added to.
 * @throws FormatError, InvalidArgumentError
 */
export function requireChoicesFile(file: string): void {
  requireMachineFile(file, "file of choices");
}

/**
 * Adds one table, and the plans that it names, to a file of choices: a new one, or one of this machine's.
 * @throws FormatError, InvalidArgumentError for a file that is something else: it is left as it is
 */
export function storeTable(
  file: string,
  made: ChoiceTable,
  plans: Readonly<Record<string, StoredPlan>>,
  version: string,
): void {
  requireChoicesFile(file);
  writeTables(file, machineToTune(file), made, (one) => isSameCase(one, made), plans, version);
}

type Stored = Pick<TuneProgramResult, "op" | "ranks" | "dtype" | "topology" | "backend" | "table">;

/** Writes a result's table in place of the one for the same calls. */
function storeResult(
  file: string,
  known: TunedMachine,
  { op, ranks, dtype, topology, backend, table }: Stored,
  { program, plans = {} }: { readonly program?: string; readonly plans?: Readonly<Record<string, StoredPlan>> },
  version: string,
): void {
  const calls = { backend, collective: op, ranks: [ranks, ranks], topology, ...(program && { program }) } as const;
  const same = (one: ChoiceTable) =>
    [undefined, [dtype]].some((dtypes) => isSameCase(one, { ...calls, ...(dtypes && { dtypes }) }));
  writeTables(file, known, table, same, plans, version);
}

/** Stores what was found for a program: `comm.run` of it uses that. */
export function storeProgramTuning(file: string, result: TuneProgramResult, version: string): void {
  storeResult(file, machineToTune(file), result, { program: result.hash, plans: result.plans }, version);
}

/** Stores a result: its table in place of the one for the same calls, its constants for its number of ranks. */
export function storeTuning(file: string, result: TuneResult, version: string): void {
  const known = machineToTune(file);
  const { ranks, fit, measurements } = result;
  storeResult(file, known, result, {}, version);
  if (measurements.length === 0 || fit === undefined) return;
  const byRanks = { ...known.costs?.byRanks, [String(ranks)]: fit.costs };
  const date = new Date().toISOString().slice(0, 10);
  writeMachineSection(file, "cpuCosts", { chorale: version, date, data: { byRanks } });
}
