/**
 * How a rank's plan lies in memory for the strand machine (`strand-machine.ts`): a context of words, one block of words
 * for each strand, and the strands' operations as records. Everything here is in words of 4 bytes; addresses in records
 * are absolute bytes.
 *
 * Why records, when WASM could be generated for each plan: a module of its own costs every rank a compilation for each plan,
 * runs slowly until V8 has optimised it, and holds its code for ever. Which of the two is faster has not been measured.
 */

/** Bytes from the beginning of a structure to one of its words. */
export const word = (index: number): number => 4 * index;

/** Operations of the machine. The numbers are places in its jump table. */
export const CODE = {
  end: 0,
  copy: 1,
  move: 2,
  pack: 3,
  unpack: 4,
  forward: 5,
  reducePackets: 6,
  signal: 7,
  wait: 8,
  barrier: 9,
  acquire: 10,
  release: 11,
  loop: 12,
  repeat: 13,
  /** Data from or for a rank whose memory is not this one: `far-run.ts` moves it. */
  far: 14,
  /** Waits until what was put at far ranks is there. */
  fence: 15,
} as const;
export type Code = keyof typeof CODE;

/**
 * Words at the head of every record: its code, the address of the next one, and the place in the plan that it stands for:
 * operation * 4096 + 1 + operation within a pipeline's body (0: none).
 */
export const RECORD = { code: 0, next: 1, place: 2, operands: 3 } as const;
export const BODIES = 4096;

/** Operands of a data operation, in words from the record: how much it moves, then pairs of (address of base, offset). */
export const DATA = {
  /** Bytes, after the clamping to the sizes of this call. */
  length: 3,
  /** Bytes of the operation's whole range before this part of it: loops cut the whole range into units. */
  lead: 4,
  /** 0: does its whole range in every round of a loop, as packets do. */
  windowed: 5,
  numIn: 6,
  numOut: 7,
  kernel: 8,
  /** 1: whatever is there is moved, without a look at its flags. */
  raw: 9,
  /**
   * Of a reduction: tables of addresses that lie in memory already, and the first byte behind these addresses; 0 where the
   * addresses have to be put in a table (direct-tables.ts).
   */
  inTable: 10,
  outTable: 11,
  start: 12,
  ranges: 13,
} as const;

/** Operands of the other records, in words from the record. */
export const SIGNAL = { relaxed: 3, count: 4, addresses: 5 } as const;
/** Entries of three words: address of the counter, address of how many were taken, how many are wanted. */
export const WAIT = { count: 3, entries: 4 } as const;
export const WAIT_ENTRY = { counter: 0, taken: 1, wanted: 2 } as const;
/** The barrier's two words: how many have come, and its generation. */
export const BARRIER = { address: 3, numStrands: 4 } as const;
/** Entries of two words: address, and how many. */
export const SEMAPHORES = { count: 3, entries: 4 } as const;
/** `after`: of `loop`, the record behind the loop; of `repeat`, the first one within. */
export const LOOP = { rounds: 3, unit: 4, after: 5 } as const;

/** A strand's words. */
export const STRAND = {
  /** Address of the record that comes next. */
  pc: 0,
  /** Up to here (not included), what needs no data was executed ahead of an operation that waits for packets. */
  ahead: 1,
  /** In a loop: first byte of the unit, and the unit's size; a size of -1 outside. */
  unitStart: 2,
  unit: 3,
  round: 4,
  /** 1 + generation of the barrier that the strand has come to; 0 when it is at none. */
  barrier: 5,
  done: 6,
  /** Address of the first record. */
  first: 7,
  /** How far JavaScript is with the record at which the strand stands: `FAR`. */
  far: 8,
  words: 9,
} as const;

/** What becomes of a record that JavaScript executes: the machine asks for it, and goes on when it is done. */
export const FAR = { none: 0, asked: 1, begun: 2, done: 3 } as const;

/** The context's words. */
export const RUN = {
  strands: 0,
  numStrands: 1,
  /** Number of the launch: what packets carry. */
  flag: 2,
  /** `RAISED`: whether sleepers have to be looked for before this rank waits or ends. */
  raised: 3,
  /** Passed to what wakes sleepers. */
  bell: 4,
  /** Tables of addresses for kernels, and the kernels' context block. */
  inTable: 5,
  outTable: 6,
  kernelContext: 7,
  /** Room for unpacked packets: one tile for each source. */
  tiles: 8,
  /** What `limits` found: first byte and end of what a data operation does now. */
  begin: 9,
  end: 10,
  /** Address of the number of launches, which outlives a preparation of the plan. */
  state: 11,
  /** Bytes from one half of double scratch to the other, which launches take in turn; 0 where there is one. */
  half: 12,
  /** Entries of `BASE`, one for each rank whose scratch is touched. */
  bases: 13,
  numBases: 14,
  /** The semaphores, and what they hold at the start of a launch. */
  semaphores: 15,
  initial: 16,
  numSemaphores: 17,
  /** Polls that are left before the machine returns to JavaScript. */
  spins: 18,
  /** Address of the first record of a plan that is nothing but data in plain memory; 0 of all others. */
  straight: 19,
  words: 20,
} as const;

/** What a rank has done since it last looked for sleepers: stored packets, and raised counters, by which all stores are out. */
export const RAISED = { no: 0, stored: 1, fenced: 2 } as const;

/** What a launch reads of one rank: where its bases go, and the words that hold the addresses of its scratch and packets. */
export const BASE = { target: 0, scratch: 1, packets: 2, words: 3 } as const;

/** Bytes of a tile: what a reduction of packets unpacks of each source at a time. */
export const TILE_BYTES = 1024;
/** Counters that one rank raises and another polls are this far apart. */
export const COUNTER_BYTES = 128;
