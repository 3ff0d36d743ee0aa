/**
 * The seam between a plan and what carries its data: where the buffers and counters of the ranks of a group are. The
 * executor knows nothing else of how ranks reach each other, not even that they are threads. It is consulted when a plan
 * is prepared: what it answers are addresses, which are compiled in, and nothing of it is called while the plan runs.
 * What ranks without common memory do to each other goes through a `FarPort` instead, as the plan runs.
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
  /** Whether a rank's memory is not this one's: `map` is not asked for it, and its `signal` is a word of this rank's own. */
  isFar?(rank: number): boolean;
  /**
   * The address of words of this rank that outlive a preparation of the plan, as counters do: zeros at first. How many:
   * `PreparedPlan.stateBytes`.
   */
  readonly state: number;
}

/** A place in a buffer of a far rank. The offset counts bytes of data, also where packets with as many flags lie. */
export interface FarPlace {
  readonly rank: number;
  readonly buffer: Reach;
  readonly offset: number;
}

/** How data arrives: as it is; as packets, which the receiver makes of it; or `raw`, as packets that
 * the sender had: 8 bytes for each 4 of data that were begun. */
export type FarForm = "plain" | "packets" | "raw";

/**
 * What a plan needs of far ranks while it runs. What goes to one rank arrives in the order of these calls; nothing is promised
 * of what goes to several. `done` may be called before the function returns. Addresses are of this rank's memory.
 */
export interface FarPort {
  /** Writes `bytes` bytes at a place. `done`: the memory may change again. */
  put(to: FarPlace, form: FarForm, from: number, bytes: number, done: () => void): void;
  /** Reads `bytes` bytes of a place as it is when the request arrives. `done`: they are there. */
  get(from: FarPlace, to: number, bytes: number, done: () => void): void;
  /** Raises a counter of a rank. */
  signal(rank: number, counter: number, times: number): void;
  /** `done`: everything that was put at the rank is there. */
  fence(rank: number, done: () => void): void;
}

/** Memory that the executor's code sees: where plans, scratch and counters lie. */
export interface ExecutorMemory {
  /** All words of the memory, at least up to `endAddress`. */
  words(endAddress?: number): Int32Array;
  /** Takes `bytes`, zeros unless `zeroed` is false, at a multiple of 128. @throws OutOfMemoryError */
  allocate(bytes: number, zeroed?: boolean): number;
  free(address: number): void;
}
