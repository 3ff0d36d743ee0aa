/**
 * Certificates: a schedule and a witness in, optimal or not out; anyone can check one without trusting who made it.
 * Refuses to search for anything: no solver, no floating point, nothing of the synthesiser.
 * Start with certificate.ts (what is said), then check.ts (how it is proved).
 */
export {
  CERTIFICATE_SCHEMA_VERSION,
  CERTIFIED_COLLECTIVES,
  type Certificate,
  type CertificateCheck,
  type CertifiedCollective,
  type CutWitness,
  type LengthWitness,
  type Network,
  type NetworkEdge,
  type NetworkNode,
  type NetworkRoute,
  type PartitionWitness,
  type Schedule,
  type SchedulePath,
  type ScheduleTree,
  type Witness,
} from "./certificate.ts";
export { checkCertificate } from "./check.ts";
export { type NumberedNetwork, readNetwork } from "./network.ts";
export { sealCertificate } from "./seal.ts";
