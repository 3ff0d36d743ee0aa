/** Which collectives are made host by host: by collective, size and layout; measured in bench/results/tcp-hosts-2026-11-24.md. */
import { COLLECTIVE_NAMES } from "../../../collectives/index.ts";
import { CHOICES_SCHEMA_VERSION, type ChoiceDocument, type ChoiceRow } from "../../executor/internal.ts";
import type { HostLayout } from "../../hosts/index.ts";
import { FLAT, HIERARCHICAL, isPieced, type PiecedName } from "./socket-ways.ts";
import type { HierarchyMode } from "./tcp-handle.ts";

const always: readonly ChoiceRow[] = [{ fromBytes: 0, use: HIERARCHICAL }];
const never: readonly ChoiceRow[] = [{ fromBytes: 0, use: FLAT }];
/** Fewest ranks of a host with which a broadcast over several hosts gains: without hosts each rank's relay sends to all of them. */
const LEAST_RELAYS = 4;
/** Below it a reduce is one message of each rank to the root. */
const LEAST_REDUCE_BYTES = 32 * 1024;

/** The rows of a collective where ranks leave it to the table. */
function rowsOf(collective: PiecedName, { hosts, numColumns }: HostLayout): readonly ChoiceRow[] {
  if (hosts.length === 1) return always;
  if (collective === "broadcast" && numColumns < LEAST_RELAYS) return never;
  return collective === "reduce" ? [...never, { fromBytes: LEAST_REDUCE_BYTES, use: HIERARCHICAL }] : always;
}

/** The tables of a group whose ranks share memory inside hosts, for what no other table is about. */
export function hierarchyTables(layout: HostLayout, mode: HierarchyMode): ChoiceDocument {
  return {
    schemaVersion: CHOICES_SCHEMA_VERSION,
    source: mode === "on" ? "hierarchy: on" : "shipped",
    date: "2026-11-24",
    tables: COLLECTIVE_NAMES.map((collective) => ({
      backend: "tcp",
      collective,
      ranks: [2, 1 << 20],
      rows: !isPieced(collective) || mode === "off" ? never : mode === "on" ? always : rowsOf(collective, layout),
    })),
  };
}
