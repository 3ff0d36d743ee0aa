/**
 * The cases about behaviour: order, point to point, batches, groups, objects, what is refused, what a mismatch, a
 * missing rank, an abort and a close do. A case runs on every rank of a world of its own number of ranks.
 */
import { BEHAVIOUR_CASES } from "./behaviour-cases.ts";
import { CONTRACT_CASES } from "./contract-cases.ts";
import { FAILURE_CASES } from "./failure-cases.ts";
import { INTERLEAVING_CASES } from "./interleaving-cases.ts";
import { RANDOM_PROGRAMS } from "./random-programs.ts";
import { REFUSAL_CASES } from "./refusal-cases.ts";
import type { RankContext } from "./types.ts";

export interface SemanticCase {
  readonly name: string;
  readonly ranks: number;
  /** Operations that the backend must have; otherwise the case is skipped, visibly. */
  readonly needs?: readonly string[];
  /** Features that the backend must not say it lacks. */
  readonly needsFeatures?: readonly string[];
  run(context: RankContext): Promise<void>;
}

export const SEMANTIC_CASES: readonly SemanticCase[] = [
  ...BEHAVIOUR_CASES,
  ...RANDOM_PROGRAMS,
  ...INTERLEAVING_CASES,
  ...REFUSAL_CASES,
  ...CONTRACT_CASES,
  ...FAILURE_CASES,
];
