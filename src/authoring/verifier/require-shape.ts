/** What everybody who runs or simulates a plan asks of it, proved or not. Small: ranks load it when they start. */
import { PlanError } from "../../core/index.ts";
import { type ExecutionPlan, proofOf } from "../plan/index.ts";
import { checkShape } from "./check-shape.ts";
import { Findings } from "./findings.ts";

/** Plans that are known to hold together: those that are simulated at one size after the other. */
const sound = new WeakSet<ExecutionPlan>();

/**
 * Refuses a plan that does not hold together (an operation outside its buffers, a channel to no rank): nothing can be said
 * about what it does, nor how long it takes. Whether it does what it should is `verifyPlan`'s to say.
 * @throws PlanError with what `verifyPlan` finds
 */
export function requireShape(plan: ExecutionPlan): void {
  if (sound.has(plan) || proofOf(plan)?.ok === true) return;
  const findings = new Findings();
  if (!checkShape(plan, findings)) throw new PlanError(plan?.name ?? "the plan", findings.list);
  sound.add(plan);
}
