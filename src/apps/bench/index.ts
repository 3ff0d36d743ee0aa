export { runBenchRank } from "./collectives/rank.ts";
export { type BenchOptions, bench, checkBench, defaultDrive, defaultRanks, sizeRange } from "./collectives/run.ts";
export { tableFooter, tableHeader, tableRow } from "./collectives/table.ts";
export {
  type BenchJob,
  type BenchRedop,
  type BenchReport,
  type BenchRow,
  DRIVES,
  type Drive,
  type Measurement,
  PRE_MUL_SCALAR,
} from "./collectives/types.ts";
export { allCases, pairwise, RANK_COUNTS } from "./conformance/choose.ts";
export { type DataCase, describeCase } from "./conformance/data-cases.ts";
export { type ConformanceJob, type RankReport, runConformanceRank } from "./conformance/rank.ts";
export { type CaseEvent, type ConformanceOptions, type ConformanceResult, runConformance } from "./conformance/run.ts";
export { SEMANTIC_CASES, type SemanticCase } from "./conformance/semantics.ts";
export { heading, makeStyle, type Style } from "./demo/draw.ts";
export type { DemoReport, GenerationSummary, PlanSummary } from "./demo/report.ts";
export { type DemoListener, type DemoOptions, LOGIT_TOLERANCE, runDemo } from "./demo/run.ts";
export {
  showInventory,
  showPlans,
  showRanks,
  showSpeed,
  showSweepRow,
  showText,
  sweepFooter,
  sweepHeader,
} from "./demo/show.ts";
export type { LeakProgress } from "./leaks/rank.ts";
export { type LeakOptions, type LeakReport, type LeakRow, measureLeaks } from "./leaks/run.ts";
export {
  measureOversubscribed,
  type OversubscribedJob,
  type OversubscribedResult,
  runOversubscribedRank,
} from "./oversubscribed.ts";
