/** What a case gets on each rank. */
import type { Communicator } from "../../../runtime/comm/index.ts";
import type { World } from "../../../runtime/world/index.ts";

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
}
