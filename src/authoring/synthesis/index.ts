/**
 * Synthesis: a topology in, the provable optimum of a collective and a plan that reaches it out, with a certificate.
 * Refuses to claim what it cannot prove: a schedule above its bound is given with the gap and gets no certificate.
 * Start with synthesize.ts; cut-bounds.ts and forest.ts hold the algorithms, docs/synthesis.md the mathematics.
 */
export { certify } from "./certify.ts";
export { type Envelope, type EnvelopeOptions, type EnvelopePoint, envelope } from "./envelope.ts";
export { inventoryOf } from "./inventory-of.ts";
export { latencyBoundUs, simulatedLatencyUs } from "./latency-bound.ts";
export { type MulticastTemplate, multicastTemplate } from "./multicast.ts";
export { type CheckedNetwork, checkNetwork } from "./network.ts";
export { type NetworkOptions, networkOf } from "./network-of.ts";
export { piecesFor, pipelinedTime, waveTimeUs } from "./pipelining.ts";
export type { SynthesisOptions } from "./problem.ts";
export { mostPieces, type ProgramSettings, programOf } from "./program-of.ts";
export { Rational } from "./rational.ts";
export { STRAND_LAYOUTS, type StrandLayout } from "./schedule-layout.ts";
export { type EdgeSensitivity, sensitivity } from "./sensitivity.ts";
export { fastestStrands } from "./strand-choice.ts";
export { lowerBound, type Synthesis, type SynthesisStatus, synthesize } from "./synthesize.ts";
