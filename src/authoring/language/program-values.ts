/**
 * The values of a program: chunks, buffers, strand groups; and how operations are told their strand and options.
 * `P` marks the program that a value belongs to: values of two programs do not mix.
 */
import { type RawChunk, type Recorder, type Strands, SYNC, type SyncName } from "../compiler/index.ts";
import { BUFFERS, type BufferKind, PLAN_REDUCE_OPS, type PlanReduceOp } from "../plan/index.ts";
import { needChunk } from "./call-checks.ts";
import type { OneStrand, Sentence } from "./type-error-sentence.ts";

export declare const valuesOfDifferentProgramsDoNotMix: unique symbol;
/** Marks a value as belonging to program P, and to no other. */
export interface Of<P> {
  readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
}

/** Several strands that share each operation they are given: each does an equal slice. */
export interface StrandGroup<P> extends Of<P> {
  readonly strands: readonly number[];
}

/** Which strand does an operation: its number (0 by default) or a group. */
export type At<P> = number | StrandGroup<P> | { readonly strand?: number | StrandGroup<P> };

/** Which strand synchronises, and where its threads meet: before and after (`both` by default). */
export interface SyncOptions {
  readonly strand?: number | Sentence<OneStrand>;
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
  /** How error messages show it. */
  toJSON(): string {
    return `a chunk: ${this}`;
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
    if (!Number.isInteger(index) || index < 0 || index >= this.size)
      this.recorder.need(
        false,
        `index in the ${this.buffer} of rank ${this.rank}`,
        index,
        this.size === 0 ? "nothing: it has no chunks" : `a chunk, 0 to ${this.size - 1}`,
      );
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
  /** How error messages show it. */
  toJSON(): string {
    return `a buffer: ${this.buffer} of rank ${this.rank}`;
  }
}

export interface ReduceOptions<P> {
  readonly strand?: number | StrandGroup<P>;
  /** Where the result goes; the first source by default. */
  readonly dst?: Chunk<P>;
  readonly op?: Exclude<PlanReduceOp, "avg">;
}

/** Reads where a reduction goes and with which operator. @param call how the operation is called */
export function reduceOptions<P>(
  recorder: Recorder,
  at: unknown,
  call: string,
): { readonly dst?: Chunk<P>; readonly op?: PlanReduceOp } {
  if (typeof at !== "object" || at === null) return {};
  const options = at as { readonly dst?: Chunk<P>; readonly op?: PlanReduceOp };
  const { dst, op } = options;
  if (dst !== undefined) needChunk(recorder, dst, "dst", call);
  const known = PLAN_REDUCE_OPS.filter((name) => name !== "avg");
  if (op !== undefined) recorder.need((known as string[]).includes(op), "op", op, known.join(", "));
  return options;
}

/** Options that say who does an operation, and how. */
const OPTION_NAMES: readonly string[] = ["strand", "strands", "sync", "relaxed", "dst", "op"];

/** Refuses what is neither a strand, nor a group, nor options: a rank or a chunk in their place, a misspelt name. */
function needOptions(recorder: Recorder, at: unknown): asserts at is number | object | undefined {
  if (at === undefined || typeof at === "number") return;
  const accepted = "a strand's number, a strand group, or options such as { strand: 1 }";
  recorder.need(typeof at === "object" && at !== null, "strand", at, accepted);
  // A value of the language has methods; options are plain objects.
  const isPlain = Object.getPrototypeOf(at) === Object.prototype || Object.getPrototypeOf(at) === null;
  recorder.need(isPlain, "strand", at, accepted);
  const unknown = Object.keys(at).find((key) => !OPTION_NAMES.includes(key));
  if (unknown !== undefined)
    recorder.need(false, `option ${unknown}`, (at as Record<string, unknown>)[unknown], OPTION_NAMES.join(", "));
}

interface StrandLike {
  readonly strands: readonly number[];
}
/** The strand, or strands, that do an operation. */
export function strandsOf(
  recorder: Recorder,
  at: number | StrandLike | { readonly strand?: number | StrandLike } | undefined,
): Strands {
  needOptions(recorder, at);
  if (at === undefined) return 0;
  if (typeof at === "number") return at;
  if ("strands" in at) return at.strands;
  const { strand = 0 } = at as { readonly strand?: number | StrandLike };
  if (typeof strand === "number") return strand;
  recorder.need(Array.isArray(strand?.strands), "strand", strand, "a strand's number, or p.strandGroup([0, 1])");
  return strand.strands;
}
/** The one strand that does an operation which takes no group. */
export function oneOf(recorder: Recorder, at: unknown): number {
  const strands = strandsOf(recorder, at as number);
  recorder.need(
    typeof strands === "number",
    "strand",
    strands,
    "the number of one strand: this operation takes no strand group",
  );
  return strands;
}
/** Where the threads of the strand meet. */
export function syncOf(recorder: Recorder, at: unknown): number {
  if (typeof at !== "object" || at === null || !("sync" in at) || at.sync === undefined) return SYNC.both;
  recorder.need(Object.hasOwn(SYNC, String(at.sync)), "sync", at.sync, Object.keys(SYNC).join(", "));
  return SYNC[at.sync as SyncName];
}
/** Whether a signal or wait is relaxed. */
export function isRelaxed(recorder: Recorder, at: unknown): boolean {
  if (typeof at !== "object" || at === null || !("relaxed" in at) || at.relaxed === undefined) return false;
  recorder.need(typeof at.relaxed === "boolean", "relaxed", at.relaxed, "true or false");
  return at.relaxed;
}
