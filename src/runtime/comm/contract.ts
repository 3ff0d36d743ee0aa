/**
 * The Communicator contract: what every backend (threads, shm, tcp, mpi, nccl, cuda) implements and the conformance suite
 * checks. Shapes: `n` is the size of the group, `count` an element count.
 *
 * Issuing validates first and then queues; it never waits for a peer beyond a short bounded spin. Calls of a group run
 * in the order of issue, which must be the same on all its ranks. `Work` settles when the data is there.
 */
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import type { ArrayOf, DType, NamedReduceOp, PreMulSum, ReduceOp, Tensor, TypedArray } from "../../core/index.ts";
import type { Failure } from "./failure.ts";

/** What `run` takes: a plan of the language, or a program, which makes one. */
export type Runnable = ExecutionPlan | { readonly name: string; readonly plan: () => ExecutionPlan };

export type WorkState = "queued" | "running" | "done" | "failed";

/**
 * A pending collective, with everything that a promise has. It is lazy: a failure that nobody looked at never becomes an
 * unhandled rejection; the communicator keeps it, refuses new work with it, and `close()` reports it.
 */
export interface Work<T> extends Promise<T> {
  /** Position in the group's order of operations, from 0. */
  readonly seq: number;
  /** The operation, `all_reduce` and so on. */
  readonly op: string;
  /** The group's name. */
  readonly group: string;
  readonly state: WorkState;
  /**
   * Drives the work to its end on this thread, without the event loop: the fast path.
   * @throws TimeoutError, MismatchError, RankFailedError, AbortedError
   */
  wait(options?: { timeoutMs?: number }): T;
}

/** Input and output of a collective: a tensor, or a typed array that is staged once each way. */
export type Data = Tensor | TypedArray;

export interface CallOptions {
  /** Deadline of this operation; the communicator's by default, which is 60 s where nothing else was given. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** Element type of typed arrays whose class does not tell it (Uint16Array: f16, bf16; Uint8Array: f8e4m3, f8e5m2). */
  readonly dtype?: DType;
}
export interface OutputOptions extends CallOptions {
  /** Where the result goes. Absent: in place, or a fresh tensor where the sizes differ. */
  readonly output?: Data;
  /**
   * What serves this call in place of the choice by size: a kernel or an algorithm, `NAME[*INSTANCES][/CHUNKS]`, the same
   * on all ranks. A wrong name is answered with those that the collective takes here. On backends that choose: threads.
   */
  readonly algorithm?: string;
}
export interface ReduceOptions extends OutputOptions {
  /** `sum` by default. */
  readonly op?: ReduceOp;
}
export interface RootOptions {
  /** Rank within the group; 0 by default. */
  readonly root?: number;
}
export interface VOptions extends OutputOptions {
  /** Element counts of every rank, the same on all ranks. */
  readonly counts: readonly number[];
}
export interface AllToAllVOptions extends OutputOptions {
  /** Elements that this rank sends to each rank, in order, packed in `input`. */
  readonly sendCounts: readonly number[];
  /** Elements that this rank receives from each rank, in order, packed in the output. */
  readonly recvCounts: readonly number[];
}

export interface RunOptions extends Omit<OutputOptions, "algorithm"> {
  /** What this rank gives; absent on ranks whose input the plan does not use. */
  readonly input?: Data;
  /** Takes the place of the operator that the plan was written with. */
  readonly op?: ReduceOp;
  /** Runs a plan that was not proved, or is known to be wrong: what it does wrong is the caller's affair. */
  readonly force?: boolean;
}

/** What a backend can do here, as a table. */
export interface Capabilities {
  readonly backend: string;
  /** Version of the engine beneath, where there is one. */
  readonly engineVersion?: string;
  readonly dtypes: readonly DType[];
  /** Operators by dtype; `preMulSum` among them where it is supported. */
  readonly reduceOps: { readonly [D in DType]?: readonly (NamedReduceOp | "preMulSum")[] };
  /** Operations; every other one is refused with `UnsupportedError`. */
  readonly operations: readonly string[];
  readonly deviceTensors: boolean;
  readonly hostTensors: boolean;
  readonly maxRanks?: number;
  /** Facts of one backend only, such as NVLS or user-buffer registration. */
  readonly features: Readonly<Record<string, boolean | string | number>>;
}

export interface OperationStats {
  readonly calls: number;
  readonly failures: number;
  /** Sum of the sizes that nccl-tests would print, in bytes. */
  readonly bytes: number;
  readonly totalUs: number;
  readonly maxUs: number;
}
export interface CommStats {
  readonly operations: Readonly<Record<string, OperationStats>>;
  readonly pending: number;
  /** Calls that each choice served, by `collective algorithm`, on backends that choose among several. */
  readonly choices?: Readonly<Record<string, number>>;
  /** Communication memory: in use, the most there ever was, and the limit, in bytes. */
  readonly memory: { readonly usedBytes: number; readonly peakBytes: number; readonly limitBytes: number };
}

/** A group's way to talk. Made by a world; every method but `abort` must be called by all ranks of the group. */
export interface Communicator extends AsyncDisposable {
  readonly backend: string;
  readonly group: string;
  /** This rank's place in the group. */
  readonly rank: number;
  /** Number of ranks in the group. */
  readonly size: number;
  /** World ranks of the group, by group rank. */
  readonly ranks: readonly number[];
  readonly generation: number;

  /** input[count] -> output[count], every rank the reduction over all ranks. */
  allReduce(input: Data, options?: ReduceOptions): Work<Tensor>;
  /** root's data[count] -> every rank. */
  broadcast(data: Data, options?: OutputOptions & RootOptions): Work<Tensor>;
  /** input[count] -> root's output[count]; other ranks' outputs are left alone. */
  reduce(input: Data, options?: ReduceOptions & RootOptions): Work<Tensor>;
  /** input[count] -> output[n * count], in rank order. In place: input is the rank's own part of output. */
  allGather(input: Data, options?: OutputOptions): Work<Tensor>;
  /** input[counts[rank]] -> output[sum(counts)], in rank order. */
  allGatherV(input: Data, options: VOptions): Work<Tensor>;
  /** input[n * count] -> output[count], this rank's part of the reduction. */
  reduceScatter(input: Data, options?: ReduceOptions): Work<Tensor>;
  /** input[sum(counts)] -> output[counts[rank]]. */
  reduceScatterV(input: Data, options: VOptions & { readonly op?: ReduceOp }): Work<Tensor>;
  /** input[n * count] -> output[n * count]: part j of rank i becomes part i of rank j. Out of place. */
  allToAll(input: Data, options?: OutputOptions): Work<Tensor>;
  /** input[sum(sendCounts)] -> output[sum(recvCounts)]. Out of place. */
  allToAllV(input: Data, options: AllToAllVOptions): Work<Tensor>;
  /** input[count] -> root's output[n * count]. */
  gather(input: Data, options?: OutputOptions & RootOptions): Work<Tensor>;
  /** root's input[n * count] -> output[count]. Ranks other than root pass their output as `data`. */
  scatter(data: Data, options?: OutputOptions & RootOptions): Work<Tensor>;
  /**
   * Runs a program of the language, or its plan, on all ranks of the group. `input` and `output` are cut into the parts
   * and chunks of its collective. Of a plan in place the larger of the two is given, under its name; those of any other
   * must not overlap. Gives this rank's output; `undefined` where it has none.
   * @throws PlanError for a program that is wrong, InvalidArgumentError for a plan that was not proved (unless `force`),
   * is for another number of ranks, or cannot do this size, UnsupportedError where the backend runs no plans
   */
  run(plan: Runnable, options?: RunOptions): Work<Tensor | undefined>;
  /** No rank leaves before all have entered. */
  barrier(options?: CallOptions): Work<void>;
  /** Ordered per pair; two ranks that both send first complete. */
  send(data: Data, peer: number, options?: CallOptions): Work<void>;
  recv(output: Data, peer: number, options?: CallOptions): Work<Tensor>;

  /**
   * A value from root to all, as structured clone copies it: Map, Set, Date, bigint, typed arrays and cycles included. At
   * most `MAX_OBJECT_BYTES`. @throws InvalidArgumentError for functions, symbols and instances of classes
   */
  broadcastObject<T>(value: T | undefined, options?: CallOptions & RootOptions): Work<T>;
  /** Values from all ranks to all, in rank order. Takes and refuses what `broadcastObject` does. */
  gatherObjects<T>(value: T, options?: CallOptions): Work<T[]>;

  /**
   * Issues several operations as one: they start together, so that a send and its receive can be written in any order.
   * `fn` is synchronous; a returned thenable is an error before anything is sent; a throw sends nothing. The deadline and
   * the signal of `options` are those of its calls that have none of their own. Collectives, barriers, sends and receives
   * can stand in it; everything else is refused (`UnsupportedError`).
   */
  batch(fn: (group: Communicator) => void, options?: CallOptions): Work<void>;
  /** Makes an operator that multiplies every input by `scalar` before the sum. */
  preMulSum(scalar: number | bigint): PreMulSum;

  /**
   * Ranks of one color form a new group, ordered by (key, rank). Color -1: no group, `undefined`. Colors and keys are
   * 32-bit integers. Its name is `options.name`, or says whose n-th split it is and the color.
   */
  split(
    color: number,
    key?: number,
    options?: CallOptions & { readonly name?: string },
  ): Work<Communicator | undefined>;
  /**
   * Makes a group without `excluded`: distinct group ranks, one at least, without the caller's own. Only the survivors
   * call it, with the same ranks; it works after a failure. What was pending on this communicator is aborted, and it is
   * good for nothing but `close()` afterwards.
   */
  shrink(excluded: readonly number[]): Work<Communicator>;

  capabilities(): Capabilities;
  stats(): CommStats;
  /** Fails the pending work of every rank of the group, here and elsewhere, with `AbortedError`. Never blocks. */
  abort(reason: string): void;
  /** Waits for pending work, frees, and throws what nobody looked at. */
  close(): Promise<void>;
}

/** Largest value of an object collective, bytes as written. Weights and batches belong in tensors; this bounds a peer's mistake. */
export const MAX_OBJECT_BYTES = 16 * 1024 * 1024;
/** Default deadline of every wait. */
export const DEFAULT_TIMEOUT_MS = 60_000;

/** How ranks find each other before they can communicate: a small key-value store. `world/` implements it. */
export interface Bootstrap {
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  /** Publishes a value (at most 64 KiB) under `key`. */
  set(key: string, value: Uint8Array): Promise<void>;
  /** Waits for a key. @throws TimeoutError naming the key and the ranks that have not come */
  get(key: string, options?: { timeoutMs?: number; signal?: AbortSignal }): Promise<Uint8Array>;
  /** Tells all ranks that this world is over. */
  fail(cause: { readonly rank: number; readonly message: string }): void;
  /** Is called once when the world is over. */
  onFailure(listener: (cause: { readonly rank: number; readonly message: string }) => void): void;
}

/**
 * One rank's door to an engine: what a folder of `backends/` gives. `world/` makes it (each backend documents how a
 * rank attaches), owns it, and closes it.
 */
export interface Backend extends AsyncDisposable {
  readonly name: string;
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  /** The communicator of all ranks, group name `world`. */
  readonly world: Communicator;
  /** Opens the communicator of `ranks` (world ranks, in group order). Called by exactly its members, in the same order. */
  group(name: string, ranks: readonly number[]): Promise<Communicator>;
  /** On backends with devices, what this rank holds of its own: `deviceOf(world)` gives it its type. */
  readonly device?: object;
  /** Why the world has failed, if this rank knows of it. */
  readonly failure?: Failure | undefined;
  /** Why this process cannot use the rank's device any more; `undefined` while it can. */
  readonly lost?: string | undefined;
  /** Allocates a tensor of zeros that collectives move without a copy. @throws OutOfMemoryError, InvalidArgumentError */
  tensor<D extends DType>(dtype: D, shape: readonly number[]): Tensor<D>;
  /**
   * Gives a tensor's memory back before the world ends, the whole of it also for a slice. Later use of it is refused.
   * @throws InvalidArgumentError for a tensor that is not this world's, or (where the backend can tell) in use by pending work
   */
  free(tensor: Tensor): void;
  /** Copies host values into a device tensor of as many elements, and waits. Only of backends with device tensors. */
  upload?<D extends DType>(target: Tensor<D>, values: ArrayOf<D>): void;
  /** Copies a device tensor to the host, and waits. Only of backends with device tensors. */
  download?<D extends DType>(source: Tensor<D>): ArrayOf<D>;
  /**
   * Says that `rank` is dead: on every survivor, pending and later work fails with `RankFailedError`.
   * @param blamed the rank which that error names: another one where `rank` ends because that one died
   */
  fail(rank: number, cause: string, blamed?: number): void;
  capabilities(): Capabilities;
  /**
   * Ends this rank's part at once, without waiting for anybody: pending work fails with `cause`, what the rank holds is
   * freed, tensors and groups are refused from here on. Idempotent; safe after any failure. The launcher tells the
   * peers; so does a backend whose peers' calls are not safe without this rank. For a rank that dies, and for
   * `world.rebuild()`.
   */
  abandon(cause: Error): void;
  close(): Promise<void>;
}
