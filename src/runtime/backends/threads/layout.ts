/**
 * Where everything lies in a world's shared memory, in bytes. Words are 32-bit. What one rank writes and others poll
 * has cache lines of its own, 128 bytes apart because processors fetch lines in pairs.
 *
 *   world header | rank blocks | heap: group blocks, members' private blocks, tensors, staging
 */

import { MAX_RING_RANKS, ROOM_BYTES } from "./collective-path.ts";

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
  /** How many processes have mapped the memory. */
  mapped: 5,
  /** How much of it may be used, in units of LINE, where it does not grow by itself. */
  committed: 6,
  /** The heap's lock (0 free, else 1 + rank of its holder, or 0xffff for the launcher). */
  lock: 32,
  heapStart: 33,
  /** End of what was ever handed out: memory above it is still zero. */
  heapTop: 34,
  heapLimit: 35,
  /** Size of the block that ends at the top, in units of LINE; 0 when there is none. */
  lastUnits: 36,
  usedBytes: 37,
  peakBytes: 38,
  highWater: 39,
  /** Number of threads asleep or about to be, and what says that some were lately: a waker looks further when either is not 0. */
  sleepers: 64,
  alert: 65,
  /** First free block of each class of sizes (heap.ts), 0 where there is none. */
  freeLists: 96,
  /** What ranks tell each other of plans (verdict-table.ts). */
  verdicts: 128,
  sizeBytes: 512 + 256 * 16,
} as const;
/** Entries of the table of verdicts, word indexes: a key of two words, how far the answer is, and the rank that finds it. */
export const VERDICT = { state: 0, key: 1, owner: 3, words: 4, numEntries: 256 } as const;
export const MAGIC = 0x63686f72;
export const LAUNCHER = 0xffff;

/** One block per rank of the world. */
export const RANK = {
  /** Bumped to wake the rank. */
  doorbell: 0,
  /** How many of the rank's waits are asleep (a blocking one, an asynchronous one). */
  sleeping: 64,
  /** 1: somebody rings, or has rung since the rank last went to sleep; nobody else needs to. */
  rung: 68,
  failed: 128,
  causeBytes: 132,
  /** Number of entries ever written to the ring, modulo 2^32. */
  flightCount: 136,
  attached: 140,
  /** 1 + the rank that is named when this one is dead: another one where it ended because that one died; 0 for itself. */
  blamed: 144,
  /** 1 + the CPU on which the rank was when it last slept at most calls, and when that was, ms: see core-sharing.ts. */
  cpu: 148,
  cpuNotedAt: 152,
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
  /** The rings of small messages between the members (eager-rings.ts), 0 until one is sent. */
  rings: 32,
  /** 1 when the ranks have a core each: its maker says so for all members, who must agree on how they meet. */
  spread: 36,
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
  /** A hash of the fingerprints of all calls of the group up to this one: see `publish`. */
  history: 24,
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
  /** Rounds of a dissemination (meeting-code.ts), 0 where the members poll each other's words. */
  meetings: 40,
  /** How far a small collective is. */
  stage: 44,
  /** Of the slot that was published last. */
  history: 48,
  /** Addresses of the group's block, and of the rank's. */
  group: 52,
  rank: 56,
  sizeBytes: 128,
} as const;
/** What a member does in a small collective (eager-code.ts). One for each operation: programs repeat themselves. */
export const TASK = {
  /** Through which rings it sends. */
  way: 0,
  /** The member to whose lane something is sent. */
  sendTo: 4,
  /** 1: that is a part of the input. */
  sendsOwn: 8,
  /** 1: that is made of what came. */
  relays: 12,
  receiveList: 16,
  numReceives: 20,
  /** Bytes that go into this member's own ring, for all others. */
  postBytes: 24,
  /** Where this member's part begins in a message. */
  ownOffset: 28,
  /** From one peer's part of the input to the next one's. */
  inputStride: 32,
  partBytes: 36,
  /** What is done with what came: a kernel of reductions, or one of `FINISH`. */
  finish: 40,
  /** 1: the table of inputs has this rank's own first and then those that came, without gaps; otherwise by rank. */
  isDense: 44,
  /** What is copied where nothing is reduced (`COPY_ENTRY`). */
  copies: 48,
  numCopies: 52,
  /** Whether messages have no data, but say where it is (`DIRECT`). */
  direct: 56,
  /** Through which rings it receives. */
  wayIn: 60,
  /** The call, in the order of a slot from `SLOT.call` on. */
  call: 64,
  count: 68,
  extra: 72,
  input: 76,
  output: 80,
  /** From a message's flag to another word that is polled with it: see `polledToo` in eager-rings.ts. */
  polledToo: 84,
  /** Where two ranks send each other one message each: where both members' boxes lie, and the counters of them. 0 elsewhere. */
  myBoxes: 88,
  theirBoxes: 92,
  myState: 96,
  theirState: 100,
  sizeBytes: 112,
} as const;
/**
 * Messages without data: they say where it is, and whoever sent it waits until it was taken; or where it is to go, and those that
 * bring it there say so.
 */
export const DIRECT = { no: 0, take: 1, bring: 2 } as const;
/** Of how many operations some calls are small. */
const NUM_TASKS = 8;
/** One copy of a small collective: from an entry of the table of inputs and an offset to an offset in the output. */
export const COPY_ENTRY = { place: 0, from: 4, to: 8, bytes: 12, sizeBytes: 16 } as const;

/**
 * Rings of small messages. A message is a flag and, 16 bytes on, data; or the address of data, 8 bytes on. `numLane` of a lane are in flight at most; receivers
 * say how many they took every `acknowledgeEvery`. `sent`, `acknowledged` and `taken` are a member's own counters of a ring
 * of each peer, and `takenStamp` is the call of the last message that it took: 16 bytes for each.
 */
export const RING = {
  numMessages: 8,
  numBoxes: 2,
  acknowledgeEvery: 4,
  address: 8,
  data: 16,
  sent: 0,
  acknowledged: 4,
  taken: 8,
  takenStamp: 12,
  stateBytes: 16,
} as const;
/** The bytes of a box, and of a message of a ring of one for all. */
export const BOX_BYTES = Math.ceil((RING.data + ROOM_BYTES) / LINE) * LINE;
/**
 * Rings of one kind, as a member sees them: where those lie that it polls and the one (or, of lanes, the first) that it
 * writes, the number of their slots less one, its counters, and the lines of acknowledgements that it reads and writes, 0
 * where there are none.
 */
export const WAY = {
  in: 0,
  inStride: 4,
  out: 8,
  outStride: 12,
  slotBytes: 16,
  mask: 20,
  state: 24,
  acksIn: 28,
  acksOut: 32,
  ackStride: 36,
  sizeBytes: 48,
} as const;
/** Kinds of rings. */
const NUM_WAYS = 3;
/** Multipliers of the hash of a group's calls: odd, with bits all over. */
export const HISTORY = { before: 0xc2b2ae35 | 0, call: 0x9e3779b1 | 0, count: 0x85ebca6b | 0 } as const;

/** Links of a rank in one dissemination: at most so many rounds of so many messages. */
export const MEETING = { radix: 4, maxRounds: 4, linkBytes: LINE, arrived: 0, finished: 8 } as const;

/**
 * What stands for call `seq` in a word: at a call per microsecond their numbers pass 2^31 within the hour, and words wrap.
 * A word is written again long before 2^32 calls (2^32 - 1 barriers in a row aside), so equal stamps are of one call; which
 * of two messages is later, the difference modulo 2^32 says by its sign, for they are at most a ring apart.
 */
export const stampOf = (seq: number): number => (seq + 1) | 0;

const roundUp = (value: number, unit: number) => Math.ceil(value / unit) * unit;

/** How many messages of a dissemination each member gets. */
export function linksOf(size: number): number {
  let links = 0;
  for (let distance = 1; distance < size; distance *= MEETING.radix) {
    for (let j = 1; j < MEETING.radix; j++) if (j * distance < size) links++;
  }
  return links;
}

/** Offsets in a group block that depend on the number of its ranks. */
export function groupLayout(size: number, keyBytes: number) {
  const slots = roundUp(GROUP.ranks + 4 * size, LINE);
  const done = slots + 2 * size * SLOT.sizeBytes;
  const countsStride = roundUp(8 * size, LINE);
  const links = done + size * LINE;
  const counts = links + size * linksOf(size) * LINE;
  const texts = counts + size * countsStride;
  const pairs = texts + size * TEXT_BYTES;
  const key = pairs + 4 * size * size;
  return { slots, done, links, counts, countsStride, texts, pairs, key, sizeBytes: key + keyBytes };
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
  const others = doorTable + table;
  const tasks = others + table;
  // Copied are a member's own part, one of each other, and one more where a stretch of parts begins anew at rank 0.
  const taskCopies = TASK.sizeBytes;
  const taskList = taskCopies + (size + 1) * COPY_ENTRY.sizeBytes;
  const taskBytes = taskList + table;
  const ways = tasks + (size <= MAX_RING_RANKS ? NUM_TASKS * taskBytes : 0);
  const ringStates = ways + NUM_WAYS * WAY.sizeBytes;
  const meetings = ringStates + NUM_WAYS * size * RING.stateBytes;
  const meetingBytes = roundUp(4 * MEETING.maxRounds + 8 * linksOf(size) + 4, 16);
  return {
    context,
    inTable,
    outTable,
    fromTable,
    toTable,
    doorTable,
    others,
    tasks,
    taskCopies,
    taskList,
    taskBytes,
    ways,
    ringStates,
    meetings,
    sizeBytes: meetings + meetingBytes,
  };
}
