export { FINDING_CODES, type ChunkPlace, type Finding, type FindingCode, type OpRef, type Severity } from "./findings.ts";
export { MSCCLPP_LIMITS, type Target, TARGETS } from "./limits.ts";
export { renderFindings } from "./render.ts";
export { type Verdict, type VerifyOptions, verifyPlan } from "./verify.ts";
