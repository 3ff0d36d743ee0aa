/**
 * The memory that the members of a group on one host share: a line of words for each, in which it says how far it is, then a
 * few slots for each, with room for a piece of its input and of a result. It lies below a WebAssembly memory of each rank, so
 * that the reduction kernels work on all of it; behind it is room that is the rank's own, and then the tensors that the ranks of
 * the host can read of each other (host-tensors.ts), where they have any.
 */
import { statfsSync } from "node:fs";
import { addressOf, copyMemory, type MemoryCopy } from "../../foreign/native/index.ts";
import {
  ArenaReducer,
  MAX_PAGES,
  newSharedMemory,
  PAGE_BYTES,
  type ReduceJob,
  type WasmMemory,
} from "../executor/internal.ts";
import type { Fingerprint } from "../memory/index.ts";
import {
  attachSharedArena,
  createSharedArena,
  removeSharedArena,
  type SharedArena,
  type Span,
  Writers,
} from "../memory/index.ts";
import type { HostLayout } from "./host-layout.ts";
import type { HostTensors } from "./host-tensors.ts";

/** Pieces that may be under way. */
export const NUM_SLOTS = 4;
/**
 * Most bytes of a piece of a rank's input, and of what it reduces or receives of one: smaller ones are more messages. Large ones are
 * for groups over several hosts, all of which have room for them: see `pieceBytesFor`. Over more than two hosts each column cuts its
 * share of a piece once more: pieces of 1 MiB were messages of 128 KiB there, whose handling took a third of the processor time
 * (bench/results/tcp-must-show-2026-11-29.md).
 */
export const PIECE_BYTES = { plain: 512 * 1024, large: 1024 * 1024, cut: 4 * 1024 * 1024 } as const;
/** Most that the slots of a host's members take together for the sake of pieces that are cut: all of it is reserved. */
const MOST_SLOTS_BYTES = 64 * 1024 * 1024;
/** The share of the folder that the slots of all members of a host may take, where they are not plain. */
const SHARE_OF_ROOM = 1 / 16;
/** Cache lines are as long, or shorter. */
export const LINE_BYTES = 128;
/** Below it lies what counts who has come. */
const LINES_AT = LINE_BYTES;
/** The rank's own of a slot: what it receives of other hosts, each from a line on. */
const ownSlotBytes = (pieceBytes: number) => pieceBytes + 256 * LINE_BYTES;
/** And the tables of the kernels. */
const ownBytes = (pieceBytes: number) => NUM_SLOTS * ownSlotBytes(pieceBytes) + 160 * 1024;

/** What members count: pieces that they have brought, have ready for the others, and have done with. */
export const COUNT = { brought: 0, shared: 1, taken: 2 } as const;
type Count = (typeof COUNT)[keyof typeof COUNT];
/** Words of a member's line behind those: whether it sleeps, and the call of the piece in each slot. */
const SLEEPS = 3;
const PRINTS = 4;
const PRINT_WORDS = 4;
/** And where the call's input and output lie, for the others. */
const OFFERS = PRINTS + NUM_SLOTS * PRINT_WORDS;
export const OFFER = { input: 0, output: 1 } as const;
export type Offer = (typeof OFFER)[keyof typeof OFFER];
const OFFER_WORDS = 2;
/** And who writes into tensors that it lends, unless it has left a call whose tensors it lent. */
const WRITERS = OFFERS + NUM_SLOTS * OFFER_WORDS;
/** How long a write may take before the writer counts as stopped or killed, ms: it is one pass over a piece, but may wait for a core. */
const MOST_WRITE_MS = 200;

const pages = (bytes: number) => Math.ceil(bytes / PAGE_BYTES);
const partsAt = (members: number) => LINES_AT + members * LINE_BYTES;
const slotsBytes = (members: number, pieceBytes: number) => members * NUM_SLOTS * 2 * pieceBytes;
const fileBytes = (members: number, pieceBytes: number) =>
  PAGE_BYTES * pages(partsAt(members) + slotsBytes(members, pieceBytes));

/** How much room a folder of this host has for files that its ranks map, as the power of two of MiB below; 0 where nobody knows. */
export function roomOf(folder = "/dev/shm"): number {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return Math.max(0, Math.floor(Math.log2((bavail * bsize) / 2 ** 20)));
  } catch {
    return 0;
  }
}

/** Most bytes of a group's pieces. @param rooms what `roomOf` says at each member, by group rank */
export function pieceBytesFor({ hosts }: HostLayout, rooms: readonly number[]): number {
  const hasRoom = (pieceBytes: number) =>
    hosts.every((row) => {
      const neededMiB = slotsBytes(row.length, pieceBytes) / 2 ** 20 / SHARE_OF_ROOM;
      return row.every((member) => 2 ** (rooms[member] ?? 0) >= neededMiB);
    });
  const mostMembers = Math.max(...hosts.map(({ length }) => length));
  for (let bytes: number = PIECE_BYTES.cut; hosts.length > 2 && bytes > PIECE_BYTES.large; bytes /= 2) {
    if (slotsBytes(mostMembers, bytes) <= MOST_SLOTS_BYTES && hasRoom(bytes)) return bytes;
  }
  return hosts.length > 1 && hasRoom(PIECE_BYTES.large) ? PIECE_BYTES.large : PIECE_BYTES.plain;
}

/** Makes the file of a group's members on this host. @param folder where, if anywhere @throws OutOfMemoryError */
export const createHostMemory = (members: number, pieceBytes: number, folder: string | undefined): SharedArena =>
  createSharedArena(fileBytes(members, pieceBytes), folder);

/** The file that another member made, by its path. */
export const hostMemoryAt = (path: string, members: number, pieceBytes: number): SharedArena => ({
  path,
  sizeBytes: fileBytes(members, pieceBytes),
});

/** Other threads of a rank, which may reduce for it. */
export interface ReduceHelper {
  /**
   * Has a reduction of so many bytes made beside this thread.
   * @param job makes it ready for a place, by number: each has one at a time
   * @param done called later, by this thread, if it is taken: whether it was made, which it is not if the other thread has died
   * @returns whether it is taken
   */
  reduce(
    memory: WasmMemory,
    job: (place: number) => ReduceJob,
    bytes: number,
    done: (isMade: boolean) => void,
  ): boolean;
  /** Returns when no reduction is being made any more. What follows them is still to come. */
  finish(): void;
  /** It uses a memory no more. */
  forget(memory: WasmMemory): void;
}

interface HostMemoryParts {
  readonly arena: SharedArena;
  readonly members: number;
  /** This rank's place among them. */
  readonly me: number;
  /** Most inputs of a reduction. */
  readonly maxInputs: number;
  readonly pieceBytes: number;
  readonly tensors?: HostTensors | undefined;
  readonly helper?: ReduceHelper | undefined;
}

export class HostMemory {
  readonly copy: MemoryCopy;
  readonly reducer: ArenaReducer;
  /** Most bytes of a piece. */
  readonly pieceBytes: number;
  /** Where all of it begins in this process. */
  readonly address: number;
  readonly #arena: SharedArena;
  readonly #memory: WasmMemory;
  readonly #helper: ReduceHelper | undefined;
  #isOver = false;
  readonly #bytes: Uint8Array;
  readonly #words: Int32Array;
  readonly #members: number;
  readonly #me: number;
  /** Of the other members. */
  readonly #otherLines: readonly number[];
  readonly #ownAt: number;
  readonly #unmap: () => void;
  readonly #tensors: HostTensors | undefined;
  /** Where those begin. */
  readonly #tensorsAt: number;
  readonly #unmapTensors: (() => void) | undefined;
  readonly #writers: Writers;
  /** This rank's writes into tensors that others lend, at this time. */
  #numWrites = 0;
  /** Whether all members can read each other's tensors here: their group finds out. */
  sharesTensors = false;

  /** @throws FormatError, NativeError, UnavailableError, RangeError where no memory is left */
  constructor({ arena, members, me, maxInputs, pieceBytes, tensors, helper }: HostMemoryParts) {
    this.copy = copyMemory();
    this.pieceBytes = pieceBytes;
    const basePages = pages(arena.sizeBytes) + pages(ownBytes(pieceBytes));
    const tensorPages = pages(tensors?.limitBytes ?? 0);
    this.#tensors = basePages + tensorPages > MAX_PAGES ? undefined : tensors;
    this.#tensorsAt = basePages * PAGE_BYTES;
    const numPages = basePages + (this.#tensors === undefined ? 0 : tensorPages);
    const memory = newSharedMemory(numPages, numPages);
    this.#unmapTensors = this.#tensors?.mapOver(memory.buffer, this.#tensorsAt);
    this.#unmap = attachSharedArena(arena, memory.buffer, members);
    this.#arena = arena;
    this.#memory = memory;
    this.#helper = helper;
    this.#bytes = new Uint8Array(memory.buffer);
    this.#words = new Int32Array(memory.buffer);
    this.#writers = new Writers(this.#words, WRITERS);
    this.address = Number(addressOf(this.#bytes));
    this.#members = members;
    this.#me = me;
    this.#otherLines = Array.from({ length: members }, (_, member) => this.#lineOf(member)).filter((_, i) => i !== me);
    this.#ownAt = arena.sizeBytes;
    let free = arena.sizeBytes + NUM_SLOTS * ownSlotBytes(pieceBytes);
    this.reducer = new ArenaReducer(memory, maxInputs, (bytes) => {
      const at = free;
      free += Math.ceil(bytes / LINE_BYTES) * LINE_BYTES;
      return at;
    });
  }

  /** Where a member's piece of its input lies in a slot. */
  input(member: number, slot: number): number {
    return partsAt(this.#members) + (member * NUM_SLOTS + slot) * 2 * this.pieceBytes;
  }

  /** Where it has what it reduced, or received for the others. */
  output(member: number, slot: number): number {
    return this.input(member, slot) + this.pieceBytes;
  }

  /** Room for what this rank alone needs of a piece. */
  own(slot: number): number {
    return this.#ownAt + slot * ownSlotBytes(this.pieceBytes);
  }

  bytes(at: number, length: number): Uint8Array {
    return this.#bytes.subarray(at, at + length);
  }

  /** Says how many pieces this rank has counted. */
  tell(what: Count, count: number): void {
    Atomics.store(this.#words, this.#lineOf(this.#me) + what, count | 0);
  }

  /** Whether all members have counted so many, or more. */
  haveTold(what: Count, count: number): boolean {
    for (let member = 0; member < this.#members; member++) {
      if (((Atomics.load(this.#words, this.#lineOf(member) + what) - count) | 0) < 0) return false;
    }
    return true;
  }

  /** Says of which call this rank's piece in a slot is, before it says that it is there. */
  sign(slot: number, { call, count, hash }: Fingerprint): void {
    const at = this.#printAt(this.#me, slot);
    this.#words[at] = call;
    this.#words[at + 1] = count;
    this.#words[at + 2] = hash;
  }

  /** The call of a member's piece, where it is another one. */
  otherThan(slot: number, member: number, { call, count, hash }: Fingerprint): Fingerprint | undefined {
    const at = this.#printAt(member, slot);
    const words = this.#words;
    if (words[at] === call && words[at + 1] === count && words[at + 2] === hash) return undefined;
    return { call: words[at] ?? 0, count: words[at + 1] ?? 0, hash: words[at + 2] ?? 0 };
  }

  /** Whether this rank can read the others' tensors. */
  get hasTensors(): boolean {
    return this.#tensors !== undefined;
  }

  /** Where all members find a tensor of this rank, in a call with parts of so many bytes; 0 where they do not look for it. */
  whereAllFind(span: Span, partBytes: number): number {
    const { leastBytes = Number.POSITIVE_INFINITY } = this.#tensors ?? {};
    const at = this.sharesTensors && partBytes >= leastBytes ? (this.#tensors?.offsetOf(span) ?? 0) : 0;
    return at === 0 ? 0 : this.#tensorsAt + at;
  }

  /** Says where the call of this rank's piece in a slot has its input and output, or 0, before it says that the piece is there. */
  offer(slot: number, input: number, output: number): void {
    const at = this.#offerAt(this.#me, slot);
    this.#words[at + OFFER.input] = input;
    this.#words[at + OFFER.output] = output;
  }

  /** What a member has said. */
  offered(member: number, slot: number, which: Offer): number {
    return (this.#words[this.#offerAt(member, slot) + which] ?? 0) >>> 0;
  }

  /**
   * Says, before its program may change them, that this rank has left a call whose tensors it lent: it failed here. Nobody writes
   * into them when this returns.
   */
  withdraw(): void {
    const line = this.#lineOf(this.#me);
    this.#writers.close(line, 0);
    // This rank's own writes end first: two ranks that fail together would otherwise wait for each other.
    this.#endWrites();
    if (!this.#writers.close(line, MOST_WRITE_MS)) this.#tensors?.keep();
  }

  /** Ends what other threads make for this group. What follows that comes no more. */
  #endWrites(): void {
    this.#isOver = true;
    this.#helper?.finish();
    while (this.#numWrites > 0) this.endWrite();
  }

  /** Writes into tensors that others lend, unless one has left the call. @returns whether it did */
  write(fn: () => void): boolean {
    if (!this.beginWrite()) return false;
    fn();
    this.endWrite();
    return true;
  }

  /** Says that such a write begins, beside others of this rank. @returns whether it may: otherwise there is nothing to end */
  beginWrite(): boolean {
    this.#numWrites++;
    for (const line of this.#otherLines) this.#writers.enter(line);
    if (!this.someWithdrew) return true;
    this.endWrite();
    return false;
  }

  endWrite(): void {
    this.#numWrites--;
    for (const line of this.#otherLines) this.#writers.leave(line);
  }

  /** Whether this rank's tensors can be read and written by the others no longer. */
  get keepsTensors(): boolean {
    return this.#tensors?.isKept === true;
  }

  /** To be asked once tensors were read: whether they may have changed by then. */
  get someWithdrew(): boolean {
    for (let member = 0; member < this.#members; member++) {
      if (this.#writers.isClosed(this.#lineOf(member))) return true;
    }
    return false;
  }

  /** Says whether this rank must be woken when something changes. */
  sleeps(does: boolean): void {
    Atomics.store(this.#words, this.#lineOf(this.#me) + SLEEPS, does ? 1 : 0);
  }

  /** Whether a member must be woken, once. */
  takeSleeper(member: number): boolean {
    const at = this.#lineOf(member) + SLEEPS;
    return Atomics.load(this.#words, at) === 1 && Atomics.exchange(this.#words, at, 0) === 1;
  }

  /**
   * Has a reduction made beside this thread, if its rank has another one that is free: see `ReduceHelper`.
   * @param done called later, unless the group is over by then
   * @returns whether it is taken
   */
  reduceBeside(job: (place: number) => ReduceJob, bytes: number, done: (isMade: boolean) => void): boolean {
    const ended = (isMade: boolean) => {
      if (!this.#isOver) done(isMade);
    };
    return this.#helper?.reduce(this.#memory, job, bytes, ended) === true;
  }

  close(): void {
    this.#endWrites();
    this.#helper?.forget(this.#memory);
    removeSharedArena(this.#arena);
    this.#unmap();
    this.#unmapTensors?.();
  }

  #offerAt(member: number, slot: number): number {
    return this.#lineOf(member) + OFFERS + slot * OFFER_WORDS;
  }

  #lineOf(member: number): number {
    return (LINES_AT + member * LINE_BYTES) / 4;
  }

  #printAt(member: number, slot: number): number {
    return this.#lineOf(member) + PRINTS + slot * PRINT_WORDS;
  }
}
