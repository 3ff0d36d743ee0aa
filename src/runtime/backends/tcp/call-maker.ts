/** Makes calls of what `GroupCommunicator` has checked: buffers, numbers, and what begins each. */
import { agreedCount, type CollectiveName, reportedCount } from "../../../collectives/index.ts";
import { sizeOf, tensor } from "../../../core/index.ts";
import {
  asTensor,
  type ByteExchange,
  type GroupCall,
  type GroupPlace,
  packCall,
  rolesOf,
  type TensorCall,
  type WireOp,
} from "../../comm/index.ts";
import { type Arrival, CallSequence, placeOf } from "../../progress/index.ts";
import { allGather, barrier, equalParts } from "./algorithms.ts";
import { scheduleOf } from "./choose.ts";
import { EAGER_BYTES, type GroupKey, LANE } from "./frame.ts";
import type { Inbox } from "./inbox.ts";
import { operatorOf } from "./reducer.ts";
import type { Schedule } from "./schedule.ts";
import { type CallBuffers, type Carrier, ScheduleRun } from "./schedule-run.ts";
import type { TcpContext } from "./tcp-context.ts";
import { type CallParts, type MemoryUse, TcpWork } from "./tcp-work.ts";

/** Slots of the second part of an exchange, whose sizes the first one told. */
const SECOND_PART = 2 ** 24;
const SIZE_BYTES = 8;

const NOTHING = new Uint8Array(0);
const NO_BUFFERS: CallBuffers = { input: NOTHING, output: NOTHING, operator: undefined };

export class CallMaker {
  readonly sequence: CallSequence;
  /** How often each algorithm served, by `collective algorithm`. */
  readonly choices = new Map<string, number>();
  /** Messages that were sent to each member. */
  readonly sent: number[];
  readonly #context: TcpContext;
  readonly #place: GroupPlace;
  readonly #key: GroupKey;
  readonly #inboxes: readonly (Inbox | undefined)[];

  constructor(context: TcpContext, place: GroupPlace, key: GroupKey, inboxes: readonly (Inbox | undefined)[]) {
    this.#context = context;
    this.#place = place;
    this.#key = key;
    this.#inboxes = inboxes;
    this.sequence = new CallSequence(place.ranks.length);
    this.sent = place.ranks.map(() => 0);
  }

  /** @throws OutOfMemoryError for a result's memory */
  make(call: GroupCall): CallParts {
    const timeoutMs = call.timeoutMs ?? this.#context.options.timeoutMs;
    if (call.kind === "barrier") return this.#barrier(timeoutMs);
    const { peer } = call.call;
    return peer === undefined ? this.#collective(call, timeoutMs) : this.#pair(call, peer, timeoutMs);
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
    const run = this.#runner(arrival);
    const start = (done: () => void) => {
      const first = { ...NO_BUFFERS, input: asBytes(mine), output: asBytes(sizes) };
      run(allGather(place, equalParts(size, SIZE_BYTES)), first, 0, () => {
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
        run(allGather(place, { offsets, sizes: counts }), second, SECOND_PART, done);
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
      drop: run.drop,
    };
  }

  #barrier(timeoutMs: number): CallParts {
    const { rank, ranks } = this.#place;
    const arrival = this.sequence.collective(packCall("barrier", undefined, undefined, 0), 0, 0);
    const run = this.#runner(arrival);
    const schedule = barrier({ rank, size: ranks.length, elementBytes: 1 });
    return {
      op: "barrier",
      arrival,
      work: this.#work(arrival, "barrier"),
      uses: [],
      sizeBytes: 0,
      timeoutMs,
      start: (done) => run(schedule, NO_BUFFERS, 0, done),
      value: () => undefined,
      drop: run.drop,
    };
  }

  #collective(made: TensorCall, timeoutMs: number): CallParts {
    const { call, input, output, outputCount } = made;
    const { op, dtype, redop } = call;
    const size = this.#place.ranks.length;
    const { reads, writes, inPlace } = rolesOf(call);
    const elementBytes = sizeOf(dtype);
    const target = output ?? (inPlace ? input : undefined);
    const fresh = writes && target === undefined ? tensor(dtype, [outputCount]) : undefined;
    const result = fresh ?? asTensor(target ?? input);
    const into = fresh === undefined ? bytesOf((target ?? input).region) : asBytes(fresh.data);
    const buffers: CallBuffers = {
      input: reads ? bytesOf(input.region) : NOTHING,
      output: writes ? into : NOTHING,
      operator: redop === undefined ? undefined : operatorOf(dtype, redop, size),
    };
    const part = agreedCount(call);
    const arrival = this.sequence.of(op, dtype, part, call);
    const run = this.#runner(arrival);
    const uses: MemoryUse[] = [];
    if (reads) uses.push({ region: input.region, writes: false });
    if (writes && fresh === undefined) uses.push({ region: (target ?? input).region, writes: true });
    return {
      op,
      arrival,
      work: this.#work(arrival, op),
      uses,
      sizeBytes: reportedCount(op as CollectiveName, size, part) * elementBytes,
      timeoutMs,
      start: (done) => {
        const schedule = scheduleOf(call, { rank: this.#place.rank, size, elementBytes }, part * elementBytes);
        const choice = `${op} ${schedule.name}`;
        this.choices.set(choice, (this.choices.get(choice) ?? 0) + 1);
        run(schedule, buffers, 0, done);
      },
      value: () => result,
      drop: run.drop,
    };
  }

  #pair({ call, input }: TensorCall, peer: number, timeoutMs: number): CallParts {
    const { op, dtype } = call;
    const arrival = this.sequence.of(op, dtype, input.count, { peer, outsideBatch: true });
    const { print, seq } = arrival;
    const name = { group: this.#key, lane: LANE.pair, seq, slot: 0 };
    const bytes = bytesOf(input.region);
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

  /** Makes what runs the schedules of one collective. */
  #runner({ seq, print }: Arrival) {
    let current: ScheduleRun | undefined;
    const group = this.#key;
    const lane = LANE.collective;
    const run = (schedule: Schedule, buffers: CallBuffers, firstSlot: number, done: () => void) => {
      const carrier: Carrier = {
        send: (to, slot, payload, extra, sent) => {
          const message = { group, lane, seq, slot: firstSlot + slot, print, extra, payload, done: sent };
          this.#inboxes[to]?.send(message);
        },
        receive: (from, slot, into, extra, arrived) => {
          const name = { group, lane, seq, slot: firstSlot + slot };
          this.#inboxes[from]?.receive(name, print, extra, into, arrived);
        },
      };
      current = new ScheduleRun(schedule, buffers, this.#context.reducer, carrier, done);
      current.start();
    };
    return Object.assign(run, { drop: () => current?.end() });
  }
}

function bytesOf({ storage, byteOffset, sizeBytes }: TensorCall["input"]["region"]): Uint8Array {
  return new Uint8Array(storage as ArrayBuffer, byteOffset, sizeBytes);
}

function asBytes(array: ArrayBufferView): Uint8Array {
  return new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);
}
