/**
 * How a thread learns without a call into the driver what its stream has done: kernels of plans write a number to pinned
 * memory as they end, and it reads that; behind other calls it puts a write of its own. A stream with few of those on it is
 * asked directly instead, which spares the write. Numbers grow in the order of the stream: each stands for all before it.
 */

import { oneOf } from "../../../core/internal.ts";
import { CUDA_STATUS } from "../../../foreign/cuda/index.ts";
import type { CudaStream, PinnedBuffer, RankDevice } from "../../device/index.ts";
import { END_WORDS, type LaunchEnds } from "../../executor/index.ts";

const COMPLETION_VARIABLE = "CHORALE_CUDA_COMPLETION";

/** The word that the stream itself writes stands behind those of kernels. */
const MARK_AT = END_WORDS;
const NUM_WORDS = END_WORDS + 1;
/**
 * Words have 32 bits: one that nobody wrote for 2^31 numbers would seem to be ahead. Before it is written after so many, the
 * host sets it to a number that is not as old; all up to there has ended long before.
 */
const OLD = 2 ** 30;
const NOT_AS_OLD = 2 ** 20;

/** Whether kernels write when they end; otherwise they write nothing, as calls of NCCL do: to compare. @throws InvalidArgumentError */
function kernelsTell(): boolean {
  return oneOf(process.env[COMPLETION_VARIABLE] || "kernel", COMPLETION_VARIABLE, ["kernel", "stream"]) === "kernel";
}

export class Completion implements LaunchEnds {
  /** Where kernels write; absent where they are not to. */
  readonly ofKernels: LaunchEnds | undefined = kernelsTell() ? this : undefined;
  readonly #at: RankDevice;
  readonly #stream: CudaStream;
  #flag: PinnedBuffer | undefined;
  #done = new Int32Array(0);
  address = 0;
  #marker: number;
  #lastOfKernel = 0;
  #lastOfStream = 0;
  /** The stream is known to have come to this number. */
  #ended = 0;

  /** @param first the number before the first */
  constructor(at: RankDevice, stream: CudaStream, first = 0) {
    this.#marker = first;
    this.#at = at;
    this.#stream = stream;
  }

  /** Takes the words: calls are about to come. @throws OutOfMemoryError, NativeError, ClosedError */
  open(): void {
    this.#flag = this.#at.pinned.take(4 * NUM_WORDS);
    this.#done = new Int32Array(this.#flag.buffer, 0, NUM_WORDS);
    this.#done.fill(0);
    this.address = Number(this.#flag.deviceAddress);
  }

  /** The number of the last kernel that writes one: marks have numbers too, and may be put there while a call waits for memory. */
  get lastOfKernel(): number {
    return this.#lastOfKernel;
  }

  /** The number of a kernel that is about to go onto the stream, and that writes it there when it ends. */
  next(): number {
    const marker = ++this.#marker;
    if (marker - this.#lastOfKernel > OLD) this.#done.fill(marker - NOT_AS_OLD, 0, END_WORDS);
    this.#lastOfKernel = marker;
    return marker;
  }

  /** Puts a mark behind everything on the stream. @returns its number @throws NativeError, ClosedError */
  mark(): number {
    const { device } = this.#at;
    const marker = ++this.#marker;
    if (marker - this.#lastOfStream > OLD) this.#done[MARK_AT] = marker - NOT_AS_OLD;
    this.#lastOfStream = marker;
    device.activate();
    const write = device.driver.api.cuStreamWriteValue32_v2;
    const status = write(this.#stream.handle, this.address + 4 * MARK_AT, marker >>> 0, 0);
    if (status !== CUDA_STATUS.success) device.fail("cuStreamWriteValue32_v2", status, "completion");
    return marker;
  }

  /** Whether the stream has come to a mark; 0 is none. */
  reached(marker: number): boolean {
    if (marker > this.#ended) this.#look();
    return marker !== 0 && marker <= this.#ended;
  }

  /** Finds out how far the stream has come: one look tells of all calls that have ended by then. */
  #look(): void {
    let behind = 0;
    for (let at = 0; at < END_WORDS; at++) behind = Math.max(behind, this.#behind(at, this.#lastOfKernel));
    const ofStream = this.#lastOfStream - Math.max(0, this.#behind(MARK_AT, this.#lastOfStream));
    this.#ended = Math.max(this.#ended, this.#lastOfKernel - behind, ofStream);
  }

  /** How far a word is behind the last number that is written there. */
  #behind(at: number, last: number): number {
    // Atomic: a loop that does nothing else reads it anew each time.
    return (last - Atomics.load(this.#done, at)) | 0;
  }

  /** Whether everything on the stream is done. Errors are left to `isDone` of the stream. */
  idle(): boolean {
    return this.#at.device.driver.api.cuStreamQuery(this.#stream.handle) === CUDA_STATUS.success;
  }

  /**
   * Gives the words back, if it has them; no mark may be under way then.
   * @param settled whether the stream is known to have passed every mark
   */
  close(settled: boolean): void {
    // A late write would tell whoever has the buffer next that its work is done: such a buffer stays out of use.
    if (settled && this.#flag !== undefined) this.#at.pinned.giveBack(this.#flag);
  }
}
