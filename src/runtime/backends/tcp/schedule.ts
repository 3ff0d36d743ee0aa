/**
 * What one rank does in a collective over sockets, as plain data: strands that run side by side, each a list of rounds.
 * A round receives and sends; when all that it receives is there, its steps run, and the next round begins. Messages of
 * a strand have a fixed size, so both ends know it. It is what the port channels of an execution plan become: the
 * executor can make schedules in place of the algorithms here.
 */

/** A stretch of one of a call's buffers, bytes. Scratch counts from the start of the strand's own. */
export interface Span {
  readonly buffer: "input" | "output" | "scratch";
  readonly at: number;
  readonly bytes: number;
}

export interface SendStep {
  readonly to: number;
  readonly from: Span;
  /** Elements that the two agree on beside the message's size. */
  readonly extra?: number;
}
export interface RecvStep {
  readonly from: number;
  readonly into: Span;
  readonly extra?: number;
}
export type LocalStep =
  | { readonly kind: "copy"; readonly from: Span; readonly to: Span }
  /** Combines the inputs in their order, and rounds once. */
  | { readonly kind: "reduce"; readonly inputs: readonly Span[]; readonly output: Span };

export interface Round {
  readonly sends: readonly SendStep[];
  readonly recvs: readonly RecvStep[];
  readonly then: readonly LocalStep[];
  /**
   * Its receives are asked for as the strand begins, so that senders need not wait for that later. Only where none can come
   * before the rank has sent what lies in their memory.
   */
  readonly isEarly?: true;
}
export type Strand = readonly Round[];

export interface Schedule {
  /** Of the algorithm, for `stats()`. */
  readonly name: string;
  readonly numStrands: number;
  /** Makes a strand when its turn has come. */
  readonly strand: (index: number) => Strand;
  /** How many strands run at a time. */
  readonly window: number;
  /** Of each strand that runs. */
  readonly scratchBytes: number;
  /** Runs beside the first strands: hears, through others, of every rank of the group. */
  readonly opening?: Strand;
  /** Runs when all others are done. */
  readonly closing?: Strand;
}

/** Rounds that a strand can have: numbers messages. */
export const MAX_ROUNDS = 64;
const OPENING = 0;
const CLOSING = 1;
const FIRST = 2;

/** The message of a strand's round between two ranks, in each direction. */
export const slotOf = (strand: number | "opening" | "closing", round: number): number =>
  (strand === "opening" ? OPENING : strand === "closing" ? CLOSING : FIRST + strand) * MAX_ROUNDS + round;
