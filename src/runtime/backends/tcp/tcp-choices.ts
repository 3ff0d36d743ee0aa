/**
 * The tables of choices of a tcp world: those for tcp among this machine's, or among those that a program brings. They are read by
 * the first host's launcher and told to all ranks; a table that names what is nothing here is refused before anything starts.
 */
import { createHash } from "node:crypto";
import { FormatError } from "../../../core/index.ts";
import { machineFile } from "../../../machine/cost/index.ts";
import type { OptionCheck } from "../../comm/index.ts";
import {
  acceptedNames,
  type ChoiceDocument,
  type ChoiceTable,
  checkChoices,
  isChoices,
  isServed,
  machineChoices,
  parseServed,
} from "../../executor/internal.ts";
import { MAX_TCP_RANKS } from "./capabilities.ts";
import { SOCKET_KERNELS } from "./socket-ways.ts";

/** What launchers and ranks are told: `shipped` leaves this machine's tables alone. */
export type WantedChoices = ChoiceDocument | "shipped" | undefined;

/** The tables that a world is made with. @throws FormatError for one that names what is nothing here */
export function worldChoices(wanted: WantedChoices): ChoiceDocument | undefined {
  if (wanted === "shipped") return undefined;
  const document = wanted ?? machineChoices();
  return document === undefined ? undefined : tablesOfTcp(document, wanted === undefined ? fileName() : "choices");
}

const fileName = () => machineFile() ?? "this machine's file";

/** What another host published. @throws FormatError */
export function adoptedChoices(value: unknown, where: string): ChoiceDocument | undefined {
  return value === undefined ? undefined : tablesOfTcp(checkChoices(value, where), where);
}

/** The tables for tcp, and the plans that they name; `undefined` where there is none. */
function tablesOfTcp(document: ChoiceDocument, where: string): ChoiceDocument | undefined {
  // Tables of programs are none for collectives: `comm.run` over sockets runs a program as it is written.
  const tables = document.tables.filter(({ backend, program }) => backend === "tcp" && program === undefined);
  for (const [i, table] of document.tables.entries()) if (tables.includes(table)) checkTable(document, table, i, where);
  if (tables.length === 0) return undefined;
  const used = new Set(tables.flatMap(({ rows }) => rows.map(({ use }) => parseServed(use, []).name)));
  const plans = Object.entries(document.plans ?? {}).filter(([name]) => used.has(name));
  const { plans: _, ...rest } = document;
  return { ...rest, tables, ...(plans.length === 0 ? {} : { plans: Object.fromEntries(plans) }) };
}

function checkTable({ plans = {} }: ChoiceDocument, table: ChoiceTable, index: number, where: string): void {
  const { collective, ranks, rows } = table;
  const kernels = SOCKET_KERNELS[collective];
  for (const [row, { use }] of rows.entries()) {
    if (kernels.includes(use)) continue;
    const { name, shape } = parseServed(use, []);
    const isOwn = Object.hasOwn(plans, name) && plans[name]?.collective === collective;
    const range = [ranks[0], Math.min(ranks[1], MAX_TCP_RANKS)] as const;
    const accepted = isServed(collective) ? acceptedNames(use, collective, range) : [];
    if (shape === undefined && (isOwn || accepted === undefined)) continue;
    const names = [...kernels, ...(accepted ?? [])].join(", ");
    throw new FormatError(where, `names ${use} for ${collective}, which tcp does not have; expected one of ${names}`, {
      field: `choices.tables[${index}].rows[${row}].use`,
    });
  }
}

/** Tells tables apart: ranks that have other ones do not meet. `none` where there are none. */
export function digestOf(document: ChoiceDocument | undefined): string {
  if (document === undefined) return "none";
  const { tables, plans } = document;
  return createHash("sha256")
    .update(JSON.stringify([tables, plans ?? {}]))
    .digest("hex")
    .slice(0, 16);
}

const isDocument = isChoices(["shipped"]);

/** Checks the option. */
export const isTcpChoices: OptionCheck = (value, ranks) => {
  const problem = isDocument(value, ranks);
  if (problem !== undefined) return problem;
  try {
    worldChoices(value as WantedChoices);
    return undefined;
  } catch (error) {
    return `"shipped", or a document of choices (${(error as Error).message})`;
  }
};
