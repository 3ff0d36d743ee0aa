/**
 * The bench's second door, for commands, scripts and the tuner: how command lines are read, and contenders timed in turn.
 * It starts no world and prints nothing.
 * Start reading at script-flags.ts and programs/program-rank.ts.
 */
export { median } from "./collectives/call-timing.ts";
export { otherRanks, ranksOfHost } from "./collectives/launch-bench.ts";
export { leastSize, requireElements, type SizedCall, sizeRange } from "./collectives/size-range.ts";
export { type Buffers, elementCounts } from "./collectives/timed-calls.ts";
export { contenderCall } from "./programs/program-calls.ts";
export { type Measured, measureContenders } from "./programs/program-rank.ts";
export type { Contender, ProgramJob } from "./programs/program-types.ts";
export { programOperation } from "./programs/run-program-bench.ts";
export { flagsOf, integer, integers } from "./script-flags.ts";
