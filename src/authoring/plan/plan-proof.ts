/**
 * What is known about plans that were proved: noted by the verifier, asked for by whoever runs them. A proof is of the very
 * object, which has to be frozen; a copy, or a plan from a file, is proved anew.
 */
import { invariant } from "../../core/index.ts";
import type { ExecutionPlan } from "./execution-plan.ts";

export type PlanProof =
  | {
      readonly ok: true;
      /** Of the plan (hash-plan.ts): whoever proves a plan, keeps it and runs it asks for it. */
      readonly hash: string;
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

/**
 * What the ranks of a world tell each other of plans, so that what one of them has found out the others need not: they all
 * prove the same plans at the same time. Questions are texts that begin with a plan's hash.
 */
export interface SharedVerdicts {
  /**
   * What a peer found; waits for a peer that is at it. `undefined`: nobody has told, and the caller finds out and tells.
   */
  ask(question: string): boolean | undefined;
  tell(question: string, answer: boolean): void;
}

let shared: SharedVerdicts | undefined;

/** Makes proofs of this thread known to the peers of its world, and theirs here; `undefined` ends that. */
export function shareVerdicts(verdicts: SharedVerdicts | undefined): void {
  shared = verdicts;
}

/** Answers a question about a plan, or has a peer answer it. */
export function askOnce(question: string, find: () => boolean): boolean {
  if (shared === undefined) return find();
  const verdicts = shared;
  const told = verdicts.ask(question);
  if (told !== undefined) return told;
  let answer = false;
  try {
    answer = find();
  } finally {
    verdicts.tell(question, answer);
  }
  return answer;
}
