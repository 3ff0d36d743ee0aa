/**
 * The Communicator over NCCL: the whole contract on device tensors, and on host memory through pinned staging. Each
 * communicator has a stream of its own, ordered behind what the program has issued on the rank's main stream. What all
 * backends share is `GroupCommunicator`'s; what is here is NCCL's alone: streams and graphs.
 */
import { type CallOptions, checkOptions, GroupCommunicator, PendingWork, type Work } from "../../comm/index.ts";
import { type CudaGraph, CudaStream } from "../../device/index.ts";
import { callSynchronous } from "../../device/internal.ts";
import type { CommunicatorParts } from "./nccl-context.ts";
import type { NcclGroup } from "./nccl-group.ts";
import { orderAfter, orderBefore, synchronize } from "./stream-waits.ts";

/**
 * A group of ranks that talk through NCCL: what `world.comm` is with `backend: "nccl"`, and what `split`, `shrink` and
 * `world.communicator` give. Shapes and meanings are `Communicator`'s, and so are the errors: a call throws
 * InvalidArgumentError and UnsupportedError before anything is issued, ClosedError after `close` and for tensors that were
 * freed or are of an older generation, OutOfMemoryError where it needs memory, and the failure of its group; its `Work`
 * ends with TimeoutError, MismatchError, RankFailedError, AbortedError or NativeError. Tensors are of this rank's device;
 * typed arrays go through pinned memory once each way. A call that names no output and cannot be done in place gives a
 * fresh tensor.
 * @example
 * import { launch } from "chorale";
 *
 * const results = await launch({
 *   ranks: 2,
 *   backend: "nccl",
 *   run: async (world) => {
 *     const { comm } = world;
 *     const x = world.tensor("f32", [4]);
 *     world.upload(x, new Float32Array(4).fill(comm.rank + 1));
 *     await comm.allReduce(x, { op: "max" }); // in place: [2, 2, 2, 2]
 *     const mine = await comm.reduceScatter(x); // a fresh tensor of two elements: [4, 4]
 *     const host = await comm.allGather(new Int32Array([comm.rank])); // from host memory to host memory
 *     return [...world.download(mine), ...host.data];
 *   },
 * });
 * console.log(results[1]); // [4, 4, 0, 1]
 */
export class NcclCommunicator extends GroupCommunicator<NcclGroup> {
  get parts(): CommunicatorParts {
    return this.driver.parts;
  }

  /** The stream that this communicator's calls run on, for events and for kernels that must follow them. */
  get stream(): CudaStream {
    return this.driver.stream;
  }

  /**
   * Makes what is issued on `stream` from now on (the rank's main stream, say) wait on the device for every call made
   * here so far. Calls of a kind never made before are waited for here until all members have made them. The rank's
   * main stream needs nothing in the other direction; kernels on this communicator's own `stream` need only this.
   * @throws the group's failure; InvalidArgumentError, ClosedError for the stream
   * @example
   * import { launch } from "chorale";
   *
   * const sums = await launch({
   *   ranks: 2,
   *   backend: "nccl",
   *   run: async (world) => {
   *     const { deviceOf } = await import("chorale/world");
   *     const comm = world.comm as import("chorale/nccl").NcclCommunicator;
   *     const main = deviceOf(world)?.main;
   *     if (main === undefined) throw new Error("no device");
   *     const x = world.tensor("f32", [2]);
   *     world.upload(x, Float32Array.of(1, world.rank));
   *     comm.allReduce(x); // not awaited
   *     comm.orderBefore(main); // what follows on the main stream sees the sum
   *     return [...world.download(x)];
   *   },
   * });
   * console.log(sums[0]); // [2, 1]
   */
  orderBefore(stream: CudaStream = this.stream): void {
    if (stream !== this.stream) CudaStream.handleOf(stream, "stream");
    orderBefore(this.parts.queue, stream);
  }

  /**
   * Makes calls made here from now on wait on the device for what `stream` has been given so far. The rank's main stream
   * needs none: calls come behind it by themselves. A group's stream has been given the group's calls when they are
   * issued; for those that are made and not issued yet use that group's `orderBefore`.
   * @throws the group's failure; InvalidArgumentError, ClosedError for the stream
   */
  orderAfter(stream: CudaStream): void {
    if (stream !== this.stream) CudaStream.handleOf(stream, "stream");
    orderAfter(this.parts.queue, stream);
  }

  /**
   * Blocks this thread until everything on this communicator's stream is done, kernels of the program included, and
   * looks after the group meanwhile: a peer that fails ends the wait.
   * @throws the group's failure, TimeoutError; InvalidArgumentError for an invalid deadline
   */
  synchronize(options: { readonly timeoutMs?: number } = {}): void {
    checkOptions(options);
    synchronize(this.parts.queue, options.timeoutMs ?? this.parts.rank.settings.timeoutMs);
  }

  /**
   * Records what `fn` calls as a graph, to be run again and again by `replay` without issuing each call; kernels and
   * copies that `fn` puts on `group.stream` are recorded in their place among the calls. All ranks capture the same
   * calls, on device tensors, each of which was made at least once before with the same element type and operator: NCCL
   * connects peers in the first call of a kind. The graph keeps the tensors of its calls; a call whose result goes
   * elsewhere than to its input names an `output`. Deadlines and signals are those of `replay`.
   * @throws InvalidArgumentError when work is pending, `fn` is asynchronous, a call was never made, a buffer is in host
   * memory or would have to be made
   */
  capture(fn: (group: NcclCommunicator) => void): CudaGraph {
    this.checkAlone("capture");
    const isWork = (returned: object) => returned instanceof PendingWork;
    return this.driver.capture(() => callSynchronous(fn, [this], isWork));
  }

  /**
   * Runs a captured graph behind everything issued so far. All ranks replay graphs of the same collectives.
   * @throws InvalidArgumentError for a graph of another communicator; ClosedError for one that was closed, and for one
   * with a tensor that was freed
   * @example
   * import type { World } from "chorale";
   * import type { NcclCommunicator } from "chorale/nccl";
   *
   * // Runs ten steps of one captured call each, on every rank.
   * export default async function run(world: World): Promise<void> {
   *   const comm = world.comm as NcclCommunicator;
   *   const x = world.tensor("f32", [1024]);
   *   await comm.allReduce(x);
   *   const graph = comm.capture((group) => void group.allReduce(x));
   *   let last = comm.replay(graph);
   *   for (let step = 1; step < 10; step++) last = comm.replay(graph);
   *   await last;
   *   graph.close();
   * }
   */
  replay(graph: CudaGraph, options: CallOptions = {}): Work<void> {
    this.checkAlone("replay", options);
    return this.listen(this.driver.replay(graph, options.timeoutMs), options.signal) as Work<void>;
  }

  /** Work that is done when NCCL has connected the group. */
  override ready(): Work<this> {
    const entry = { op: "split", arrivals: [], step: () => true, value: () => this } as const;
    return this.driver.issuer.push(entry, {}) as PendingWork<unknown> as Work<this>;
  }

  /** Settles what is done and was not noticed yet. Never waits. */
  look(): void {
    this.parts.queue.look();
  }
}
