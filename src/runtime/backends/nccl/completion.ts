/**
 * How a thread learns without a call into the driver what its stream has done: kernels of plans write a number to pinned
 * memory as they end, and it reads that; behind other calls it puts a write of its own. A stream with few of those on it is
 * asked directly instead, which spares the write. Numbers grow in the order of the stream: each stands for all before it.
 */

import { oneOf } from "../../../core/internal.ts";
import { CUDA_STATUS } from "../../../foreign/cuda/index.ts";
import type { CudaStream, PinnedBuffer, RankDevice } from "../../device/index.ts";
import type { LaunchEnds } from "../../executor/cuda/internal.ts";

const COMPLETION_VARIABLE = "CHORALE_CUDA_COMPLETION";

/**
 * The stream's word has 32 bits: one that nobody wrote for 2^31 numbers would seem to be ahead. Before it is written after so
 * many, the host sets it to a number that is not as old; all up to there has ended long before.
 */
const OLD = 2 ** 30;
const NOT_AS_OLD = 2 ** 20;
/** Launches that are remembered before somebody has to look which of them have ended. */
const MANY_LAUNCHES = 1024;
/** Launches that have ended before they are forgotten, all at once: a call that is awaited would make an array to forget one. */
const ENDED_LAUNCHES = 64;

/** A launch whose end was not seen yet: see `LaunchEnds`. */
interface Launched {
  readonly words: Int32Array;
  readonly count: number;
  readonly marker: number;
}

/** Whether kernels write when they end; otherwise they write nothing, as calls of NCCL do: to compare. @throws InvalidArgumentError */
function kernelsTell(): boolean {
  return oneOf(process.env[COMPLETION_VARIABLE] || "kernel", COMPLETION_VARIABLE, ["kernel", "stream"]) === "kernel";
}

/** By how much a word is behind a number. Atomic: a loop that does nothing else reads it anew each time. */
function behind(words: Int32Array, at: number, number: number): number {
  return (number - Atomics.load(words, at)) | 0;
}

export class Completion implements LaunchEnds {
  /** What hears of launches that tell their ends; absent where they are not to. */
  readonly ofKernels: LaunchEnds | undefined = kernelsTell() ? this : undefined;
  readonly #at: RankDevice;
  readonly #stream: CudaStream;
  /** The word that the stream itself writes. */
  #flag: PinnedBuffer | undefined;
  #done = new Int32Array(1);
  #address = 0;
  /** The oldest first, from `#firstOpen` on. */
  readonly #launches: Launched[] = [];
  #firstOpen = 0;
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

  /** Takes the word of the stream: calls are about to come. @throws OutOfMemoryError, NativeError, ClosedError */
  open(): void {
    this.#flag = this.#at.pinned.take(4);
    this.#done = new Int32Array(this.#flag.buffer, 0, 1).fill(0);
    this.#address = Number(this.#flag.deviceAddress);
  }

  /** The number of the last kernel that tells its end: marks have numbers too, and may be put there while a call waits for memory. */
  get lastOfKernel(): number {
    return this.#lastOfKernel;
  }

  launched(words: Int32Array, count: number): void {
    const marker = ++this.#marker;
    this.#lastOfKernel = marker;
    this.#launches.push({ words, count, marker });
    if (this.#launches.length - this.#firstOpen > MANY_LAUNCHES) this.#look();
  }

  /** Puts a mark behind everything on the stream. @returns its number @throws NativeError, ClosedError */
  mark(): number {
    const { device } = this.#at;
    const marker = ++this.#marker;
    if (marker - this.#lastOfStream > OLD) this.#done[0] = marker - NOT_AS_OLD;
    this.#lastOfStream = marker;
    device.activate();
    const write = device.driver.api.cuStreamWriteValue32_v2;
    const status = write(this.#stream.handle, this.#address, marker >>> 0, 0);
    if (status !== CUDA_STATUS.success) device.fail("cuStreamWriteValue32_v2", status, "completion");
    return marker;
  }

  /** Whether the stream has come to a mark; 0 is none. */
  reached(marker: number): boolean {
    if (marker > this.#ended) this.#look();
    return marker !== 0 && marker <= this.#ended;
  }

  /** Finds out how far the stream has come. */
  #look(): void {
    const ofStream = this.#lastOfStream - Math.max(0, behind(this.#done, 0, this.#lastOfStream));
    this.#ended = Math.max(this.#ended, this.#lookAtLaunches(), ofStream);
  }

  /** One look at the words of a plan tells of all its launches. @returns the number of the last launch that has ended by now */
  #lookAtLaunches(): number {
    const launches = this.#launches;
    let ended = 0;
    let words: Int32Array | undefined;
    let numEnded = 0;
    for (; this.#firstOpen < launches.length; this.#firstOpen++) {
      const one = launches[this.#firstOpen] as Launched;
      if (one.words !== words) {
        words = one.words;
        let most = behind(words, 0, one.count);
        for (let at = 1; at < words.length; at++) most = Math.max(most, behind(words, at, one.count));
        numEnded = one.count - most;
      }
      if (one.count > numEnded) break;
      ended = one.marker;
    }
    if (this.#firstOpen >= (this.#firstOpen === launches.length ? ENDED_LAUNCHES : MANY_LAUNCHES)) {
      launches.splice(0, this.#firstOpen);
      this.#firstOpen = 0;
    }
    return ended;
  }

  /** Whether everything on the stream is done. Errors are left to `isDone` of the stream. */
  idle(): boolean {
    return this.#at.device.driver.api.cuStreamQuery(this.#stream.handle) === CUDA_STATUS.success;
  }

  /**
   * Gives the flag back; no mark may be under way then.
   * @param settled whether the stream is known to have passed every mark
   */
  close(settled: boolean): void {
    // A late write would tell whoever has the buffer next that its work is done: such a buffer stays out of use.
    if (settled && this.#flag !== undefined) this.#at.pinned.giveBack(this.#flag);
  }
}
