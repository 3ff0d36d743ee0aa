/**
 * The tables that come with chorale. A row stands here only if it was measured: the command and the result's file are
 * named beside the tables. The last document that is asked must have a table for every collective of its backends.
 */
import { COLLECTIVE_NAMES } from "../../collectives/index.ts";
import { CHOICES_SCHEMA_VERSION, type ChoiceDocument, type ChoiceTable } from "./choices.ts";

/** More ranks than any world has. */
const ANY_RANKS = [1, 1 << 20] as const;

/** Threads of one process move shares of each other's buffers; nothing that was measured is faster in general. */
const THREADS: readonly ChoiceTable[] = COLLECTIVE_NAMES.map((collective) => ({
  backend: "threads",
  collective,
  ranks: ANY_RANKS,
  rows: [{ fromBytes: 0, use: collective === "all_reduce" ? "two-shot-kernel" : "direct-kernel" }],
}));

export const SHIPPED_CHOICES: ChoiceDocument = {
  schemaVersion: CHOICES_SCHEMA_VERSION,
  source: "shipped",
  date: "2026-11-22",
  tables: THREADS,
};
