/**
 * The Communicator over NCCL: the whole contract on device tensors, and on host memory through pinned staging. Each
 * communicator has a stream of its own, ordered behind what the program has issued on the rank's main stream.
 */

import {
  agreedCount,
  checkRoot,
  type OperationName,
  operationInfo,
  reportedCount,
} from "../../../authoring/collectives/index.ts";
import {
  AbortedError,
  ClosedError,
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
import type { GroupControl, Lane } from "../control/segment.ts";
import type { Allocation } from "../cuda/memory-pool.ts";
import { type CallTarget, isComposed, issue, type NcclCall } from "./calls.ts";
import { membersOf, openHandle, openWithUniqueId, readChoices, splitNatively } from "./children.ts";
import { ObjectExchange } from "./objects.ts";
import { PreMulSumOperators } from "./operators.ts";
import { PairMail } from "./pair-mail.ts";
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
  /** Of a PreMulSum, whose operator needs the open communicator. */
  readonly scalar: number | bigint | undefined;
  readonly staged: readonly Staged[];
  readonly result: Tensor | undefined;
  readonly sizeBytes: number;
}

interface BatchedCall {
  readonly prepared: Prepared;
  readonly work: NcclWork<unknown>;
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
  readonly #operators: PreMulSumOperators;
  #seq = 1;
  #numChildren = 0;
  readonly #mail: PairMail;
  /** Calls of the send and the receive lane to each peer, and messages among them that went by mail. */
  readonly #sent: number[];
  readonly #received: number[];
  readonly #mailed: number[];
  readonly #fetched: number[];
  #closed = false;
  /** Calls of an open batch; `undefined` outside of one. */
  #batch: BatchedCall[] | undefined;

  constructor(parts: CommunicatorParts) {
    this.parts = parts;
    this.group = parts.group;
    this.ranks = Object.freeze([...parts.ranks]);
    this.rank = parts.member;
    this.size = parts.ranks.length;
    this.generation = parts.rank.at.generation;
    this.#queue = parts.queue;
    this.#operators = new PreMulSumOperators(parts.rank.library);
    this.#sent = Array(this.size).fill(0);
    this.#received = Array(this.size).fill(0);
    this.#mailed = Array(this.size).fill(0);
    this.#fetched = Array(this.size).fill(0);
    this.#mail = new PairMail(parts.queue.options.control, parts.rank.at, parts.rank.peers);
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
  /** Copies and is done, whether or not the peer has come; inside a batch it is NCCL's send. */
  send(data: Data, peer: number, options: CallOptions = {}): Work<void> {
    return this.#batch === undefined ? this.#send(data, peer, options) : this.#issue("send", data, options, { peer });
  }
  recv(output: Data, peer: number, options: CallOptions = {}): Work<Tensor> {
    return this.#batch === undefined
      ? this.#recv(output, peer, options)
      : this.#issue("recv", output, options, { peer });
  }

  barrier(options: CallOptions = {}): Work<void> {
    this.#refuseInBatch("barrier");
    checkOptions(options);
    const word = this.parts.rank.barrierWord;
    const call = ncclCall("barrier", "i32", 1, word, word, 0, 0);
    const prepared: Prepared = {
      op: "barrier",
      call,
      arrival: this.#arrival(packCall("barrier", undefined, undefined, 0), 0, 0),
      kind: "barrier",
      scalar: undefined,
      staged: [],
      result: undefined,
      sizeBytes: 0,
    };
    return this.#launch([prepared], "barrier", options, () => undefined) as Work<void>;
  }

  batch(fn: (group: Communicator) => void): Work<void> {
    this.#refuseInBatch("batch");
    this.#open();
    const calls: BatchedCall[] = [];
    this.#batch = calls;
    const before = { seq: this.#seq, sent: [...this.#sent], received: [...this.#received] };
    try {
      const returned: unknown = (fn as (group: Communicator) => unknown)(this);
      if (typeof (returned as { then?: unknown } | undefined)?.then === "function") {
        throw new InvalidArgumentError(
          "fn",
          "an asynchronous function",
          "a synchronous one: all calls are issued as one",
        );
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
    return this.#launch(
      calls.map(({ prepared }) => prepared),
      "batch",
      {},
      () => undefined,
      members,
    ) as Work<void>;
  }

  broadcastObject<T>(value: T | undefined, options: CallOptions & RootOptions = {}): Work<T> {
    const root = options.root ?? 0;
    checkRoot(root, this.size);
    const mine = this.rank === root ? encodeObject(value, MAX_OBJECT_BYTES) : new Uint8Array(0);
    return this.#exchange("broadcast_object", mine, root, options, (values) => values[root]) as Work<T>;
  }

  gatherObjects<T>(value: T, options: CallOptions = {}): Work<T[]> {
    return this.#exchange("gather_objects", encodeObject(value, MAX_OBJECT_BYTES), 0, options, (values) => [
      ...values,
    ]) as Work<T[]>;
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
    if (!Number.isInteger(key) || Math.abs(key) > 0x7fffffff)
      throw new InvalidArgumentError("key", key, "a 32-bit integer");
    this.#open();
    const { rank, queue } = this.parts;
    const name = options.name ?? `${this.group}/split${this.#numChildren}`;
    const instance = this.#numChildren++;
    const arrival = this.#arrival(packCall("split", undefined, undefined, 0), color, key);
    let made: NcclCommunicator | undefined;
    const step = (): boolean => {
      const choices = readChoices(queue.options.control, arrival.seq);
      if (choices === undefined) return false;
      const native = rank.library.optional.ncclCommSplit !== undefined;
      const handle = native ? splitNatively(rank, queue.comm ?? 0n, color, key) : undefined;
      if (color < 0) return true;
      const members = membersOf(choices, color);
      const control = this.#childControl(`${name}:${color}`, members, instance);
      const opening = handle === undefined ? openWithUniqueId(rank, control) : openHandle(rank, handle);
      if (handle !== undefined) control.publish(COLLECTIVE, 0, { call: 0, count: 0, hash: 0 });
      made = rank.communicator(name, worldRanks(this, members), control, opening);
      return true;
    };
    const work = new NcclWork<unknown>(queue, arrival.seq, "split", this.group);
    queue.push(this.#entry({ op: "split", work, arrivals: [arrival], step, value: () => made }, {}));
    return work as NcclWork<Communicator | undefined>;
  }

  /**
   * Makes a group without `excluded`. Only the survivors call it, with the same ranks; it works after a failure of the
   * group. What was pending on this communicator is aborted, and it is good for nothing but `close()` afterwards.
   */
  shrink(excluded: readonly number[]): Work<Communicator> {
    this.#refuseInBatch("shrink");
    if (this.#closed) throw new ClosedError(`communicator ${this.group}`, "was closed");
    const valid = Array.isArray(excluded) && excluded.length > 0 && new Set(excluded).size === excluded.length;
    if (!valid || !excluded.every((r) => Number.isInteger(r) && r >= 0 && r < this.size && r !== this.rank)) {
      throw new InvalidArgumentError(
        "excluded",
        excluded,
        `distinct ranks of the group, without this one (${this.rank})`,
      );
    }
    const { rank, queue } = this.parts;
    const members = this.ranks.flatMap((_, r) => (excluded.includes(r) ? [] : [r]));
    const name = `${this.group}/without-${[...excluded].sort((a, b) => a - b).join("-")}`;
    const control = this.#childControl(name, members, 0);
    const child = rank.communicator(name, worldRanks(this, members), control, openWithUniqueId(rank, control));
    if (queue.cause === undefined) queue.fail(new AbortedError(`the group was shrunk to ${name}`));
    return child.ready() as Work<Communicator>;
  }

  /** Work that is done when NCCL has connected the group. */
  ready(): Work<NcclCommunicator> {
    const work = new NcclWork<unknown>(this.#queue, 0, "split", this.group);
    this.#queue.push(this.#entry({ op: "split", work, arrivals: [], step: () => true, value: () => this }, {}));
    return work as NcclWork<NcclCommunicator>;
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
    await this.#drainMail();
    this.#closed = true;
    const comm = this.#queue.comm;
    if (comm !== undefined && this.#queue.cause === undefined) {
      this.#operators.close(comm);
      await this.parts.rank.destroy(comm);
    }
    const unseen = this.#queue.close();
    this.parts.rank.forget(this);
    if (unseen.length > 0) throw unseen[0];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Waits until receivers have taken what was sent to them. */
  async #drainMail(): Promise<void> {
    const until = performance.now() + this.parts.rank.timeoutMs;
    while (this.#mail.sweep() > 0 && this.#queue.cause === undefined && performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    this.#mail.close();
  }

  /** See pair-mail.ts. */
  #send(data: Data, peer: number, options: CallOptions): Work<void> {
    this.#open();
    const { input } = checkArguments({ op: "send", numRanks: this.size, rank: this.rank, data, options, peer });
    const { at } = this.parts.rank;
    const sizeBytes = input.region.sizeBytes;
    const from = stage(input, at, this.stream, { reads: true, writes: false });
    const arrival = this.#arrivalOf("send", input.dtype, input.count, { peer });
    const number = this.#mailed[peer] ?? 0;
    this.#mailed[peer] = number + 1;
    let buffer: Allocation | undefined;
    const entry = {
      arrivals: [arrival],
      ready: () => this.#mail.hasRoom(peer, number),
      regions: [input.region],
      run: () => {
        buffer = at.pool.allocate(sizeBytes, this.stream, "send");
        if (sizeBytes > 0) {
          const { handle } = this.stream;
          at.device.call("cuMemcpyDtoDAsync_v2", "send", buffer.address, from.address, sizeBytes, handle);
        }
        return 0;
      },
      finish: [
        (ok: boolean) => {
          if (ok && buffer !== undefined) this.#mail.post(peer, number, buffer, sizeBytes);
          from.finish?.(ok);
        },
      ],
      sizeBytes,
      value: () => undefined,
    };
    return this.#push("send", arrival.seq, entry, options) as Work<void>;
  }

  /** See pair-mail.ts. */
  #recv(output: Data, peer: number, options: CallOptions): Work<Tensor> {
    this.#open();
    const checked = checkArguments({ op: "recv", numRanks: this.size, rank: this.rank, data: output, options, peer });
    const { input } = checked;
    const sizeBytes = input.region.sizeBytes;
    const to = stage(input, this.parts.rank.at, this.stream, { reads: false, writes: true });
    const arrival = this.#arrivalOf("recv", input.dtype, input.count, { peer });
    const number = this.#fetched[peer] ?? 0;
    this.#fetched[peer] = number + 1;
    const entry = {
      arrivals: [arrival],
      ready: () => this.#mail.has(peer, number),
      regions: [input.region],
      run: () => {
        this.#mail.fetch(peer, number, to.address, sizeBytes, this.stream.handle);
        to.after?.();
        return 0;
      },
      finish: [
        (ok: boolean) => {
          if (ok) this.#mail.acknowledge(peer, number);
          to.finish?.(ok);
        },
      ],
      sizeBytes,
      value: () => to.tensor,
    };
    return this.#push("recv", arrival.seq, entry, options) as Work<Tensor>;
  }

  #push(
    op: WireOp,
    seq: number,
    parts: Pick<Entry, "arrivals" | "value"> & Partial<Entry>,
    options: CallOptions,
  ): NcclWork<unknown> {
    const work = new NcclWork<unknown>(this.#queue, seq, op, this.group);
    this.#watchSignal(options.signal, work);
    this.#queue.push(this.#entry({ op, work, ...parts }, options));
    return work;
  }

  #childControl(name: string, members: readonly number[], instance: number): GroupControl {
    const ranks = worldRanks(this, members);
    return this.parts.rank.segment.group(`${this.group}>${name}`, ranks, instance, members.indexOf(this.rank));
  }

  /** Object collectives: see objects.ts. */
  #exchange(
    op: "broadcast_object" | "gather_objects",
    mine: Uint8Array,
    root: number,
    options: CallOptions,
    pick: (values: readonly unknown[]) => unknown,
  ): NcclWork<unknown> {
    this.#refuseInBatch(op);
    checkOptions(options);
    this.#open();
    const { control } = this.#queue.options;
    const arrival = this.#arrival(packCall(op, undefined, undefined, root), mine.length, 0);
    const lengths = () => this.ranks.map((_, member) => control.read(member, COLLECTIVE, arrival.seq)?.count ?? 0);
    const exchange = new ObjectExchange(this.parts.rank.at, this.stream, mine, lengths);
    const work = new NcclWork<unknown>(this.#queue, arrival.seq, op, this.group);
    const entry = this.#entry(
      {
        op,
        work,
        arrivals: [arrival],
        kinds: [`${op} ${arrival.seq}`],
        run: (comm) => exchange.run(this.#callTarget(comm)),
        finish: [(ok) => exchange.finish(ok)],
        value: () => pick(exchange.values),
        sizeBytes: mine.length,
      },
      options,
    );
    this.#watchSignal(options.signal, work);
    this.#queue.push(entry);
    return work;
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
      throw new UnsupportedError(
        `${dtype} with NCCL ${engineVersion} on this device`,
        `use one of ${dtypes.join(", ")}`,
      );
    }
    if (typeof redop === "string" && NCCL_REDOP[redop] === undefined) {
      throw new UnsupportedError(`${redop} with NCCL`, `use one of ${Object.keys(NCCL_REDOP).join(", ")}, preMulSum`);
    }
  }

  /** Brings buffers to the device and resolves addresses; nothing is published or issued yet. */
  #prepare(op: OperationName, checked: CheckedCall, extras: Extras): Prepared {
    const { at } = this.parts.rank;
    const { call, input } = checked;
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
      const redop = typeof extras.redop === "string" ? (NCCL_REDOP[extras.redop] ?? 0) : 0;
      const wireRoot = extras.peer ?? root;
      return {
        op,
        call: {
          ...ncclCall(op, input.dtype, part, send, recv, wireRoot, redop),
          counts: extras.counts ?? [],
          sendCounts: extras.sendCounts ?? [],
          recvCounts: extras.recvCounts ?? [],
        },
        arrival: this.#arrivalOf(op, call.dtype, part, extras),
        kind: kindOf(op, part, extras.peer),
        scalar: typeof extras.redop === "object" ? extras.redop.scalar : undefined,
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
  #target(op: OperationName, { input, output, outputCount }: CheckedCall, root: number): Operand {
    if (output !== undefined) return output;
    const inPlace = op === "recv" || (op === "scatter" && this.rank !== root) || operationInfo(op).inPlace === "same";
    return inPlace ? input : freshOperand(input, outputCount, this.parts.rank.at, this.stream);
  }

  #arrivalOf(op: OperationName, dtype: DType, part: number, extras: Extras): Arrival {
    const { redop, root = 0, peer } = extras;
    const scalar = typeof redop === "object" ? [redop.scalar] : [];
    const hash = hashNumbers([...(extras.counts ?? []), ...scalar, Math.floor(part / 2 ** 32)]);
    if (peer === undefined) return this.#arrival(packCall(op, dtype, redop, root), part | 0, hash);
    const counters = op === "send" ? this.#sent : this.#received;
    const seq = counters[peer] ?? 0;
    counters[peer] = seq + 1;
    const lane: Lane = { kind: op === "send" ? "send" : "recv", peer };
    return { lane, seq, print: { call: packCall(op as WireOp, dtype, undefined, peer), count: part | 0, hash } };
  }

  #arrival(call: number, count: number, hash: number): Arrival {
    return { lane: COLLECTIVE, seq: this.#seq++, print: { call, count, hash } };
  }

  #callTarget(comm: bigint): CallTarget {
    const { library, at } = this.parts.rank;
    const { stream, rank, size } = this;
    return {
      library,
      comm,
      stream: stream.handle,
      rank,
      size,
      copy: (to, from, sizeBytes) => {
        at.device.call("cuMemcpyDtoDAsync_v2", "own part", to, from, sizeBytes, stream.handle);
      },
    };
  }

  #launch(
    calls: readonly Prepared[],
    op: string,
    options: CallOptions,
    value: () => unknown,
    members: Entry["members"] = [],
  ): NcclWork<unknown> {
    const { library } = this.parts.rank;
    const first = calls[0]?.arrival.seq ?? this.#seq;
    const work = new NcclWork<unknown>(this.#queue, first, op, this.group);
    const grouped = calls.length > 1 || calls.some(({ call }) => isComposed(call, library));
    const run = (comm: bigint): number => {
      const resolved = calls.map(({ call, scalar }) =>
        scalar === undefined ? call : { ...call, redop: this.#operators.get(comm, call.dtype, scalar) },
      );
      const target = this.#callTarget(comm);
      let status = grouped ? library.api.ncclGroupStart() : 0;
      for (const call of resolved) {
        const answer = issue(call, target);
        if (status === 0) status = answer;
      }
      const ended = grouped ? library.api.ncclGroupEnd() : 0;
      for (const { staged } of calls) for (const { after } of staged) after?.();
      return status === 0 ? ended : status;
    };
    const finish = calls.flatMap(({ staged }) => staged.flatMap((one) => one.finish ?? []));
    const sizeBytes = calls.reduce((sum, one) => sum + one.sizeBytes, 0);
    const wireOp = calls[0]?.op ?? "barrier";
    const entry = this.#entry(
      {
        op: wireOp,
        work,
        arrivals: calls.map((one) => one.arrival),
        run,
        value,
        finish,
        members,
        sizeBytes,
        kinds: calls.map((one) => one.kind),
      },
      options,
    );
    this.#watchSignal(options.signal, work);
    this.#queue.push(entry);
    return work;
  }

  #entry(parts: Pick<Entry, "op" | "work" | "arrivals" | "value"> & Partial<Entry>, options: CallOptions): Entry {
    const timeoutMs = options.timeoutMs ?? this.parts.rank.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    const now = performance.now();
    return {
      members: [],
      kinds: [],
      ready: undefined,
      regions: [],
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
    signal?.addEventListener(
      "abort",
      () => {
        if (!work.settled)
          this.#queue.fail(
            new AbortedError(signal.reason instanceof Error ? signal.reason.message : String(signal.reason)),
          );
      },
      { once: true },
    );
  }

  #open(): void {
    if (this.#closed) throw new ClosedError(`communicator ${this.group}`, "was closed");
    this.#queue.refuseAfterFailure();
  }

  #refuseInBatch(op: string): void {
    if (this.#batch !== undefined) {
      throw new UnsupportedError(`${op} inside batch()`, "only collectives, send and recv can be batched");
    }
  }
}

/** World ranks of members of a group. */
function worldRanks(parent: NcclCommunicator, members: readonly number[]): number[] {
  return members.map((member) => parent.ranks[member] ?? member);
}

/** Calls of one kind are connected by NCCL together: operation, power of two of the size, peer. */
function kindOf(op: WireOp, count: number, peer: number | undefined): string {
  return `${op} ${32 - Math.clz32(count)} ${peer ?? ""}`;
}

function ncclCall(
  op: WireOp,
  dtype: DType,
  count: number,
  send: bigint,
  recv: bigint,
  root: number,
  redop: number,
): NcclCall {
  return { op, dtype, count, send, recv, root, redop, counts: [], sendCounts: [], recvCounts: [] };
}
