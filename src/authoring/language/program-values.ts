/**
 * The values of a program: chunks, buffers, strand groups; and how operations are told their strand and options.
 * `P` marks the program that a value belongs to: values of two programs do not mix.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { type RawChunk, type Recorder, type Strands, SYNC, type SyncName } from "../compiler/index.ts";
import { BUFFERS, type BufferKind, type PlanReduceOp } from "../plan/index.ts";
import type { Sentence } from "./type-error-sentence.ts";

export declare const valuesOfDifferentProgramsDoNotMix: unique symbol;
/** Marks a value as belonging to program P, and to no other. */
export interface Of<P> {
  readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
}

/** Several strands that share each operation they are given: each does an equal slice. */
export interface StrandGroup<P> extends Of<P> {
  readonly strands: readonly number[];
}

/** Which strand does an operation: its number (0 unless told) or a group. */
export type At<P> = number | StrandGroup<P> | { readonly strand?: number | StrandGroup<P> };

/** Which strand synchronises, and where its threads meet: before and after (`both` unless told). */
export interface SyncOptions {
  readonly strand?: number | Sentence<"a synchronising operation is done by one strand: it takes no strand group">;
  readonly sync?: SyncName;
}
export interface RelaxedOptions extends SyncOptions {
  /** Orders nothing. */
  readonly relaxed?: boolean;
}
export interface PortSignalOptions extends SyncOptions {
  readonly relaxed?: Sentence<"a port channel has no relaxed signal">;
}
export interface PortWaitOptions extends SyncOptions {
  readonly relaxed?: Sentence<"a port channel has no relaxed wait">;
}
export interface SwitchReduceOptions {
  readonly strand?: number | Sentence<"a switch operation is done by one strand: it takes no strand group">;
  readonly op?: Exclude<PlanReduceOp, "avg">;
}

/** A run of chunks of one buffer of one rank. */
export class Chunk<P, B extends BufferKind = BufferKind> implements RawChunk {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  /** Type only: which buffer. */
  declare readonly kind?: B;
  readonly rank: number;
  readonly buffer: number;
  readonly index: number;
  readonly size: number;
  readonly owner: object;
  constructor(owner: object, rank: number, buffer: number, index: number, size: number) {
    this.owner = owner;
    this.rank = rank;
    this.buffer = buffer;
    this.index = index;
    this.size = size;
  }
  toString(): string {
    return `rank ${this.rank} ${BUFFERS[this.buffer]}[${this.index}:${this.index + this.size}]`;
  }
}

/** A buffer of a rank: its input, its output, or scratch. Chunks are taken by slice. */
export class Buffer<P, B extends BufferKind = BufferKind> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  readonly rank: number;
  /** Number of chunks. */
  readonly size: number;
  private readonly code: number;
  private readonly offset: number;
  private readonly recorder: Recorder;
  constructor(recorder: Recorder, rank: number, buffer: B, offset: number, size: number) {
    this.recorder = recorder;
    this.rank = rank;
    this.code = BUFFERS.indexOf(buffer);
    this.offset = offset;
    this.size = size;
  }
  get buffer(): B {
    return BUFFERS[this.code] as B;
  }
  /** Chunk `index`. @throws InvalidArgumentError when there is none */
  at(index: number): Chunk<P, B> {
    return this.slice(index, index + 1);
  }
  /** Chunks [start, end). @throws InvalidArgumentError unless 0 <= start <= end <= size */
  slice(start = 0, end: number = this.size): Chunk<P, B> {
    if (!(Number.isInteger(start) && Number.isInteger(end) && start >= 0 && start <= end && end <= this.size)) {
      this.recorder.need(
        false,
        `slice of the ${this.buffer} of rank ${this.rank}`,
        [start, end],
        `0 <= start <= end <= ${this.size}`,
      );
    }
    return new Chunk(this.recorder, this.rank, this.code, this.offset + start, end - start);
  }
  /** All of it. */
  get all(): Chunk<P, B> {
    return this.slice();
  }
}

export interface ReduceOptions<P> {
  readonly strand?: number | StrandGroup<P>;
  /** Where the result goes; the first source unless told. */
  readonly dst?: Chunk<P>;
  readonly op?: Exclude<PlanReduceOp, "avg">;
}

export function reduceOptions<P>(at: unknown): { readonly dst?: Chunk<P>; readonly op?: PlanReduceOp } {
  return typeof at === "object" && at !== null ? (at as ReduceOptions<P>) : {};
}

interface StrandLike {
  readonly strands: readonly number[];
}
export function strandsOf(at: number | StrandLike | { readonly strand?: number | StrandLike } | undefined): Strands {
  if (at === undefined) return 0;
  if (typeof at === "number") return at;
  if ("strands" in at) return at.strands;
  const { strand = 0 } = at as { readonly strand?: number | StrandLike };
  return typeof strand === "number" ? strand : strand.strands;
}
export function oneOf(at: unknown): number {
  const strands = strandsOf(at as number);
  if (typeof strands !== "number")
    throw new InvalidArgumentError("strand", strands, "one strand: this operation takes no strand group");
  return strands;
}
export function syncOf(at: unknown): number {
  return typeof at === "object" && at !== null && "sync" in at
    ? SYNC[(at.sync as SyncName | undefined) ?? "both"]
    : SYNC.both;
}
