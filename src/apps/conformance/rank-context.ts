/** A case about behaviour, and what every case gets on each rank. */
import type { Communicator } from "../../runtime/comm/index.ts";
import type { World } from "../../runtime/world/index.ts";

export interface RankContext {
  readonly world: World;
  readonly comm: Communicator;
  /** Notes what is wrong, and goes on: a rank that stops early would leave the others waiting. */
  fail(problem: string): void;
  /** Numbers that all ranks share, for cases that watch each other. */
  readonly shared: Int32Array;
  /** The same on all ranks. */
  readonly seed: number;
  /** Everything is wanted, however long it takes. */
  readonly full: boolean;
  /** Rounds of the case of random interleavings. */
  readonly interleavings: number;
  /** Calls of each random program. */
  readonly programCalls: number;
}

/** Runs on every rank of a world of its own number of ranks. */
export interface SemanticCase {
  readonly name: string;
  readonly ranks: number;
  /** Operations that the backend must have; otherwise the case is skipped, visibly. */
  readonly needs?: readonly string[];
  /** Features that the backend must not say it lacks. */
  readonly needsFeatures?: readonly string[];
  /** Why it runs only where tensors are in host memory. */
  readonly onHost?: string;
  run(context: RankContext): Promise<void>;
}
