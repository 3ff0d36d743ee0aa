/** A rank and what it does alone, and the semaphores between its strands. */
import { InvalidArgumentError } from "../../core/index.ts";
import type { Recorder, SemaphoreRecord } from "../compiler/index.ts";
import type { BufferKind, PlanReduceOp } from "../plan/index.ts";
import { needChunk, needChunks, needTwo } from "./call-checks.ts";
import { CALLS } from "./call-signatures.ts";
import {
  type At,
  Buffer,
  type Chunk,
  oneOf,
  type ReduceOptions,
  reduceOptions,
  type StrandGroup,
  type SyncOptions,
  strandsOf,
  syncOf,
  type valuesOfDifferentProgramsDoNotMix,
} from "./program-values.ts";
import type { OneStrand, OnlyScratch, Sentence } from "./type-error-sentence.ts";

/** A rank and what it does alone. */
export class RankHandle<P> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  readonly id: number;
  readonly input: Buffer<P, "input">;
  readonly output: Buffer<P, "output">;
  private readonly recorder: Recorder;
  private readonly op: PlanReduceOp;
  constructor(recorder: Recorder, id: number, op: PlanReduceOp) {
    const record = recorder.ranks[id];
    if (record === undefined) throw new InvalidArgumentError("rank", id, `0 to ${recorder.ranks.length - 1}`);
    this.recorder = recorder;
    this.id = id;
    this.op = op;
    this.input = new Buffer(recorder, id, "input", 0, record.inputChunks);
    this.output = new Buffer(recorder, id, "output", 0, record.outputChunks);
  }
  private needOperands(src: Chunk<P>, others: readonly Chunk<P>[], call: string): void {
    needChunk(this.recorder, src, "src", call);
    needChunks(this.recorder, others, "others", call);
  }
  /** How error messages show it. */
  toJSON(): string {
    return `rank ${this.id}`;
  }
  /** Reserves scratch of `size` chunks. */
  scratch(size: number): Buffer<P, "scratch"> {
    return new Buffer(this.recorder, this.id, "scratch", this.recorder.scratch(this.id, size), size);
  }
  /** dst = src. */
  copy(dst: Chunk<P>, src: Chunk<P>, at?: At<P>): void {
    needTwo(this.recorder, dst, src, CALLS.rankCopy);
    this.recorder.copy(this.id, "plain", dst, src, strandsOf(this.recorder, at));
  }
  /** Writes src as packets to scratch. */
  copyPackets<B extends BufferKind>(
    dst: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the destination of copyPackets must be a chunk of scratch">,
    src: Chunk<P>,
    at?: At<P>,
  ): void {
    needTwo(this.recorder, dst, src, CALLS.rankCopyPackets);
    this.recorder.copy(this.id, "pack", dst, src, strandsOf(this.recorder, at));
  }
  /** Waits for the packets in scratch and writes them as data. */
  unpackPackets<B extends BufferKind>(
    dst: Chunk<P>,
    src: Chunk<P, B> &
      OnlyScratch<B, "packets live in scratch: the source of unpackPackets must be a chunk of scratch">,
    at?: At<P>,
  ): void {
    needTwo(this.recorder, dst, src, CALLS.rankUnpackPackets);
    this.recorder.copy(this.id, "unpack", dst, src, strandsOf(this.recorder, at));
  }
  /** dst = op(src, ...others). */
  reduce(src: Chunk<P>, others: readonly Chunk<P>[], at?: number | StrandGroup<P> | ReduceOptions<P>): void {
    this.needOperands(src, others, CALLS.rankReduce);
    const { dst, op } = reduceOptions<P>(this.recorder, at, CALLS.rankReduce);
    this.recorder.reduce(this.id, src, others, dst ?? src, op ?? this.op, false, strandsOf(this.recorder, at));
  }
  /** dst = op(src, ...others) where the others are packets in scratch. */
  reducePackets<B extends BufferKind>(
    src: Chunk<P>,
    others: readonly (Chunk<P, B> & OnlyScratch<B, "packets live in scratch: reducePackets reads chunks of scratch">)[],
    at?: number | StrandGroup<P> | ReduceOptions<P>,
  ): void {
    this.needOperands(src, others, CALLS.rankReducePackets);
    const { dst, op } = reduceOptions<P>(this.recorder, at, CALLS.rankReducePackets);
    this.recorder.reduce(this.id, src, others, dst ?? src, op ?? this.op, true, strandsOf(this.recorder, at));
  }
  /** The strands wait for each other; a single strand's threads meet. */
  barrier(strands: readonly number[]): void {
    this.recorder.barrier(this.id, strands);
  }
  /** A semaphore between strands of this rank. */
  semaphore(initialValue = 0): Semaphore<P> {
    return new Semaphore(this.recorder, this.recorder.semaphore(this.id, initialValue));
  }
}

/** Counts; strands of one rank release and acquire it. A plan must leave it at its initial value. */
export class Semaphore<P> {
  declare readonly [valuesOfDifferentProgramsDoNotMix]: (program: P) => P;
  private readonly recorder: Recorder;
  private readonly record: SemaphoreRecord;
  constructor(recorder: Recorder, record: SemaphoreRecord) {
    this.recorder = recorder;
    this.record = record;
  }
  /** How error messages show it. */
  toJSON(): string {
    return `semaphore ${this.record.id} of rank ${this.record.rank}`;
  }
  /** Waits until it is above 0 and takes 1. */
  acquire(at?: number | Sentence<OneStrand> | SyncOptions): void {
    this.recorder.acquireOrRelease("acquire", this.record, oneOf(this.recorder, at), syncOf(this.recorder, at));
  }
  /** Adds 1. */
  release(at?: number | Sentence<OneStrand> | SyncOptions): void {
    this.recorder.acquireOrRelease("release", this.record, oneOf(this.recorder, at), syncOf(this.recorder, at));
  }
}
