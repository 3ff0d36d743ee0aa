/** A collective that ranks make host by host: its buffers, and what every kind of it needs. */
import type { CollectiveName } from "../../collectives/index.ts";
import type { DType, ReduceOp } from "../../core/index.ts";
import { isReadableMeanwhile, type Span } from "../memory/index.ts";
import type { ColumnMessages, Parcel } from "./column-messages.ts";
import type { HostLayout } from "./host-layout.ts";
import { type HostMemory, LINE_BYTES, NUM_SLOTS, OFFER, type Offer } from "./host-memory.ts";

export interface PieceCallParts {
  readonly op: CollectiveName;
  readonly dtype: DType;
  readonly redop: ReduceOp | undefined;
  readonly root: number;
  /** Ranks of the group. */
  readonly size: number;
  /** This rank's number in the group. */
  readonly rank: number;
  /** Of one rank's part, or of the whole where there are no parts. */
  readonly partBytes: number;
  /** Of a piece, where the call names that. */
  readonly mostPieceBytes?: number | undefined;
  readonly input: Span;
  readonly output: Span;
  readonly layout: HostLayout;
  readonly memory: HostMemory;
  readonly messages: ColumnMessages;
}

/**
 * Smaller pieces gain nothing (bench/results/tcp-gloo-hosts-16-cores-2026-11-28.md); of all-reduces, a rank's other threads make sums of
 * half of such a piece (bench/results/tcp-must-show-2026-11-29.md).
 */
const LEAST_PIECE_BYTES = 256 * 1024;
const LEAST_ALL_REDUCED_BYTES = 512 * 1024;

/** Of a reduction within a host, or within the hosts and then between them. */
type Step = "whole" | "first" | "second";

/** A stretch of bytes. */
export interface Stretch {
  readonly at: number;
  readonly bytes: number;
}

/** Pieces of whole lines, so that no element is cut. */
export const wholeLines = (bytes: number) => Math.max(LINE_BYTES, Math.floor(bytes / LINE_BYTES) * LINE_BYTES);

/** Of all-reduces over more than two hosts, which overlap within a piece too: more pieces are smaller messages. */
const PIECES_OF_CUTS = 2;

/** Over several hosts: pieces of which all slots have one, so that what is done inside the host overlaps with the sockets. */
function overlapping({ op, partBytes, layout }: PieceCallParts): number {
  const isReduced = op === "all_reduce";
  const numPieces = isReduced && layout.hosts.length > 2 ? PIECES_OF_CUTS : NUM_SLOTS;
  return Math.max(isReduced ? LEAST_ALL_REDUCED_BYTES : LEAST_PIECE_BYTES, wholeLines(partBytes / numPieces));
}

/** Lines that so many bytes take. */
export const linesFor = (bytes: number) => Math.ceil(bytes / LINE_BYTES) * LINE_BYTES;

export class PieceTools {
  readonly parts: PieceCallParts;
  readonly pieceBytes: number;
  readonly numPieces: number;
  readonly numHosts: number;
  /** Members of this host. */
  readonly row: readonly number[];
  /** Where the others of this host read this rank's input and output; 0 where they cannot. */
  readonly lentInput: number;
  readonly lentOutput: number;
  /** What all members lend, once it is known to be the same for all pieces: see `learnLent`. */
  #lent: readonly (readonly [input: number, output: number])[] | undefined;

  /** @param pieceBytes most of a piece */
  constructor(parts: PieceCallParts, pieceBytes = parts.memory.pieceBytes) {
    this.parts = parts;
    this.numHosts = parts.layout.hosts.length;
    this.pieceBytes = Math.min(
      parts.memory.pieceBytes,
      wholeLines(pieceBytes),
      parts.mostPieceBytes ?? Number.POSITIVE_INFINITY,
      this.numHosts > 1 ? overlapping(parts) : Number.POSITIVE_INFINITY,
    );
    this.numPieces = Math.max(1, Math.ceil(parts.partBytes / this.pieceBytes));
    this.row = parts.layout.hosts[parts.layout.host] ?? [];
    const { memory, input, output, partBytes } = parts;
    const lends = isReadableMeanwhile(parts);
    this.lentInput = lends ? memory.whereAllFind(input, partBytes) : 0;
    this.lentOutput = lends ? memory.whereAllFind(output, partBytes) : 0;
  }

  piece(index: number): Stretch {
    const at = index * this.pieceBytes;
    return { at, bytes: Math.min(this.pieceBytes, this.parts.partBytes - at) };
  }

  /** What one of several does of a stretch, from a line on. */
  share(bytes: number, index: number, count: number): Stretch {
    const each = Math.ceil(bytes / count / LINE_BYTES) * LINE_BYTES;
    const at = Math.min(bytes, index * each);
    return { at, bytes: Math.min(bytes, at + each) - at };
  }

  /** Whether the others may read or write tensors of this rank. */
  get lends(): boolean {
    return this.lentInput > 0 || this.lentOutput > 0;
  }

  /** Tells the others of a slot's piece where this rank's tensors are. @returns whether they read its input there */
  lend(slot: number): boolean {
    this.parts.memory.offer(slot, this.lentInput, this.lentOutput);
    return this.lentInput > 0;
  }

  /** What a member lends for a slot's piece, or 0. */
  #offered(member: number, slot: number, which: Offer): number {
    return this.#lent?.[member]?.[which] ?? this.parts.memory.offered(member, slot, which);
  }

  /** Keeps what all lend, as they said with a piece. @returns whether it is all inputs, and the outputs of some */
  learnLent(slot: number, takers: readonly number[]): boolean {
    const { memory } = this.parts;
    const lent = this.row.map(
      (_, member) => [memory.offered(member, slot, OFFER.input), memory.offered(member, slot, OFFER.output)] as const,
    );
    const areAll =
      lent.every(([input]) => input > 0) && takers.every((member) => (lent[member]?.[OFFER.output] ?? 0) > 0);
    if (areAll) this.#lent = lent;
    return areAll;
  }

  /** Where a member's input is, from a byte of it on: where it lies, or in the slot, from a byte of that on. */
  inputOf(member: number, slot: number, at: number, inSlot: number): number {
    const { memory } = this.parts;
    const lent = this.#offered(member, slot, OFFER.input);
    return lent > 0 ? lent + at : memory.input(member, slot) + inSlot;
  }

  /**
   * The same of a stretch that is to leave the host: what another member has lent is copied, as it may change if that one fails.
   * @returns `undefined` where it may have changed before
   */
  keptInputOf(member: number, slot: number, at: number, inSlot: number, bytes: number): number | undefined {
    const { memory, layout } = this.parts;
    const from = this.inputOf(member, slot, at, inSlot);
    if (member === layout.column || memory.offered(member, slot, OFFER.input) === 0) return from;
    const to = memory.output(layout.column, slot);
    memory.copy(memory.address + to, memory.address + from, bytes);
    return memory.someWithdrew ? undefined : to;
  }

  /**
   * Where a stretch of the result goes: into the outputs of those members that have lent them, from a byte of each on, and for the
   * others into the slot's, from a byte of that on.
   */
  targets(slot: number, members: readonly number[], at: number, inSlot: number): readonly number[] {
    const { memory, layout } = this.parts;
    const targets: number[] = [];
    for (const member of members) {
      const from = this.#offered(member, slot, OFFER.output);
      if (from > 0) targets.push(from + at);
    }
    if (targets.length < members.length) targets.unshift(memory.output(layout.column, slot) + inSlot);
    return targets;
  }

  /** Copies a stretch of the program's input into this host's memory. */
  bring(from: number, to: number, bytes: number): void {
    const { memory, input } = this.parts;
    if (bytes > 0) memory.copy(memory.address + to, input.address + from, bytes);
  }

  /** Copies a stretch of this host's memory to the program's output. */
  take(from: number, to: number, bytes: number): void {
    const { memory, output } = this.parts;
    if (bytes > 0) memory.copy(output.address + to, memory.address + from, bytes);
  }

  /**
   * Combines what all of this host have brought, from a byte of their inputs on, and of the slot.
   * @returns whether it is that: after a member that lent its input has failed it may be anything, and must not leave the host
   */
  reduceRow(slot: number, at: number, inSlot: number, to: number | readonly number[], bytes: number): boolean {
    const inputs = this.row.map((_, member) => this.inputOf(member, slot, at, inSlot));
    this.#reduce(this.numHosts === 1 ? "whole" : "first", inputs, to, bytes);
    return !this.parts.memory.someWithdrew;
  }

  /**
   * The same of the first step of two, by another thread of the rank where one is free.
   * @param done called later, where it is that
   * @returns whether that thread makes it
   */
  reduceRowBeside(slot: number, at: number, inSlot: number, to: number, bytes: number, done: () => void): boolean {
    const inputs = () => this.row.map((_, member) => this.inputOf(member, slot, at, inSlot));
    return this.#reduceBeside("first", inputs, [to], bytes, (isMade) => {
      const isRight = isMade ? !this.parts.memory.someWithdrew : this.reduceRow(slot, at, inSlot, to, bytes);
      if (isRight) done();
    });
  }

  /** Combines what hosts have reduced, in their order. */
  reduceHosts(inputs: readonly number[], to: number | readonly number[], bytes: number): void {
    this.#reduce("second", inputs, to, bytes);
  }

  /**
   * The same into tensors that others may have lent, by another thread of the rank where one is free.
   * @param done called once it is there, unless one of them has failed before
   */
  writeHosts(inputs: readonly number[], to: readonly number[], bytes: number, done: () => void): void {
    const { memory } = this.parts;
    if (!memory.beginWrite()) return;
    const end = (isMade: boolean) => {
      if (!isMade) this.reduceHosts(inputs, to, bytes);
      memory.endWrite();
      done();
    };
    if (!this.#reduceBeside("second", () => inputs, to, bytes, end)) end(false);
  }

  /** Whether results are written into nothing but what members have lent. */
  writesLentOnly(slot: number, members: readonly number[]): boolean {
    return members.every((member) => this.#offered(member, slot, OFFER.output) > 0);
  }

  /** Copies a stretch of this host's memory. */
  copyTo(from: number, to: readonly number[], bytes: number): void {
    const { memory } = this.parts;
    for (const one of to) if (one !== from) memory.copy(memory.address + one, memory.address + from, bytes);
  }

  #reduce(step: Step, inputs: readonly number[], to: number | readonly number[], bytes: number): void {
    const { dtype, memory, size } = this.parts;
    if (bytes > 0) memory.reducer.run(dtype, this.#redopOf(step), inputs, to, bytes, size);
  }

  #reduceBeside(
    step: Step,
    inputs: () => readonly number[],
    to: readonly number[],
    bytes: number,
    done: (isMade: boolean) => void,
  ): boolean {
    const { dtype, memory, size } = this.parts;
    const job = (place: number) => memory.reducer.prepareBeside(place, dtype, this.#redopOf(step), inputs(), to, size);
    return memory.reduceBeside(job, bytes, done);
  }

  #redopOf(step: Step): ReduceOp {
    const { redop = "sum" } = this.parts;
    // What is divided is so once, at the end; what is multiplied, at the beginning.
    const isLate = step === "first" && redop === "avg";
    const isEarly = step === "second" && typeof redop === "object";
    return isLate || isEarly ? "sum" : redop;
  }

  /** Group rank of a column of another host. */
  at(host: number, column: number): number {
    return this.parts.layout.hosts[host]?.[column] ?? 0;
  }

  parcel(peer: number, at: number, bytes: number): Parcel {
    return { peer, bytes: this.parts.memory.bytes(at, bytes) };
  }
}
