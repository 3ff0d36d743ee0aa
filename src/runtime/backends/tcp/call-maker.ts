/** Makes calls of what `GroupCommunicator` has checked: buffers, numbers, and what begins each. */
import { agreedCount, type CollectiveName, operationInfo, reportedCount } from "../../../collectives/index.ts";
import { AbortedError, type ChoraleError, sizeOf, tensor, UnsupportedError } from "../../../core/index.ts";
import {
  asTensor,
  type ByteExchange,
  type Capabilities,
  type GroupCall,
  type GroupPlace,
  hashNumbers,
  operand,
  type PlanCall,
  packCall,
  rolesOf,
  type TensorCall,
  type WireOp,
} from "../../comm/index.ts";
import { type Choice, Choices, choiceFor, planCallOf, registerStoredPlans, scalarOf } from "../../executor/internal.ts";
import { type Arrival, CallSequence, placeOf } from "../../progress/index.ts";
import { allGather, barrier, equalParts } from "./algorithms.ts";
import { CallRunner, type GroupMessages } from "./call-messages.ts";
import { EAGER_BYTES, type GroupKey, LANE, NO_HEAD, type Print } from "./frame.ts";
import { GroupPlans, type PlanRunning } from "./group-plans.ts";
import { type CallWays, Hierarchy } from "./hierarchy.ts";
import type { Inbox, InboxOwner } from "./inbox.ts";
import { KnownSchedules } from "./known-schedules.ts";
import type { PlanFrames } from "./plan-frames.ts";
import { operatorOf, viewOf } from "./reducer.ts";
import type { Schedule } from "./schedule.ts";
import type { CallBuffers } from "./schedule-run.ts";
import { BY_ITSELF, SOCKET_KERNELS, type SocketWay, wayOf } from "./socket-ways.ts";
import type { TcpContext } from "./tcp-context.ts";
import { type CallParts, type MemoryUse, TcpWork } from "./tcp-work.ts";

/** Slots of the second part of an exchange, whose sizes the first one told. */
const SECOND_PART = 2 ** 24;
const SIZE_BYTES = 8;

const TOOK_TENSORS =
  "took its tensors out of the reach of its host's ranks: another group failed while a rank was writing into them, which may be stopped";

const NOTHING = new Uint8Array(0);
/** A barrier's. */
const NO_DATA = {
  dtype: "u8",
  redop: undefined,
  root: 0,
  partBytes: 0,
  sizeBytes: 0,
  input: NOTHING,
  output: NOTHING,
  named: undefined,
} as const;
const NO_BUFFERS: CallBuffers = { input: NOTHING, output: NOTHING, operator: undefined };

/** The group that makes the calls. */
export interface CallOwner extends InboxOwner {
  /** @param seq the collective that failed: the members may still end those before it */
  failAt(seq: number, error: ChoraleError): void;
}

export class CallMaker {
  readonly sequence: CallSequence;
  readonly plans: GroupPlans;
  readonly hierarchy: Hierarchy;
  readonly #schedules = new KnownSchedules();
  readonly #choices: Choices;
  #capabilities: Capabilities | undefined;
  /** Messages that were sent to each member. */
  readonly sent: number[];
  readonly #context: TcpContext;
  readonly #place: GroupPlace;
  readonly #key: GroupKey;
  readonly #inboxes: readonly (Inbox | undefined)[];
  readonly #messages: GroupMessages;
  readonly #owner: CallOwner;

  constructor(
    context: TcpContext,
    place: GroupPlace,
    key: GroupKey,
    inboxes: readonly (Inbox | undefined)[],
    frames: PlanFrames,
    owner: CallOwner,
  ) {
    const { backend, group, rank, ranks } = place;
    this.plans = new GroupPlans(context.planMemory, frames, { rank, size: ranks.length });
    const { choices } = context.options;
    if (choices !== undefined) registerStoredPlans(choices);
    const chosenIn = { backend, group, numRanks: ranks.length, topology: "sockets", kernels: SOCKET_KERNELS };
    this.#choices = new Choices(chosenIn, []);
    this.hierarchy = new Hierarchy(context, place, key);
    this.#owner = owner;
    this.#context = context;
    this.#place = place;
    this.#key = key;
    this.#inboxes = inboxes;
    this.#messages = { group: key, inboxes, grants: context.grants, reducer: context.reducer };
    this.sequence = new CallSequence(place.ranks.length);
    this.sent = place.ranks.map(() => 0);
  }

  /** How often each algorithm served, by `collective algorithm`. */
  get choices(): Readonly<Record<string, number>> {
    return { ...this.#schedules.counts(), ...this.hierarchy.counts, ...this.#choices.counts() };
  }

  /** With how the group lies on its hosts, once its members know. */
  get capabilities(): Capabilities {
    const { capabilities } = this.#context.options;
    const { topology } = this.hierarchy;
    if (topology === undefined) return capabilities;
    this.#capabilities ??= Object.freeze({ ...capabilities, features: { ...capabilities.features, topology } });
    return this.#capabilities;
  }

  close(): void {
    this.plans.close();
    this.hierarchy.close();
  }

  /**
   * @throws OutOfMemoryError for a result's memory, InvalidArgumentError for an algorithm that is none here, UnsupportedError for one
   * that cannot serve this call
   */
  make(call: GroupCall): CallParts {
    const timeoutMs = call.timeoutMs ?? this.#context.options.timeoutMs;
    if (call.kind === "barrier") return this.#barrier(timeoutMs);
    const { peer } = call.call;
    if (peer !== undefined) return this.#pair(call, peer, timeoutMs);
    const choice = call.algorithm === undefined ? undefined : choiceFor(this.#choices, call);
    if (choice?.served.kind === "plan") return this.plan(planCallOf(call, choice), { call, choice });
    return this.#collective(call, timeoutMs, choice?.served.label);
  }

  /** An exchange of bytes: of their sizes first, then of themselves. */
  exchange<T>({ op, bytes, root, timeoutMs, finish }: ByteExchange<T>): CallParts {
    const { rank, ranks } = this.#place;
    const size = ranks.length;
    const arrival = this.sequence.collective(packCall(op, undefined, undefined, root), 0, 0);
    const given: (Uint8Array | undefined)[] = Array(size).fill(undefined);
    const sizes = new BigInt64Array(size);
    // -1 says that a rank gives nothing.
    const mine = new BigInt64Array([BigInt(bytes?.length ?? -1)]);
    const place = { rank, size, elementBytes: 1 };
    const runner = new CallRunner(this.#messages, arrival);
    const start = (done: () => void) => {
      const first = { ...NO_BUFFERS, input: asBytes(mine), output: asBytes(sizes) };
      runner.run(allGather(place, equalParts(size, SIZE_BYTES)), first, 0, () => {
        const counts = Array.from(sizes, (bytes) => Math.max(0, Number(bytes)));
        const all = new Uint8Array(counts.reduce((a, b) => a + b, 0));
        const offsets: number[] = [];
        let at = 0;
        for (const [member, count] of counts.entries()) {
          offsets.push(at);
          if (Number(sizes[member]) >= 0) given[member] = all.subarray(at, at + count);
          at += count;
        }
        const second = { ...NO_BUFFERS, input: bytes ?? NOTHING, output: all };
        runner.run(allGather(place, { offsets, sizes: counts }), second, SECOND_PART, done);
      });
    };
    return {
      op,
      arrival,
      work: this.#work(arrival, op),
      uses: [],
      sizeBytes: bytes?.length ?? 0,
      timeoutMs: timeoutMs ?? this.#context.options.timeoutMs,
      start,
      value: () => finish(given),
      drop: () => runner.drop(),
    };
  }

  #barrier(timeoutMs: number): CallParts {
    const { rank, ranks } = this.#place;
    const arrival = this.sequence.collective(packCall("barrier", undefined, undefined, 0), 0, 0);
    const runner = new CallRunner(this.#messages, arrival);
    const schedule = barrier({ rank, size: ranks.length, elementBytes: 1 });
    return {
      op: "barrier",
      arrival,
      work: this.#work(arrival, "barrier"),
      uses: [],
      sizeBytes: 0,
      timeoutMs,
      start: (done) => {
        const flat = () => runner.run(schedule, NO_BUFFERS, 0, done);
        if (!this.hierarchy.mayServe("barrier", 0)) flat();
        // No table names a plan for it.
        else
          this.hierarchy.start({ ...NO_DATA, op: "barrier" }, this.#ways(arrival, runner, { flat, plan: flat }, done));
      },
      value: () => undefined,
      drop: () => runner.drop(),
    };
  }

  /** @param label what the call names of what the backend has by itself */
  #collective(made: TensorCall, timeoutMs: number, label = BY_ITSELF): CallParts {
    const { call, input, output, outputCount } = made;
    const { dtype, redop } = call;
    const op = call.op as CollectiveName;
    const named = label === BY_ITSELF ? undefined : wayOf(label);
    const refusal = named?.isHierarchical === true ? this.hierarchy.refusal : undefined;
    if (refusal !== undefined) throw new UnsupportedError(`algorithm ${label}`, refusal);
    const size = this.#place.ranks.length;
    const { reads, writes, inPlace } = rolesOf(call);
    const elementBytes = sizeOf(dtype);
    const target = output ?? (inPlace ? input : undefined);
    const fresh = writes && target === undefined ? tensor(dtype, [outputCount]) : undefined;
    const result = fresh ?? asTensor(target ?? input);
    const into = fresh === undefined ? viewOf((target ?? input).region) : asBytes(fresh.data);
    const buffers: CallBuffers = {
      input: reads ? viewOf(input.region) : NOTHING,
      output: writes ? into : NOTHING,
      operator: redop === undefined ? undefined : operatorOf(dtype, redop, size),
    };
    const part = agreedCount(call);
    const algorithm = named === undefined ? undefined : label;
    const arrival = this.sequence.of(op, dtype, part, { ...call, epilogue: made.epilogue, algorithm });
    const runner = new CallRunner(this.#messages, arrival);
    const partBytes = part * elementBytes;
    const sizeBytes = reportedCount(op, size, part) * elementBytes;
    const uses: MemoryUse[] = [];
    if (reads) uses.push({ region: input.region, writes: false });
    if (writes && fresh === undefined) uses.push({ region: (target ?? input).region, writes: true });
    let running: PlanRunning | undefined;
    return {
      op,
      arrival,
      work: this.#work(arrival, op),
      uses,
      sizeBytes,
      timeoutMs,
      strands: () => running?.strands ?? [],
      start: (done) => {
        const flat = ({ schedule, pieceBytes }: Partial<SocketWay> = {}) => {
          const place = { rank: this.#place.rank, size, elementBytes, schedule, pieceBytes };
          runner.run(this.#schedules.of(call, place, partBytes), buffers, 0, done);
        };
        const isFlat = named?.isHierarchical === false || !this.hierarchy.mayServe(op, partBytes);
        if (isFlat) {
          flat(named);
          return;
        }
        const plan = (choice: Choice) => {
          // The result is there already.
          const into = fresh === undefined ? output : operand(fresh, undefined, "output");
          running = this.plans.prepare(planCallOf({ ...made, output: into }, choice));
          choice.calls++;
          running.start(arrival.seq, arrival.print, this.#planSchedules(runner), done);
        };
        const hosted = { op, dtype, redop, root: call.root ?? 0, partBytes, sizeBytes, named, ...buffers };
        this.hierarchy.start(hosted, this.#ways(arrival, runner, { flat, plan }, done));
      },
      value: () => {
        running?.finish();
        return result;
      },
      drop: () => {
        runner.drop();
        running?.drop();
      },
    };
  }

  /** How a plan makes its ranks meet. */
  #planSchedules(runner: CallRunner) {
    return (one: Schedule, firstSlot: number, ended: () => void) => runner.run(one, NO_BUFFERS, firstSlot, ended);
  }

  /**
   * A run of a plan. @param as the collective that it serves
   * @throws InvalidArgumentError, OutOfMemoryError, UnsupportedError
   */
  plan(call: PlanCall, as?: { readonly call: TensorCall; readonly choice: Choice }): CallParts {
    const { plan, hash, dtype, op, partBytes, inputCount, outputCount, input, output, opinion } = call;
    const running = this.plans.prepare(call);
    const name = (as?.call.call.op ?? "run") as CollectiveName | "run";
    const elementBytes = sizeOf(dtype);
    const count = as === undefined ? partBytes / elementBytes : agreedCount(as.call.call);
    const redop = name === "run" || operationInfo(name).reduces ? op : undefined;
    const words = [0, 8].map((at) => Number.parseInt(hash.slice(at, at + 8), 16));
    const hashed = hashNumbers([...words, scalarOf(op, dtype), Math.floor(count / 2 ** 32)]);
    const arrival: Arrival = {
      ...this.sequence.collective(packCall(name, dtype, redop, as?.call.call.root ?? 0), count | 0, hashed),
      hashed: () => `plan ${plan.name ?? ""} (${hash}), ${opinion}`,
    };
    const runner = new CallRunner(this.#messages, arrival);
    const uses: MemoryUse[] = [];
    if (input !== undefined) uses.push({ region: input.region, writes: call.shared?.in === "input" });
    if (output !== undefined) uses.push({ region: output.region, writes: true });
    return {
      op: name,
      arrival,
      work: this.#work(arrival, name),
      uses,
      sizeBytes:
        name === "run"
          ? Math.max(inputCount, outputCount) * elementBytes
          : reportedCount(name, this.#place.ranks.length, count) * elementBytes,
      timeoutMs: call.timeoutMs ?? this.#context.options.timeoutMs,
      detail: `, plan ${plan.name ?? ""} (${hash}), ${opinion}`,
      strands: () => running.strands,
      start: (done) => {
        if (as !== undefined) as.choice.calls++;
        running.start(arrival.seq, arrival.print, this.#planSchedules(runner), done);
      },
      value: () => running.finish(),
      drop: () => {
        runner.drop();
        running.drop();
      },
    };
  }

  #pair({ call, input }: TensorCall, peer: number, timeoutMs: number): CallParts {
    const { op, dtype } = call;
    const arrival = this.sequence.of(op, dtype, input.count, { peer, outsideBatch: true });
    const { print, seq } = arrival;
    const name = { group: this.#key, lane: LANE.pair, seq, slot: 0 };
    const bytes = viewOf(input.region);
    const isSend = op === "send";
    if (isSend) this.sent[peer] = seq + 1;
    const start = (done: () => void) => {
      const inbox = this.#inboxes[peer];
      if (!isSend) {
        inbox?.receive(name, print, 0, bytes, done);
        return;
      }
      // A copy, unless it leaves at once: the receiver may make its own send first.
      const leaves = bytes.length <= EAGER_BYTES || inbox?.isGranted(name) === true;
      const payload = leaves ? bytes : bytes.slice();
      inbox?.send({ ...name, print, extra: 0, payload, done: leaves ? done : () => {} });
      if (!leaves) done();
    };
    return {
      op: op as WireOp,
      arrival,
      work: this.#work(arrival, op),
      uses: [{ region: input.region, writes: !isSend }],
      sizeBytes: bytes.length,
      timeoutMs,
      start,
      value: () => (isSend ? undefined : asTensor(input)),
    };
  }

  #work(arrival: Arrival, op: string): TcpWork<unknown> {
    return new TcpWork(this.#context.pump, placeOf(arrival), op, this.#place.group);
  }

  /** The ways in which a collective may be made. */
  #ways(
    { seq, print }: Arrival,
    runner: CallRunner,
    others: Pick<CallWays, "flat" | "plan">,
    done: () => void,
  ): CallWays {
    const disagree = (member: number, theirs: Print) => {
      const head = { ...NO_HEAD, group: this.#key, seq, print: theirs };
      this.#owner.compare(member, head, { print, extra: 0, bytes: 0 });
    };
    const { rank, ranks } = this.#place;
    const lost = () => this.#owner.failAt(seq, new AbortedError(`rank ${ranks[rank]} ${TOOK_TENSORS}`));
    const gather: CallWays["gather"] = (...call) => runner.run(...call);
    return { carrier: runner.carrierFrom(0), gather, print, disagree, lost, ...others, done };
  }
}

function asBytes(array: ArrayBufferView): Uint8Array {
  return new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);
}
