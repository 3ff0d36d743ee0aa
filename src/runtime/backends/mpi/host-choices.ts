/** Which calls inside a host are served by plans, and which by MPI: the tables that a world may be given by name. */
import { COLLECTIVE_NAMES, type CollectiveName } from "../../../collectives/index.ts";
import { oneOf } from "../../../core/internal.ts";
import {
  CHOICES_SCHEMA_VERSION,
  type ChoiceDocument,
  type KernelNames,
  machineChoices,
  SHIPPED_CHOICES,
} from "../../executor/internal.ts";

/** Collectives that the exchange inside the host makes, and plans: those whose calls can be cut into pieces. */
const EXCHANGED = [
  "all_reduce",
  "all_gather",
  "reduce_scatter",
  "all_to_all",
] as const satisfies readonly CollectiveName[];
export type ExchangedName = (typeof EXCHANGED)[number];
export const isExchanged = (op: string): op is ExchangedName => EXCHANGED.some((one) => one === op);
/** Those that are also made host by host, in groups that span hosts. */
const BETWEEN_HOSTS = ["broadcast", "reduce"] as const satisfies readonly CollectiveName[];
/** Collectives that may be measured. */
export type MeasuredName = ExchangedName | (typeof BETWEEN_HOSTS)[number];
/** By hand: MPI itself, and the exchange. */
export const MPI_KERNELS = Object.fromEntries(
  COLLECTIVE_NAMES.map((op) => [op, isExchanged(op) ? ["mpi", "exchange"] : ["mpi"]]),
) as unknown as KernelNames;
/** What a world may be told of its choices, beside documents of them. */
export const CHOICE_WORDS = ["measured", "shipped", "mpi", "exchange", "plans"] as const;
export type HostChoices = ChoiceDocument | (typeof CHOICE_WORDS)[number];

/** Says what serves where no program does: MPI's own launchers hand no options of ours to the ranks. */
const CHOICES_VARIABLE = "CHORALE_MPI_CHOICES";

/** What the environment says of a world's choices. @throws InvalidArgumentError for what is none of the words */
export function choicesOfEnvironment(env: NodeJS.ProcessEnv = process.env): HostChoices | undefined {
  const said = env[CHOICES_VARIABLE];
  return said === undefined || said === "" ? undefined : oneOf(said, CHOICES_VARIABLE, CHOICE_WORDS);
}

/** Plans that need no scratch and combine in one step: see `HostGroup`. */
const PLANS = {
  all_reduce: "two-shot-fused-read-all-reduce",
  all_gather: "one-pass-all-gather",
  reduce_scatter: "one-pass-reduce-scatter",
  all_to_all: "one-pass-all-to-all",
} as const;

/** One thing for calls of all sizes. */
const always = (source: string, uses: readonly (readonly [CollectiveName, string])[]): ChoiceDocument => ({
  schemaVersion: CHOICES_SCHEMA_VERSION,
  source,
  date: "2026-11-23",
  tables: uses.map(([collective, use]) => ({
    backend: "mpi",
    collective,
    ranks: [1, 1 << 20],
    rows: [{ fromBytes: 0, use }],
  })),
});

/** The document that comes before the shipped one, if any does: its tables for mpi. */
export function choicesOf(choices: HostChoices | undefined): ChoiceDocument | undefined {
  if (choices === "shipped" || choices === "measured") return undefined;
  if (choices === "mpi")
    return always(
      "mpi",
      COLLECTIVE_NAMES.map((op) => [op, "mpi"]),
    );
  if (choices === "exchange")
    return always(
      "exchange",
      [...EXCHANGED, ...BETWEEN_HOSTS].map((op) => [op, "exchange"]),
    );
  if (choices === "plans") return always("plans", Object.entries(PLANS) as [CollectiveName, string][]);
  const document = choices ?? machineChoices();
  const tables = document?.tables.filter(({ backend }) => backend === "mpi") ?? [];
  return document === undefined || tables.length === 0 ? undefined : { ...document, tables };
}

/** Whether anything but MPI may serve a call: otherwise ranks need no memory for plans. */
export function namesPlans(choices: ChoiceDocument | undefined): boolean {
  const documents = choices === undefined ? [SHIPPED_CHOICES] : [choices, SHIPPED_CHOICES];
  return documents.some(({ tables }) =>
    tables.some(({ backend, rows }) => backend === "mpi" && rows.some(({ use }) => use !== "mpi")),
  );
}
