/**
 * Calls on tensors, from what the program gives to where they go: into the queue, into the batch that is open, or into
 * the graph that is being recorded. Everything is checked before anything is changed, and nothing is taken after `close`.
 */
import type { OperationName } from "../../../collectives/index.ts";
import {
  AbortedError,
  ClosedError,
  InvalidArgumentError,
  type ReduceOp,
  type Tensor,
  UnsupportedError,
} from "../../../core/index.ts";
import {
  type CallOptions,
  type CheckedCall,
  type Communicator,
  checkArguments,
  checkOptions,
  collectBatch,
  type Data,
  type OutputOptions,
  PendingWork,
  SettledWork,
  type Work,
} from "../../comm/index.ts";
import type { CudaGraph } from "../../device/index.ts";
import { runAtOnce } from "../../device/internal.ts";
import { type Extras, MAX_BATCH_COLLECTIVES, placeOf, type QueuedWork } from "../../progress/index.ts";
import type { NcclCommunicator } from "./communicator.ts";
import { Recording } from "./graphs.ts";
import type { CallIssuer } from "./issuer.ts";
import { isComposed } from "./nccl-calls.ts";
import type { NcclRank } from "./nccl-rank.ts";
import { PairCalls } from "./pair-calls.ts";
import type { PairMail } from "./pair-mail.ts";
import {
  checkSupported,
  makesMemory,
  type PrepareContext,
  type Prepared,
  prepareCall,
  prepareQuickly,
} from "./prepare.ts";
import type { CommQueue } from "./queue.ts";

interface BatchedCall {
  readonly prepared: Prepared;
  readonly work: QueuedWork<unknown>;
  readonly options: CallOptions;
}

/** Says whether one more collective fits into a batch. @throws InvalidArgumentError */
function checkRoom(batch: readonly BatchedCall[]): void {
  if (batch.length < MAX_BATCH_COLLECTIVES) return;
  const numCollectives = batch.filter(({ prepared }) => prepared.arrival.lane.kind === "collective").length;
  if (numCollectives < MAX_BATCH_COLLECTIVES) return;
  throw new InvalidArgumentError("collectives in a batch", numCollectives + 1, `at most ${MAX_BATCH_COLLECTIVES}`);
}

/** The options of calls that settle as one. */
function joined(options: readonly CallOptions[]): CallOptions {
  const timeouts = options.flatMap(({ timeoutMs }) => timeoutMs ?? []);
  const signals = [...new Set(options.flatMap(({ signal }) => signal ?? []))];
  return {
    ...(timeouts.length === 0 ? {} : { timeoutMs: Math.min(...timeouts) }),
    ...(signals.length === 0
      ? {}
      : { signal: signals.length === 1 && signals[0] !== undefined ? signals[0] : AbortSignal.any(signals) }),
  };
}

export class TensorCalls {
  readonly #comm: NcclCommunicator;
  readonly #rank: NcclRank;
  readonly #queue: CommQueue;
  readonly #issuer: CallIssuer;
  readonly #context: PrepareContext;
  readonly #pairs: PairCalls;
  /** No call is taken any more. */
  closed = false;
  /** Calls of an open batch; `undefined` outside of one. */
  #batch: BatchedCall[] | undefined;
  /** What goes into a graph instead of the queue, while one is captured. */
  #recording: Recording | undefined;

  constructor(comm: NcclCommunicator, issuer: CallIssuer, context: PrepareContext, mail: PairMail) {
    this.#comm = comm;
    this.#rank = comm.parts.rank;
    this.#queue = comm.parts.queue;
    this.#issuer = issuer;
    this.#context = context;
    this.#pairs = new PairCalls(context, mail);
  }

  /** Makes a call the short way, where it has one: see prepareQuickly. */
  quickly(
    op: "all_reduce" | "all_gather" | "reduce_scatter",
    input: Data,
    options: OutputOptions,
    redop: ReduceOp | undefined,
  ): Work<Tensor> | undefined {
    this.refuseUnlessOpen();
    if (this.#batch !== undefined || this.#recording !== undefined) return undefined;
    const prepared = prepareQuickly(this.#context, op, input, options, redop);
    if (prepared === undefined) return undefined;
    return this.#issuer.pushQuickly(prepared) as QueuedWork<Tensor>;
  }

  /** Makes a call: issues it, or puts it into what is open. @throws InvalidArgumentError, UnsupportedError, OutOfMemoryError */
  issue<T>(op: OperationName, data: Data, options: OutputOptions, extras: Extras): Work<T> {
    const checked = this.#check(op, data, options, extras);
    const recording = this.#recording;
    if (recording !== undefined) {
      this.#checkRecordable(op, checked, extras);
      return this.#record(prepareCall(this.#context, op, checked, extras), recording) as QueuedWork<T>;
    }
    if (this.#batch !== undefined && extras.peer === undefined) checkRoom(this.#batch);
    const prepared = prepareCall(this.#context, op, checked, extras);
    if (this.#batch !== undefined) {
      const work = this.#issuer.work(placeOf(prepared.arrival), op);
      this.#batch.push({ prepared, work, options });
      return work as QueuedWork<T>;
    }
    return this.#issuer.launch([prepared], op, options, () => prepared.result) as QueuedWork<T>;
  }

  /** See `Communicator.send`. */
  send(data: Data, peer: number, options: CallOptions): Work<void> {
    if (this.#batch !== undefined || this.#recording !== undefined) return this.issue("send", data, options, { peer });
    return this.#issuer.push(
      this.#pairs.send(this.#check("send", data, options, { peer }).input, peer),
      options,
    ) as Work<void>;
  }

  /** See `Communicator.recv`. */
  recv(output: Data, peer: number, options: CallOptions): Work<Tensor> {
    if (this.#batch !== undefined || this.#recording !== undefined)
      return this.issue("recv", output, options, { peer });
    return this.#issuer.push(
      this.#pairs.recv(this.#check("recv", output, options, { peer }).input, peer),
      options,
    ) as Work<Tensor>;
  }

  /** See `NcclCommunicator.batch`. */
  batch(fn: (group: Communicator) => void, options: CallOptions): Work<void> {
    checkOptions(options);
    const calls = this.#collect(fn);
    if (calls.length === 0)
      return new SettledWork<void>(this.#context.sequence.next, "batch", this.#comm.group, { value: undefined });
    const members = calls.map(({ prepared, work }) => ({ work, value: prepared.result }));
    const prepared = calls.map((one) => one.prepared);
    const together = joined([options, ...calls.map((one) => one.options)]);
    return this.#issuer.launch(prepared, "batch", together, () => undefined, members) as Work<void>;
  }

  /** See `NcclCommunicator.capture`. */
  capture(fn: (group: NcclCommunicator) => void): CudaGraph {
    this.refuseInBatch("capture");
    this.refuseUnlessOpen();
    this.#queue.look();
    if (this.#queue.pending > 0 || !this.#queue.handle.accepts) {
      throw new InvalidArgumentError("capture", "pending work", "with nothing pending: await what was issued before");
    }
    const recording = new Recording();
    const { rank, graphs } = this.#comm.parts;
    this.#recording = recording;
    rank.capturing = this.#comm;
    try {
      const isWork = (returned: object) => returned instanceof PendingWork;
      const record = () => runAtOnce(fn, [this.#comm], isWork);
      const graph = this.#context.stream.capture(() => this.#context.sequence.apart(record));
      return graphs.add(graph, recording.captured, this.#comm.group);
    } finally {
      this.#recording = undefined;
      rank.capturing = undefined;
    }
  }

  /** @throws when no call is taken now: ClosedError, UnsupportedError, the group's failure */
  refuseUnlessOpen(): void {
    if (this.closed) throw new ClosedError(`communicator ${this.#comm.group}`, "was closed");
    const { capturing } = this.#rank;
    if (capturing !== undefined && capturing !== this.#comm) {
      throw new UnsupportedError(
        `a call of ${this.#comm.group} inside capture() of ${capturing.group}`,
        "a graph holds the calls of one communicator: make this one outside of it",
      );
    }
    this.#queue.refuseAfterFailure();
  }

  /** @throws UnsupportedError inside a batch and a capture */
  refuseInBatch(op: string): void {
    if (this.#batch !== undefined || this.#recording !== undefined) {
      const where = this.#recording !== undefined ? "capture()" : "batch()";
      throw new UnsupportedError(`${op} inside ${where}`, "only collectives, send and recv can stand there");
    }
  }

  /** Runs `fn` and gives the calls that it made, none of them issued. A throw leaves everything as it was. */
  #collect(fn: (group: Communicator) => void): readonly BatchedCall[] {
    this.refuseInBatch("batch");
    this.refuseUnlessOpen();
    const calls: BatchedCall[] = [];
    const cancel = (reason: string) => {
      for (const { prepared, work } of calls) {
        for (const { finish } of prepared.staged) finish?.(false);
        work.fail(new AbortedError(reason));
      }
    };
    this.#batch = calls;
    try {
      this.#context.sequence.atomically(() => collectBatch(fn, this.#comm, cancel));
    } finally {
      this.#batch = undefined;
    }
    return calls;
  }

  /** Puts a call into the graph that is being recorded. */
  #record(prepared: Prepared, recording: Recording): QueuedWork<unknown> {
    const { op, staged } = prepared;
    for (const { finish } of staged) finish?.(false);
    if (!this.#queue.firstCalls.isWarm(prepared.kind)) {
      throw new InvalidArgumentError(
        "capture",
        op,
        `calls that were made before; make ${op} once outside of the graph`,
      );
    }
    if (prepared.scalar !== undefined && this.#context.size === 1) {
      throw new UnsupportedError(
        "preMulSum in a graph of a group of one",
        "it is computed on the host there: call it outside",
      );
    }
    recording.add(prepared);
    if (this.#context.registers) this.#keepMemory(prepared);
    const composed = isComposed(prepared.call, this.#rank.library);
    const status = this.#issuer.runCalls([prepared], this.#queue.handle.comm ?? 0n, composed);
    this.#rank.library.check("capture", status, this.#queue.handle.comm);
    const work = this.#issuer.work(placeOf(prepared.arrival), op);
    work.fail(new AbortedError("the call was recorded, not made: replay the graph"));
    return work;
  }

  /** NCCL knows the memory of a captured call for longer than the graph lives: other memory must not come to its address. */
  #keepMemory({ source, target }: Prepared): void {
    for (const storage of [source, target]) {
      const segment = storage?.pool.segmentOf(storage.allocation.address);
      if (segment !== undefined) storage?.pool.keep(segment);
    }
  }

  /** Checks all that one rank can know of a call. Nothing is changed when it throws. */
  #check(op: OperationName, data: Data, options: OutputOptions, extras: Extras): CheckedCall {
    this.refuseUnlessOpen();
    const checked = checkArguments({
      op,
      numRanks: this.#context.size,
      rank: this.#context.rank,
      data,
      options,
      ...extras,
    });
    checkSupported(this.#rank.capabilities, checked.call.dtype, extras.redop);
    return checked;
  }

  /** Refuses calls that no graph can hold. */
  #checkRecordable(op: OperationName, checked: CheckedCall, extras: Extras): void {
    for (const operand of [checked.input, checked.output]) {
      if (operand !== undefined && operand.tensor?.storage.kind !== "device") {
        throw new InvalidArgumentError("capture", `${op} on host memory`, "calls on device tensors only");
      }
    }
    if (makesMemory(this.#context.rank, op, checked, extras.root ?? 0)) {
      throw new InvalidArgumentError(
        "capture",
        `${op} without an output`,
        "calls that name their output: each run of the graph writes there",
      );
    }
  }
}
