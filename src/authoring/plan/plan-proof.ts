/**
 * What is known about plans that were proved: noted by the verifier, asked for by whoever runs them. A proof is of the very
 * object, which has to be frozen; a copy, or a plan from a file, is proved anew.
 */
import { invariant } from "../../core/index.ts";
import type { ExecutionPlan } from "./execution-plan.ts";

export type PlanProof =
  | {
      readonly ok: true;
      /**
       * Whether a rank's output is complete, and its buffers may be reused, when that rank ends: then the ranks need not
       * meet after it. Takes as long as the proof when it is first called.
       */
      readonly endsAlone: () => boolean;
      /** Whether launches may follow each other with nothing between them. Takes as long, too. */
      readonly relaunches: () => boolean;
    }
  | { readonly ok: false /** What is wrong, in words. */; readonly opinion: string };

const proofs = new WeakMap<ExecutionPlan, PlanProof>();

/** What the verifier found, if it was asked about this object. */
export function proofOf(plan: ExecutionPlan): PlanProof | undefined {
  return proofs.get(plan);
}

export function noteProof(plan: ExecutionPlan, proof: PlanProof): void {
  invariant(Object.isFrozen(plan) && Object.isFrozen(plan.ranks), "only a frozen plan can be proved");
  proofs.set(plan, Object.freeze(proof));
}
