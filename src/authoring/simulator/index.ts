/**
 * Runs plans on topologies in simulated time: time, bandwidth, use of links, critical path, traces.
 * Refuses to judge plans (verifier/ does) and to measure: its constants are fitted to measurements made elsewhere.
 * Start reading in simulate.ts.
 */

export {
  type CollectiveEstimate,
  type CollectiveMachine,
  type CpuCosts,
  collectiveMachineOf,
  cpuCostsFor,
  DEFAULT_CPU_COSTS,
  type EstimateOptions,
  LIBRARY_ALGORITHMS,
  type LibraryAlgorithm,
  type MachineOptions,
  NCCL_FIT,
  NCCL_FIT_SOURCE,
  NCCL_GENERATIONS,
  NCCL_PROTOCOL_NAMES,
  type NcclAlgorithm,
  type NcclEstimate,
  type NcclMachine,
  type NcclProtocol,
  ncclEstimate,
  ncclPrediction,
  ncclTime,
  parseNcclVersion,
  predictCollective,
  switchesReduce,
  TIMED_OPERATIONS,
  type TimedOperation,
  timedAsVersion,
  timedBusFactor,
} from "../../machine/cost/index.ts";
export { readAstraNetwork } from "./astra.ts";
export { toChakra } from "./chakra.ts";
export { type Crossover, type Curve, crossovers, type SizePoint, sideBySide } from "./compare.ts";
export { type CpuSimulation, type SimulateCpuOptions, simulateCpu } from "./cpu-host.ts";
export { criticalPath, describeCriticalPath, type PathStep } from "./critical-path.ts";
export { H200_4 } from "./data/h200-4-2026-11-20.ts";
export { explainStuck } from "./explain-stuck.ts";
export { applyFaults, type Fault, parseFault } from "./faults.ts";
export {
  constantOf,
  type ErrorSummary,
  FITTED_CONSTANTS,
  type Fit,
  type FitOptions,
  type FitRow,
  type FittedConstant,
  type FittedValue,
  fitParameters,
} from "./fit.ts";
export { type CpuFit, type CpuMeasurement, cpuError, fitCpuCosts } from "./fit-cpu.ts";
export { instancesToFill } from "./instances-to-fill.ts";
export { type MeasuredRow, type Measurement, type Measurements, readMeasurements } from "./measurements.ts";
export { fitNcclLL, type NcclFit, ncclMachineOf } from "./nccl-machine.ts";
export { parametersFor, parseParameters, SYSTEMS, type SystemParameters } from "./parameters.ts";
export type { OpRecord, StuckStrand } from "./run-state.ts";
export {
  type LinkUse,
  placeRanks,
  planBusFactor,
  type SimulateOptions,
  type Simulation,
  simulate,
  simulatedDevices,
} from "./simulate.ts";
export { type DirectedLink, type Route, SimulatedMachine } from "./simulated-machine.ts";
export { runSketch, type Sketch, type SketchRun, type SketchStep, symmetryOf } from "./sketch.ts";
export {
  binaryTreePlace,
  directSketch,
  doubleTreeSketch,
  hierarchicalSketch,
  ringAllReduceSketch,
  ringHalfSketch,
  twoShotSketch,
} from "./sketches.ts";
export { type TraceEvent, toTrace } from "./trace.ts";
