/**
 * The suite that every backend must pass, as a function and as a command: data, behaviour, refusals, failures.
 * It measures no speed, and knows of a backend only what its capabilities claim.
 * Start reading at run-conformance.ts (outside), then conformance-rank.ts (on each rank).
 */
export { allCases, pairwise, RANK_COUNTS } from "./case-selection.ts";
export { type ConformanceJob, type RankReport, runConformanceRank } from "./conformance-rank.ts";
export { type DataCase, describeCase } from "./data-cases.ts";
export type { SemanticCase } from "./rank-context.ts";
export { type CaseEvent, type ConformanceOptions, type ConformanceResult, runConformance } from "./run-conformance.ts";
export { SEMANTIC_CASES } from "./semantic-cases.ts";
