/**
 * The driver of a group over NCCL: from checked calls to where they go, which is the communicator's queue, or the graph
 * that is being recorded.
 */
import {
  AbortedError,
  type ChoraleError,
  InvalidArgumentError,
  type Tensor,
  TimeoutError,
  UnsupportedError,
} from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import {
  type ByteExchange,
  type Capabilities,
  type CommStats,
  type Communicator,
  type Data,
  type GroupCall,
  type GroupDriver,
  type GroupOpening,
  type GroupPlace,
  type NamedCall,
  type Operand,
  type PendingWork,
  type PlanCall,
  packCall,
  readChoice,
  type SubmittedBatch,
  type TensorCall,
  type UncheckedOptions,
} from "../../comm/index.ts";
import type { CudaGraph, CudaStream } from "../../device/index.ts";
import { tunedRun } from "../../executor/internal.ts";
import {
  ALWAYS_COLD,
  batchTimeout,
  type CallSequence,
  checkRoom,
  placeOf,
  type QueuedWork,
} from "../../progress/index.ts";
import { arrivalOf, type ExtensionKernels } from "./extension-kernels.ts";
import { Recording } from "./graphs.ts";
import { CallIssuer } from "./issuer.ts";
import { isComposed } from "./nccl-calls.ts";
import type { CommunicatorParts, NcclContext } from "./nccl-context.ts";
import { type EntryParts, meetingOf } from "./nccl-entry.ts";
import { PairCalls } from "./pair-calls.ts";
import { PairMail } from "./pair-mail.ts";
import { prepareRun } from "./plan-run.ts";
import {
  kindsOf,
  LastCall,
  makesMemory,
  type PrepareContext,
  type Prepared,
  prepareCall,
  prepareQuickly,
} from "./prepare.ts";
import type { CommQueue } from "./queue.ts";
import { opened, splitting } from "./regroup.ts";

/** Of calls that have no deadline of their own. */
const NO_DEADLINE = Object.freeze({ timeoutMs: undefined });

export class NcclGroup implements GroupDriver {
  readonly place: GroupPlace;
  readonly parts: CommunicatorParts;
  readonly capabilities: Capabilities;
  readonly strictWork: boolean;
  readonly takesAlgorithms: boolean;
  readonly takesEpilogues = true;
  readonly issuer: CallIssuer;
  readonly sequence: CallSequence;
  readonly #rank: NcclContext;
  readonly #queue: CommQueue;
  readonly #context: PrepareContext;
  /** Of calls in batches, which NCCL runs as one. */
  readonly #batched: PrepareContext;
  readonly #mail: PairMail;
  readonly #pairs: PairCalls;
  /** What goes into a graph instead of the queue, while one is captured. */
  #recording: Recording | undefined;
  /** Why members did not meet for a call that is being captured: the group ends with that when the capture has. */
  #unmet: { readonly error: unknown } | undefined;

  constructor(parts: CommunicatorParts) {
    const { rank, queue, group, member } = parts;
    const { at } = rank;
    this.parts = parts;
    this.#rank = rank;
    this.#queue = queue;
    this.capabilities = rank.settings.capabilities;
    this.strictWork = rank.settings.strictWork;
    this.takesAlgorithms = parts.plans.choices !== undefined;
    const ranks = Object.freeze([...parts.ranks]);
    this.place = { backend: rank.settings.backend, group, rank: member, ranks, generation: at.generation };
    this.sequence = queue.sequence;
    this.#context = {
      at,
      stream: this.stream,
      sequence: this.sequence,
      rank: member,
      size: ranks.length,
      registers: rank.settings.registrations !== undefined,
      dtypes: new Set(rank.settings.capabilities.dtypes),
      plans: parts.plans.choices === undefined ? undefined : parts.plans,
      epilogues: parts.plans.epilogues,
      quick: new LastCall(),
    };
    this.#batched = { ...this.#context, plans: undefined };
    this.#mail = new PairMail(queue.options.control, at, rank.peers);
    this.issuer = new CallIssuer(rank, queue, this.#context, group);
    this.#pairs = new PairCalls(this.#context, this.#mail);
  }

  get stream(): CudaStream {
    return this.#queue.options.stream;
  }

  get failure(): ChoraleError | undefined {
    return this.#queue.knownFailure();
  }

  get nextSeq(): number {
    return this.sequence.next;
  }

  quick({ op }: NamedCall, input: Data | undefined, options: UncheckedOptions): PendingWork<unknown> | undefined {
    if (!(op === "all_reduce" || op === "all_gather" || op === "reduce_scatter")) return undefined;
    if (this.#rank.capturing !== undefined) return undefined;
    const redop = op === "all_gather" ? undefined : (options.op ?? "sum");
    const parts = prepareQuickly(this.#context, op, input, options, redop);
    return parts === undefined ? undefined : this.issuer.push(parts, NO_DEADLINE);
  }

  submit(call: GroupCall): PendingWork<unknown> {
    this.#refuseInOtherCapture();
    const recording = this.#recording;
    if (recording !== undefined) return this.#record(call, recording);
    if (call.kind === "tensors" && call.call.peer !== undefined) return this.#mailed(call, call.call.peer);
    const prepared = this.#prepare(call);
    return this.issuer.launch([prepared], prepared.op, call, () => prepared.result);
  }

  submitAll(calls: readonly GroupCall[]): SubmittedBatch {
    this.#refuseInOtherCapture();
    if (this.#recording !== undefined) throw notInCapture("batch");
    if (calls.length === 0) return { works: [] };
    checkRoom(calls);
    const prepared = this.sequence.atomically(() => this.#prepareAll(calls));
    const members = prepared.map((one) => ({
      work: this.issuer.work(placeOf(one.arrival), one.op),
      value: one.result,
    }));
    const whole = this.issuer.launch(prepared, "batch", { timeoutMs: batchTimeout(calls) }, () => undefined, members);
    return { works: members.map(({ work }) => work), whole };
  }

  exchange<T>(exchange: ByteExchange<T>): PendingWork<T> {
    const { op, bytes, root, timeoutMs, finish } = exchange;
    this.#refuseInOtherCapture();
    if (this.#recording !== undefined) throw notInCapture(op);
    if (op === "split") return this.#split(exchange);
    return this.issuer.exchange(op, bytes, root, timeoutMs, finish) as PendingWork<T>;
  }

  run(asked: PlanCall): PendingWork<Tensor | undefined> {
    this.#refuseInOtherCapture();
    const recording = this.#recording;
    if (recording !== undefined) this.#checkRecordableRun(asked);
    const { options } = this.#queue;
    const tuned = tunedRun(this.parts.plans.choices, asked);
    const { call } = tuned;
    const prepared = prepareRun(this.#context, this.parts.plans, tuned, () => this.#queue.target);
    if (recording === undefined) return this.issuer.push(prepared.parts, call) as PendingWork<Tensor | undefined>;
    this.#checkWarm(prepared.slot.kind, "run");
    const [source, target] = prepared.storages;
    const { arrival, slot, parts } = prepared;
    recording.add({ arrival, source, target, kind: slot.kind }, parts.reachesPeers === true);
    this.#meet(parts.meets, "run", call.timeoutMs);
    prepared.launch(options.target(this.#queue.handle.comm ?? 0n));
    return this.#recorded(prepared.arrival, "run") as PendingWork<Tensor | undefined>;
  }

  /** Puts kernels of an extension on the stream in their place among the calls, or into the graph that is recorded. */
  enqueue({ agreed, storages, ready, launch, value, timeoutMs }: ExtensionKernels): PendingWork<unknown> {
    this.#refuseInOtherCapture();
    const recording = this.#recording;
    const arrivals = agreed === undefined ? [] : [arrivalOf(this.sequence, agreed)];
    if (recording === undefined) {
      const deadline = { timeoutMs };
      if (ready !== undefined) this.issuer.push({ op: "run", arrivals: [], step: ready }, deadline).seen = true;
      const run = () => {
        launch(this.stream);
        return 0;
      };
      return this.issuer.push({ op: "run", arrivals, storages, run, value: () => value }, deadline);
    }
    recording.keep(storages);
    const print = { source: undefined, target: undefined, kind: ALWAYS_COLD };
    for (const arrival of arrivals) recording.add({ arrival, ...print }, false);
    launch(this.stream);
    return this.#recordedAt(arrivals[0] === undefined ? 0 : placeOf(arrivals[0]), "run");
  }

  /** A split's choices ride in its fingerprint, and `finish` runs in a turn: NCCL's own split blocks until all make it. */
  #split<T>({ bytes, timeoutMs, finish }: ByteExchange<T>): PendingWork<T> {
    const { color, key } = readChoice(bytes, this.place.rank);
    const arrival = this.sequence.collective(packCall("split", undefined, undefined, 0), color, key);
    return this.issuer.push(splitting(this.parts, arrival, finish), { timeoutMs }) as PendingWork<T>;
  }

  open(opening: GroupOpening): Communicator | undefined {
    // A split's opening is a step of the queue, which may run while another communicator captures.
    if (opening.how === "shrink") {
      this.#refuseInOtherCapture();
      if (this.#recording !== undefined) throw notInCapture(opening.how);
    }
    return opened(this.parts, opening);
  }

  pending(): CommStats {
    const { pool } = this.#rank.at;
    const { usedBytes, peakBytes } = pool.stats();
    const { choices } = this.parts.plans;
    return {
      ...(choices === undefined ? {} : { choices: choices.counts() }),
      operations: this.#queue.settling.counters.snapshot(),
      pending: this.#queue.pending,
      memory: { usedBytes, peakBytes, limitBytes: pool.limitBytes },
    };
  }

  fail(error: ChoraleError): void {
    this.#queue.fail(error);
  }

  drain(): Promise<void> {
    return this.#queue.drain();
  }

  /** Waits until what was sent was received; what NCCL holds is freed when all members have closed. */
  async close(): Promise<{ readonly error: unknown } | undefined> {
    const undelivered = await this.#mail.drain(this.place.group, this.#rank.settings.timeoutMs);
    const unseen = this.#queue.close();
    const { comm } = this.#queue.handle;
    if (comm !== undefined && this.#queue.cause === undefined && this.#queue.handle.accepts) {
      this.issuer.operators.close(comm);
    }
    this.parts.graphs.close();
    this.parts.retire();
    if (unseen.length > 0) return { error: unseen[0] };
    return undelivered === undefined ? undefined : { error: undelivered };
  }

  /** Runs a captured graph: see `NcclCommunicator.replay`. */
  replay(graph: CudaGraph, timeoutMs: number | undefined): PendingWork<unknown> {
    this.#refuseInOtherCapture();
    if (this.#recording !== undefined) throw notInCapture("replay");
    const {
      storages,
      hash,
      numCollectives,
      reachesPeers,
      run: runGraph,
    } = this.parts.graphs.replayable(graph, this.place.group);
    const arrival = this.sequence.collective(packCall("replay", undefined, undefined, 0), hash, numCollectives);
    const run = () => {
      runGraph(this.stream);
      return 0;
    };
    const numCalls = Math.max(1, numCollectives);
    const parts: EntryParts = {
      op: "replay",
      arrivals: [arrival],
      run,
      storages,
      numCalls,
      reachesPeers,
      value: () => undefined,
    };
    return this.issuer.push(parts, { timeoutMs });
  }

  /** Records the calls that `record` makes: see `NcclCommunicator.capture`. */
  capture(record: () => void): CudaGraph {
    this.#refuseInOtherCapture();
    if (this.#recording !== undefined) throw notInCapture("capture");
    this.#queue.look();
    if (this.#queue.pending > 0 || !this.#queue.handle.accepts) {
      throw new InvalidArgumentError(
        "capture",
        described("called while work is pending"),
        "a group with nothing pending: await what was issued before",
      );
    }
    this.parts.plans.beforeCapture();
    const recording = new Recording();
    this.#recording = recording;
    this.#rank.capturing = this;
    try {
      const graph = this.stream.capture(() => {
        this.sequence.apart(record);
        if (this.#unmet !== undefined) throw this.#unmet.error;
      });
      return this.parts.graphs.add(graph, recording.captured, this.place.group, this.parts.plans.takeCaptured());
    } finally {
      this.#recording = undefined;
      this.#rank.capturing = undefined;
      // What this member told cannot be taken back: others would copy to where it says, in answer to the next call.
      if (this.#unmet !== undefined) this.#queue.fail(this.#unmet.error);
    }
  }

  /** Sends and receives outside of a batch go by mail: see pair-mail.ts. */
  #mailed({ call, input, timeoutMs }: TensorCall, peer: number): PendingWork<unknown> {
    const other = this.place.ranks[peer] ?? peer;
    if (this.#rank.settings.remote.has(other)) {
      throw new UnsupportedError(
        `${call.op} with rank ${other}, which is on another host, outside of a batch`,
        "its memory cannot be reached from here: make both ends in a batch(), where NCCL moves the data",
      );
    }
    const parts = call.op === "send" ? this.#pairs.send(input, peer) : this.#pairs.recv(input, peer);
    return this.issuer.push(parts, { timeoutMs });
  }

  #prepare(call: GroupCall, context = this.#context): Prepared {
    if (call.kind === "barrier") return this.issuer.barrier();
    return prepareCall(context, call.call.op, call, {
      ...call.call,
      algorithm: call.algorithm,
      epilogue: call.epilogue,
    });
  }

  #prepareAll(calls: readonly GroupCall[]): readonly Prepared[] {
    const prepared: Prepared[] = [];
    try {
      for (const call of calls) {
        if (call.kind === "tensors" && call.algorithm !== undefined) throw notInBatch(call.algorithm);
        prepared.push(this.#prepare(call, this.#batched));
      }
    } catch (error) {
      for (const { staged } of prepared) for (const { finish } of staged) finish?.(false);
      throw error;
    }
    return prepared;
  }

  /** @throws UnsupportedError while another communicator of this rank captures */
  #refuseInOtherCapture(): void {
    const { capturing } = this.#rank;
    if (capturing === undefined || capturing === this) return;
    throw new UnsupportedError(
      `a call of ${this.place.group} inside capture() of ${capturing.place.group}`,
      "a graph holds the calls of one communicator: make this one outside of it",
    );
  }

  /** Puts a call into the graph that is being recorded. */
  #record(call: GroupCall, recording: Recording): QueuedWork<unknown> {
    if (call.kind === "barrier") throw notInCapture("barrier");
    this.#checkRecordable(call, call.call);
    const prepared = this.#prepare(call);
    const { op, staged } = prepared;
    for (const { finish } of staged) finish?.(false);
    for (const kind of kindsOf(prepared)) this.#checkWarm(kind, op);
    const refusal = prepared.call.step?.refusal;
    if (refusal !== undefined) throw refusal;
    if (prepared.scalar !== undefined && this.#context.size === 1) {
      throw new UnsupportedError(
        "preMulSum in a graph of a group of one",
        "it is computed on the host there: call it outside",
      );
    }
    const meets = meetingOf(prepared.call);
    recording.add(prepared, prepared.call.plan?.reachesPeers === true);
    if (this.#context.registers) keepMemory(prepared);
    this.#meet(meets, op, call.timeoutMs);
    const composed = isComposed(prepared.call, this.#rank.library);
    const status = this.issuer.runCalls([prepared], this.#queue.handle.comm ?? 0n, composed);
    this.#rank.library.check("capture", status, this.#queue.handle.comm);
    return this.#recorded(prepared.arrival, op);
  }

  /** Members tell each other what a captured call has to know of them: they all capture it. */
  #meet(meets: EntryParts["meets"], op: string, timeoutMs: number | undefined): void {
    if (meets === undefined) return;
    if (this.#unmet !== undefined) throw this.#unmet.error;
    const { device } = this.#rank.at;
    const options = { failure: () => this.failure, ...(timeoutMs !== undefined && { timeoutMs }) };
    try {
      // Other groups go on meanwhile: a member may wait for them before it captures.
      device.relaxed(() => device.waiting?.until(() => this.#meetsCaptured(meets, op), `capture of ${op}`, options));
    } catch (caught) {
      const { told } = this.parts.plans;
      const isLate = caught instanceof TimeoutError;
      const ranks = isLate ? this.#queue.activityOfMembers((member) => told.hasTold(member)) : [];
      // The group cannot end here: what that frees and asks, no driver does for a thread that captures.
      this.#unmet = { error: isLate ? new TimeoutError(caught.op, caught.timeoutMs, ranks) : caught };
      throw this.#unmet.error;
    }
  }

  /** Whether all members have come to a captured call. @throws MismatchError for one that makes another call instead */
  #meetsCaptured(meets: NonNullable<EntryParts["meets"]>, op: string): boolean {
    if (meets(true)) return true;
    const { told } = this.parts.plans;
    const apart = this.#queue.apartFromCapture(op, (member) => told.hasTold(member));
    if (apart !== undefined) throw apart;
    return false;
  }

  /** The work of a call that went into a graph. */
  #recorded(arrival: Prepared["arrival"], op: string): QueuedWork<unknown> {
    return this.#recordedAt(placeOf(arrival), op);
  }

  #recordedAt(place: number, op: string): QueuedWork<unknown> {
    const work = this.issuer.work(place, op);
    work.fail(new AbortedError("the call was recorded, not made: replay the graph"));
    return work;
  }

  /** @throws InvalidArgumentError for a call that members would have to meet for */
  #checkWarm(kind: Prepared["kind"], op: string): void {
    if (this.#queue.firstCalls.isWarm(kind)) return;
    const accepted = `calls that were made before; make ${op} once outside of the graph`;
    throw new InvalidArgumentError("capture", op, accepted);
  }

  #checkRecordableRun({ plan, input, output, shared }: PlanCall): void {
    checkOnDevice("run", [input, output]);
    if (output !== undefined || shared !== undefined || plan.ranks[this.place.rank]?.output.chunks === 0) return;
    throw withoutOutput("run");
  }

  /** Refuses calls that no graph can hold. */
  #checkRecordable(checked: TensorCall, { op }: TensorCall["call"]): void {
    const others = checked.epilogue?.operands.map(({ operand }) => operand) ?? [];
    checkOnDevice(op, [checked.input, checked.output, ...others]);
    if (makesMemory(checked)) throw withoutOutput(op);
  }
}

/** @throws InvalidArgumentError for an operand in host memory */
function checkOnDevice(op: string, operands: readonly (Operand | undefined)[]): void {
  for (const operand of operands) {
    if (operand === undefined || operand.tensor?.storage.kind === "device") continue;
    throw new InvalidArgumentError("capture", described(`of ${op} on host memory`), "calls on device tensors only");
  }
}

function withoutOutput(op: string): InvalidArgumentError {
  const accepted = "calls that name their output: each run of the graph writes there";
  return new InvalidArgumentError("capture", described(`of ${op} without an output`), accepted);
}

function notInBatch(algorithm: string): UnsupportedError {
  return new UnsupportedError(`algorithm: ${algorithm} inside a batch`, "NCCL runs a batch as one: leave it out");
}

function notInCapture(what: string): UnsupportedError {
  return new UnsupportedError(`${what} inside capture()`, "only collectives, send and recv can stand there");
}

/** NCCL knows the memory of a captured call for longer than the graph lives: other memory must not come to its address. */
function keepMemory({ source, target }: Prepared): void {
  for (const storage of [source, target]) {
    const segment = storage?.pool.segmentOf(storage.allocation.address);
    if (segment !== undefined) storage?.pool.keep(segment);
  }
}
