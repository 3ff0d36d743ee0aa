/**
 * Choices that leave nothing to kernels: every collective that an algorithm of the library can serve is served by one. For
 * tests of plans on whatever the built-in collectives are tested on, and for comparisons; not the fastest of anything.
 * Calls of one rank, with counts of each rank's own, and barriers have no plans.
 */
import type { CollectiveName } from "../../collectives/index.ts";
import { CHOICES_SCHEMA_VERSION, type ChoiceDocument } from "./choices.ts";

/** Defined for every number of ranks; small sizes go in packets where there are such algorithms. */
const PLANS: { readonly [C in CollectiveName]?: readonly (readonly [fromBytes: number, use: string])[] } = {
  all_reduce: [
    [0, "one-shot-packet-all-reduce"],
    [256, "two-shot-fused-read-all-reduce"],
  ],
  broadcast: [
    [0, "binomial-broadcast"],
    [16_384, "one-pass-broadcast"],
  ],
  reduce: [
    [0, "packet-reduce"],
    [256, "one-pass-reduce"],
  ],
  all_gather: [
    [0, "packet-all-gather"],
    [1024, "one-pass-all-gather"],
  ],
  reduce_scatter: [
    [0, "packet-reduce-scatter"],
    [1024, "one-pass-reduce-scatter"],
  ],
  all_to_all: [
    [0, "bruck-all-to-all"],
    [1024, "one-pass-all-to-all"],
  ],
  gather: [
    [0, "binomial-gather"],
    [16_384, "direct-gather"],
  ],
  scatter: [
    [0, "binomial-scatter"],
    [16_384, "one-pass-scatter"],
  ],
};

export const PLAN_CHOICES: ChoiceDocument = {
  schemaVersion: CHOICES_SCHEMA_VERSION,
  source: "plans",
  date: "2026-11-23",
  tables: Object.entries(PLANS).map(([collective, rows]) => ({
    backend: "threads",
    collective: collective as CollectiveName,
    ranks: [2, 1 << 20],
    rows: rows.map(([fromBytes, use]) => ({ fromBytes, use })),
  })),
};
