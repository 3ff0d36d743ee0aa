export {
  type ChunkPlace,
  FINDING_CODES,
  type Finding,
  type FindingCode,
  type OpRef,
  type Severity,
} from "./findings.ts";
export { TARGETS, type Target } from "./limits.ts";
export { renderFindings } from "./render.ts";
export { type Verdict, type VerifyOptions, verifyPlan } from "./verify.ts";
