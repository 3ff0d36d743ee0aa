/**
 * Proves that a plan does what its collective asks under every interleaving, or returns findings that say what is wrong.
 * Refuses to guess (what it cannot decide is `undecided`, an error) and to load anything but plan/ and what that needs.
 * Start reading in verify-plan.ts, with docs/semantics.md beside it.
 */
export { TARGETS, type Target } from "./check-target.ts";
export {
  type ChunkPlace,
  FINDING_CODES,
  type Finding,
  type FindingCode,
  type OpRef,
  type Severity,
} from "./findings.ts";
export { provePlan, provePlanOnce } from "./prove-plan.ts";
export { renderFindings } from "./render-findings.ts";
export { requireShape } from "./require-shape.ts";
export { type Verdict, type VerifyOptions, verifyPlan } from "./verify-plan.ts";
