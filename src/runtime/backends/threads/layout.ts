/**
 * Where everything lies in a world's shared memory, in bytes. Words are 32-bit. What one rank writes and others poll
 * has cache lines of its own, 128 bytes apart because processors fetch lines in pairs.
 *
 *   world header | rank blocks | heap: group blocks, members' private blocks, tensors, staging
 */

export const LINE = 128;

/** World header, word indexes from address 0. */
export const WORLD = {
  magic: 0,
  ranks: 1,
  generation: 2,
  /** First group block, 0 when there is none; the list and the heap are guarded by the same lock. */
  firstGroup: 3,
  /** 1 + the rank whose end ended the generation for everybody; 0 while it lives. Groups opened later are born failed. */
  failedRank: 4,
  /** The heap's lock (0 free, else 1 + rank of its holder, or 0xffff for the launcher). */
  lock: 32,
  heapStart: 33,
  /** End of what was ever handed out: memory above it is still zero. */
  heapTop: 34,
  heapLimit: 35,
  /** First free block, 0 when there is none. */
  freeList: 36,
  usedBytes: 37,
  peakBytes: 38,
  highWater: 39,
  /** Number of threads asleep or about to be: a waker looks further only when it is not 0. */
  sleepers: 64,
  sizeBytes: 512,
} as const;
export const MAGIC = 0x63686f72;
export const LAUNCHER = 0xffff;

/** One block per rank of the world. */
export const RANK = {
  /** Bumped to wake the rank. */
  doorbell: 0,
  /** How many of the rank's waits are asleep (a blocking one, an asynchronous one). */
  sleeping: 64,
  failed: 128,
  causeBytes: 132,
  /** Number of entries ever written to the ring, modulo 2^32. */
  flightCount: 136,
  attached: 140,
  cause: 256,
  maxCauseBytes: 768,
  flight: 1024,
  flightEntries: 64,
  flightEntryBytes: 32,
  sizeBytes: 1024 + 64 * 32,
} as const;

/** A flight-recorder entry, byte offsets. One that was never written has no group. */
export const ENTRY = { group: 0, seq: 4, call: 8, count: 12, state: 16, seqHigh: 20, time: 24 } as const;

/** Start of a group block. */
export const GROUP = {
  size: 0,
  references: 4,
  next: 8,
  keyBytes: 12,
  key: 16,
  nameBytes: 20,
  /** How many members have closed it. */
  numLeft: 24,
  /** First of the blocks that the members share for a plan (plan-runs.ts), 0 when there is none. */
  plans: 28,
  /** 0 sound, -1 a failure is being written, 1 failed. */
  state: 128,
  failureBytes: 132,
  failure: 256,
  maxFailureBytes: 3840,
  ranks: 4096,
} as const;

/** An arrival slot: what a rank publishes when it enters an operation. */
export const SLOT = {
  seq: 0,
  call: 4,
  count: 8,
  extra: 12,
  input: 16,
  output: 20,
  sizeBytes: LINE,
} as const;

/** A member's line of the `done` words: what it has finished, and whether it has closed the group, and before which call. */
export const DONE = { stamp: 0, left: 4, leftBefore: 8 } as const;

export const TEXT_BYTES = 512;

/** One direction between two ranks. Messages are counted modulo 2^32: see `stampOf`. */
export const PAIR = {
  posted: 0,
  consumed: LINE,
  messages: 2 * LINE,
  numMessages: 64,
  messageBytes: 32,
  sizeBytes: 2 * LINE + 64 * 32,
} as const;
export const MESSAGE = { state: 0, dtype: 4, count: 8, address: 12 } as const;
/** States of a message. The sender may turn `posted` into `buffering`, the receiver into `taking`: one of them wins. */
export const MESSAGE_STATE = { posted: 1, buffering: 2, buffered: 3, taking: 4, consumed: 5 } as const;

/** A member's private block: what the WASM protocol needs of one (group, rank). Byte offsets. */
export const MEMBER = {
  size: 0,
  me: 4,
  slots: 8,
  done: 16,
  sleepers: 20,
  context: 24,
  inTable: 28,
  outTable: 32,
  doorTable: 36,
  sizeBytes: 128,
} as const;

/**
 * What stands for call `seq` in a word: at a call per microsecond their numbers pass 2^31 within the hour, and words wrap.
 * A word is written again long before 2^32 calls (2^32 - 1 barriers in a row aside), so equal stamps are of one call; which
 * of two messages is later, the difference modulo 2^32 says by its sign, for they are at most a ring apart.
 */
export const stampOf = (seq: number): number => (seq + 1) | 0;

const roundUp = (value: number, unit: number) => Math.ceil(value / unit) * unit;

/** Offsets in a group block that depend on the number of its ranks. */
export function groupLayout(size: number, keyBytes: number) {
  const slots = roundUp(GROUP.ranks + 4 * size, LINE);
  const done = slots + 2 * size * SLOT.sizeBytes;
  const countsStride = roundUp(8 * size, LINE);
  const counts = done + size * LINE;
  const texts = counts + size * countsStride;
  const pairs = texts + size * TEXT_BYTES;
  const key = pairs + 4 * size * size;
  return { slots, done, counts, countsStride, texts, pairs, key, sizeBytes: key + keyBytes };
}

/** Offsets in a member's private block: the fixed part, the kernel context, then tables of addresses. */
export function memberLayout(size: number, contextBytes: number) {
  const table = roundUp(4 * size, 16);
  const context = MEMBER.sizeBytes;
  const inTable = roundUp(context + contextBytes, 16);
  const outTable = inTable + table;
  const fromTable = outTable + table;
  const toTable = fromTable + table;
  const doorTable = toTable + table;
  return {
    context,
    inTable,
    outTable,
    fromTable,
    toTable,
    doorTable,
    sizeBytes: doorTable + table,
  };
}
