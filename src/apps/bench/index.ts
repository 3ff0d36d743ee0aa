export { allCases, pairwise, RANK_COUNTS } from "./conformance/choose.ts";
export { type DataCase, describeCase } from "./conformance/data-cases.ts";
export { type ConformanceJob, type RankReport, runConformanceRank } from "./conformance/rank.ts";
export { type ConformanceOptions, type ConformanceResult, runConformance } from "./conformance/run.ts";
export { SEMANTIC_CASES, type SemanticCase } from "./conformance/semantics.ts";
