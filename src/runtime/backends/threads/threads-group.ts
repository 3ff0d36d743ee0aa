/**
 * The driver of a group on the threads backend: gives the buffers of checked calls addresses in the shared memory, and
 * makes them work for the group's engine.
 */
import { agreedCount, type CollectiveName, reportedCount } from "../../../collectives/index.ts";
import { type ChoraleError, type DType, sizeOf, type Tensor } from "../../../core/index.ts";
import {
  asTensor,
  type BarrierCall,
  type ByteExchange,
  type Capabilities,
  type CommStats,
  type Communicator,
  type Data,
  type GroupCall,
  GroupCommunicator,
  type GroupDriver,
  type GroupOpening,
  type GroupPlace,
  type NamedCall,
  type Operand,
  opCode,
  type PendingWork,
  type PlanCall,
  packCall,
  type QuickWork,
  type Runnable,
  type RunOptions,
  rolesOf,
  type SubmittedBatch,
  type TensorCall,
  type UncheckedOptions,
  type WireOp,
} from "../../comm/index.ts";
import { type Choice, choiceFor, planCallOf, tunedRun } from "../../executor/internal.ts";
import { FastCollectives } from "./fast-collectives.ts";
import { EAGER_BYTES } from "./fast-issue.ts";
import type { GroupEngine } from "./group-engine.ts";
import { SLOT } from "./layout.ts";
import { PairWork } from "./pair-channels.ts";
import { planWork } from "./plan-work.ts";
import { RepeatedRuns } from "./repeated-runs.ts";
import { countChoices } from "./served-call.ts";
import { copyOut, type MemoryOwner, placeOf } from "./staging.ts";
import { ThreadsWork } from "./threads-work.ts";
import { setCounts, setEpilogue, setOperator } from "./work-parameters.ts";

/** The rank whose group it is. */
interface GroupOwner extends MemoryOwner {
  readonly timeoutMs: number;
  readonly strictWork: boolean;
  /** The backend's. */
  readonly name: string;
  capabilities(): Capabilities;
  /** Opens this rank's end of a group. All members name the same ranks and purpose. */
  open(name: string, ranks: readonly number[], purpose: string): Communicator;
  /** Gives back what a closed group holds. */
  release(closed: ThreadsGroup, engine: GroupEngine): void;
  /** @throws InvalidArgumentError for an array of the world's own words */
  checkMemory(given: Operand | undefined): void;
  /** A tensor whose first contents do not matter, for results. */
  scratchTensor(dtype: DType, count: number): Tensor;
}

export class ThreadsGroup implements GroupDriver {
  readonly place: GroupPlace;
  readonly capabilities: Capabilities;
  readonly strictWork: boolean;
  readonly takesAlgorithms = true;
  readonly communicator: GroupCommunicator;
  readonly #fast: FastCollectives;
  readonly #runs: RepeatedRuns;
  readonly #engine: GroupEngine;
  readonly #owner: GroupOwner;

  constructor(owner: GroupOwner, engine: GroupEngine) {
    this.#owner = owner;
    this.#engine = engine;
    this.capabilities = owner.capabilities();
    this.strictWork = owner.strictWork;
    const { name, ranks, me, generation } = engine;
    this.place = { backend: owner.name, group: name, rank: me, ranks, generation };
    this.#fast = new FastCollectives(engine, owner.arena, owner.timeoutMs);
    this.#runs = new RepeatedRuns(engine, owner.arena, owner.timeoutMs);
    this.communicator = new GroupCommunicator(this);
  }

  get failure(): ChoraleError | undefined {
    return this.#engine.knownFailure();
  }

  get nextSeq(): number {
    return this.#engine.nextSeq;
  }

  quick(
    call: NamedCall,
    data: Data | undefined,
    options: UncheckedOptions,
    peer: number,
    given: number,
  ): QuickWork<unknown> | undefined {
    return this.#fast.call(call, data as Data, options, peer, given);
  }

  quickRun(plan: Runnable, options: RunOptions): QuickWork<Tensor | undefined> | undefined {
    return this.#runs.call(plan, options);
  }

  submit(call: GroupCall): PendingWork<unknown> {
    const work = this.#prepare(call);
    const eager = work.reportedBytes <= EAGER_BYTES;
    this.#launch(work, eager ? this.#engine.driver.issueSpins : 0);
    return work;
  }

  submitAll(calls: readonly GroupCall[]): SubmittedBatch {
    const engine = this.#engine;
    const before = { seq: engine.nextSeq, pair: engine.nextPairSeq };
    const works: ThreadsWork<unknown>[] = [];
    try {
      for (const call of calls) works.push(this.#prepare(call));
    } catch (error) {
      engine.nextSeq = before.seq;
      engine.nextPairSeq = before.pair;
      for (const work of works) {
        if (work instanceof PairWork && work.detached) engine.heap.free(work.input);
        work.release?.();
      }
      throw error;
    }
    for (const work of works) this.#launch(work, 0);
    return { works };
  }

  run(asked: PlanCall): PendingWork<Tensor | undefined> {
    const tuned = tunedRun(this.#engine.choices, asked);
    const work = planWork(this.#owner, this.#engine, tuned.call);
    work.choice = tuned.choice;
    this.#runs.learn(asked.plan, tuned);
    const eager = work.reportedBytes <= EAGER_BYTES;
    this.#launch(work as ThreadsWork<unknown>, eager ? this.#engine.driver.issueSpins : 0);
    return work;
  }

  /** Ranks publish bytes, and each reads the others' before they may take them back. */
  exchange<T>({ op, bytes, root, timeoutMs, finish }: ByteExchange<T>): PendingWork<T> {
    const engine = this.#engine;
    // Before the call has its number: there may be no memory.
    const address = bytes === undefined ? 0 : engine.heap.allocate(bytes.length, false);
    const work = this.#newWork<T>(op, timeoutMs);
    work.call = packCall(op, undefined, undefined, root);
    work.root = root;
    if (bytes !== undefined) {
      new Uint8Array(this.#owner.bufferFor(address + bytes.length), address, bytes.length).set(bytes);
      work.input = address;
      work.output = bytes.length;
      work.reportedBytes = bytes.length;
      work.release = () => engine.heap.free(address);
    }
    const given: (Uint8Array | undefined)[] = [];
    work.collect = () => {
      for (let r = 0; r < engine.size; r++) given[r] = this.#given(r, work.seq);
    };
    work.harvest = () => finish(given);
    this.#launch(work as ThreadsWork<unknown>, engine.driver.issueSpins);
    return work;
  }

  /** A copy of what rank `r` of the group gave to an exchange. */
  #given(r: number, seq: number): Uint8Array | undefined {
    const { words } = this.#engine;
    const slot = this.#engine.slotWord(r, seq);
    const address = words[slot + SLOT.input / 4]! >>> 0;
    const length = words[slot + SLOT.output / 4]! >>> 0;
    if (address === 0) return undefined;
    return new Uint8Array(this.#owner.bufferFor(address + length), address, length).slice();
  }

  open({ how, name, members, nth, color }: GroupOpening): Communicator | undefined {
    if (members.length === 0) return undefined;
    const { ranks, block } = this.#engine;
    const world = members.map((member) => ranks[member] as number);
    return this.#owner.open(name, world, `${how} ${block} ${nth} ${color}`);
  }

  pending(): CommStats {
    const { heap, counters, numPending, choices } = this.#engine;
    const operations = counters.snapshot();
    return {
      operations,
      choices: countChoices(choices, operations),
      pending: numPending,
      memory: { usedBytes: heap.usedBytes, peakBytes: heap.peakBytes, limitBytes: heap.limitBytes },
    };
  }

  fail(error: ChoraleError): void {
    this.#engine.failGroup(error);
  }

  drain(): Promise<void> {
    return this.#engine.drained();
  }

  async close(): Promise<{ readonly error: unknown } | undefined> {
    this.#engine.leave();
    // Before the memory goes: whoever leaves last frees the group's words for others.
    const error = this.#engine.unseenFailure();
    this.#owner.release(this, this.#engine);
    return error === undefined ? undefined : { error };
  }

  /** Ends this rank's part of the group, without a word to the peers. */
  abandon(error: ChoraleError): void {
    this.#engine.failAll(error);
  }

  /** The pending work whose buffers begin in [start, end) of the shared memory, if any. */
  pendingIn(start: number, end: number): PendingWork<unknown> | undefined {
    return this.#engine.pendingIn(start, end);
  }

  #launch(work: ThreadsWork<unknown>, spins: number): void {
    if (work instanceof PairWork) this.#engine.pairs.submit(work);
    else this.#engine.submit(work, spins);
  }

  #newWork<T>(op: WireOp, timeoutMs: number | undefined): ThreadsWork<T> {
    const work = new ThreadsWork<T>(this.#engine, this.#engine.nextSeq++, op);
    work.code = opCode(op);
    work.timeoutMs = timeoutMs ?? this.#owner.timeoutMs;
    work.issuedAt = performance.now();
    return work;
  }

  /** Makes a call's work. When it throws, nothing is held and no number is taken. */
  #prepare(call: GroupCall): ThreadsWork<unknown> {
    if (call.kind === "barrier") return this.#barrier(call);
    for (const given of [call.input, call.output]) this.#owner.checkMemory(given);
    const { op } = call.call;
    if (op === "send" || op === "recv") return this.#message(op, call);
    const choice = choiceFor(this.#engine.choices, call);
    const work = choice?.served.kind === "plan" ? this.#served(call, choice) : this.#collective(call);
    work.choice = choice;
    if (call.epilogue !== undefined) setEpilogue(work, call.epilogue);
    return work;
  }

  /** A collective as a run of the plan that was chosen for it. */
  #served(given: TensorCall, choice: Choice): ThreadsWork<unknown> {
    const { call, input, output } = given;
    const count = agreedCount(call);
    const as = {
      op: call.op as CollectiveName,
      root: call.root ?? 0,
      count,
      reportedBytes: reported(call, count) * sizeOf(call.dtype),
    };
    const work = planWork(this.#owner, this.#engine, planCallOf(given, choice), as) as ThreadsWork<unknown>;
    work.keep = [input, output, work.keep];
    const { harvest } = work;
    const { writes, inPlace } = rolesOf(call);
    const isFresh = writes && output === undefined && !inPlace;
    work.harvest = () => {
      const result = harvest?.();
      return isFresh ? result : asTensor(output ?? input);
    };
    return work;
  }

  #barrier({ timeoutMs }: BarrierCall): ThreadsWork<unknown> {
    const work = this.#newWork<unknown>("barrier", timeoutMs);
    work.call = packCall("barrier", undefined, undefined, 0);
    return work;
  }

  #message(op: "send" | "recv", { call, input: given, timeoutMs }: TensorCall): ThreadsWork<unknown> {
    const engine = this.#engine;
    const peer = call.peer ?? 0;
    const place = placeOf(this.#owner, engine.heap, given, op === "send");
    const work = new PairWork<unknown>(engine, engine.nextPairSeq++, op, peer);
    work.code = opCode(op);
    work.timeoutMs = timeoutMs ?? this.#owner.timeoutMs;
    work.call = packCall(op, given.dtype, undefined, peer);
    work.count = given.count;
    work.bytes = given.count * sizeOf(given.dtype);
    work.reportedBytes = work.bytes;
    work.keep = given;
    if (op === "send") {
      work.input = place.address;
      // A staged copy belongs to the receiver from here on.
      work.detached = place.staged;
      return work;
    }
    work.output = place.address;
    const result = asTensor(given);
    if (place.staged) work.release = () => engine.heap.free(place.address);
    work.harvest = () => {
      if (place.staged) copyOut(engine.heap, place.address, given);
      return result;
    };
    return work;
  }

  #collective({ call, input, output, outputCount, timeoutMs }: TensorCall): ThreadsWork<unknown> {
    const { heap } = this.#engine;
    const { op, dtype, numRanks: n, root = 0, redop, counts, sendCounts, recvCounts } = call;
    const elementBytes = sizeOf(dtype);
    const buffers = this.#buffers({ call, input, output, outputCount });
    const work = this.#newWork<Tensor>(op, timeoutMs);
    const count = agreedCount(call);
    work.call = packCall(op, dtype, redop, root);
    work.count = count;
    work.input = buffers.source;
    work.output = buffers.sink;
    work.root = root;
    work.keep = [input, output];
    work.bytes = op === "all_to_all_v" ? elementBytes : count * elementBytes;
    work.harvest = () => {
      for (const copy of buffers.copies) copy();
      return buffers.result;
    };
    work.reportedBytes = reported(call, count) * elementBytes;
    if (buffers.staged.length > 0) work.release = () => freeAll(heap, buffers.staged);
    if (redop !== undefined) setOperator(work, dtype, redop, n);
    if (counts !== undefined) setCounts(work, counts, elementBytes);
    if (sendCounts !== undefined && recvCounts !== undefined) {
      work.counts = { send: [...sendCounts], receive: [...recvCounts] };
      work.detail += ` sendCounts [${sendCounts.join(", ")}] recvCounts [${recvCounts.join(", ")}]`;
    }
    return work;
  }

  /** Gives a collective's buffers addresses: those of world tensors are their own, all others are staged. */
  #buffers({ call, input, output, outputCount }: Pick<TensorCall, "call" | "input" | "output" | "outputCount">) {
    const { heap } = this.#engine;
    const { reads, writes, inPlace } = rolesOf(call);
    const copies: (() => void)[] = [];
    const staged: number[] = [];
    const target: Operand | undefined = writes ? (output ?? (inPlace ? input : undefined)) : undefined;
    const isFresh = writes && target === undefined;
    const result = isFresh ? this.#owner.scratchTensor(call.dtype, outputCount) : asTensor(target ?? output ?? input);
    const bring = (given: Operand, fill: boolean, isResult: boolean): number => {
      const place = placeOf(this.#owner, heap, given, fill);
      if (place.staged) staged.push(place.address);
      if (place.staged && isResult) copies.push(() => copyOut(heap, place.address, given));
      return place.address;
    };
    try {
      const source = reads ? bring(input, true, target === input) : 0;
      const sink = isFresh
        ? result.byteOffset
        : target === undefined
          ? 0
          : reads && target === input
            ? source
            : bring(target, false, true);
      return { source, sink, result, copies, staged };
    } catch (error) {
      freeAll(heap, staged);
      throw error;
    }
  }
}

function freeAll(heap: GroupEngine["heap"], addresses: readonly number[]): void {
  for (const address of addresses) heap.free(address);
}

/** The elements that nccl-tests would print. */
function reported({ op, numRanks, counts, sendCounts }: TensorCall["call"], count: number): number {
  if (counts !== undefined) return count;
  if (sendCounts !== undefined) return sendCounts.reduce((a, b) => a + b, 0);
  return reportedCount(op, numRanks, count);
}
