/**
 * The Communicator over NCCL: the whole contract on device tensors, and on host memory through pinned staging. Each
 * communicator has a stream of its own, ordered behind what the program has issued on the rank's main stream.
 */

import { agreedCount, checkScalar, type OperationName, operationInfo, reportedCount } from "../../../authoring/collectives/index.ts";
import {
  AbortedError,
  type DType,
  InvalidArgumentError,
  type PreMulSum,
  type ReduceOp,
  type Tensor,
  UnsupportedError,
} from "../../../core/index.ts";
import {
  type AllToAllVOptions,
  type CallOptions,
  type Capabilities,
  type CheckedCall,
  type CommStats,
  type Communicator,
  checkArguments,
  checkOptions,
  type Data,
  DEFAULT_TIMEOUT_MS,
  decodeObject,
  encodeObject,
  hashNumbers,
  MAX_OBJECT_BYTES,
  type Operand,
  type OutputOptions,
  packCall,
  type ReduceOptions,
  type RootOptions,
  SettledWork,
  type VOptions,
  type WireOp,
  type Work,
} from "../../comm/index.ts";
import type { Lane } from "../control/segment.ts";
import { isComposed, issue, type NcclCall } from "./calls.ts";
import { openShrunk, openSplit } from "./children.ts";
import type { Arrival, CommQueue, Entry } from "./queue.ts";
import type { NcclRank } from "./rank.ts";
import { freshOperand, type Staged, stage } from "./staging.ts";
import { NCCL_REDOP } from "./symbols.ts";
import { NcclWork } from "./work.ts";

const COLLECTIVE: Lane = { kind: "collective" };

/** One call of a batch, or the only call of an operation. */
interface Prepared {
  readonly op: WireOp;
  readonly call: NcclCall;
  readonly arrival: Arrival;
  readonly kind: string;
  readonly staged: readonly Staged[];
  readonly result: Tensor | undefined;
  readonly sizeBytes: number;
}

interface Extras {
  readonly root?: number;
  readonly peer?: number;
  readonly redop?: ReduceOp;
  readonly counts?: readonly number[];
  readonly sendCounts?: readonly number[];
  readonly recvCounts?: readonly number[];
}

/** Everything a communicator is made of. */
export interface CommunicatorParts {
  readonly rank: NcclRank;
  readonly queue: CommQueue;
  readonly group: string;
  /** World ranks, by group rank. */
  readonly ranks: readonly number[];
  readonly member: number;
}

export class NcclCommunicator implements Communicator {
  readonly backend = "nccl";
  readonly group: string;
  readonly rank: number;
  readonly size: number;
  readonly ranks: readonly number[];
  readonly generation: number;
  readonly parts: CommunicatorParts;
  readonly #queue: CommQueue;
  readonly #operators = new Map<string, number>();
  #seq = 1;
  #numChildren = 0;
  readonly #sent: number[];
  readonly #received: number[];
  #closed = false;
  /** Calls of an open batch; `undefined` outside of one. */
  #batch: { readonly prepared: Prepared; readonly work: NcclWork<unknown> }[] | undefined;

  constructor(parts: CommunicatorParts) {
    this.parts = parts;
    this.group = parts.group;
    this.ranks = Object.freeze([...parts.ranks]);
    this.rank = parts.member;
    this.size = parts.ranks.length;
    this.generation = parts.rank.at.generation;
    this.#queue = parts.queue;
    this.#sent = Array(this.size).fill(0);
    this.#received = Array(this.size).fill(0);
  }

  /** The stream that this communicator's calls run on, for events and for kernels that must follow them. */
  get stream() {
    return this.#queue.options.stream;
  }

  allReduce(input: Data, options: ReduceOptions = {}): Work<Tensor> {
    return this.#issue("all_reduce", input, options, { redop: options.op ?? "sum" });
  }
  broadcast(data: Data, options: OutputOptions & RootOptions = {}): Work<Tensor> {
    return this.#issue("broadcast", data, options, { root: options.root ?? 0 });
  }
  reduce(input: Data, options: ReduceOptions & RootOptions = {}): Work<Tensor> {
    return this.#issue("reduce", input, options, { root: options.root ?? 0, redop: options.op ?? "sum" });
  }
  allGather(input: Data, options: OutputOptions = {}): Work<Tensor> {
    return this.#issue("all_gather", input, options, {});
  }
  allGatherV(input: Data, options: VOptions): Work<Tensor> {
    return this.#issue("all_gather_v", input, options, { counts: options.counts });
  }
  reduceScatter(input: Data, options: ReduceOptions = {}): Work<Tensor> {
    return this.#issue("reduce_scatter", input, options, { redop: options.op ?? "sum" });
  }
  reduceScatterV(input: Data, options: VOptions & { readonly op?: ReduceOp }): Work<Tensor> {
    return this.#issue("reduce_scatter_v", input, options, { counts: options.counts, redop: options.op ?? "sum" });
  }
  allToAll(input: Data, options: OutputOptions = {}): Work<Tensor> {
    return this.#issue("all_to_all", input, options, {});
  }
  allToAllV(input: Data, options: AllToAllVOptions): Work<Tensor> {
    return this.#issue("all_to_all_v", input, options, {
      sendCounts: options.sendCounts,
      recvCounts: options.recvCounts,
    });
  }
  gather(input: Data, options: OutputOptions & RootOptions = {}): Work<Tensor> {
    return this.#issue("gather", input, options, { root: options.root ?? 0 });
  }
  scatter(data: Data, options: OutputOptions & RootOptions = {}): Work<Tensor> {
    return this.#issue("scatter", data, options, { root: options.root ?? 0 });
  }
  send(data: Data, peer: number, options: CallOptions = {}): Work<void> {
    return this.#issue("send", data, options, { peer });
  }
  recv(output: Data, peer: number, options: CallOptions = {}): Work<Tensor> {
    return this.#issue("recv", output, options, { peer });
  }

  barrier(options: CallOptions = {}): Work<void> {
    this.#refuseInBatch("barrier");
    checkOptions(options);
    const word = this.parts.rank.barrierWord;
    const call = ncclCall("barrier", "i32", 1, word, word, 0, 0);
    const prepared: Prepared = {
      op: "barrier",
      call,
      arrival: this.#arrival("barrier", packCall("barrier", undefined, undefined, 0), 0, 0),
      kind: "barrier",
      staged: [],
      result: undefined,
      sizeBytes: 0,
    };
    return this.#launch([prepared], "barrier", options, () => undefined) as Work<void>;
  }

  batch(fn: (group: Communicator) => void): Work<void> {
    this.#refuseInBatch("batch");
    this.#open();
    const calls: NonNullable<typeof this.#batch> = [];
    this.#batch = calls;
    const before = { seq: this.#seq, sent: [...this.#sent], received: [...this.#received] };
    try {
      const returned: unknown = (fn as (group: Communicator) => unknown)(this);
      if (typeof (returned as { then?: unknown } | undefined)?.then === "function") {
        throw new InvalidArgumentError("fn", "an asynchronous function", "a synchronous one: all calls are issued as one");
      }
    } catch (error) {
      this.#seq = before.seq;
      this.#sent.splice(0, this.size, ...before.sent);
      this.#received.splice(0, this.size, ...before.received);
      for (const { prepared, work } of calls) {
        for (const { finish } of prepared.staged) finish?.(false);
        work.fail(new AbortedError("the batch that this call belongs to was not issued", { cause: error }));
      }
      throw error;
    } finally {
      this.#batch = undefined;
    }
    if (calls.length === 0) return new SettledWork<void>(this.#seq, "batch", this.group, { value: undefined });
    const members = calls.map(({ prepared, work }) => ({ work, value: prepared.result }));
    return this.#launch(calls.map(({ prepared }) => prepared), "batch", {}, () => undefined, members) as Work<void>;
  }

  broadcastObject<T>(value: T | undefined, options: CallOptions & RootOptions = {}): Work<T> {
    const root = options.root ?? 0;
    const bytes = this.rank === root ? encodeObject(value, MAX_OBJECT_BYTES) : new Uint8Array(0);
    const lengths = new Int32Array([bytes.length]);
    return this.#sequence("broadcast_object", options, async () => {
      await this.broadcast(lengths, { ...options, root });
      const data = this.rank === root ? bytes : new Uint8Array(objectLength(lengths[0]));
      await this.broadcast(data, { ...options, root });
      return decodeObject(data) as T;
    });
  }

  gatherObjects<T>(value: T, options: CallOptions = {}): Work<T[]> {
    const bytes = encodeObject(value, MAX_OBJECT_BYTES);
    return this.#sequence("gather_objects", options, async () => {
      const lengths = new Int32Array(this.size);
      await this.allGather(new Int32Array([bytes.length]), { ...options, output: lengths });
      const counts = [...lengths].map(objectLength);
      const all = new Uint8Array(counts.reduce((a, b) => a + b, 0));
      await this.allGatherV(bytes, { ...options, counts, output: all });
      let offset = 0;
      return counts.map((count) => {
        offset += count;
        return decodeObject(all.slice(offset - count, offset)) as T;
      });
    });
  }

  preMulSum(scalar: number | bigint): PreMulSum {
    if (typeof scalar !== "number" && typeof scalar !== "bigint") {
      throw new InvalidArgumentError("scalar", scalar, "a number or a bigint");
    }
    return { kind: "preMulSum", scalar };
  }

  split(color: number, key = 0, options: { name?: string } = {}): Work<Communicator | undefined> {
    this.#refuseInBatch("split");
    if (!Number.isInteger(color) || color < -1 || color > 0x7fffffff) {
      throw new InvalidArgumentError("color", color, "an integer of 0 or more, or -1 for no group");
    }
    if (!Number.isInteger(key) || Math.abs(key) > 0x7fffffff) throw new InvalidArgumentError("key", key, "a 32-bit integer");
    const arrival = this.#arrival("split", packCall("split", undefined, undefined, 0), color, key);
    const child = this.#numChildren++;
    const name = options.name ?? `${this.group}/split${child}`;
    let made: Communicator | undefined;
    const step = openSplit(this, { color, arrival, name, child }, (communicator) => {
      made = communicator;
    });
    return this.#hostTask("split", [{ ...arrival, print: { ...arrival.print } }], step, () => made) as Work<Communicator | undefined>;
  }

  shrink(excluded: readonly number[]): Work<Communicator> {
    this.#refuseInBatch("shrink");
    const valid = Array.isArray(excluded) && new Set(excluded).size === excluded.length;
    const inRange = valid && excluded.every((rank) => Number.isInteger(rank) && rank >= 0 && rank < this.size && rank !== this.rank);
    if (!inRange || excluded.length === 0) {
      throw new InvalidArgumentError("excluded", excluded, `distinct ranks of the group other than this one (${this.rank})`);
    }
    return openShrunk(this, [...excluded].sort((a, b) => a - b), this.#numChildren++);
  }

  capabilities(): Capabilities {
    return this.parts.rank.capabilities;
  }

  stats(): CommStats {
    const { usedBytes, peakBytes } = this.parts.rank.at.pool.stats();
    return {
      operations: this.#queue.counters.snapshot(),
      pending: this.#queue.pending,
      memory: { usedBytes, peakBytes, limitBytes: this.parts.rank.at.pool.limitBytes },
    };
  }

  abort(reason: string): void {
    if (!this.#closed) this.#queue.fail(new AbortedError(reason));
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    await this.#queue.drain();
    this.#closed = true;
    const { api } = this.parts.rank.library;
    const comm = this.#queue.comm;
    if (comm !== undefined && this.#queue.cause === undefined) {
      for (const op of this.#operators.values()) api.ncclRedOpDestroy(op, comm);
      await this.parts.rank.destroy(comm);
    }
    const unseen = this.#queue.close();
    this.parts.rank.forget(this);
    if (unseen.length > 0) throw unseen[0];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Runs a host task in the order of the group's calls. */
  #hostTask(op: WireOp, arrivals: readonly Arrival[], step: () => boolean, value: () => unknown): NcclWork<unknown> {
    this.#open();
    const work = new NcclWork<unknown>(this.#queue, this.#seq - 1, op, this.group);
    this.#queue.push(this.#entry({ op, work, arrivals, step, value }, {}));
    return work;
  }

  /** A composed operation that runs through the event loop; its parts are ordinary calls of this group. */
  #sequence<T>(op: WireOp, options: CallOptions, run: () => Promise<T>): Work<T> {
    this.#refuseInBatch(op);
    checkOptions(options);
    this.#open();
    return new PromiseWork(this.#seq, op, this.group, run());
  }

  #issue<T>(op: OperationName, data: Data, options: OutputOptions, extras: Extras): Work<T> {
    this.#open();
    const checked = checkArguments({ op, numRanks: this.size, rank: this.rank, data, options, ...extras });
    this.#checkSupported(checked.call.dtype, extras.redop);
    const prepared = this.#prepare(op, checked, extras);
    if (this.#batch !== undefined) {
      const work = new NcclWork<unknown>(this.#queue, prepared.arrival.seq, op, this.group);
      this.#batch.push({ prepared, work });
      return work as NcclWork<T>;
    }
    return this.#launch([prepared], op, options, () => prepared.result) as NcclWork<T>;
  }

  #checkSupported(dtype: DType, redop: ReduceOp | undefined): void {
    const { dtypes, engineVersion } = this.capabilities();
    if (!dtypes.includes(dtype)) {
      throw new UnsupportedError(`${dtype} with NCCL ${engineVersion} on this device`, `use one of ${dtypes.join(", ")}`);
    }
    if (typeof redop === "string" && NCCL_REDOP[redop] === undefined) {
      throw new UnsupportedError(`${redop} with NCCL`, `use one of ${Object.keys(NCCL_REDOP).join(", ")}, preMulSum`);
    }
  }

  /** Brings buffers to the device and resolves addresses; nothing is published or issued yet. */
  #prepare(op: OperationName, checked: CheckedCall, extras: Extras): Prepared {
    const { at } = this.parts.rank;
    const { call, input, output } = checked;
    const info = operationInfo(op);
    const root = extras.root ?? 0;
    const reads = op !== "recv" && (info.inputAt !== "root" || this.rank === root);
    const gives = op !== "send" && (info.outputAt !== "root" || this.rank === root);
    const target = gives ? this.#target(op, checked, root) : undefined;
    const staged: Staged[] = [];
    const bring = (operand: Operand, use: { reads: boolean; writes: boolean }) => {
      const one = stage(operand, at, this.stream, use);
      staged.push(one);
      return one;
    };
    try {
      const same = target === input;
      const from = reads || same ? bring(input, { reads, writes: same }) : undefined;
      const to = target === undefined ? undefined : same ? from : bring(target, { reads: false, writes: true });
      const send = from?.address ?? to?.address ?? 0n;
      const recv = to?.address ?? from?.address ?? 0n;
      const part = agreedCount(call);
      const sizeBytes = reportedCount(op, this.size, part) * (input.region.sizeBytes / Math.max(1, input.count));
      const redop = extras.redop === undefined ? 0 : this.#operator(extras.redop, input.dtype);
      const wireRoot = extras.peer ?? root;
      return {
        op,
        call: { ...ncclCall(op, input.dtype, part, send, recv, wireRoot, redop), counts: extras.counts ?? [], sendCounts: extras.sendCounts ?? [], recvCounts: extras.recvCounts ?? [] },
        arrival: this.#arrivalOf(op, call.dtype, part, extras),
        kind: kindOf(op, part, output, wireRoot),
        staged,
        result: to?.tensor,
        sizeBytes,
      };
    } catch (error) {
      for (const { finish } of staged) finish?.(false);
      throw error;
    }
  }

  /** Where this rank's result goes: what the caller gave, in place, or fresh memory where the sizes differ. */
  #target(op: OperationName, { call, input, output, outputCount }: CheckedCall, root: number): Operand {
    if (output !== undefined) return output;
    const inPlace = op === "recv" || (op === "scatter" && this.rank !== root) || operationInfo(op).inPlace === "same";
    return inPlace ? input : freshOperand(input, outputCount, this.parts.rank.at, this.stream, call);
  }

  #operator(op: ReduceOp, dtype: DType): number {
    if (typeof op === "string") return NCCL_REDOP[op] ?? 0;
    checkScalar(op.scalar, dtype);
    // NCCL's operator belongs to one communicator and dtype; it is made when the communicator is open, by the call.
    return -1;
  }

  #arrivalOf(op: OperationName, dtype: DType, part: number, extras: Extras): Arrival {
    const { redop, root = 0, peer } = extras;
    const scalar = typeof redop === "object" ? [redop.scalar] : [];
    const hash = hashNumbers([...(extras.counts ?? []), ...scalar, Math.floor(part / 2 ** 32)]);
    if (peer === undefined) return this.#arrival(op, packCall(op, dtype, redop, root), part | 0, hash);
    const counters = op === "send" ? this.#sent : this.#received;
    const seq = counters[peer] ?? 0;
    counters[peer] = seq + 1;
    const lane: Lane = { kind: op === "send" ? "send" : "recv", peer };
    return { lane, seq, print: { call: packCall(op as WireOp, dtype, undefined, peer), count: part | 0, hash } };
  }

  #arrival(_op: WireOp, call: number, count: number, hash: number): Arrival {
    return { lane: COLLECTIVE, seq: this.#seq++, print: { call, count, hash } };
  }

  #launch(
    calls: readonly Prepared[],
    op: string,
    options: CallOptions,
    value: () => unknown,
    members: Entry["members"] = [],
  ): NcclWork<unknown> {
    const { library, at } = this.parts.rank;
    const first = calls[0]?.arrival.seq ?? this.#seq;
    const work = new NcclWork<unknown>(this.#queue, first, op, this.group);
    const grouped = calls.length > 1 || calls.some(({ call }) => isComposed(call, library));
    const target = {
      library,
      stream: this.stream.handle,
      rank: this.rank,
      size: this.size,
      copy: (to: bigint, from: bigint, sizeBytes: number) => {
        at.device.call("cuMemcpyDtoDAsync_v2", op, to, from, sizeBytes, this.stream.handle);
      },
    };
    const run = (comm: bigint): number => {
      let status = grouped ? library.api.ncclGroupStart() : 0;
      try {
        for (const { call } of calls) {
          const answer = issue(this.#withOperator(call, comm), { ...target, comm });
          if (status === 0) status = answer;
        }
      } finally {
        const ended = grouped ? library.api.ncclGroupEnd() : 0;
        if (status === 0) status = ended;
      }
      for (const { staged } of calls) for (const { after } of staged) after?.();
      return status;
    };
    const finish = calls.flatMap(({ staged }) => staged.flatMap((one) => one.finish ?? []));
    const sizeBytes = calls.reduce((sum, one) => sum + one.sizeBytes, 0);
    const wireOp = calls[0]?.op ?? "barrier";
    const entry = this.#entry(
      { op: wireOp, work, arrivals: calls.map((one) => one.arrival), run, value, finish, members, sizeBytes, kinds: calls.map((one) => one.kind) },
      options,
    );
    this.#watchSignal(options.signal, work);
    this.#queue.push(entry);
    return work;
  }

  #withOperator(call: NcclCall, _comm: bigint): NcclCall {
    return call;
  }

  #entry(
    parts: Pick<Entry, "op" | "work" | "arrivals" | "value"> & Partial<Entry>,
    options: CallOptions,
  ): Entry {
    const timeoutMs = options.timeoutMs ?? this.parts.rank.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    const now = performance.now();
    return {
      members: [],
      kinds: [],
      run: undefined,
      step: undefined,
      finish: [],
      sizeBytes: 0,
      timeoutMs,
      deadline: now + timeoutMs,
      issuedAt: now,
      marker: 0,
      ...parts,
    };
  }

  #watchSignal(signal: AbortSignal | undefined, work: NcclWork<unknown>): void {
    signal?.addEventListener("abort", () => {
      if (!work.settled) this.#queue.fail(new AbortedError(signal.reason instanceof Error ? signal.reason.message : String(signal.reason)));
    }, { once: true });
  }

  #open(): void {
    if (this.#closed) throw new InvalidArgumentError("communicator", `${this.group}, which was closed`, "one that is open");
    this.#queue.refuseAfterFailure();
  }

  #refuseInBatch(op: string): void {
    if (this.#batch !== undefined) {
      throw new UnsupportedError(`${op} inside batch()`, "only collectives, send and recv can be batched");
    }
  }
}
