/**
 * Issues checked calls on world tensors without any step between: one object per call, no deadline before the first sleep.
 * Goes as far as the peers allow; what is left then is the group engine's.
 */
import type { DType, ReduceOp, Tensor } from "../../../core/index.ts";
import { packCall, type QuickWork, type UncheckedOptions, WIRE_OPS, type WireOp } from "../../comm/index.ts";
import { isRefused } from "./argument-checks.ts";
import { DoneWork } from "./done-work.ts";
import { LOOK_FIRST } from "./eager-call.ts";
import type { Task } from "./eager-rings.ts";
import { FastCall, resultOf } from "./fast-call.ts";
import type { GroupEngine } from "./group-engine.ts";
import { stampOf } from "./layout.ts";
import { COPY, moveShare, shareStart } from "./move.ts";
import { IN_SECOND_PHASE, IN_STRANDS } from "./protocol.ts";
import { PHASE, type RunningPlan, ThreadsWork } from "./threads-work.ts";

/** Up to this size a call stays until it is done if the peers are there; larger ones are left to `wait` or the event loop. */
export const EAGER_BYTES = 1024 * 1024;

/**
 * How much longer a call stays for the end of others that have come than for their coming: they are moving data, which takes some
 * of them half as long again, and a call that is left to `wait` costs some microseconds more.
 */
const endPatience = (bytes: number): number => 1 + Math.floor(bytes / (64 * 1024));

/** An operation: its name, and its number in tables and fingerprints. */
export interface CodedOp<O extends WireOp = WireOp> {
  readonly op: O;
  readonly code: number;
}
/** Made once: calls look nothing up. */
export const OPS = Object.fromEntries(WIRE_OPS.map((op, code) => [op, { op, code }])) as {
  readonly [O in WireOp]: CodedOp<O>;
};
const BARRIER_CALL = packCall("barrier", undefined, undefined, 0);

/** A plan that is ready for calls of one kind. */
interface Planned {
  /** Counts the calls, where a choice is served. */
  readonly choice: { calls: number } | undefined;
  /** The fingerprint's first word, as `packCall` makes it. */
  readonly word: number;
  /** Of the plan, in the fingerprint. */
  readonly extra: number;
  readonly detail: string;
  /** Whether this rank has an input and an output. */
  readonly reads: boolean;
  readonly writes: boolean;
  /** The prepared plan as a work of a size has it. */
  running(partBytes: number): RunningPlan;
}

/** Sets the size. @returns false when that failed */
function bind({ prepared, partBytes }: RunningPlan): boolean {
  return !isRefused(() => prepared.bind(partBytes));
}

/** The word of the last call of an operation: programs repeat themselves, and packing one looks up three words. */
interface LastWord {
  dtype: DType | undefined;
  redop: ReduceOp | undefined;
  root: number;
  word: number;
}

export class FastIssue {
  readonly #engine: GroupEngine;
  readonly #timeoutMs: number;
  /** By the operation's code. */
  readonly #calls: readonly FastCall[];
  /** By the operation's code. */
  readonly #lastWords: readonly LastWord[] = WIRE_OPS.map(() => ({
    dtype: undefined,
    redop: undefined,
    root: -1,
    word: 0,
  }));

  constructor(engine: GroupEngine, timeoutMs: number) {
    this.#engine = engine;
    this.#timeoutMs = timeoutMs;
    const { name, counters } = engine;
    this.#calls = WIRE_OPS.map((op, code) => new FastCall({ op, group: name }, counters.byCode[code]!));
  }

  #wordOf({ op, code }: CodedOp, dtype: DType, redop: ReduceOp | undefined, root: number): number {
    const last = this.#lastWords[code] as LastWord;
    if (last.dtype !== dtype || last.redop !== redop || last.root !== root) {
      last.word = packCall(op, dtype, redop, root);
      last.dtype = dtype;
      last.redop = redop;
      last.root = root;
    }
    return last.word;
  }

  /** The last call of an operation. */
  lastOf(code: number): FastCall {
    return this.#calls[code]!;
  }

  /** Begins a call on world tensors. Its arguments are right. */
  begin(
    op: CodedOp,
    typed: Tensor,
    redop: ReduceOp | undefined,
    root: number,
    input: number,
    output: number,
    count: number,
    bytes: number,
    kernel: number,
  ): FastCall {
    const call = this.#next(op);
    call.call = this.#wordOf(op, typed.dtype, redop, root);
    return this.#fill(call, op, typed, redop, root, input, output, count, bytes, kernel);
  }

  #fill(
    call: FastCall,
    { op, code }: CodedOp,
    typed: Tensor,
    redop: ReduceOp | undefined,
    root: number,
    input: number,
    output: number,
    count: number,
    bytes: number,
    kernel: number,
  ): FastCall {
    call.op = op;
    call.code = code;
    call.count = count;
    call.input = input;
    call.output = output;
    call.bytes = bytes;
    call.root = root;
    call.kernel = kernel;
    call.tensor = typed;
    call.redop = redop;
    return call;
  }

  #next({ op, code }: CodedOp): FastCall {
    const call = this.#calls[code]!;
    this.#forget(call);
    call.isRepeatable = false;
    call.code = code;
    call.op = op;
    call.extra = 0;
    this.#number(call);
    return call;
  }

  #number(call: FastCall): void {
    const engine = this.#engine;
    call.seq = engine.nextSeq++;
    engine.driver.count(call.seq);
    call.issuedAt = call.counter.isTimed ? performance.now() : -1;
  }

  /** The last call of an operation once more, where `FastCall.isLike` is true; undefined when it has to be looked at again. */
  again(call: FastCall, input: Tensor, options: UncheckedOptions): QuickWork<Tensor> | undefined {
    const engine = this.#engine;
    if (!engine.isIdle || engine.failure !== undefined) return undefined;
    const result = resultOf(input, options, call.given);
    const { task } = call;
    if (task !== undefined && task.version === call.version) return this.#againSmall(call, task, input, result);
    if (!engine.isSound) return undefined;
    this.#number(call);
    call.tensor = input;
    return call.code === OPS.all_reduce.code
      ? this.reduceAll(call, result)
      : this.run(call, result, call.reportedBytes);
  }

  /** A collective in messages once more. One call into WebAssembly does and notes it; of one that is done nothing else is kept. */
  #againSmall(call: FastCall, task: Task, input: Tensor, result: Tensor): QuickWork<Tensor> | undefined {
    const { driver, wasm, member, nextSeq: seq } = this.#engine;
    const { counter } = call;
    driver.count(seq);
    const issuedAt = counter.isTimed ? performance.now() : -1;
    const status = wasm.eagerCall(member, task.at, stampOf(seq), (seq / 2 ** 32) | 0, driver.issueSpins);
    if (status === LOOK_FIRST) return undefined;
    this.#engine.nextSeq = seq + 1;
    if (status !== 0) {
      call.seq = seq;
      call.issuedAt = issuedAt;
      call.tensor = input;
      return this.#hand(call, result, call.reportedBytes, PHASE.eager);
    }
    counter.calls++;
    counter.bytes += call.reportedBytes;
    if (issuedAt >= 0) counter.time((performance.now() - issuedAt) * 1000);
    return new DoneWork(seq, call.kind, result);
  }

  /** Keeps nothing of a call: its buffers may be dropped. */
  #forget(call: FastCall): void {
    call.tensor = undefined;
    if (call.parts === undefined && call.counts === undefined && call.run === undefined) return;
    call.parts = undefined;
    call.counts = undefined;
    call.detail = "";
    call.choice = undefined;
    call.run = undefined;
  }

  /** The work of a call that has to wait. */
  #work<T>(call: FastCall, result: T, reportedBytes: number): ThreadsWork<T> {
    const engine = this.#engine;
    const work = new ThreadsWork<T>(engine, call.seq, call.op);
    const { tensor, redop } = call;
    work.code = call.code;
    work.call = call.call;
    work.count = call.count;
    work.extra = call.extra;
    work.input = call.input;
    work.output = call.output;
    work.bytes = call.bytes;
    work.root = call.root;
    work.kernel = call.kernel;
    work.keep = tensor;
    if (redop === "avg" && tensor !== undefined) {
      work.parameter = { dtype: tensor.dtype, op: "avg", value: engine.size };
    }
    work.issuedAt = call.issuedAt;
    work.parts = call.parts;
    work.counts = call.counts;
    work.detail = call.detail;
    work.choice = call.choice;
    work.run = call.run;
    work.reportedBytes = reportedBytes;
    work.timeoutMs = this.#timeoutMs;
    work.harvest = () => result;
    this.#forget(call);
    return work;
  }

  /** Leaves a call that is begun to the group's engine. */
  #hand<T>(call: FastCall, result: T, reportedBytes: number, phase: number): ThreadsWork<T> {
    const engine = this.#engine;
    const work = this.#work(call, result, reportedBytes);
    engine.adopt(work, phase);
    engine.pump(phase === PHASE.queued ? engine.driver.issueSpins : 0);
    return work;
  }

  /** A collective in messages. The engine makes the rings for the first one. */
  #small(call: FastCall, result: Tensor, reportedBytes: number): QuickWork<Tensor> {
    const { rings, driver, wasm, member } = this.#engine;
    const task = rings.prepare(call);
    if (task === undefined) return this.#hand(call, result, reportedBytes, PHASE.queued);
    call.task = task;
    call.version = task.version;
    const status = wasm.eager(member, task.at, stampOf(call.seq), driver.issueSpins);
    if (status === 0) return this.#end(call, result, reportedBytes, 0);
    return this.#hand(call, result, reportedBytes, PHASE.eager);
  }

  /** Goes as far as the peers allow without sleeping. */
  run(call: FastCall, result: Tensor, reportedBytes: number): QuickWork<Tensor> {
    const engine = this.#engine;
    const { wasm, member, rings } = engine;
    if (rings.isEager(call.code, call.bytes)) return this.#small(call, result, reportedBytes);
    const spins = reportedBytes <= EAGER_BYTES ? engine.driver.issueSpins : 0;
    const stamp = stampOf(call.seq);
    const { count, extra, input, output } = call;
    let status = wasm.enter(member, stamp, call.call, count, extra, input, output, spins);
    if (status === 0 && reportedBytes > EAGER_BYTES) status = 1;
    if (status === 0) {
      const problem = moveShare(engine, call);
      if (problem !== undefined) {
        const work = this.#work(call, result, reportedBytes);
        engine.adopt(work, PHASE.arriving);
        engine.mismatch(work, problem);
        return work;
      }
      status = wasm.leave(member, stamp, spins);
      if (status !== 0) status += IN_SECOND_PHASE;
    }
    return this.#end(call, result, reportedBytes, status);
  }

  /**
   * A call that a plan serves: one call into WebAssembly where all are there, and nothing is noted of a call that is done then.
   * The arguments are those of `begin`.
   */
  plan<T>(
    planned: Planned,
    op: CodedOp,
    typed: Tensor,
    redop: ReduceOp | undefined,
    root: number,
    from: number,
    to: number,
    count: number,
    part: number,
    result: T,
    reportedBytes: number,
  ): QuickWork<T> {
    const input = planned.reads ? from : 0;
    const output = planned.writes ? to : 0;
    const { word, extra } = planned;
    const running = planned.running(part);
    const { prepared, endsAlone, use } = running;
    if (reportedBytes > EAGER_BYTES || !(prepared.isBoundTo(part) || bind(running))) {
      const call = this.begin(op, typed, redop, root, input, output, count, part, COPY);
      return this.#latePlan(planned, call, result, reportedBytes);
    }
    const engine = this.#engine;
    const { wasm, member, driver } = engine;
    const seq = engine.nextSeq++;
    driver.count(seq);
    const fast = this.#calls[op.code]!;
    const issuedAt = fast.counter.isTimed ? performance.now() : -1;
    use.seq = seq;
    const [context, spins, alone] = [prepared.context, driver.issueSpins, endsAlone ? 1 : 0];
    const end = spins * endPatience(reportedBytes);
    const status = wasm.runPlan(member, stampOf(seq), word, count, extra, input, output, context, spins, alone, end);
    if (status === 0 || status >= IN_SECOND_PHASE) {
      if (engine.plans.hasRetired) engine.plans.arrived(seq);
      if (prepared.hasOutgrown) prepared.giveBackOutgrown();
    }
    if (status === 0) {
      if (planned.choice !== undefined) planned.choice.calls++;
      return this.#done(seq, fast, word, count, issuedAt, result, reportedBytes);
    }
    const call = this.#fill(fast, op, typed, redop, root, input, output, count, part, COPY);
    call.isRepeatable = false;
    call.seq = seq;
    call.call = word;
    call.issuedAt = issuedAt;
    this.#serve(call, planned);
    return this.#left(call, result, reportedBytes, status);
  }

  /** A plan that does not run now: it is large, or the group fails for want of memory. The engine meets that error again. */
  #latePlan<T>(planned: Planned, call: FastCall, result: T, reportedBytes: number): QuickWork<T> {
    const { wasm, member } = this.#engine;
    const running = planned.running(call.bytes);
    running.use.seq = call.seq;
    const isBound = bind(running);
    this.#serve(call, planned);
    if (!isBound) return this.#hand(call, result, reportedBytes, PHASE.queued);
    wasm.publish(member, stampOf(call.seq), call.call, call.count, call.extra, call.input, call.output);
    return this.#left(call, result, reportedBytes, 1);
  }

  /** Notes what serves a call that has to wait: of one that is done at once nobody asks. */
  #serve(call: FastCall, planned: Planned): void {
    call.choice = planned.choice;
    call.extra = planned.extra;
    call.detail = planned.detail;
    call.run = planned.running(call.bytes);
  }

  /** Ends a call of this status, or leaves what is missing to the engine. */
  #end<T>(call: FastCall, result: T, reportedBytes: number, status: number): QuickWork<T> {
    if (status !== 0) return this.#left(call, result, reportedBytes, status);
    const done = this.#done(call.seq, call, call.call, call.count, call.issuedAt, result, reportedBytes);
    this.#forget(call);
    return done;
  }

  /** Counts a call that is done, and notes it for the flight recorder. */
  #done<T>(
    seq: number,
    { kind, counter }: FastCall,
    word: number,
    count: number,
    issuedAt: number,
    result: T,
    reportedBytes: number,
  ): QuickWork<T> {
    const engine = this.#engine;
    counter.calls++;
    counter.bytes += reportedBytes;
    if (issuedAt >= 0) counter.time((performance.now() - issuedAt) * 1000);
    engine.flight.note(engine.block, seq, word, count, 1);
    return new DoneWork<T>(seq, kind, result);
  }

  /** Leaves what is missing of a call to the engine. */
  #left<T>(call: FastCall, result: T, reportedBytes: number, status: number): QuickWork<T> {
    const engine = this.#engine;
    const work = this.#work(call, result, reportedBytes);
    const phase = status >= IN_STRANDS ? PHASE.strands : status >= IN_SECOND_PHASE ? PHASE.finishing : PHASE.arriving;
    engine.adopt(work, phase);
    // The engine looks at the difference again, and reports it.
    if (status < 0) engine.pump(0);
    return work;
  }

  /** An all-reduce: one call into WebAssembly where all are there. */
  reduceAll(call: FastCall, result: Tensor): QuickWork<Tensor> {
    const engine = this.#engine;
    const { wasm, member, rings, size: n, me } = engine;
    const { bytes, input, output, kernel } = call;
    if (rings.isEager(call.code, bytes)) return this.#small(call, result, bytes);
    const stamp = stampOf(call.seq);
    let status: number;
    if (bytes <= EAGER_BYTES) {
      const start = shareStart(bytes, me, n);
      const end = shareStart(bytes, me + 1, n);
      const spins = engine.driver.issueSpins;
      status = wasm.twoShot(member, stamp, call.call, call.count, 0, input, output, start, end, kernel, spins);
    } else {
      wasm.publish(member, stamp, call.call, call.count, 0, input, output);
      status = 1;
    }
    return this.#end(call, result, bytes, status);
  }

  barrier(): QuickWork<void> {
    const { wasm, member, driver } = this.#engine;
    const call = this.#next(OPS.barrier);
    call.call = BARRIER_CALL;
    call.count = 0;
    call.input = 0;
    call.output = 0;
    call.bytes = 0;
    call.redop = undefined;
    const status = wasm.enter(member, stampOf(call.seq), BARRIER_CALL, 0, 0, 0, 0, driver.issueSpins);
    return this.#end(call, undefined, 0, status);
  }
}
