/**
 * A small all-reduce inside a host in one round: each rank writes its input and its call's fingerprint where the others look for
 * both at once; when all have, each reduces all inputs, in rank order, straight to its result. The shares of host-exchange.ts
 * spare each rank work on large inputs and cost a second meeting, which for small ones is most of the time.
 *
 * A core fetches each cache line that another has written, which is most of a small call's time: mark, fingerprint and up to 96
 * bytes of input are in one place of two lines (one, up to 32 bytes), and who waits looks nowhere else.
 *
 * It takes a half of the input as a piece of an exchange does, by the same count, so the two may follow each other.
 */
import type { DType, ReduceOp } from "../../../core/index.ts";
import type { MemoryCopy } from "../../../foreign/native/index.ts";
import type { Arrival } from "../../progress/index.ts";
import { CallMeeting } from "./call-meeting.ts";
import { MEETING } from "./host-arena.ts";
import type { Activity, BringPlace, CallTarget } from "./mpi-entry.ts";
import type { PlanPlace } from "./plan-call.ts";

/** Most bytes of all ranks' inputs together: what a rank reads and reduces alone. */
const MOST_BYTES = 64 * 1024;

/** Whether all ranks make an all-reduce in one round. @param sizeBytes of one rank's input */
export const isOneRound = (sizeBytes: number, ranks: number): boolean => sizeBytes * ranks <= MOST_BYTES;

/** An all-reduce by addresses of its memory. */
interface AddressedReduction {
  readonly dtype: DType;
  readonly redop: ReduceOp;
  readonly send: number;
  readonly recv: number;
  readonly sizeBytes: number;
  /** The same memory as words, where it is short and whole words: copied without a call of C's. */
  readonly words?: { readonly send: Int32Array; readonly recv: Int32Array } | undefined;
}

export class OneRoundReduction implements Activity {
  /** Later collectives must wait: they use the same memory. */
  readonly stepped = true;
  readonly #group: PlanPlace;
  readonly #call: AddressedReduction;
  /** Where inputs are: 0, in the meeting places. */
  readonly #where: 0 | 1;
  readonly #meeting: CallMeeting;
  #copy: MemoryCopy | undefined;
  #isWaiting = false;
  #isDone = false;

  constructor(group: PlanPlace, call: AddressedReduction) {
    this.#group = group;
    this.#call = call;
    this.#where = call.sizeBytes <= MEETING.inputBytes ? 0 : 1;
    this.#meeting = new CallMeeting(group);
  }

  /** A reduction that is done can be brought once more, for the next call of the same memory. */
  bring(arrival: Arrival | undefined, { library: { copy } }: BringPlace): void {
    const { arena } = this.#group;
    this.#copy = copy;
    this.#isDone = false;
    const half = this.#meeting.take();
    const { send, sizeBytes, words: own } = this.#call;
    const words = arena.words();
    const to = half.inputs[this.#where];
    if (own === undefined) copy(arena.address + to, send, sizeBytes);
    else for (let i = 0, at = to / 4; i < own.send.length; i++, at++) words[at] = own.send[i]!;
    this.#meeting.tell(arrival);
  }

  hasMet(): boolean {
    return this.#meeting.hasMet();
  }

  begin({ mpi }: CallTarget): void {
    if (!this.#meeting.isBrought) this.bring(undefined, mpi);
    if (this.advance()) return;
    this.#isWaiting = true;
    this.#group.arena.running.add(this);
  }

  advance(): boolean {
    if (this.#isDone) return true;
    if (!this.#meeting.isFull) return false;
    const { arena } = this.#group;
    const { meetings, tables, result, resultTable } = this.#meeting.half;
    const words = arena.words();
    const { dtype, redop, recv, sizeBytes, words: own } = this.#call;
    arena.reducer.runTables(dtype, redop, tables[this.#where], meetings.length, resultTable, sizeBytes);
    if (own === undefined) this.#copy?.(recv, arena.address + result, sizeBytes);
    else for (let i = 0, at = result / 4; i < own.recv.length; i++, at++) own.recv[i] = words[at]!;
    arena.numMoved++;
    this.#isDone = true;
    if (this.#isWaiting) this.stop();
    return true;
  }

  stop(): void {
    this.#isWaiting = false;
    this.#group.arena.running.delete(this);
  }
}

/** A short stretch of memory as words; `undefined` where it is not short, or not whole words. */
export function shortWords(buffer: ArrayBufferLike, byteOffset: number, sizeBytes: number): Int32Array | undefined {
  const fits = sizeBytes <= MEETING.inputBytes && byteOffset % 4 === 0 && sizeBytes % 4 === 0;
  return fits ? new Int32Array(buffer, byteOffset, sizeBytes / 4) : undefined;
}
