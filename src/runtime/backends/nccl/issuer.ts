/** Puts calls into a communicator's queue, and from there onto the stream. */
import { packCall } from "../../comm/index.ts";
import type { DeviceStorage } from "../../device/index.ts";
import { COLLECTIVE } from "../../memory/index.ts";
import { ALWAYS_COLD, type CallSequence, placeOf, QueuedWork } from "../../progress/index.ts";
import { inGroup, isComposed, issue, type NcclCall } from "./nccl-calls.ts";
import type { NcclContext } from "./nccl-context.ts";
import { Entry, type EntryParts, meetingOf, partsOfCall } from "./nccl-entry.ts";
import { ObjectExchange } from "./objects.ts";
import { PreMulSumOperators, scaleOnHost } from "./pre-mul-sum.ts";
import { kindOf, kindsOf, type PrepareContext, type Prepared } from "./prepare.ts";
import type { CommQueue } from "./queue.ts";

const NONE: readonly never[] = Object.freeze([]);

/** The tensors' memory that calls read and write. */
function storagesOf(calls: readonly Prepared[]): readonly DeviceStorage[] {
  const all = calls.flatMap(({ source, target, others = NONE }) => [source, target, ...others]);
  return [...new Set(all.filter((storage) => storage !== undefined))];
}

const NO_BYTES = new Uint8Array(0);

/** A call's own deadline; the rank's by default. */
interface Deadline {
  readonly timeoutMs?: number | undefined;
}

export class CallIssuer {
  readonly operators: PreMulSumOperators;
  readonly #rank: NcclContext;
  readonly #queue: CommQueue;
  readonly #sequence: CallSequence;
  readonly #context: PrepareContext;
  readonly #group: string;

  constructor(rank: NcclContext, queue: CommQueue, context: PrepareContext, group: string) {
    this.operators = new PreMulSumOperators(rank.library);
    this.#rank = rank;
    this.#queue = queue;
    this.#sequence = context.sequence;
    this.#context = context;
    this.#group = group;
  }

  /** Puts an entry into the queue. `name` is what the work is called. */
  push(parts: EntryParts, deadline: Deadline, name: string = parts.op): QueuedWork<unknown> {
    const first = parts.arrivals[0];
    const work = this.work(first === undefined ? 0 : placeOf(first), name);
    const { timeoutMs } = deadline;
    if (timeoutMs !== undefined) this.#queue.expectOwnDeadlines();
    this.#queue.push(new Entry(work, parts, timeoutMs ?? this.#rank.settings.timeoutMs));
    return work;
  }

  /** A work of this communicator that nothing drives yet. */
  work(seq: number, name: string): QueuedWork<unknown> {
    return new QueuedWork<unknown>(this.#queue, seq, name, this.#group);
  }

  /** Puts calls into the queue that start together. */
  launch(
    calls: readonly Prepared[],
    op: string,
    deadline: Deadline,
    value: () => unknown,
    members: Entry["members"] = NONE,
  ): QueuedWork<unknown> {
    const grouped = calls.length > 1 || calls.some(({ call }) => isComposed(call, this.#rank.library));
    const [first] = calls;
    const isAlone =
      first !== undefined &&
      !grouped &&
      first.scalar === undefined &&
      first.staged.every(({ after }) => after === undefined);
    const finish = calls.flatMap(({ staged }) => staged.flatMap((one) => one.finish ?? []));
    const isPlain = isAlone && finish.length === 0 && !first.pairs?.length && first.call.step === undefined;
    if (isPlain && members.length === 0) {
      const { call, arrival, source, target, result, sizeBytes } = first;
      return this.push(partsOfCall(call, arrival, kindsOf(first), source, target, result, sizeBytes), deadline, op);
    }
    const step = first?.call.step;
    const parts: EntryParts = {
      op: first?.op ?? "barrier",
      arrivals: calls.flatMap((one) => (one.pairs === undefined ? one.arrival : [one.arrival, ...one.pairs])),
      // Sends and receives, whose kinds stand for them in order, have no epilogues.
      kinds: calls.flatMap(kindsOf),
      storages: storagesOf(calls),
      ...(isAlone ? { single: first.call } : { run: (comm) => this.runCalls(calls, comm, grouped) }),
      // Of several calls none has a plan.
      meets: first && meetingOf(first.call),
      reachesPeers: first?.call.plan?.reachesPeers === true,
      ...(step !== undefined && { refusal: () => step.refusal }),
      value,
      members,
      finish,
      sizeBytes: calls.reduce((sum, one) => sum + one.sizeBytes, 0),
    };
    return this.push(parts, deadline, op);
  }

  /** Issues calls on the stream. @returns NCCL's first status that is not success */
  runCalls(calls: readonly Prepared[], comm: bigint, grouped: boolean): number {
    const { library } = this.#rank;
    const resolved = calls.map(({ call, scalar }) => {
      if (scalar === undefined) return call;
      if (this.#context.size > 1) return { ...call, redop: this.operators.get(comm, call.dtype, scalar) };
      scaleOnHost(this.#context, call, scalar);
      return { ...call, send: call.recv };
    });
    const target = this.#queue.options.target(comm);
    const issueAll = () => {
      let status = 0;
      for (const call of resolved) {
        const answer = issue(call, target);
        if (status === 0) status = answer;
      }
      return status;
    };
    const status = grouped ? inGroup(library, issueAll) : issueAll();
    const copies = calls.flatMap(({ staged }) => staged.flatMap(({ after }) => after ?? []));
    if (copies.length > 0) this.#queue.handle.untilAccepted();
    for (const copy of copies) copy();
    return status;
  }

  /** A barrier: a reduction of one word. */
  barrier(): Prepared {
    const word = this.#rank.barrierWord;
    const call: NcclCall = {
      op: "barrier",
      dtype: "i32",
      count: 1,
      send: word,
      recv: word,
      root: 0,
      redop: 0,
      counts: NONE,
      sendCounts: NONE,
      recvCounts: NONE,
      plan: undefined,
      step: undefined,
    };
    const arrival = this.#sequence.collective(packCall("barrier", undefined, undefined, 0), 0, 0);
    return {
      op: "barrier",
      call,
      arrival,
      kind: kindOf(arrival.print.call, 1),
      scalar: undefined,
      staged: NONE,
      source: undefined,
      target: undefined,
      result: undefined,
      sizeBytes: 0,
    };
  }

  /** Object collectives: see objects.ts. */
  exchange(
    op: "broadcast_object" | "gather_objects",
    bytes: Uint8Array | undefined,
    root: number,
    timeoutMs: number | undefined,
    finish: (given: readonly (Uint8Array | undefined)[]) => unknown,
  ): QueuedWork<unknown> {
    const mine = bytes ?? NO_BYTES;
    const { control, stream, target } = this.#queue.options;
    const arrival = this.#sequence.collective(packCall(op, undefined, undefined, root), mine.length, 0);
    const lengths = () =>
      Array.from({ length: control.size }, (_, m) => control.read(m, COLLECTIVE, arrival.seq)?.count ?? 0);
    const stillOpen = (comm: bigint) => () => {
      this.#queue.stillOpen();
      return target(comm);
    };
    const exchange = new ObjectExchange(this.#rank.at, stream, mine, lengths);
    const parts: EntryParts = {
      op,
      arrivals: [arrival],
      // It runs when all members have come, with their lengths.
      kinds: [ALWAYS_COLD],
      reads: true,
      run: (comm) => exchange.run(stillOpen(comm), () => this.#queue.handle.untilAccepted()),
      finish: [(ok) => exchange.finish(ok)],
      value: () => finish(exchange.given),
      sizeBytes: mine.length,
    };
    return this.push(parts, { timeoutMs });
  }
}
