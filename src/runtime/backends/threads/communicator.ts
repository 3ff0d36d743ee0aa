/**
 * The Communicator of the threads backend: turns callers' arguments into checked work for the group's engine. The
 * all-reduce of world tensors has a path of its own here, because at small sizes a call costs less than a microsecond.
 */

import {
  agreedCount,
  checkRoot,
  type OperationName,
  operationInfo,
  reportedCount,
} from "../../../collectives/index.ts";
import {
  AbortedError,
  type ChoraleError,
  ClosedError,
  InvalidArgumentError,
  type PreMulSum,
  type ReduceOp,
  sizeOf,
  type Tensor,
} from "../../../core/index.ts";
import {
  type AllToAllVOptions,
  abortReason,
  type CallArguments,
  type CallOptions,
  type Capabilities,
  type CommStats,
  type Communicator,
  checkArguments,
  checkGroupName,
  checkOptions,
  collectBatch,
  type Data,
  decodeObject,
  encodeObject,
  MAX_OBJECT_BYTES,
  type Operand,
  type OutputOptions,
  opCode,
  optionsOf,
  packCall,
  type ReduceOptions,
  type RootOptions,
  SettledWork,
  type VOptions,
  type WireOp,
  type Work,
} from "../../comm/index.ts";
import type { ThreadsBackend } from "./backend.ts";
import { BatchWork } from "./batch-work.ts";
import { EAGER_BYTES, FastCollectives } from "./fast-collectives.ts";
import type { GroupEngine } from "./group-engine.ts";
import { SLOT } from "./layout.ts";
import { PairWork } from "./pair-channels.ts";
import { asTensor, copyOut, placeOf } from "./staging.ts";
import { ThreadsWork } from "./threads-work.ts";
import { setCounts, setOperator } from "./work-parameters.ts";

const NO_OPTIONS: ReduceOptions & RootOptions = Object.freeze({});

export class ThreadsCommunicator implements Communicator {
  readonly backend = "threads";
  readonly group: string;
  readonly rank: number;
  readonly size: number;
  readonly ranks: readonly number[];
  readonly generation: number;
  readonly #engine: GroupEngine;
  readonly #owner: ThreadsBackend;
  readonly #fast: FastCollectives;
  #batch: ThreadsWork<unknown>[] | undefined;
  /** Those of calls in a batch that have none of their own. */
  #batchOptions: CallOptions = NO_OPTIONS;
  #numSplits = 0;
  #numShrinks = 0;

  constructor(owner: ThreadsBackend, engine: GroupEngine) {
    this.#owner = owner;
    this.#engine = engine;
    this.#fast = new FastCollectives(engine, owner.arena, owner.timeoutMs);
    this.group = engine.name;
    this.rank = engine.me;
    this.size = engine.size;
    this.ranks = engine.ranks;
    this.generation = engine.generation;
  }

  allReduce(input: Data, options: ReduceOptions = NO_OPTIONS): Work<Tensor> {
    const fast = this.#fast.allReduce(input, optionsOf(options));
    return fast ?? this.#issue({ op: "all_reduce", data: input, options, redop: options.op ?? "sum" });
  }
  broadcast(data: Data, options: OutputOptions & RootOptions = NO_OPTIONS): Work<Tensor> {
    const fast = this.#fast.broadcast(data, optionsOf(options));
    return fast ?? this.#issue({ op: "broadcast", data, options, root: options.root ?? 0 });
  }
  reduce(input: Data, options: ReduceOptions & RootOptions = NO_OPTIONS): Work<Tensor> {
    const fast = this.#fast.reduce(input, optionsOf(options));
    return (
      fast ?? this.#issue({ op: "reduce", data: input, options, redop: options.op ?? "sum", root: options.root ?? 0 })
    );
  }
  allGather(input: Data, options: OutputOptions = NO_OPTIONS): Work<Tensor> {
    const fast = this.#fast.allGather(input, optionsOf(options));
    return fast ?? this.#issue({ op: "all_gather", data: input, options });
  }
  allGatherV(input: Data, options: VOptions): Work<Tensor> {
    const fast = this.#fast.allGatherV(input, optionsOf(options));
    if (fast !== undefined) return fast;
    return this.#issue({ op: "all_gather_v", data: input, options, counts: options.counts });
  }
  reduceScatter(input: Data, options: ReduceOptions = NO_OPTIONS): Work<Tensor> {
    const fast = this.#fast.reduceScatter(input, optionsOf(options));
    return fast ?? this.#issue({ op: "reduce_scatter", data: input, options, redop: options.op ?? "sum" });
  }
  reduceScatterV(input: Data, options: VOptions & { readonly op?: ReduceOp }): Work<Tensor> {
    const fast = this.#fast.reduceScatterV(input, optionsOf(options));
    if (fast !== undefined) return fast;
    const { counts } = options;
    return this.#issue({ op: "reduce_scatter_v", data: input, options, redop: options.op ?? "sum", counts });
  }
  allToAll(input: Data, options: OutputOptions = NO_OPTIONS): Work<Tensor> {
    const fast = this.#fast.allToAll(input, optionsOf(options));
    return fast ?? this.#issue({ op: "all_to_all", data: input, options });
  }
  allToAllV(input: Data, options: AllToAllVOptions): Work<Tensor> {
    const fast = this.#fast.allToAllV(input, optionsOf(options));
    if (fast !== undefined) return fast;
    const { sendCounts, recvCounts } = options;
    return this.#issue({ op: "all_to_all_v", data: input, options, sendCounts, recvCounts });
  }
  gather(input: Data, options: OutputOptions & RootOptions = NO_OPTIONS): Work<Tensor> {
    const fast = this.#fast.gather(input, optionsOf(options));
    return fast ?? this.#issue({ op: "gather", data: input, options, root: options.root ?? 0 });
  }
  scatter(data: Data, options: OutputOptions & RootOptions = NO_OPTIONS): Work<Tensor> {
    const fast = this.#fast.scatter(data, optionsOf(options));
    return fast ?? this.#issue({ op: "scatter", data, options, root: options.root ?? 0 });
  }

  barrier(options: CallOptions = NO_OPTIONS): Work<void> {
    const fast = this.#fast.barrier(optionsOf(options));
    if (fast !== undefined) return fast;
    checkOptions(options);
    this.#checkUsable();
    const work = this.#newWork<void>("barrier", options);
    work.call = packCall("barrier", undefined, undefined, 0);
    return this.#start(work, this.#engine.driver.issueSpins, options);
  }

  send(data: Data, peer: number, options: CallOptions = NO_OPTIONS): Work<void> {
    return this.#pairWork<void>("send", data, peer, options);
  }
  recv(output: Data, peer: number, options: CallOptions = NO_OPTIONS): Work<Tensor> {
    return this.#pairWork<Tensor>("recv", output, peer, options);
  }

  #pairWork<T>(op: "send" | "recv", data: Data, peer: number, options: CallOptions): Work<T> {
    const fast = this.#fast.message<T>(op, data, peer, optionsOf(options));
    if (fast !== undefined) return fast;
    const { input: given } = checkArguments({ op, numRanks: this.size, rank: this.rank, data, options, peer });
    this.#checkUsable();
    this.#owner.checkTensor(given.tensor);
    const engine = this.#engine;
    const work = new PairWork<T>(engine, engine.nextPairSeq++, op, peer);
    work.code = opCode(op);
    work.timeoutMs = options.timeoutMs ?? this.#batchOptions.timeoutMs ?? this.#owner.timeoutMs;
    work.call = packCall(op, given.dtype, undefined, peer);
    work.count = given.count;
    work.bytes = given.count * sizeOf(given.dtype);
    work.reportedBytes = work.bytes;
    work.keep = given;
    const place = placeOf(this.#owner, engine.heap, given, op === "send");
    if (op === "send") {
      work.input = place.address;
      // A staged copy belongs to the receiver from here on.
      work.detached = place.staged;
    } else {
      work.output = place.address;
      const result = asTensor(given);
      if (place.staged) work.release = () => engine.heap.free(place.address);
      work.harvest = () => {
        if (place.staged) copyOut(engine.heap, place.address, given);
        return result as T;
      };
    }
    return this.#start(work, 0, options);
  }

  broadcastObject<T>(value: T | undefined, options: CallOptions & RootOptions = NO_OPTIONS): Work<T> {
    checkOptions(options);
    const root = options.root ?? 0;
    checkRoot(root, this.size);
    const bytes = this.rank === root ? encodeObject(value, MAX_OBJECT_BYTES) : undefined;
    return this.#objects<T>("broadcast_object", bytes, root, options, (read) => read(root) as T);
  }
  gatherObjects<T>(value: T, options: CallOptions = NO_OPTIONS): Work<T[]> {
    checkOptions(options);
    const bytes = encodeObject(value, MAX_OBJECT_BYTES);
    return this.#objects<T[]>("gather_objects", bytes, 0, options, (read) =>
      Array.from({ length: this.size }, (_, r) => read(r) as T),
    );
  }

  split(
    color: number,
    key = 0,
    options: CallOptions & { readonly name?: string } = NO_OPTIONS,
  ): Work<Communicator | undefined> {
    checkOptions(options);
    if (!Number.isInteger(color) || color < -1)
      throw new InvalidArgumentError("color", color, "an integer, 0 or more, or -1 for no group");
    if (!Number.isInteger(key)) throw new InvalidArgumentError("key", key, "an integer");
    if (options.name !== undefined) checkGroupName(options.name);
    const nth = this.#numSplits++;
    const bytes = encodeObject([color, key], MAX_OBJECT_BYTES);
    let members: number[] = [];
    const work = this.#objects<Communicator | undefined>("split", bytes, 0, options, (read) => {
      const all = Array.from({ length: this.size }, (_, r) => ({ r, pair: read(r) as [number, number] }));
      members = all
        .filter(({ pair }) => pair[0] === color)
        .sort((a, b) => a.pair[1] - b.pair[1] || a.r - b.r)
        .map(({ r }) => this.ranks[r] as number);
      if (color === -1) return undefined;
      const name = options.name ?? `${this.group}/${nth}.${color}`;
      return this.#owner.open(name, members, `split ${this.#engine.block} ${nth} ${color}`);
    });
    return work;
  }

  shrink(excluded: readonly number[]): Work<Communicator> {
    this.#checkOpen();
    for (const r of excluded) checkRoot(r, this.size);
    if (excluded.includes(this.rank)) {
      throw new InvalidArgumentError("excluded", excluded, `group ranks other than the caller's own (${this.rank})`);
    }
    const gone = [...new Set(excluded)].sort((a, b) => a - b);
    const rest = this.ranks.filter((_, r) => !gone.includes(r));
    const nth = this.#numShrinks++;
    const name = `${this.group}-${gone.join("-")}`;
    const made = this.#owner.open(name, rest, `shrink ${this.#engine.block} ${nth} ${gone.join(",")}`);
    return new SettledWork<Communicator>(nth, "shrink", this.group, { value: made });
  }

  batch(fn: (group: Communicator) => void, options: CallOptions = NO_OPTIONS): Work<void> {
    checkOptions(options);
    this.#checkUsable();
    if (this.#batch !== undefined)
      throw new InvalidArgumentError("batch", "a batch inside a batch", "one batch at a time");
    const works: ThreadsWork<unknown>[] = [];
    const engine = this.#engine;
    const before = { seq: engine.nextSeq, pair: engine.nextPairSeq };
    const cancel = (reason: string) => {
      engine.nextSeq = before.seq;
      engine.nextPairSeq = before.pair;
      for (const work of works) {
        work.fail(new AbortedError(reason));
        work.seen = true;
        work.detach?.();
        if (work instanceof PairWork && work.detached) engine.heap.free(work.input);
        work.release?.();
      }
    };
    this.#batch = works;
    this.#batchOptions = options;
    engine.batching = true;
    try {
      collectBatch(fn, this, cancel);
    } finally {
      this.#batch = undefined;
      this.#batchOptions = NO_OPTIONS;
      engine.batching = false;
      for (const work of works) work.held = false;
    }
    for (const work of works) this.#launch(work, 0);
    return new BatchWork(engine.nextSeq, this.group, works);
  }

  preMulSum(scalar: number | bigint): PreMulSum {
    if (typeof scalar !== "number" && typeof scalar !== "bigint")
      throw new InvalidArgumentError("scalar", scalar, "a number or bigint");
    return { kind: "preMulSum", scalar };
  }

  capabilities(): Capabilities {
    return this.#owner.capabilities();
  }

  stats(): CommStats {
    const { heap, counters, numPending } = this.#engine;
    return {
      operations: counters.snapshot(),
      pending: numPending,
      memory: { usedBytes: heap.usedBytes, peakBytes: heap.peakBytes, limitBytes: heap.limitBytes },
    };
  }

  /** The pending work whose buffers begin in [start, end) of the shared memory, if any. */
  pendingIn(start: number, end: number): Work<unknown> | undefined {
    return this.#engine.pendingIn(start, end);
  }

  abort(reason: string): void {
    if (this.#engine.closed !== undefined) return;
    this.#engine.failGroup(new AbortedError(reason));
  }

  /** Ends this rank's end of the group, without a word to the peers. */
  abandon(error: ChoraleError, why: string): void {
    if (this.#engine.closed !== undefined && !this.#engine.hasPending) return;
    this.#engine.closed = why;
    this.#engine.failAll(error);
  }

  async close(): Promise<void> {
    const engine = this.#engine;
    if (engine.closed !== undefined) return;
    engine.closed = "was closed";
    await engine.drained();
    this.#owner.release(this, engine);
    const unseen = engine.unseenFailure();
    if (unseen !== undefined) throw unseen;
  }
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #checkOpen(): void {
    if (this.#engine.closed !== undefined) throw new ClosedError(`group ${this.group}`, this.#engine.closed);
    this.#owner.checkOpen();
  }
  #checkUsable(): void {
    this.#checkOpen();
    this.#engine.checkUsable();
  }

  #newWork<T>(op: WireOp, options: CallOptions): ThreadsWork<T> {
    const work = new ThreadsWork<T>(this.#engine, this.#engine.nextSeq++, op);
    work.code = opCode(op);
    work.timeoutMs = options.timeoutMs ?? this.#batchOptions.timeoutMs ?? this.#owner.timeoutMs;
    work.issuedAt = performance.now();
    return work;
  }

  /** Starts work, or keeps it for the end of the batch. */
  #start<T>(work: ThreadsWork<T>, spins: number, options: CallOptions): Work<T> {
    const signal = options.signal ?? this.#batchOptions.signal;
    if (signal !== undefined) {
      const listener = () => this.abort(abortReason(signal));
      signal.addEventListener("abort", listener, { once: true });
      work.detach = () => signal.removeEventListener("abort", listener);
    }
    if (this.#batch !== undefined) {
      work.held = true;
      this.#batch.push(work as ThreadsWork<unknown>);
    } else this.#launch(work as ThreadsWork<unknown>, spins);
    return work;
  }

  #launch(work: ThreadsWork<unknown>, spins: number): void {
    if (work instanceof PairWork) this.#engine.pairs.submit(work);
    else this.#engine.submit(work, spins);
  }

  /** Checks a call, gives its buffers addresses, and starts it. */
  #issue(args: Omit<CallArguments, "numRanks" | "rank">): Work<Tensor> {
    const { op, options } = args;
    const { size: n, rank: me } = this;
    const checked = checkArguments({ ...args, numRanks: n, rank: me });
    const { call, input, output } = checked;
    const info = operationInfo(op);
    const isRoot = me === (args.root ?? 0);
    const reads = info.inputAt === "every" || isRoot;
    const writes = info.outputAt === "every" || isRoot;
    this.#checkUsable();
    for (const given of [input, output]) this.#owner.checkTensor(given?.tensor);
    const engine = this.#engine;
    const { dtype } = call;
    const elementBytes = sizeOf(dtype);

    const copies: (() => void)[] = [];
    const staged: number[] = [];
    let target: Operand | undefined;
    let result: Tensor;
    if (writes) {
      const inPlace = info.inPlace === "same" || !reads;
      target = output ?? (inPlace ? input : undefined);
      result = target === undefined ? this.#owner.scratchTensor(dtype, checked.outputCount) : asTensor(target);
    } else result = asTensor(output ?? input);

    let source = 0;
    let sink = writes && target === undefined ? result.byteOffset : 0;
    if (reads) {
      const place = placeOf(this.#owner, engine.heap, input, true);
      source = place.address;
      if (target === input) {
        sink = source;
        if (place.staged) copies.push(() => copyOut(engine.heap, sink, input));
      }
      if (place.staged) staged.push(place.address);
    }
    if (target !== undefined && sink === 0) {
      const to = target;
      const place = placeOf(this.#owner, engine.heap, to, false);
      sink = place.address;
      if (place.staged) {
        copies.push(() => copyOut(engine.heap, place.address, to));
        staged.push(place.address);
      }
    }

    const work = this.#newWork<Tensor>(op, options);
    const count = agreedCount(call);
    work.call = packCall(op, dtype, args.redop, args.root ?? 0);
    work.count = count;
    work.input = source;
    work.output = sink;
    work.root = args.root ?? 0;
    work.keep = [input, output];
    work.bytes = op === "all_to_all_v" ? elementBytes : count * elementBytes;
    work.harvest = () => {
      for (const copy of copies) copy();
      return result;
    };
    work.reportedBytes = reported(op, n, args, count) * elementBytes;
    if (staged.length > 0) {
      work.release = () => {
        for (const address of staged) engine.heap.free(address);
      };
    }
    if (args.redop !== undefined) setOperator(work, dtype, args.redop, n);
    if (args.counts !== undefined) setCounts(work, args.counts, elementBytes);
    if (args.sendCounts !== undefined && args.recvCounts !== undefined) {
      work.sendCounts = [...args.sendCounts];
      work.recvCounts = [...args.recvCounts];
      work.detail += ` sendCounts [${args.sendCounts.join(", ")}] recvCounts [${args.recvCounts.join(", ")}]`;
    }
    return this.#start(work, work.reportedBytes <= EAGER_BYTES ? engine.driver.issueSpins : 0, options);
  }

  /** An operation in which ranks publish JSON and read each other's. */
  #objects<T>(
    op: WireOp,
    bytes: Uint8Array | undefined,
    root: number,
    options: CallOptions,
    harvest: (read: (r: number) => unknown) => T,
  ): Work<T> {
    this.#checkUsable();
    const engine = this.#engine;
    const work = this.#newWork<T>(op, options);
    work.call = packCall(op, undefined, undefined, root);
    work.root = root;
    if (bytes !== undefined) {
      const address = engine.heap.allocate(bytes.length, false);
      new Uint8Array(this.#owner.bufferFor(address + bytes.length), address, bytes.length).set(bytes);
      work.input = address;
      work.output = bytes.length;
      work.reportedBytes = bytes.length;
      work.release = () => engine.heap.free(address);
    }
    const texts: Uint8Array[] = [];
    work.collect = () => {
      for (let r = 0; r < this.size; r++) {
        if (op === "broadcast_object" && r !== root) continue;
        const slot = engine.slotWord(r, work.seq);
        const address = engine.words[slot + SLOT.input / 4]! >>> 0;
        const length = engine.words[slot + SLOT.output / 4]! >>> 0;
        texts[r] = new Uint8Array(this.#owner.bufferFor(address + length), address, length).slice();
      }
    };
    work.harvest = () => harvest((r) => decodeObject(texts[r] as Uint8Array));
    return this.#start(work, engine.driver.issueSpins, options);
  }
}

function reported(
  op: OperationName,
  n: number,
  args: { counts?: readonly number[]; sendCounts?: readonly number[] },
  count: number,
): number {
  if (args.counts !== undefined) return count;
  if (args.sendCounts !== undefined) return args.sendCounts.reduce((a, b) => a + b, 0);
  return reportedCount(op, n, count);
}
