/**
 * The doctor: what is missing or misconfigured on a machine, and what a flight recording says of a failure.
 * Refuses to mend anything: each finding says what to do.
 * Start with accelerator-checks.ts; flight.ts explains recordings.
 */
export { diagnose } from "./accelerator-checks.ts";
export {
  type EngineReport,
  findEngines,
} from "./backend-libraries.ts";
export {
  DOCTOR_CODES,
  type DoctorCode,
  type Finding as DoctorFinding,
  type Severity as DoctorSeverity,
} from "./finding.ts";
export {
  explain,
  explainFlight,
  type FlightReport,
  type GroupDiagnosis,
  type StreamTimings,
} from "./flight.ts";
export { type GpuFacts, gpuFactsSchema, readGpuFacts } from "./gpu-facts.ts";
export { knownCause } from "./known-causes.ts";
export { judgeFfi } from "./missing-ffi.ts";
export { judgeMpi, type MpiFacts, readMpiFacts } from "./mpi.ts";
export { judgeNode } from "./node-version.ts";
