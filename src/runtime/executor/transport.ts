/**
 * The seam between a plan and what carries its data: where the buffers and counters of the ranks of a group are. The
 * executor knows nothing else of how ranks reach each other, not even that they are threads. It is consulted when a plan
 * is prepared: what it answers are addresses, which are compiled in, and nothing of it is called while the plan runs.
 *
 * Ranks are group ranks. Addresses are bytes in the memory that the executor's code was instantiated over.
 */

/** What a plan touches at a rank. `packets` is the part of scratch that holds packets: data with flags beside it. */
export const REACHES = ["input", "output", "scratch", "packets"] as const;
export type Reach = (typeof REACHES)[number];

export interface Transport {
  /**
   * The address of a word that holds a buffer's base address from the launch on. The words of this rank's own `scratch`
   * and `packets` are written by the executor before the ranks meet, and those of the others read after.
   */
  map(rank: number, buffer: Reach): number;
  /** The address of the word that this rank adds one to, to raise a counter of another rank. */
  signal(rank: number, counter: number): number;
  /** The address of the word that says how often a counter of this rank was raised. */
  wait(counter: number): number;
  /**
   * The address of words of this rank that outlive a preparation of the plan, as counters do: zeros at first. How many:
   * `PreparedPlan.stateBytes`.
   */
  readonly state: number;
}

/** Memory that the executor's code sees: where plans, scratch and counters lie. */
export interface ExecutorMemory {
  /** All words of the memory, at least up to `endAddress`. */
  words(endAddress?: number): Int32Array;
  /** Takes `bytes`, zeros unless `zeroed` is false, at a multiple of 128. @throws OutOfMemoryError */
  allocate(bytes: number, zeroed?: boolean): number;
  free(address: number): void;
}
