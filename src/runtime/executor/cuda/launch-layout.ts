/**
 * What a kernel is given: the words of its parameter block, and where things lie in a rank's window (memory that its peers
 * reach) and state (memory that only it touches). One place for the generated source and for the host that launches it.
 */
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";

const roundUp = (value: number, unit: number) => Math.ceil(value / unit) * unit;

/** Counters that peers raise, and flags that they set, are this far apart: one sector of the L2 cache. */
export const COUNTER_STRIDE = 32;
/** Two packets that name a rank's buffers, for launches of even and of odd number. */
export const GREETING_BYTES = 32;

/** The beginning of every rank's window, the same on all ranks. Data follows at `bytes`. */
export interface WindowLayout {
  /** Counters of channels, by number: this rank waits for them. */
  readonly counters: number;
  /** Of each peer, twice: where its buffers are in this launch. */
  readonly greetings: number;
  /** Of each peer: the last launch that it has ended. */
  readonly farewells: number;
  /** Of each peer: the last launch that it has told that it has begun. Which ones it tells of is the kernel's matter. */
  readonly begun: number;
  /** A word for the host of any rank: launches here end at once when it is not 0. */
  readonly abort: number;
  readonly bytes: number;
}
export function windowLayout(plan: ExecutionPlan): WindowLayout {
  const numRanks = plan.ranks.length;
  const numCounters = Math.max(0, ...plan.ranks.map((r) => r.channels.memory.length + r.channels.port.length));
  const greetings = COUNTER_STRIDE * numCounters;
  const farewells = greetings + 2 * GREETING_BYTES * numRanks;
  const begun = farewells + COUNTER_STRIDE * numRanks;
  const abort = begun + COUNTER_STRIDE * numRanks;
  return { counters: 0, greetings, farewells, begun, abort, bytes: roundUp(abort + COUNTER_STRIDE, 128) };
}

/** A rank's state, in words of 4 bytes, zeros before the first launch but for the semaphores. */
export interface StateLayout {
  /**
   * Of each block, `BLOCK_WORDS` words: the last launch that it has ended, the size of that one (two words), and how
   * many launches were to tell the host of their ends.
   */
  readonly blocks: number;
  /** Of each counter: how often it was waited for. */
  readonly taken: number;
  readonly semaphores: number;
  /** Of each barrier: how many have come, and how often all met. */
  readonly barriers: number;
  /** Guards what several strands take together. */
  readonly lock: number;
  /** Blocks that have ended, in launches at whose end the ranks meet. */
  readonly ended: number;
  /** The first strand that waited too long in a debug build: `REPORT_WORDS` words. */
  readonly report: number;
  readonly words: number;
}
/** One load of a thread: 16 bytes. */
export const BLOCK_WORDS = 4;
/** Words of a report: 1 when there is one, strand, operation, operation in the pipeline's body + 1, what was seen, what was wanted. */
export const REPORT_WORDS = 6;

interface StateCounts {
  readonly numBlocks: number;
  readonly numCounters: number;
  readonly numSemaphores: number;
  readonly numBarriers: number;
}
/** @param counts the most of any rank: one layout holds for all */
export function stateLayout(counts: StateCounts): StateLayout {
  const taken = BLOCK_WORDS * counts.numBlocks;
  const semaphores = taken + counts.numCounters;
  const barriers = semaphores + counts.numSemaphores;
  const lock = barriers + 2 * counts.numBarriers;
  const report = lock + 2;
  return { blocks: 0, taken, semaphores, barriers, lock, ended: lock + 1, report, words: report + REPORT_WORDS };
}

/**
 * Words of 4 bytes in which a launch tells the host of its end: it has ended once all hold its number, or a later one's. Those
 * that tell are counted on the device, from 1, so that launches that are alike are told the same.
 */
export const END_WORDS = 8;

/**
 * Words of 8 bytes of the kernel's one parameter, in order. The window of every rank follows, and where launches shift addresses what
 * to add to those that each rank tells of its input, then of its output, and last how many units a strand makes alone, and the words of an epilogue.
 */
export const LAUNCH_WORDS = [
  "input",
  "output",
  "state",
  "abort",
  "part",
  "chunk",
  "scratch",
  "packets",
  "scratchSlot",
  "packetsSlot",
  "slots",
  "packetChunk",
  "scalar",
  "rank",
  "done",
] as const;
export type LaunchWord = (typeof LAUNCH_WORDS)[number];

/** Words that say how large a launch is, and where its data lies in windows. */
export type SizeWord = Extract<
  LaunchWord,
  "part" | "chunk" | "scratch" | "packets" | "scratchSlot" | "packetsSlot" | "slots" | "packetChunk"
>;
/** What these are in every launch of a kernel that is written for one size. */
export type FoldedSizes = Readonly<Record<SizeWord, number>>;

/**
 * A kernel's source for launches of one size alone: constants take the place of words of its parameter, which stay where they are and are
 * not read, and units are whole. To write it anew from the plan takes some 50 ms.
 */
export function foldSizes(source: string, sizes: FoldedSizes): string {
  return Object.entries(sizes).reduce(
    (text, [name, value]) =>
      text.replace(` i64 ${name};`, ` i64 ${name}Word; static constexpr i64 ${name} = ${value};`),
    source.replace("WHOLE_UNITS = 0,", "WHOLE_UNITS = 1,"),
  );
}

/** The parameter's type in the generated source. */
export function launchStruct(numRanks: number, shiftsAddresses: boolean, numEpilogueWords: number): string {
  const shifts = `
  i64 inputShift[${numRanks}];   // what to add to addresses that a rank tells of its buffers
  i64 outputShift[${numRanks}];`;
  const epilogue = `
  i64 unitsOfStrand;    // units of the result that a strand makes as a whole, and alone; 0: blocks meet before the epilogue
  i64 epilogue[${numEpilogueWords}];     // what the epilogue is given`;
  return `struct Launch {
  char* input;          // this rank's buffers
  char* output;
  u32* state;           // see the offsets below
  const u32* abort;     // not 0: end at once, with whatever is there
  i64 part;             // bytes of a part of the collective's buffers, and of a chunk
  i64 chunk;
  i64 scratch;          // where data and packets lie in a window, how far the slots of launches are apart, and how many there are
  i64 packets;
  i64 scratchSlot;
  i64 packetsSlot;
  i64 slots;
  i64 packetChunk;      // bytes of a chunk in lines of 128 or in sheets
  u64 scalar;           // what preMulSum multiplies with, as bits of a Wide
  i64 rank;
  u32* done;            // END_WORDS words in which the end of this launch is told to the host; null: nobody asks
  char* window[${numRanks}];      // of every rank, as this device reaches it${shiftsAddresses ? shifts : ""}${numEpilogueWords === 0 ? "" : epilogue}
};
// Launches for which it is the same have everything in the same places of scratch.
__device__ __forceinline__ u64 sizeOfLaunch(const Launch& L) { return ${numEpilogueWords === 0 ? "(u64)L.part" : "(u64)L.part ^ (u64)L.chunk << 33"}; }`;
}
