/**
 * The memory in which ranks of one host run plans: places for groups, and in each place, for every rank, room for a piece of
 * its input and of its result and for what plans count; and for each rank room for tensors. All of it lies at the same addresses
 * in a WebAssembly memory of each rank, over which one file is mapped (runtime/memory/growing-arena.ts); behind it is memory
 * that is the rank's own.
 */
import { OutOfMemoryError } from "../../../core/index.ts";
import { addressOf } from "../../../foreign/native/index.ts";
import {
  ArenaReducer,
  buildExecutor,
  type ExecutorMemory,
  instantiate,
  MAX_PAGES,
  type MachineExports,
  newSharedMemory,
  PAGE_BYTES,
} from "../../executor/internal.ts";
import {
  createGrowingArena,
  FreeList,
  type GrowingArena,
  type OpenArena,
  openGrowingArena,
  removeGrowingArena,
  type Span,
  TensorRoom,
  wholeUnits,
} from "../../memory/index.ts";

/** Groups that may have a place at once: the first of the world, in the order of the control segment. */
export const NUM_PLACES = 4;
/** Plans that a place has room for. */
export const NUM_SLOTS = 8;
/** Most of a rank's input, or of its result, that is in the arena at once: small enough for a core's cache. */
export const PIECE_BYTES = 256 * 1024;
/** Cache lines are as long, or shorter. */
const LINE_BYTES = 128;
/** What follows a rank's result: kernels of some plans write whole vectors. */
const MARGIN_BYTES = 128;
/** A rank's own memory for prepared plans. */
const OWN_BYTES = 8 * 2 ** 20;
/** Most of a rank's tensors that are in the arena: address space, until there are as many. */
const MAX_ROOM_BYTES = 2 ** 30;

/** Of a slot: the plan's state, its counters. */
const COUNTERS_AT = 1024;
const SLOT_BYTES = 16 * 1024;
/**
 * Of a rank's part of a place: the word that counts steps, two places to meet as calls begin, the slots, two halves of input, the
 * output.
 */
const MEETINGS_AT = 128;
const MEETING_BYTES = 128;
/**
 * Of a place to meet: words after its mark, of which two say where the rank's tensors are, and the input. Calls straight from tensors
 * bring no input: they count there which tiles are taken, and who writes to their result (shared-tiles.ts).
 */
export const MEETING = {
  seq: 1,
  call: 2,
  count: 3,
  hash: 4,
  send: 5,
  recv: 6,
  withdrawn: 7,
  tilesTaken: 8,
  writers: 9,
  inputAt: 32,
  inputBytes: MEETING_BYTES - 32,
} as const;
const SLOTS_AT = MEETINGS_AT + 2 * MEETING_BYTES;
const INPUT_AT = SLOTS_AT + NUM_SLOTS * SLOT_BYTES;
const INPUT_BYTES = PIECE_BYTES + MARGIN_BYTES;
const OUTPUT_AT = INPUT_AT + 2 * INPUT_BYTES;
const PART_BYTES = OUTPUT_AT + PIECE_BYTES + MARGIN_BYTES;
/** Below the first place: address 0 is none, and the arena counts there who has come. */
const PLACES_AT = PAGE_BYTES;
const ATTACHED_WORD = 0;

const pages = (bytes: number) => Math.ceil(bytes / PAGE_BYTES);
const placesBytes = (ranks: number) => PAGE_BYTES * pages(PLACES_AT + NUM_PLACES * ranks * PART_BYTES);
/** A rank's room for tensors, of so many on a host. */
function roomBytes(ranks: number, numHere: number): number {
  const left = MAX_PAGES * PAGE_BYTES - placesBytes(ranks) - OWN_BYTES;
  return PAGE_BYTES * Math.floor(Math.min(MAX_ROOM_BYTES, left / numHere) / PAGE_BYTES);
}

/** Makes the arena of a world. @param numHere ranks of this host @throws OutOfMemoryError when the host has no room for it */
export function createHostArena(ranks: number, numHere: number = ranks): GrowingArena {
  const firstBytes = placesBytes(ranks);
  return createGrowingArena(firstBytes, firstBytes + numHere * roomBytes(ranks, numHere));
}

/** Whether a plan's counters and state fit a slot. */
export const fitsSlot = (stateBytes: number, counterBytes: number): boolean =>
  stateBytes <= COUNTERS_AT && counterBytes <= SLOT_BYTES - COUNTERS_AT;

export class HostArena implements ExecutorMemory {
  readonly bytes: Uint8Array;
  /** Where all of it begins in this process. */
  readonly address: number;
  readonly #words: Int32Array;
  readonly #memory: ReturnType<typeof newSharedMemory>;
  readonly #ranks: number;
  /** Calls under way: a thread that waits in one group goes on with those of the others, whose ranks may wait for it. */
  readonly running = new Set<{ advance(): boolean }>();
  /** Pieces that went through, of all calls: a call that gets on is looked at again at once. */
  numMoved = 0;
  /** The reduction kernels on this memory: 20 to 40 ms to compile, for which no call holds up the event loop. */
  readonly reducer: ArenaReducer;
  #machine: MachineExports | undefined;
  /** For this rank's tensors. */
  readonly room: TensorRoom;
  readonly #own: FreeList;
  readonly #arena: OpenArena;

  /**
   * @param ranks of the world
   * @param numHere of them on this host
   * @throws FormatError, NativeError
   */
  constructor(arena: GrowingArena, ranks: number, numHere: number = ranks) {
    const { firstBytes, limitBytes } = arena;
    const numPages = pages(limitBytes) + pages(OWN_BYTES);
    this.#memory = newSharedMemory(numPages, numPages);
    const memory = this.#memory.buffer;
    const open = openGrowingArena(arena, memory);
    this.#arena = open;
    this.#ranks = ranks;
    this.bytes = new Uint8Array(memory);
    this.address = Number(addressOf(this.bytes));
    this.#words = new Int32Array(memory);
    const nth = Atomics.add(this.#words, ATTACHED_WORD, 1);
    if (nth + 1 === numHere) removeGrowingArena(arena);
    const room = roomBytes(ranks, numHere);
    const from = firstBytes + nth * room;
    this.room = new TensorRoom({ memory, address: this.address, arena: open, from, to: from + room });
    this.#own = new FreeList(limitBytes, limitBytes + OWN_BYTES);
    this.reducer = new ArenaReducer(this.#memory, ranks, (bytes) => this.allocate(bytes));
  }

  /** Lets no more tensors into the arena, whose file is closed. */
  close(): void {
    this.#arena.close();
  }

  /** The code that runs plans on this memory: some ten milliseconds to compile, at the first plan. */
  get machine(): MachineExports {
    this.#machine ??= instantiate<MachineExports>(buildExecutor(), this.#memory);
    return this.#machine;
  }

  /** Where the part of a rank of the world in a place begins. */
  part(place: number, rank: number): number {
    return PLACES_AT + (place * this.#ranks + rank) * PART_BYTES;
  }

  /** Says that a rank has taken `count` steps in a place. */
  tell(place: number, rank: number, count: number): void {
    Atomics.store(this.words(), this.#stepsOf(place, rank), count | 0);
  }

  /** Whether all of `ranks` have taken `count` steps in a place, or more. */
  haveTold(place: number, ranks: readonly number[], count: number): boolean {
    const words = this.words();
    for (const rank of ranks) {
      if (((Atomics.load(words, this.#stepsOf(place, rank)) - count) | 0) < 0) return false;
    }
    return true;
  }

  /** Where the others find what lies at an address of this process; 0 where they cannot. */
  offsetOf({ address, bytes }: Span): number {
    const at = address - this.address;
    return this.room.holds(at, bytes.length) ? at : 0;
  }

  /** The index of the word that counts the steps a rank has taken in a place. */
  #stepsOf(place: number, rank: number): number {
    return this.part(place, rank) / 4;
  }

  /** Where the others look for a rank's call and input in one round. */
  meeting(place: number, rank: number, half: number): number {
    return this.part(place, rank) + MEETINGS_AT + half * MEETING_BYTES;
  }

  input(place: number, rank: number, half: number): number {
    return this.part(place, rank) + INPUT_AT + half * INPUT_BYTES;
  }

  output(place: number, rank: number): number {
    return this.part(place, rank) + OUTPUT_AT;
  }

  /** A half of the output: room for what one of two ranks or more reduces of a piece. */
  share(place: number, rank: number, half: number): number {
    return this.output(place, rank) + (half * PIECE_BYTES) / 2;
  }

  state(place: number, rank: number, slot: number): number {
    return this.#slot(place, rank, slot);
  }

  counters(place: number, rank: number, slot: number): number {
    return this.#slot(place, rank, slot) + COUNTERS_AT;
  }

  #slot(place: number, rank: number, slot: number): number {
    return this.part(place, rank) + SLOTS_AT + slot * SLOT_BYTES;
  }

  /** Clears what an earlier group of the place has counted, of this rank. Before the other members can know of the group. */
  clear(place: number, rank: number): void {
    const at = this.part(place, rank);
    this.bytes.fill(0, at, at + INPUT_AT);
  }

  words(): Int32Array {
    return this.#words;
  }

  allocate(bytes: number, zeroed = true): number {
    const at = this.#own.take(bytes);
    if (at === undefined) {
      throw new OutOfMemoryError("memory for plans of this rank", bytes, this.#own.mostBytes, "Use fewer plans.");
    }
    if (zeroed) this.bytes.fill(0, at, at + wholeUnits(bytes));
    return at;
  }

  free(address: number): void {
    this.#own.give(address);
  }
}

/** The bytes of `length` that a member of `size` reduces for all, from a cache line on. */
export function shareOf(length: number, size: number, member: number): readonly [start: number, end: number] {
  const share = Math.ceil(length / size / LINE_BYTES) * LINE_BYTES;
  return [Math.min(length, member * share), Math.min(length, (member + 1) * share)];
}

/** Bytes of a part of a piece: of its parts, `numParts` are in the arena at once, each from a cache line on. */
export function pieceBytes(partBytes: number, numParts: number): number {
  return Math.min(partBytes, Math.floor(PIECE_BYTES / numParts / LINE_BYTES) * LINE_BYTES);
}
