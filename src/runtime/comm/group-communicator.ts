/**
 * The Communicator that every backend shares: it reads and checks what a program gives, says what is wrong with it, and
 * hands whole calls to the group's driver. Options, signals, batches, splits, shrinks and objects are written here once.
 * What a backend can do better than with checked arguments in general, it does in its driver's `quick`.
 */
import { checkRoot, type OperationName } from "../../collectives/index.ts";
import {
  AbortedError,
  ClosedError,
  InvalidArgumentError,
  type PreMulSum,
  type ReduceOp,
  show,
  type Tensor,
  UnsupportedError,
} from "../../core/index.ts";
import { collectBatch } from "./batch.ts";
import { BatchedWork, BatchWork } from "./batch-work.ts";
import {
  abortReason,
  type CallArguments,
  checkArguments,
  checkGeneration,
  checkGroupName,
  checkOptions,
  checkSupported,
  optionsOf,
} from "./call.ts";
import {
  type AllToAllVOptions,
  type CallOptions,
  type Capabilities,
  type CommStats,
  type Communicator,
  type Data,
  MAX_OBJECT_BYTES,
  type OutputOptions,
  type ReduceOptions,
  type RootOptions,
  type Runnable,
  type RunOptions,
  type VOptions,
  type Work,
} from "./contract.ts";
import type { CallEpilogue } from "./epilogue.ts";
import type { ByteExchange, GroupCall, GroupDriver, TensorCall, UncheckedOptions } from "./group-driver.ts";
import { decodeObject, encodeObject } from "./object-codec.ts";
import { type CallName, checkOptionNames, NAMED_CALLS, type NamedCall } from "./option-names.ts";
import { checkPlanCall } from "./plan-call.ts";
import { membersOfColor, readChoice, writeChoice } from "./split-choice.ts";
import { type PendingWork, type QuickWork, SettledWork } from "./work.ts";
import { type Watched, WorkNotes } from "./work-notes.ts";

const NO_OPTIONS = Object.freeze({});
/** What a caller gave who left the counts out: the check of the call says what is missing. */
const NO_COUNTS = NO_OPTIONS as VOptions & AllToAllVOptions;
/** Colors and keys of a split, and ranks, are 32-bit integers everywhere. */
const MAX_INT32 = 2 ** 31 - 1;

interface HeldCall {
  readonly call: GroupCall;
  readonly work: BatchedWork<unknown>;
  readonly signal: AbortSignal | undefined;
}

interface OpenBatch {
  readonly held: HeldCall[];
  /** Those of calls that have none of their own. */
  readonly options: CallOptions;
  readonly firstSeq: number;
}

/** Makes a communicator refuse calls from here on. For backends that end without a word to the peers. */
export let refuseCalls: (communicator: GroupCommunicator, why: string) => void;

type Make<E> = (count: (work: Watched) => void) => E;
/** What calls that are made of a communicator's own keep with it. */
export interface Extension {
  /** Ends with the communicator, before it does. */
  close(): Promise<void>;
  abort(reason: string): void;
}

/** The communicator's extension of a name; `make` gets what counts its works as calls. @throws ClosedError, the group's failure, UnsupportedError inside a batch */
export let extensionOf: <E extends Extension>(communicator: GroupCommunicator, name: string, make: Make<E>) => E;

/** Whether the device does epilogues of the communicator's all-reduces. */
export let takesEpilogues: (communicator: GroupCommunicator) => boolean;

/**
 * An all-reduce with an epilogue, for library extensions: they do it themselves where the backend does not take it.
 * @throws what `allReduce` does, UnsupportedError inside a batch
 */
export let allReduceWith: (
  communicator: GroupCommunicator,
  input: Data,
  options: OutputOptions,
  epilogue: CallEpilogue,
) => Work<Tensor>;

/** What a backend gives for the communicator's group: for extensions that know more of it than every backend has. */
export let driverOf: (communicator: GroupCommunicator) => GroupDriver;

export class GroupCommunicator<D extends GroupDriver = GroupDriver> implements Communicator {
  readonly backend: string;
  readonly group: string;
  readonly rank: number;
  readonly size: number;
  readonly ranks: readonly number[];
  readonly generation: number;
  protected readonly driver: D;
  readonly #notes: WorkNotes;
  #batch: OpenBatch | undefined;
  /** Calls may take the short way: neither is a batch open, nor is the communicator closed. */
  #direct = true;
  /** Why no call is taken any more. */
  #closed: string | undefined;
  /** Nothing is pending any more. */
  #ended = false;
  #closing: Promise<void> | undefined;
  #numSplits = 0;
  /** How often each group was made by `shrink`, by its name. */
  readonly #shrinks = new Map<string, number>();
  readonly #extensions = new Map<string, Extension>();

  static {
    driverOf = (communicator) => communicator.driver;
    extensionOf = <E extends Extension>(communicator: GroupCommunicator, name: string, make: Make<E>): E => {
      communicator.#checkOutsideBatch(name);
      communicator.checkUsable();
      const known = communicator.#extensions.get(name) as E | undefined;
      if (known !== undefined) return known;
      const made = make((work) => communicator.#notes.count(work));
      communicator.#extensions.set(name, made);
      return made;
    };
    refuseCalls = (communicator, why) => {
      communicator.#closed ??= why;
      communicator.#direct = false;
    };
    takesEpilogues = ({ driver }) => driver.takesEpilogues === true;
    allReduceWith = (communicator, data, options, epilogue) => {
      communicator.#checkOutsideBatch("an all-reduce with an epilogue");
      return communicator.#issue({ op: "all_reduce", data, options, redop: "sum" }, epilogue);
    };
  }

  constructor(driver: D) {
    const { place } = driver;
    this.driver = driver;
    this.backend = place.backend;
    this.group = place.group;
    this.rank = place.rank;
    this.size = place.ranks.length;
    this.ranks = place.ranks;
    this.generation = place.generation;
    // On a device the order of the stream is enough: whoever reads a result synchronizes, and need not await the call.
    this.#notes = new WorkNotes({
      name: this.group,
      reports: driver.strictWork === true || !driver.capabilities.deviceTensors,
      strict: driver.strictWork === true,
      hasFailed: () => driver.failure !== undefined,
    });
  }

  allReduce(input: Data, options: ReduceOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.all_reduce, input, options, 0);
    return quick ?? this.#issue({ op: "all_reduce", data: input, options, redop: options.op ?? "sum" });
  }
  broadcast(data: Data, options: OutputOptions & RootOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.broadcast, data, options, 0);
    return quick ?? this.#issue({ op: "broadcast", data, options, root: options.root ?? 0 });
  }
  reduce(input: Data, options: ReduceOptions & RootOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.reduce, input, options, 0);
    if (quick !== undefined) return quick;
    return this.#issue({ op: "reduce", data: input, options, redop: options.op ?? "sum", root: options.root ?? 0 });
  }
  allGather(input: Data, options: OutputOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.all_gather, input, options, 0);
    return quick ?? this.#issue({ op: "all_gather", data: input, options });
  }
  allGatherV(input: Data, options: VOptions = NO_COUNTS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.all_gather_v, input, options, 0);
    return quick ?? this.#issue({ op: "all_gather_v", data: input, options, counts: options.counts });
  }
  reduceScatter(input: Data, options: ReduceOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.reduce_scatter, input, options, 0);
    return quick ?? this.#issue({ op: "reduce_scatter", data: input, options, redop: options.op ?? "sum" });
  }
  reduceScatterV(input: Data, options: VOptions & { readonly op?: ReduceOp } = NO_COUNTS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.reduce_scatter_v, input, options, 0);
    if (quick !== undefined) return quick;
    const { counts } = options;
    return this.#issue({ op: "reduce_scatter_v", data: input, options, redop: options.op ?? "sum", counts });
  }
  allToAll(input: Data, options: OutputOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.all_to_all, input, options, 0);
    return quick ?? this.#issue({ op: "all_to_all", data: input, options });
  }
  allToAllV(input: Data, options: AllToAllVOptions = NO_COUNTS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.all_to_all_v, input, options, 0);
    if (quick !== undefined) return quick;
    const { sendCounts, recvCounts } = options;
    return this.#issue({ op: "all_to_all_v", data: input, options, sendCounts, recvCounts });
  }
  gather(input: Data, options: OutputOptions & RootOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.gather, input, options, 0);
    return quick ?? this.#issue({ op: "gather", data: input, options, root: options.root ?? 0 });
  }
  scatter(data: Data, options: OutputOptions & RootOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.scatter, data, options, 0);
    return quick ?? this.#issue({ op: "scatter", data, options, root: options.root ?? 0 });
  }
  send(data: Data, peer: number, options: CallOptions = NO_OPTIONS): Work<void> {
    const quick = this.#quickly<void>(NAMED_CALLS.send, data, options, peer);
    return quick ?? this.#issue({ op: "send", data, options, peer });
  }
  recv(output: Data, peer: number, options: CallOptions = NO_OPTIONS): Work<Tensor> {
    const quick = this.#quickly<Tensor>(NAMED_CALLS.recv, output, options, peer);
    return quick ?? this.#issue({ op: "recv", data: output, options, peer });
  }
  run(plan: Runnable, options: RunOptions = NO_OPTIONS): Work<Tensor | undefined> {
    if (options !== NO_OPTIONS) checkOptionNames("run", optionsOf(options));
    const quick = this.#direct ? this.driver.quickRun?.(plan, options) : undefined;
    if (quick !== undefined) {
      this.#notes.count(quick);
      return quick;
    }
    this.#checkOpenAlone("run", options);
    if (this.driver.run === undefined) {
      throw new UnsupportedError(`run on ${this.backend}`, "this backend runs no plans");
    }
    const checked = checkPlanCall(plan, options, { rank: this.rank, numRanks: this.size });
    checkGeneration(checked, this.generation);
    return this.listen(this.driver.run({ ...checked, timeoutMs: options.timeoutMs }), options.signal);
  }
  barrier(options: CallOptions = NO_OPTIONS): Work<void> {
    const quick = this.#quickly<void>(NAMED_CALLS.barrier, undefined, options, 0);
    if (quick !== undefined) return quick;
    this.checkUsable();
    checkOptions(options);
    return this.#submit<void>("barrier", { kind: "barrier", timeoutMs: this.#timeoutOf(options) }, options);
  }

  broadcastObject<T>(value: T | undefined, options: CallOptions & RootOptions = NO_OPTIONS): Work<T> {
    this.checkAlone("broadcast_object", options);
    const root = options.root ?? 0;
    checkRoot(root, this.size);
    const bytes = this.rank === root ? encodeObject(value, MAX_OBJECT_BYTES) : undefined;
    const finish: ByteExchange<T>["finish"] = (given) => decodeObject(given[root]) as T;
    return this.#exchange({ op: "broadcast_object", bytes, root, finish }, options);
  }
  gatherObjects<T>(value: T, options: CallOptions = NO_OPTIONS): Work<T[]> {
    this.checkAlone("gather_objects", options);
    const bytes = encodeObject(value, MAX_OBJECT_BYTES);
    const finish: ByteExchange<T[]>["finish"] = (given) => given.map((one) => decodeObject(one) as T);
    return this.#exchange({ op: "gather_objects", bytes, root: 0, finish }, options);
  }

  split(
    color: number,
    key = 0,
    options: CallOptions & { readonly name?: string } = NO_OPTIONS,
  ): Work<Communicator | undefined> {
    this.checkAlone("split", options);
    if (!Number.isInteger(color) || color < -1 || color > MAX_INT32) {
      throw new InvalidArgumentError("color", color, `an integer from 0 to ${MAX_INT32}, or -1 for no group`);
    }
    if (!Number.isInteger(key) || Math.abs(key) > MAX_INT32) {
      throw new InvalidArgumentError("key", key, `an integer from ${-MAX_INT32} to ${MAX_INT32}`);
    }
    if (options.name !== undefined) checkGroupName(options.name);
    const nth = this.#numSplits++;
    const finish: ByteExchange<Communicator | undefined>["finish"] = (given) => {
      const choices = given.map((bytes, rank) => readChoice(bytes, rank));
      const members = color < 0 ? [] : membersOfColor(choices, color);
      const name = options.name ?? `${this.group}/split${nth}.${color}`;
      return this.driver.open({ how: "split", name, members, nth, color, key });
    };
    return this.#exchange({ op: "split", bytes: writeChoice(color, key), root: 0, finish }, options);
  }

  shrink(excluded: readonly number[]): Work<Communicator> {
    this.#checkOutsideBatch("shrink");
    this.#checkOpen();
    const isRank = (r: number) => Number.isInteger(r) && r >= 0 && r < this.size && r !== this.rank;
    const distinct = Array.isArray(excluded) && new Set(excluded).size === excluded.length;
    if (!distinct || excluded.length === 0 || !excluded.every(isRank)) {
      const accepted = `distinct ranks of the group, one at least, from 0 to ${this.size - 1} without this one (${this.rank})`;
      throw new InvalidArgumentError("excluded", excluded, accepted);
    }
    const gone = [...excluded].sort((a, b) => a - b);
    const members = this.ranks.flatMap((_, r) => (gone.includes(r) ? [] : [r]));
    const name = `${this.group}/without-${gone.join("-")}`;
    const nth = this.#shrinks.get(name) ?? 0;
    this.#shrinks.set(name, nth + 1);
    const made = this.driver.open({ how: "shrink", name, members, nth, color: 0, key: 0 });
    if (this.driver.failure === undefined) {
      const reason = `group ${this.group} was shrunk to ${name}`;
      for (const extension of this.#extensions.values()) extension.abort(reason);
      this.driver.fail(new AbortedError(reason));
    }
    return (made as GroupCommunicator).ready();
  }

  batch(fn: (group: this) => void, options: CallOptions = NO_OPTIONS): Work<void> {
    this.checkAlone("batch", options);
    const held: HeldCall[] = [];
    const cancel = (error: unknown) => {
      for (const { work } of held) work.cancel(error);
    };
    this.#batch = { held, options, firstSeq: this.driver.nextSeq };
    this.#direct = false;
    try {
      collectBatch(fn as (group: Communicator) => void, this, (reason) => cancel(new AbortedError(reason)));
    } finally {
      this.#batch = undefined;
      this.#direct = this.#closed === undefined;
    }
    try {
      // The function may have closed or aborted the group.
      this.checkUsable();
      return this.#submitAll(held);
    } catch (error) {
      cancel(error);
      throw error;
    }
  }

  preMulSum(scalar: number | bigint): PreMulSum {
    if (typeof scalar !== "number" && typeof scalar !== "bigint") {
      throw new InvalidArgumentError("scalar", scalar, "a number or a bigint");
    }
    return { kind: "preMulSum", scalar };
  }

  capabilities(): Capabilities {
    return this.driver.capabilities;
  }

  stats(): CommStats {
    return this.driver.pending();
  }

  abort(reason: string): void {
    if (this.#ended) return;
    for (const extension of this.#extensions.values()) extension.abort(reason);
    this.driver.fail(new AbortedError(reason));
  }

  close(): Promise<void> {
    refuseCalls(this, "was closed");
    // What it throws it throws once: whoever calls it again only waits for the end.
    if (this.#closing !== undefined) return this.#closing.catch(() => {});
    this.#closing = this.#close();
    return this.#closing;
  }
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Work that is done when the group can be used: at once, unless a backend says otherwise. */
  ready(): Work<this> {
    return new SettledWork<this>(0, "split", this.group, { value: this });
  }

  /** @throws ClosedError; the group's failure, made known by a peer or found here */
  protected checkUsable(): void {
    this.#checkOpen();
    const { failure } = this.driver;
    if (failure !== undefined) throw failure;
  }

  async #close(): Promise<void> {
    const ends = await Promise.allSettled([...this.#extensions.values()].map((extension) => extension.close()));
    await this.driver.drain();
    this.#ended = true;
    // Of a group that failed its works are not missed: the program was busy with the failure.
    const unseen = this.#notes.end();
    const failure = await this.driver.close();
    if (failure !== undefined) throw failure.error;
    for (const end of ends) if (end.status === "rejected") throw end.reason;
    const error = unseen === undefined ? undefined : this.#notes.report(unseen);
    if (error !== undefined) throw error;
  }

  #checkOpen(): void {
    if (this.#closed !== undefined) throw new ClosedError(`group ${this.group}`, this.#closed);
  }

  /** @throws UnsupportedError inside a batch */
  #checkOutsideBatch(what: string): void {
    if (this.#batch === undefined) return;
    throw new UnsupportedError(`${what} inside a batch`, "a batch takes collectives, barriers, sends and receives");
  }

  /** The checks of a call that stands alone. @throws UnsupportedError, ClosedError, the group's failure, InvalidArgumentError */
  protected checkAlone(what: CallName, options: CallOptions = NO_OPTIONS): void {
    this.#checkOpenAlone(what, options);
    checkOptionNames(what, options);
  }

  /** The same of a call whose options' names are known. */
  #checkOpenAlone(what: CallName, options: CallOptions): void {
    this.#checkOutsideBatch(what);
    this.checkUsable();
    checkOptions(options);
  }

  #quickly<T>(call: NamedCall, data: Data | undefined, options: OutputOptions, peer: number): Work<T> | undefined {
    const given = options === NO_OPTIONS ? 0 : checkOptionNames(call.op, optionsOf(options), call.plainNames);
    if (!this.#direct) return undefined;
    const work = this.driver.quick?.(call, data, options as UncheckedOptions, peer, given);
    if (work !== undefined) this.#notes.count(work);
    return work as QuickWork<T> | undefined;
  }

  /** Checks a call on tensors, and submits it. */
  #issue<T>(args: Omit<CallArguments, "numRanks" | "rank">, epilogue?: CallEpilogue): Work<T> {
    this.checkUsable();
    const checked = checkArguments({ ...args, numRanks: this.size, rank: this.rank });
    checkSupported(this.driver.capabilities, checked);
    checkGeneration(checked, this.generation);
    for (const { operand } of epilogue?.operands ?? [])
      checkGeneration({ input: operand, output: undefined }, this.generation);
    const { options } = args;
    const { algorithm } = options;
    if (algorithm !== undefined && this.driver.takesAlgorithms !== true) {
      throw new UnsupportedError(
        `algorithm: ${show(algorithm)} on ${this.backend}`,
        "it chooses by itself: leave it out",
      );
    }
    const timeoutMs = this.#timeoutOf(options);
    const call: TensorCall = { kind: "tensors", ...checked, timeoutMs, algorithm, epilogue };
    return this.#submit<T>(args.op, call, options);
  }

  #timeoutOf(options: CallOptions): number | undefined {
    return options.timeoutMs ?? this.#batch?.options.timeoutMs;
  }

  /** Issues a call, or keeps it for the end of the batch. */
  #submit<T>(op: OperationName, call: GroupCall, { signal }: CallOptions): Work<T> {
    const batch = this.#batch;
    if (batch === undefined) return this.listen(this.driver.submit(call) as PendingWork<T>, signal);
    const work = new BatchedWork<T>(batch.firstSeq + batch.held.length, op, this.group);
    batch.held.push({ call, work: work as BatchedWork<unknown>, signal: signal ?? batch.options.signal });
    return work;
  }

  #submitAll(held: readonly HeldCall[]): Work<void> {
    const { works, whole } = this.driver.submitAll(held.map(({ call }) => call));
    const letGo = this.#listenAll(held);
    for (const [i, { work, signal }] of held.entries()) {
      const made = works[i];
      if (made !== undefined) work.start(made, signal === undefined ? undefined : () => letGo(signal));
    }
    const joined = (whole as PendingWork<void> | undefined) ?? new BatchWork(this.driver.nextSeq, this.group, works);
    this.#notes.count(joined);
    return joined;
  }

  #exchange<T>(exchange: Omit<ByteExchange<T>, "timeoutMs">, options: CallOptions): Work<T> {
    return this.listen(this.driver.exchange({ ...exchange, timeoutMs: options.timeoutMs }), options.signal);
  }

  /** Has a signal end the group until the work has settled. */
  protected listen<T>(work: PendingWork<T>, signal: AbortSignal | undefined): PendingWork<T> {
    this.#notes.count(work);
    if (signal === undefined || work.settled) return work;
    const abort = () => this.abort(abortReason(signal));
    signal.addEventListener("abort", abort, { once: true });
    work.onSettled = () => signal.removeEventListener("abort", abort);
    return work;
  }

  /** The same for the calls of a batch: one listener for each signal. @returns what is to be called when a call settles */
  #listenAll(held: readonly HeldCall[]): (signal: AbortSignal) => void {
    const open = new Map<AbortSignal, { left: number; readonly stop: () => void }>();
    for (const { signal } of held) {
      if (signal === undefined) continue;
      const known = open.get(signal);
      if (known !== undefined) {
        known.left++;
        continue;
      }
      const abort = () => this.abort(abortReason(signal));
      signal.addEventListener("abort", abort, { once: true });
      open.set(signal, { left: 1, stop: () => signal.removeEventListener("abort", abort) });
    }
    return (signal) => {
      const one = open.get(signal);
      if (one !== undefined && --one.left === 0) one.stop();
    };
  }
}
