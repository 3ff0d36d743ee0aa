/**
 * Launches of a kernel that are made again and again with the same buffers and the same size, as a model's inner loop makes
 * them: each becomes a graph of one launch, for which the driver takes less than half as long as for the launch itself
 * (bench/results/cuda-backend-2026-11-28.md). Nothing but buffers and size may differ between launches.
 */
import type { CudaGraph } from "../../device/index.ts";

/** How often a launch was made before it becomes a graph: making one takes as long as dozens of launches. */
const MADE_BEFORE = 8;
/** Launches that are remembered; the one that was found first makes room. */
const MAX_REMEMBERED = 64;

/** A launch of which it is counted how often it was made. */
export interface RepeatedLaunch {
  readonly input: number;
  readonly output: number;
  readonly partBytes: number;
  times: number;
  graph: CudaGraph | undefined;
}

/** Counts a launch. @returns whether it is to become a graph now, once */
export function isDue(one: RepeatedLaunch): boolean {
  return one.times++ === MADE_BEFORE;
}

export class RepeatedLaunches {
  readonly #remembered = new Map<number, RepeatedLaunch>();
  #last: RepeatedLaunch | undefined;

  /** What is remembered of a launch that is about to be made. */
  of(input: number, output: number, partBytes: number): RepeatedLaunch {
    let one = this.#last;
    if (one !== undefined && one.input === input && one.output === output && one.partBytes === partBytes) return one;
    // Addresses have 47 bits. Others with the same key take its place.
    const key = input + 3 * output + 7 * partBytes;
    one = this.#remembered.get(key);
    if (one === undefined || one.input !== input || one.output !== output || one.partBytes !== partBytes) {
      this.#forget(key);
      if (this.#remembered.size >= MAX_REMEMBERED)
        for (const [first] of this.#remembered) {
          this.#forget(first);
          break;
        }
      one = { input, output, partBytes, times: 0, graph: undefined };
      this.#remembered.set(key, one);
    }
    this.#last = one;
    return one;
  }

  /** Forgets everything; graphs that run still end. */
  clear(): void {
    for (const key of [...this.#remembered.keys()]) this.#forget(key);
  }

  #forget(key: number): void {
    const one = this.#remembered.get(key);
    if (one === undefined) return;
    one.graph?.close();
    this.#remembered.delete(key);
    if (this.#last === one) this.#last = undefined;
  }
}
