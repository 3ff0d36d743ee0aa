export * from "./checks.ts";
export * from "./engine-report.ts";
export type { Finding, Severity } from "./finding.ts";
export * from "./flight.ts";
export { type GpuFacts, gpuFactsSchema, readGpuFacts } from "./gpu-facts.ts";
export { knownCause } from "./known-causes.ts";
export { judgeNode } from "./node-version.ts";
