/** The driver of a group over MPI: from checked calls to entries of its queue. */
import { type ChoraleError, InvalidArgumentError } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import {
  asTensor,
  type ByteExchange,
  type Capabilities,
  type CommStats,
  type Communicator,
  type Data,
  type GroupCall,
  type GroupDriver,
  type GroupOpening,
  type GroupPlace,
  MAX_OBJECT_BYTES,
  type NamedCall,
  type PendingWork,
  packCall,
  readChoice,
  type SubmittedBatch,
  type UncheckedOptions,
} from "../../comm/index.ts";
import { COLLECTIVE } from "../../memory/index.ts";
import { batchTimeout, type CallSequence, checkRoom, placeOf, QueuedWork, readChoices } from "../../progress/index.ts";
import type { CallServing } from "./host-call.ts";
import { KnownCalls } from "./known-calls.ts";
import { CountLists } from "./move-calls.ts";
import type { MpiContext } from "./mpi-context.ts";
import { type Activity, type EntryParts, MpiEntry, SteppedCall, type Steps } from "./mpi-entry.ts";
import type { MpiQueue } from "./mpi-queue.ts";
import { PairMessages } from "./pair-messages.ts";
import { type PrepareContext, type Prepared, prepareBarrier, prepareCollective } from "./prepare-calls.ts";
import { QuickCalls } from "./quick-calls.ts";
import { Downloads, givingBack, type StagedTensor } from "./staged-calls.ts";

const NO_BYTES = new Uint8Array(0);

export class MpiGroup implements GroupDriver {
  readonly place: GroupPlace;
  readonly capabilities: Capabilities;
  readonly strictWork: boolean;
  readonly queue: MpiQueue;
  readonly #rank: MpiContext;
  readonly #sequence: CallSequence;
  readonly #context: PrepareContext;
  readonly #messages: PairMessages;
  readonly #quick: QuickCalls;
  readonly #known: KnownCalls;

  constructor(rank: MpiContext, queue: MpiQueue, plans: CallServing | undefined) {
    const { group, ranks, control, generation } = queue.options;
    this.#rank = rank;
    this.queue = queue;
    this.capabilities = rank.options.capabilities;
    this.place = { backend: "mpi", group, rank: control.member, ranks: Object.freeze([...ranks]), generation };
    this.strictWork = rank.options.strictWork;
    this.#sequence = queue.sequence;
    this.#context = {
      addresses: rank.options.mpi.addresses,
      sequence: this.#sequence,
      kernels: rank.kernels,
      at: rank.options.at,
      plans,
      rank: control.member,
      size: ranks.length,
    };
    this.#quick = new QuickCalls(this.#context, rank.options.mpi, generation);
    this.#known = new KnownCalls(this.#sequence, generation);
    const sweep = () => this.#messages.sweep();
    this.#messages = new PairMessages(
      rank.options.mpi,
      rank.options.at,
      this.#sequence,
      (arrivals) => queue.allAgree(arrivals),
      () => queue.goOnSending(sweep, rank.options.timeoutMs),
    );
  }

  get failure(): ChoraleError | undefined {
    return this.queue.knownFailure();
  }
  get nextSeq(): number {
    return this.#sequence.next;
  }

  submit(call: GroupCall): PendingWork<unknown> {
    if (call.kind === "tensors" && call.call.peer !== undefined) {
      const { peer, op } = call.call;
      const parts = op === "send" ? this.#messages.send(call, peer) : this.#messages.recv(call, peer);
      return this.#push(parts, call.timeoutMs);
    }
    const prepared = this.#prepare(call);
    if (call.kind === "tensors") this.#known.keep(call, prepared);
    return this.#issue(prepared, call.timeoutMs);
  }

  quick({ op }: NamedCall, data: Data | undefined, options: UncheckedOptions): PendingWork<unknown> | undefined {
    if (!this.queue.isIdle) return undefined;
    const parts = op === "all_reduce" ? this.#quick.allReduce(data, options) : undefined;
    if (parts !== undefined) return this.#push(parts, undefined);
    const known = this.#known.again(op, data, options);
    return known && this.#issue(known, undefined);
  }

  submitAll(calls: readonly GroupCall[]): SubmittedBatch {
    if (calls.length === 0) return { works: [] };
    checkRoom(calls);
    const messages: Activity[] = [];
    const collectives: Activity[] = [];
    const sent: StagedTensor[] = [];
    const finish: (() => void)[] = [];
    const prepare = () =>
      calls.map((call) => {
        if (call.kind === "tensors" && call.call.peer !== undefined) {
          const { op, peer } = call.call;
          const { activity, staged } = this.#messages.activity(call, peer);
          messages.push(activity);
          if (op === "send") sent.push(...staged);
          finish.push(...givingBack(staged));
          const arrivals = [this.#messages.arrival(call, peer)];
          const result = op === "send" ? undefined : asTensor(call.input);
          return { op, arrivals, result, regions: [call.input.region], sizeBytes: call.input.region.sizeBytes };
        }
        const one = this.#prepare(call);
        collectives.push(one.activity);
        finish.push(...one.finish);
        return one;
      });
    let prepared: ReturnType<typeof prepare>;
    try {
      prepared = this.#sequence.atomically(prepare);
    } catch (error) {
      for (const giveBack of finish) giveBack();
      throw error;
    }
    const members = prepared.map(({ op, arrivals, result }) => ({
      work: new QueuedWork<unknown>(
        this.queue,
        arrivals[0] === undefined ? 0 : placeOf(arrivals[0]),
        op,
        this.place.group,
      ),
      value: result,
    }));
    const parts: EntryParts = {
      op: prepared[0]?.op ?? "barrier",
      arrivals: prepared.flatMap(({ arrivals }) => arrivals),
      // Messages first: a collective of the batch may wait for ranks that wait for them.
      activities: [...(sent.length === 0 ? [] : [new Downloads(sent)]), ...messages, ...collectives],
      members,
      regions: prepared.flatMap(({ regions }) => regions),
      value: () => undefined,
      finish,
      sizeBytes: prepared.reduce((sum, one) => sum + one.sizeBytes, 0),
    };
    const whole = this.#push(parts, batchTimeout(calls), "batch");
    return { works: members.map(({ work }) => work), whole };
  }

  exchange<T>(exchange: ByteExchange<T>): PendingWork<T> {
    const parts = exchange.op === "split" ? this.#split(exchange) : this.#objects(exchange);
    return this.#push(parts, exchange.timeoutMs) as PendingWork<T>;
  }

  open({ name, members, nth, how, color }: GroupOpening): Communicator | undefined {
    if (members.length === 0) return undefined;
    const ranks = members.map((member) => this.place.ranks[member] ?? member);
    const { control } = this.queue.options;
    const label = how === "split" ? `${name}:${color}` : name;
    const own = ranks.indexOf(this.#rank.options.rank);
    const child = this.#rank.options.control.group(`${this.place.group}>${label}`, ranks, nth, own, control.key, name);
    return this.#rank.communicator(name, ranks, child);
  }

  pending(): CommStats {
    const usedBytes = 0;
    const { plans } = this.#context;
    return {
      ...(plans !== undefined && { choices: plans.counts() }),
      operations: this.queue.settling.counters.snapshot(),
      pending: this.queue.pending,
      memory: { usedBytes, peakBytes: usedBytes, limitBytes: Number.MAX_SAFE_INTEGER },
    };
  }

  fail(error: ChoraleError): void {
    this.queue.fail(error);
  }

  drain(): Promise<void> {
    return this.queue.drain();
  }

  async close(): Promise<{ readonly error: unknown } | undefined> {
    const { control, group } = this.queue.options;
    // No member makes a call after it has said so.
    control.announceClose();
    const over = () => control.failed;
    const undelivered = await this.#messages.drain(group, this.#rank.options.timeoutMs, over);
    const failed = this.queue.knownFailure();
    const unseen = this.queue.close();
    this.#context.plans?.close();
    this.#rank.retire(this);
    if (unseen.length > 0) return { error: unseen[0] };
    // What a group that failed has sent is not missed.
    return undelivered === undefined || failed !== undefined ? undefined : { error: undelivered };
  }

  /** Issues a collective. Where nothing is before it, its part is brought at once, which tells the others of the call. */
  #issue(prepared: Prepared, timeoutMs: number | undefined): QueuedWork<unknown> {
    const { op, arrivals, activity, regions, result, sizeBytes, finish } = prepared;
    const [arrival] = arrivals;
    const comparesLater = activity.bring !== undefined && arrivals.length === 1 && this.queue.isIdle;
    if (comparesLater && arrival !== undefined) activity.bring?.(arrival, this.queue.options.mpi);
    const parts = { op, arrivals, activities: [activity], regions, result, sizeBytes, finish, comparesLater };
    return this.#push(parts, timeoutMs);
  }

  #push(parts: EntryParts, timeoutMs: number | undefined, name: string = parts.op): QueuedWork<unknown> {
    const first = parts.arrivals[0];
    const work = new QueuedWork<unknown>(this.queue, first === undefined ? 0 : placeOf(first), name, this.place.group);
    if (timeoutMs !== undefined) this.queue.expectOwnDeadlines();
    this.queue.push(new MpiEntry(work, parts, timeoutMs ?? this.#rank.options.timeoutMs));
    return work;
  }

  #prepare(call: GroupCall): Prepared {
    return call.kind === "barrier" ? prepareBarrier(this.#context, call) : prepareCollective(this.#context, call);
  }

  /** A split's choices ride in its fingerprint: MPI has no part in it before the new group is used. */
  #split<T>({ bytes, finish }: ByteExchange<T>): EntryParts {
    const { color, key } = readChoice(bytes, this.place.rank);
    const arrival = this.#sequence.collective(packCall("split", undefined, undefined, 0), color, key);
    let made: T | undefined;
    const step = () => {
      const choices = readChoices(this.queue.options.control, arrival.seq);
      if (choices === undefined) return false;
      made = finish(choices);
      return true;
    };
    return { op: "split", arrivals: [arrival], reads: true, step, value: () => made };
  }

  /** Objects: their lengths are in the fingerprints, so that one call moves them all. */
  #objects<T>({ op, bytes, root, finish }: ByteExchange<T>): EntryParts {
    const mine = bytes ?? NO_BYTES;
    const arrival = this.#sequence.collective(packCall(op, undefined, undefined, root), mine.length, 0);
    const { control } = this.queue.options;
    let given: readonly (Uint8Array | undefined)[] = [];
    const move = new SteppedCall(function* (steps: Steps) {
      const { mpi } = steps;
      const lengths = Array.from(
        { length: control.size },
        (_, m) => control.read(m, COLLECTIVE, arrival.seq)?.count ?? 0,
      );
      for (const [rank, length] of lengths.entries()) {
        if (length >= 0 && length <= MAX_OBJECT_BYTES) continue;
        throw new InvalidArgumentError(
          `object of rank ${rank}`,
          described(`${length} bytes`),
          `at most ${MAX_OBJECT_BYTES}`,
        );
      }
      const all = mpi.addresses.fresh(lengths.reduce((a, b) => a + b, 0));
      const starts = lengths.map((_, rank) => lengths.slice(0, rank).reduce((a, b) => a + b, 0));
      all.bytes.set(mine, starts[steps.rank]);
      const lists = new CountLists(mpi.addresses);
      const [counts, offsets] = lists.of(lengths);
      const { api, abi, handles } = mpi.library;
      if (all.bytes.length > 0) {
        steps.issue("MPI_Iallgatherv", ({ comm }, request) =>
          api.MPI_Iallgatherv(abi.inPlace, 0, handles.byte, all.address, counts, offsets, handles.byte, comm, request),
        );
      }
      yield;
      given = lengths.map((length, rank) => {
        const start = starts[rank] ?? 0;
        return length === 0 ? undefined : all.bytes.slice(start, start + length);
      });
      // Read to the end: the lists are MPI's until here.
      void lists;
    });
    const value = () => finish(given);
    return { op, arrivals: [arrival], reads: true, activities: [move], value, sizeBytes: mine.length };
  }
}
