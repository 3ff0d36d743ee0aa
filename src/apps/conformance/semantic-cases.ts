/**
 * The cases about behaviour: order, point to point, batches, groups, objects, plans, what is refused, what a mismatch, a
 * missing rank, an abort and a close do. A case runs on every rank of a world of its own number of ranks.
 */
import { BEHAVIOUR_CASES } from "./behaviour-cases.ts";
import { CONTRACT_CASES } from "./contract-cases.ts";
import { FAILURE_CASES } from "./failure-cases.ts";
import { INTERLEAVING_CASES } from "./interleaving-cases.ts";
import { PLAN_CASES } from "./plan-cases.ts";
import { RANDOM_PROGRAMS } from "./random-programs.ts";
import type { SemanticCase } from "./rank-context.ts";
import { REFUSAL_CASES } from "./refusal-cases.ts";
import { ROOTED_CASES } from "./rooted-cases.ts";

export const SEMANTIC_CASES: readonly SemanticCase[] = [
  ...BEHAVIOUR_CASES,
  ...ROOTED_CASES,
  ...PLAN_CASES,
  ...RANDOM_PROGRAMS,
  ...INTERLEAVING_CASES,
  ...REFUSAL_CASES,
  ...CONTRACT_CASES,
  ...FAILURE_CASES,
];
