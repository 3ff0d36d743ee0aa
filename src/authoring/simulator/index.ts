export { applyFaults, explainStuck, type Fault, parseFault } from "./faults.ts";
export { type DirectedLink, Machine, type Route } from "./machine.ts";
export { parametersFor, parseParameters, SYSTEMS, type SystemParameters } from "./parameters.ts";
export type { OpRecord, StuckStrand } from "./run-plan.ts";
export {
  type LinkUse,
  placeRanks,
  planBusFactor,
  type SimulateOptions,
  type Simulation,
  simulate,
  simulatedDevices,
} from "./simulate.ts";
