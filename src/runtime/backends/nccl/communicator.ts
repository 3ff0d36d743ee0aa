/**
 * The Communicator over NCCL: the whole contract on device tensors, and on host memory through pinned staging. Each
 * communicator has a stream of its own, ordered behind what the program has issued on the rank's main stream.
 */

import { checkRoot } from "../../../collectives/index.ts";
import {
  AbortedError,
  ClosedError,
  InvalidArgumentError,
  type PreMulSum,
  type ReduceOp,
  type Tensor,
} from "../../../core/index.ts";
import {
  type AllToAllVOptions,
  type CallOptions,
  type Capabilities,
  type CommStats,
  type Communicator,
  checkGroupName,
  checkOptions,
  type Data,
  encodeObject,
  MAX_OBJECT_BYTES,
  type OutputOptions,
  optionsOf,
  packCall,
  type ReduceOptions,
  type RootOptions,
  type VOptions,
  type Work,
} from "../../comm/index.ts";
import { type CudaGraph, CudaStream } from "../../device/index.ts";
import { CallSequence, type QueuedWork as NcclWork } from "../../progress/index.ts";
import type { CapturedGraphs } from "./graphs.ts";
import { CallIssuer } from "./issuer.ts";
import type { EntryParts } from "./nccl-entry.ts";
import type { NcclRank } from "./nccl-rank.ts";
import { PairMail } from "./pair-mail.ts";
import type { CommQueue } from "./queue.ts";
import { shrunk, splitting } from "./regroup.ts";
import { TensorCalls } from "./tensor-calls.ts";

const NO_OPTIONS = Object.freeze({});
/** What a caller gave who left the counts out: the check of the call says what is missing. */
const NO_COUNTS = NO_OPTIONS as VOptions & AllToAllVOptions;

/** Everything a communicator is made of. */
export interface CommunicatorParts {
  readonly rank: NcclRank;
  readonly queue: CommQueue;
  readonly graphs: CapturedGraphs;
  readonly group: string;
  /** World ranks, by group rank. */
  readonly ranks: readonly number[];
  readonly member: number;
}

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
export class NcclCommunicator implements Communicator {
  readonly backend = "nccl";
  readonly group: string;
  readonly rank: number;
  readonly size: number;
  readonly ranks: readonly number[];
  readonly generation: number;
  readonly parts: CommunicatorParts;
  readonly #rank: NcclRank;
  readonly #queue: CommQueue;
  readonly #issuer: CallIssuer;
  #numChildren = 0;
  readonly #sequence: CallSequence;
  readonly #mail: PairMail;
  readonly #calls: TensorCalls;
  /** Nothing is pending any more after `close`. */
  #ended = false;
  #closing: Promise<void> | undefined;

  constructor(parts: CommunicatorParts) {
    this.parts = parts;
    this.group = parts.group;
    this.ranks = Object.freeze([...parts.ranks]);
    this.rank = parts.member;
    this.size = parts.ranks.length;
    this.generation = parts.rank.at.generation;
    this.#rank = parts.rank;
    this.#queue = parts.queue;
    this.#sequence = new CallSequence(this.size);
    const { at } = parts.rank;
    const dtypes = new Set(parts.rank.capabilities.dtypes);
    const context = {
      at,
      stream: this.stream,
      sequence: this.#sequence,
      rank: this.rank,
      size: this.size,
      registers: parts.rank.registrations !== undefined,
      dtypes,
    };
    this.#mail = new PairMail(parts.queue.options.control, at, parts.rank.peers);
    this.#issuer = new CallIssuer(parts.rank, parts.queue, context, parts.group);
    this.#calls = new TensorCalls(this, this.#issuer, context, this.#mail);
  }

  /** The stream that this communicator's calls run on, for events and for kernels that must follow them. */
  get stream() {
    return this.#queue.options.stream;
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
    this.#queue.orderBefore(stream);
  }

  /**
   * Makes calls made here from now on wait on the device for what `stream` has been given so far. The rank's main stream
   * needs none: calls come behind it by themselves. A group's stream has been given the group's calls when they are
   * issued; for those that are made and not issued yet use that group's `orderBefore`.
   * @throws the group's failure; InvalidArgumentError, ClosedError for the stream
   */
  orderAfter(stream: CudaStream): void {
    if (stream !== this.stream) CudaStream.handleOf(stream, "stream");
    this.#queue.orderAfter(stream);
  }

  /**
   * Blocks this thread until everything on this communicator's stream is done, kernels of the program included, and
   * looks after the group meanwhile: a peer that fails ends the wait.
   * @throws the group's failure, TimeoutError; InvalidArgumentError for a deadline that is none
   */
  synchronize(options: { readonly timeoutMs?: number } = {}): void {
    checkOptions(options);
    this.#queue.synchronize(options.timeoutMs ?? this.parts.rank.timeoutMs);
  }

  /** input[count] -> output[count]: every rank has the reduction over all ranks. In place unless told. */
  allReduce(input: Data, options: ReduceOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#calls.quickly("all_reduce", input, options, optionsOf(options).op ?? "sum");
    if (quick !== undefined) return quick;
    return this.#calls.issue("all_reduce", input, options, { redop: options.op ?? "sum" });
  }
  /** root's data[count] -> every rank. In place unless told. */
  broadcast(data: Data, options: OutputOptions & RootOptions = {}): Work<Tensor> {
    return this.#calls.issue("broadcast", data, options, { root: optionsOf(options).root ?? 0 });
  }
  /** input[count] -> root's output[count]; outputs of other ranks are left alone. In place unless told. */
  reduce(input: Data, options: ReduceOptions & RootOptions = {}): Work<Tensor> {
    return this.#calls.issue("reduce", input, options, {
      root: optionsOf(options).root ?? 0,
      redop: options.op ?? "sum",
    });
  }
  /** input[count] -> output[n * count], in rank order. In place: `input` is this rank's own part of `output`. */
  allGather(input: Data, options: OutputOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#calls.quickly("all_gather", input, optionsOf(options), undefined);
    if (quick !== undefined) return quick;
    return this.#calls.issue("all_gather", input, options, {});
  }
  /** input[counts[rank]] -> output[sum(counts)], in rank order. All ranks give the same `counts`. */
  allGatherV(input: Data, options: VOptions = NO_COUNTS): Work<Tensor> {
    return this.#calls.issue("all_gather_v", input, options, { counts: optionsOf(options).counts });
  }
  /** input[n * count] -> output[count]: this rank's part of the reduction. */
  reduceScatter(input: Data, options: ReduceOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#calls.quickly("reduce_scatter", input, options, optionsOf(options).op ?? "sum");
    if (quick !== undefined) return quick;
    return this.#calls.issue("reduce_scatter", input, options, { redop: options.op ?? "sum" });
  }
  /** input[sum(counts)] -> output[counts[rank]]: this rank's part of the reduction. All ranks give the same `counts`. */
  reduceScatterV(input: Data, options: VOptions & { readonly op?: ReduceOp } = NO_COUNTS): Work<Tensor> {
    return this.#calls.issue("reduce_scatter_v", input, options, {
      counts: optionsOf(options).counts,
      redop: options.op ?? "sum",
    });
  }
  /** input[n * count] -> output[n * count]: part j of rank i becomes part i of rank j. Out of place. */
  allToAll(input: Data, options: OutputOptions = {}): Work<Tensor> {
    return this.#calls.issue("all_to_all", input, options, {});
  }
  /**
   * input[sum(sendCounts)] -> output[sum(recvCounts)]: both packed in rank order. Out of place. What this rank sends to
   * another must be what that one receives: MismatchError otherwise.
   */
  allToAllV(input: Data, options: AllToAllVOptions = NO_COUNTS): Work<Tensor> {
    return this.#calls.issue("all_to_all_v", input, options, {
      sendCounts: optionsOf(options).sendCounts,
      recvCounts: options.recvCounts,
    });
  }
  /** input[count] -> root's output[n * count], in rank order. */
  gather(input: Data, options: OutputOptions & RootOptions = {}): Work<Tensor> {
    return this.#calls.issue("gather", input, options, { root: optionsOf(options).root ?? 0 });
  }
  /** root's input[n * count] -> output[count]; ranks other than root pass their output as `data`. */
  scatter(data: Data, options: OutputOptions & RootOptions = {}): Work<Tensor> {
    return this.#calls.issue("scatter", data, options, { root: optionsOf(options).root ?? 0 });
  }
  /** Copies and is done, whether or not the peer has come; inside a batch it is NCCL's send. */
  send(data: Data, peer: number, options: CallOptions = {}): Work<void> {
    return this.#calls.send(data, peer, options);
  }
  /** Receives what rank `peer` of the group sends, in the order of its sends: output[count], as many as are sent. */
  recv(output: Data, peer: number, options: CallOptions = {}): Work<Tensor> {
    return this.#calls.recv(output, peer, options);
  }

  /** No rank's work settles before all ranks have called it and their earlier calls of this group are done. */
  barrier(options: CallOptions = {}): Work<void> {
    this.#calls.refuseInBatch("barrier");
    checkOptions(options);
    this.#calls.refuseUnlessOpen();
    return this.#issuer.launch([this.#issuer.barrier()], "barrier", options, () => undefined) as Work<void>;
  }

  /**
   * See `Communicator.batch`. It settles as one: the earliest deadline of its calls and of `options` is that of all, and
   * every signal that is raised ends it.
   */
  batch(fn: (group: Communicator) => void, options: CallOptions = NO_OPTIONS): Work<void> {
    return this.#calls.batch(fn, options);
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
    return this.#calls.capture(fn);
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
    this.#calls.refuseInBatch("replay");
    checkOptions(options);
    this.#calls.refuseUnlessOpen();
    const { storages, hash, numCollectives, run: runGraph } = this.parts.graphs.replayable(graph, this.group);
    const arrival = this.#sequence.collective(packCall("replay", undefined, undefined, 0), hash, numCollectives);
    const run = () => {
      runGraph(this.stream);
      return 0;
    };
    return this.#push(
      { op: "replay", arrivals: [arrival], run, storages, value: () => undefined },
      options,
    ) as Work<void>;
  }

  /** root's JSON value -> every rank. At most `MAX_OBJECT_BYTES` of text. @throws InvalidArgumentError when it is not JSON or larger */
  broadcastObject<T>(value: T | undefined, options: CallOptions & RootOptions = {}): Work<T> {
    const root = optionsOf(options).root ?? 0;
    checkRoot(root, this.size);
    const mine = this.rank === root ? encodeObject(value, MAX_OBJECT_BYTES) : new Uint8Array(0);
    return this.#exchange("broadcast_object", mine, root, options, (values) => values[root]) as Work<T>;
  }

  /** The JSON values of all ranks, in rank order, on every rank. @throws InvalidArgumentError as `broadcastObject` */
  gatherObjects<T>(value: T, options: CallOptions = {}): Work<T[]> {
    return this.#exchange("gather_objects", encodeObject(value, MAX_OBJECT_BYTES), 0, options, (values) => [
      ...values,
    ]) as Work<T[]>;
  }

  /**
   * Makes a reduction operator that multiplies every input by `scalar` before the sum: `allReduce(x, { op: comm.preMulSum(0.5) })`.
   * All ranks give the same scalar: MismatchError otherwise. A value: nothing is to be freed.
   * @throws InvalidArgumentError when it is neither a number nor a bigint
   */
  preMulSum(scalar: number | bigint): PreMulSum {
    if (typeof scalar !== "number" && typeof scalar !== "bigint") {
      throw new InvalidArgumentError("scalar", scalar, "a number or a bigint");
    }
    return { kind: "preMulSum", scalar };
  }

  /**
   * Makes groups of the ranks of one color, each ordered by (key, rank). All ranks of this group call it. Close a group
   * that is not needed any more; the world closes the rest.
   * @param color 0 or more; -1 for no group
   * @returns the new communicator; `undefined` for color -1
   * @throws InvalidArgumentError for a color or key that is no such integer
   * @example
   * import { launch } from "chorale";
   *
   * const sums = await launch({
   *   ranks: 4,
   *   backend: "nccl",
   *   run: async (world) => {
   *     const pair = await world.comm.split(Math.floor(world.rank / 2)); // ranks 0 and 1, ranks 2 and 3
   *     const x = world.tensor("i32", [1]);
   *     world.upload(x, Int32Array.of(world.rank));
   *     await pair?.allReduce(x);
   *     await pair?.close();
   *     return world.download(x)[0];
   *   },
   * });
   * console.log(sums); // [1, 1, 5, 5]
   */
  split(color: number, key = 0, options: CallOptions & { name?: string } = {}): Work<Communicator | undefined> {
    this.#calls.refuseInBatch("split");
    checkOptions(options);
    if (!Number.isInteger(color) || color < -1 || color > 0x7fffffff) {
      throw new InvalidArgumentError("color", color, "an integer of 0 or more, or -1 for no group");
    }
    if (!Number.isInteger(key) || Math.abs(key) > 0x7fffffff)
      throw new InvalidArgumentError("key", key, "a 32-bit integer");
    if (options.name !== undefined) checkGroupName(options.name);
    this.#calls.refuseUnlessOpen();
    const name = options.name ?? `${this.group}/split${this.#numChildren}`;
    const instance = this.#numChildren++;
    const arrival = this.#sequence.collective(packCall("split", undefined, undefined, 0), color, key);
    return this.#push({ ...splitting(this, { color, key, name, instance, arrival }) }, options) as Work<
      Communicator | undefined
    >;
  }

  /**
   * Makes a group without `excluded`. Only the survivors call it, with the same ranks; it works after a failure of the
   * group. What was pending on this communicator is aborted, and it is good for nothing but `close()` afterwards.
   */
  shrink(excluded: readonly number[]): Work<Communicator> {
    this.#calls.refuseInBatch("shrink");
    if (this.#calls.closed) throw new ClosedError(`communicator ${this.group}`, "was closed");
    const valid = Array.isArray(excluded) && excluded.length > 0 && new Set(excluded).size === excluded.length;
    if (!valid || !excluded.every((r) => Number.isInteger(r) && r >= 0 && r < this.size && r !== this.rank)) {
      throw new InvalidArgumentError(
        "excluded",
        excluded,
        `distinct ranks of the group, without this one (${this.rank})`,
      );
    }
    return shrunk(this, excluded).ready() as Work<Communicator>;
  }

  /** Work that is done when NCCL has connected the group. */
  ready(): Work<NcclCommunicator> {
    const entry = { op: "split", arrivals: [], step: () => true, value: () => this } as const;
    return this.#push(entry, {}) as Work<NcclCommunicator>;
  }

  /** Settles what is done and was not noticed yet. Never waits. */
  look(): void {
    this.#queue.look();
  }

  /** What this NCCL has on this device, from its version, its symbols and the device's architecture. */
  capabilities(): Capabilities {
    return this.parts.rank.capabilities;
  }

  /** Calls, bytes and microseconds by operation, from issuing to when this rank saw the end; memory of the rank's pool, bytes. */
  stats(): CommStats {
    const { usedBytes, peakBytes } = this.parts.rank.at.pool.stats();
    return {
      operations: this.#queue.settling.counters.snapshot(),
      pending: this.#queue.pending,
      memory: { usedBytes, peakBytes, limitBytes: this.parts.rank.at.pool.limitBytes },
    };
  }

  /** Fails what is pending on every rank of the group, here and elsewhere, with AbortedError, and every later call. Never blocks. */
  abort(reason: string): void {
    if (!this.#ended) this.#queue.fail(new AbortedError(reason));
  }

  /**
   * Waits for pending work and until what was sent was received; what NCCL holds is freed when all members have closed.
   * Idempotent: what it throws it throws once, and whoever calls it again only waits for the end.
   * @throws the first failure that nobody looked at
   */
  close(): Promise<void> {
    this.#calls.closed = true;
    if (this.#closing !== undefined) return this.#closing.catch(() => {});
    this.#closing = this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await this.#queue.drain();
    const undelivered = await this.#mail.drain(this.group, this.#rank.timeoutMs);
    this.#ended = true;
    const unseen = this.#queue.close();
    const { comm } = this.#queue.handle;
    if (comm !== undefined && this.#queue.cause === undefined && this.#queue.handle.accepts) {
      this.#issuer.operators.close(comm);
    }
    this.parts.graphs.close();
    this.parts.rank.endings.retire(this);
    if (unseen.length > 0) throw unseen[0];
    if (undelivered !== undefined) throw undelivered;
  }

  #push(parts: EntryParts, options: CallOptions, name: string = parts.op): NcclWork<unknown> {
    return this.#issuer.push(parts, options, name);
  }

  #exchange(
    op: "broadcast_object" | "gather_objects",
    mine: Uint8Array,
    root: number,
    options: CallOptions,
    pick: (values: readonly unknown[]) => unknown,
  ): NcclWork<unknown> {
    this.#calls.refuseInBatch(op);
    checkOptions(options);
    this.#calls.refuseUnlessOpen();
    return this.#issuer.exchange(op, mine, root, options, pick);
  }
}
