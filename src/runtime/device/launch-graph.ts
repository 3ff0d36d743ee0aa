/**
 * One launch of a kernel as a graph: the driver takes half as long to run it as to launch the kernel. Its arguments may change
 * from run to run, which takes a quarter of that again; what was run before keeps those that it had.
 */
import { ClosedError } from "../../core/index.ts";
import { CUDA_STATUS, kernelNodesOf } from "../../foreign/cuda/index.ts";
import { MADE_HERE } from "./construction-key.ts";
import { type CudaKernel, type KernelArguments, type LaunchShape, launchWords } from "./module.ts";
import { CudaGraph, type CudaStream } from "./stream.ts";

const WHAT = "graph of a launch";

export class LaunchGraph {
  /** What the launch is, and what with: the driver reads both when arguments change. */
  readonly words: BigUint64Array;
  readonly args: KernelArguments;
  readonly #graph: CudaGraph;
  readonly #change: () => number;
  readonly #shape: LaunchShape;
  #kernel: CudaKernel;

  private constructor(
    graph: CudaGraph,
    { kernel, shape }: { readonly kernel: CudaKernel; readonly shape: LaunchShape },
    words: BigUint64Array,
    args: KernelArguments,
    change: () => number,
  ) {
    this.#kernel = kernel;
    this.#shape = shape;
    this.words = words;
    this.args = args;
    this.#graph = graph;
    this.#change = change;
  }

  /**
   * Makes one of a launch with what the arguments are now.
   * @returns undefined where the driver has no such graphs (before CUDA 12.0)
   * @throws NativeError, ClosedError; InvalidArgumentError as `CudaKernel.launch`
   */
  static make(kernel: CudaKernel, shape: LaunchShape, args: KernelArguments): LaunchGraph | undefined {
    const { device } = kernel;
    const { driver } = device;
    const nodes = kernelNodesOf(driver);
    if (nodes === undefined) return undefined;
    const words = launchWords(kernel, shape, args);
    const node = new BigUint64Array(1);
    const check = (symbol: string, status: number) => {
      if (status !== CUDA_STATUS.success) device.fail(symbol, status, WHAT);
    };
    device.activate();
    const source = device.make("graphSource", (out) => check("cuGraphCreate", nodes.cuGraphCreate(out, 0)));
    try {
      check("cuGraphAddKernelNode_v2", nodes.cuGraphAddKernelNode_v2(node, source, 0n, 0n, words));
      const exec = device.make("graph", (out) => device.call("cuGraphInstantiateWithFlags", WHAT, out, source, 0n));
      const [number, at, place] = [Number(exec), Number(node[0]), Number(driver.addressOf(words))];
      const change = () => nodes.cuGraphExecKernelNodeSetParams_v2(number, at, place);
      return new LaunchGraph(new CudaGraph(MADE_HERE, device, exec, source), { kernel, shape }, words, args, change);
    } catch (error) {
      device.ledger?.drop("graphSource", source);
      driver.api.cuGraphDestroy(source);
      throw error;
    }
  }

  /**
   * Has later runs take what the arguments are now.
   * @param kernel that they run: one with the same parameters as the first
   * @throws NativeError, ClosedError
   */
  takeArguments(kernel: CudaKernel): void {
    const { device, closed } = this.#graph;
    // As a world ends its graphs are closed first, and plans later.
    if (closed) throw new ClosedError(WHAT, "was closed");
    if (kernel !== this.#kernel) {
      this.words.set(launchWords(kernel, this.#shape, this.args).subarray(0, 1));
      this.#kernel = kernel;
    }
    device.activate();
    const status = this.#change();
    if (status !== CUDA_STATUS.success) device.fail("cuGraphExecKernelNodeSetParams_v2", status, WHAT);
  }

  /** Runs the launch. @throws NativeError, ClosedError */
  launch(stream: CudaStream): void {
    this.#graph.launch(stream);
  }

  /** Gives it back; what runs still ends. Idempotent. */
  close(): void {
    this.#graph.close();
  }
}
