/**
 * Launches of a plan as graphs of one launch, for which the driver takes less than half as long as for the launch itself: some with
 * what was launched last, as a model's inner loop does again and again, and for any other launch the one that was not used for
 * longest, with other arguments (bench/results/cuda-backend-2026-11-29.md).
 */
import type { CudaKernel, CudaStream } from "../../device/index.ts";
import type { LaunchGraph } from "../../device/internal.ts";

/** Launches of a plan that come first: it may never see another. */
const LAUNCHED_BEFORE = 8;
/** Each takes a place in the ledger of what its rank holds, where there are 4,096 for memory and everything else, too. */
const MOST_GRAPHS = 4;
/** What has been launched so often alike will be again: a kernel of its own pays. */
const MANY_REPEATS = 64;

interface LastLaunch {
  readonly graph: LaunchGraph;
  input: number;
  output: number;
  partBytes: number;
  /** Launches of it alike, one after the other or in turn with few others. */
  repeats: number;
}

export class PlanGraphs {
  /** The one used last at the end. */
  readonly #graphs: LastLaunch[] = [];
  readonly #make: () => LaunchGraph | undefined;
  readonly #repeated: (partBytes: number) => void;
  #numLaunched = 0;
  /** None is made any more. */
  #isFull = false;

  /**
   * @param make makes a graph of the launch that is about to be made
   * @param repeated is told of a size that has been launched `MANY_REPEATS` times alike
   */
  constructor(make: () => LaunchGraph | undefined, repeated: (partBytes: number) => void) {
    this.#make = make;
    this.#repeated = repeated;
  }

  /** Makes a launch again that was made before. @returns whether there is a graph of it */
  relaunch(stream: CudaStream, input: number, output: number, partBytes: number): boolean {
    const graphs = this.#graphs;
    for (let i = graphs.length - 1; i >= 0; i--) {
      const one = graphs[i] as LastLaunch;
      if (one.input !== input || one.output !== output || one.partBytes !== partBytes) continue;
      this.#use(one, i);
      one.graph.launch(stream);
      if (++one.repeats === MANY_REPEATS) this.#repeated(partBytes);
      return true;
    }
    return false;
  }

  /**
   * Makes a launch whose arguments are written, and that was not made of late.
   * @param kernel of such a launch
   * @returns false where it is to be launched without a graph
   * @throws NativeError, ClosedError
   */
  launch(stream: CudaStream, input: number, output: number, partBytes: number, kernel: CudaKernel): boolean {
    if (this.#numLaunched++ < LAUNCHED_BEFORE) return false;
    if (!this.#isFull) this.#makeOne();
    const one = this.#graphs[0];
    if (one === undefined) return false;
    // Should that fail, it is a graph of no launch.
    one.partBytes = -1;
    one.graph.takeArguments(kernel);
    one.input = input;
    one.output = output;
    one.partBytes = partBytes;
    one.repeats = 0;
    this.#use(one, 0);
    one.graph.launch(stream);
    return true;
  }

  /** Says that arguments have changed that launches do not name. */
  forget(): void {
    for (const one of this.#graphs) one.partBytes = -1;
  }

  /** Gives the graphs back; what runs still ends. */
  close(): void {
    for (const { graph } of this.#graphs.splice(0)) graph.close();
    this.#isFull = true;
  }

  #makeOne(): void {
    const graph = this.#make();
    if (graph !== undefined) this.#graphs.unshift({ graph, input: 0, output: 0, partBytes: -1, repeats: 0 });
    this.#isFull = graph === undefined || this.#graphs.length === MOST_GRAPHS;
  }

  /** Moves a graph to the end, with no new array: sizes that come by chance do it in every call. */
  #use(one: LastLaunch, at: number): void {
    const graphs = this.#graphs;
    const last = graphs.length - 1;
    for (let i = at; i < last; i++) graphs[i] = graphs[i + 1] as LastLaunch;
    graphs[last] = one;
  }
}
