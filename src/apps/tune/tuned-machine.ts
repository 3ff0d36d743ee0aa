/** This machine's file as the tuner reads and writes it: tables of choices, and constants by number of ranks. */
import {
  type CpuCostTable,
  checkCpuCosts,
  machineFile,
  readMachineFile,
  thisMachine,
  writeMachineSection,
} from "../../machine/cost/index.ts";
import {
  CHOICES_SCHEMA_VERSION,
  type ChoiceDocument,
  type ChoiceTable,
  checkChoices,
} from "../../runtime/executor/internal.ts";
import type { TuneResult } from "./tune-collective.ts";

/** What is stored for this machine. */
export interface TunedMachine {
  /** `undefined` with `CHORALE_CHOICES=shipped`. */
  readonly file: string | undefined;
  readonly choices: ChoiceDocument | undefined;
  readonly costs: CpuCostTable | undefined;
  /** Versions and days of the two. */
  readonly stamps: Readonly<
    Partial<Record<"choices" | "cpuCosts", { readonly chorale: string; readonly date: string }>>
  >;
}

/** Reads what is stored. @throws FormatError for a broken file */
export function tunedMachine(file: string | undefined = machineFile()): TunedMachine {
  const record = file === undefined ? undefined : readMachineFile(file);
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
function isSameCase(a: ChoiceTable, b: Pick<ChoiceTable, "backend" | "collective" | "ranks" | "topology" | "dtypes">) {
  const key = (t: typeof b) => JSON.stringify([t.backend, t.collective, t.ranks, t.topology, t.dtypes]);
  return key(a) === key(b);
}

/** Stores a result: its table in place of the one for the same calls, its constants for its number of ranks. */
export function storeTuning(file: string, result: TuneResult, version: string): void {
  const date = new Date().toISOString().slice(0, 10);
  const known = tunedMachine(file);
  const { op, ranks, dtype, topology, backend, table, fit, measurements } = result;
  const same = (one: ChoiceTable) =>
    [undefined, [dtype]].some((dtypes) =>
      isSameCase(one, { backend, collective: op, ranks: [ranks, ranks], topology, ...(dtypes && { dtypes }) }),
    );
  const tables = [
    ...(table === undefined ? [] : [table]),
    ...(known.choices?.tables ?? []).filter((one) => !same(one)),
  ];
  const document: ChoiceDocument = {
    schemaVersion: CHOICES_SCHEMA_VERSION,
    source: thisMachine().key,
    date,
    tables,
  };
  writeMachineSection(file, "choices", { chorale: version, date, data: document });
  if (measurements.length === 0) return;
  const byRanks = { ...known.costs?.byRanks, [String(ranks)]: fit.costs };
  writeMachineSection(file, "cpuCosts", { chorale: version, date, data: { byRanks } });
}
