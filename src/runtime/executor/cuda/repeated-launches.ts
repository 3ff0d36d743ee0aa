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

/**
 * Graphs that a device has of all its plans: each takes a place in the ledger of what its rank holds, where there are 4,096 for
 * memory and everything else, too.
 */
const MOST_GRAPHS = 512;
const OF_DEVICE = new WeakMap<object, Set<RepeatedLaunch>>();

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
  /** Those of all plans that are graphs, the one used last at the end. */
  readonly #graphs: Set<RepeatedLaunch>;
  #last: RepeatedLaunch | undefined;

  constructor(device: object) {
    this.#graphs = OF_DEVICE.get(device) ?? new Set();
    OF_DEVICE.set(device, this.#graphs);
  }

  /** Keeps the graph of a launch; the one of its device that was not used for longest makes room, and is made again one day. */
  keep(one: RepeatedLaunch, graph: CudaGraph): void {
    one.graph = graph;
    this.#graphs.add(one);
    if (this.#graphs.size <= MOST_GRAPHS) return;
    for (const oldest of this.#graphs) {
      this.#drop(oldest);
      break;
    }
  }

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
    } else if (this.#graphs.delete(one)) this.#graphs.add(one);
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
    this.#drop(one);
    this.#remembered.delete(key);
    if (this.#last === one) this.#last = undefined;
  }

  #drop(one: RepeatedLaunch): void {
    this.#graphs.delete(one);
    one.graph?.close();
    one.graph = undefined;
    one.times = 0;
  }
}
