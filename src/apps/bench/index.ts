/**
 * What `chorale bench` and `chorale demo` do, as functions, and the measurement of ranks that share cores.
 * It proves nothing right: that is apps/conformance.
 * Start reading at collectives/run-bench.ts, programs/run-program-bench.ts and demo/run-demo.ts.
 */
export { runBenchRank } from "./collectives/bench-rank.ts";
export {
  type BenchJob,
  type BenchRedop,
  type BenchReport,
  type BenchRow,
  DRIVES,
  type Drive,
  type Measurement as BenchMeasurement,
  PRE_MUL_SCALAR,
} from "./collectives/bench-types.ts";
export { memoryTraffic } from "./collectives/memory-roofline.ts";
export { tableFooter, tableHeader, tableRow } from "./collectives/result-table.ts";
export {
  type BenchOptions,
  bench,
  checkBench,
  defaultDrive,
  defaultRanks,
} from "./collectives/run-bench.ts";
export { sizeRange } from "./collectives/size-range.ts";
export { elementCounts } from "./collectives/timed-calls.ts";
export type { UnusedDevices, UsableDevices } from "./demo/demo-devices.ts";
export type { DemoReport, DeviceRun, GenerationSummary, PlanSummary } from "./demo/demo-report.ts";
export {
  showInventory,
  showPlans,
  showRanks,
  showSpeed,
  showSweepRow,
  showText,
  showUnused,
  sweepFooter,
  sweepHeader,
} from "./demo/demo-text.ts";
export { type DemoListener, type DemoOptions, LOGIT_TOLERANCE, runDemo } from "./demo/run-demo.ts";
export { heading, makeStyle, type Style } from "./demo/terminal-style.ts";
export {
  measureOversubscribed,
  type OversubscribedJob,
  type OversubscribedResult,
  runOversubscribedRank,
} from "./oversubscription.ts";
export { programFooter, programHeader, programRow } from "./programs/program-table.ts";
export type { ProgramRow } from "./programs/program-types.ts";
export { benchProgram, type ProgramBenchOptions } from "./programs/run-program-bench.ts";
