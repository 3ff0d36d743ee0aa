/**
 * Issues checked calls on world tensors without any step between: one object per call, no deadline before the first sleep.
 * Goes as far as the peers allow; what is left then is the group engine's.
 */
import type { DType, ReduceOp, Tensor } from "../../../core/index.ts";
import { opCode, type PendingWork, packCall, WIRE_OPS, type WireOp } from "../../comm/index.ts";
import { DoneWork } from "./done-work.ts";
import type { GroupEngine } from "./group-engine.ts";
import { stampOf } from "./layout.ts";
import { moveShare, shareStart } from "./move.ts";
import { IN_SECOND_PHASE, IN_STRANDS } from "./protocol.ts";
import { PHASE, type RunningPlan, ThreadsWork } from "./threads-work.ts";

/** Up to this size a call stays until it is done if the peers are there; larger ones are left to `wait` or the event loop. */
export const EAGER_BYTES = 1024 * 1024;

const ALL_REDUCE = opCode("all_reduce");

/** A plan that is ready for calls of one kind. */
export interface Planned {
  /** Counts the calls, where a choice is served. */
  readonly choice: { calls: number } | undefined;
  /** Of the plan, in the fingerprint. */
  readonly extra: number;
  readonly detail: string;
  /** Whether this rank has an input and an output. */
  readonly reads: boolean;
  readonly writes: boolean;
  /** The prepared plan as a work of a size has it. */
  running(partBytes: number): RunningPlan;
  /** Sets the size. @returns false when that failed */
  bind(partBytes: number): boolean;
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
  readonly #lastWords: readonly LastWord[] = WIRE_OPS.map(() => ({
    dtype: undefined,
    redop: undefined,
    root: -1,
    word: 0,
  }));

  constructor(engine: GroupEngine, timeoutMs: number) {
    this.#engine = engine;
    this.#timeoutMs = timeoutMs;
  }

  #wordOf(code: number, op: WireOp, dtype: DType, redop: ReduceOp | undefined, root: number): number {
    const last = this.#lastWords[code] as LastWord;
    if (last.dtype !== dtype || last.redop !== redop || last.root !== root) {
      last.word = packCall(op, dtype, redop, root);
      last.dtype = dtype;
      last.redop = redop;
      last.root = root;
    }
    return last.word;
  }

  /** Counts a call. @returns its number */
  #next(): number {
    const engine = this.#engine;
    const seq = engine.nextSeq++;
    engine.driver.count(seq);
    return seq;
  }

  /** When a call was issued, if this call is timed; -1 otherwise. */
  #issuedAt(): number {
    return this.#engine.sampled() ? performance.now() : -1;
  }

  /** Makes the work of a call on world tensors. Its arguments are right. */
  begin<T = Tensor>(
    code: number,
    op: WireOp,
    typed: Tensor,
    redop: ReduceOp | undefined,
    root: number,
    input: number,
    output: number,
    count: number,
    bytes: number,
    kernel: number,
    seq = this.#next(),
    issuedAt = this.#issuedAt(),
  ): ThreadsWork<T> {
    const engine = this.#engine;
    const work = new ThreadsWork<T>(engine, seq, op);
    work.code = code;
    work.call = this.#wordOf(code, op, typed.dtype, redop, root);
    work.count = count;
    work.input = input;
    work.output = output;
    work.bytes = bytes;
    work.root = root;
    work.keep = typed;
    work.kernel = kernel;
    if (redop === "avg") work.parameter = { dtype: typed.dtype, op: "avg", value: engine.size };
    work.issuedAt = issuedAt;
    return work;
  }

  /** Whether a collective of equal parts goes in messages. */
  isSmall(code: number, bytes: number): boolean {
    return this.#engine.rings.isEager(code, bytes);
  }

  /** A collective in messages. The engine makes the rings for the first one. A work that can wait is made where it has to. */
  small(
    code: number,
    op: WireOp,
    typed: Tensor,
    redop: ReduceOp | undefined,
    root: number,
    input: number,
    output: number,
    count: number,
    bytes: number,
    kernel: number,
    result: Tensor,
    reportedBytes: number,
  ): PendingWork<Tensor> {
    const { rings, driver, wasm, member } = this.#engine;
    const seq = this.#next();
    const issuedAt = this.#issuedAt();
    let phase: number = PHASE.queued;
    if (rings.prepare(op, code, bytes, root, kernel)) {
      const call = this.#wordOf(code, op, typed.dtype, redop, root);
      const status = wasm.eager(member, stampOf(seq), call, count, 0, input, output, driver.issueSpins);
      if (status === 0) return this.#done(seq, op, code, call, count, result, reportedBytes, issuedAt);
      phase = PHASE.eager;
    }
    const work = this.begin(code, op, typed, redop, root, input, output, count, bytes, kernel, seq, issuedAt);
    return this.#hand(work, result, reportedBytes, phase);
  }

  /** Ends a call that is done as it is issued. */
  #done(
    seq: number,
    op: WireOp,
    code: number,
    call: number,
    count: number,
    result: Tensor,
    reportedBytes: number,
    issuedAt: number,
  ): DoneWork<Tensor> {
    const engine = this.#engine;
    const counter = engine.counters.byCode[code]!;
    counter.calls++;
    counter.bytes += reportedBytes;
    if (issuedAt >= 0) counter.time((performance.now() - issuedAt) * 1000);
    engine.flight.note(engine.block, seq, call, count, 1);
    return new DoneWork<Tensor>(seq, op, engine.name, result);
  }

  /** Leaves a call that is begun to the group's engine. */
  #hand<T>(work: ThreadsWork<T>, result: T, reportedBytes: number, phase: number): ThreadsWork<T> {
    const engine = this.#engine;
    work.reportedBytes = reportedBytes;
    work.timeoutMs = this.#timeoutMs;
    work.harvest = () => result;
    engine.adopt(work, phase);
    engine.pump(phase === PHASE.queued ? engine.driver.issueSpins : 0);
    return work;
  }

  /** Goes as far as the peers allow without sleeping. */
  run(work: ThreadsWork<Tensor>, result: Tensor, reportedBytes: number): ThreadsWork<Tensor> {
    const engine = this.#engine;
    const { wasm, member } = engine;
    const spins = reportedBytes <= EAGER_BYTES ? engine.driver.issueSpins : 0;
    const stamp = stampOf(work.seq);
    const { call, count, extra, input, output } = work;
    let status = wasm.enter(member, stamp, call, count, extra, input, output, spins);
    if (status === 0 && reportedBytes > EAGER_BYTES) status = 1;
    if (status === 0) {
      const problem = moveShare(engine, work);
      if (problem !== undefined) {
        this.end(work, result, reportedBytes, 1);
        engine.mismatch(work, problem);
        return work;
      }
      status = wasm.leave(member, stamp, spins);
      if (status !== 0) status += IN_SECOND_PHASE;
    }
    return this.end(work, result, reportedBytes, status);
  }

  /** A call that a plan serves: one call into WebAssembly where all are there. */
  plan<T>(planned: Planned, work: ThreadsWork<T>, result: T, reportedBytes: number): ThreadsWork<T> {
    const engine = this.#engine;
    const { wasm, member, driver } = engine;
    work.choice = planned.choice;
    work.extra = planned.extra;
    work.detail = planned.detail;
    work.run = planned.running(work.bytes);
    if (!planned.reads) work.input = 0;
    if (!planned.writes) work.output = 0;
    // Without memory for this size the group fails: the engine meets the error again, and reports it.
    if (!planned.bind(work.bytes)) return this.#hand(work, result, reportedBytes, PHASE.queued);
    const stamp = stampOf(work.seq);
    const { call, count, extra, input, output, run } = work;
    if (reportedBytes > EAGER_BYTES) {
      wasm.publish(member, stamp, call, count, extra, input, output);
      return this.end(work, result, reportedBytes, 1);
    }
    const { prepared, endsAlone } = run;
    const [context, spins, alone] = [prepared.context, driver.issueSpins, Number(endsAlone)];
    const status = wasm.runPlan(member, stamp, call, count, extra, input, output, context, spins, alone);
    if (status === 0 || status >= IN_SECOND_PHASE) {
      engine.plans.arrived(work.seq);
      prepared.giveBackOutgrown();
    }
    return this.end(work, result, reportedBytes, status);
  }

  /** Ends a call of this status, or leaves what is missing to the engine. */
  end<T>(work: ThreadsWork<T>, result: T, reportedBytes: number, status: number): ThreadsWork<T> {
    const engine = this.#engine;
    if (status === 0) {
      work.completeNow(result);
      const counter = engine.counters.byCode[work.code]!;
      counter.calls++;
      counter.bytes += reportedBytes;
      if (work.choice !== undefined) work.choice.calls++;
      if (work.issuedAt >= 0) counter.time((performance.now() - work.issuedAt) * 1000);
      engine.flight.note(engine.block, work.seq, work.call, work.count, 1);
      return work;
    }
    work.reportedBytes = reportedBytes;
    work.timeoutMs = this.#timeoutMs;
    work.harvest = () => result;
    const phase = status >= IN_STRANDS ? PHASE.strands : status >= IN_SECOND_PHASE ? PHASE.finishing : PHASE.arriving;
    engine.adopt(work, phase);
    // The engine looks at the difference again, and reports it.
    if (status < 0) engine.pump(0);
    return work;
  }

  /** An all-reduce: one call into WebAssembly where all are there. */
  reduceAll(
    input: Tensor,
    output: Tensor,
    redop: ReduceOp,
    from: number,
    to: number,
    bytes: number,
    kernel: number,
  ): PendingWork<Tensor> {
    const engine = this.#engine;
    const { wasm, member, rings, size: n, me } = engine;
    const count = input.size;
    if (rings.isEager(ALL_REDUCE, bytes)) {
      return this.small(ALL_REDUCE, "all_reduce", input, redop, 0, from, to, count, bytes, kernel, output, bytes);
    }
    const seq = this.#next();
    const issuedAt = this.#issuedAt();
    const call = this.#wordOf(ALL_REDUCE, "all_reduce", input.dtype, redop, 0);
    const stamp = stampOf(seq);
    let status: number;
    if (bytes <= EAGER_BYTES) {
      const start = shareStart(bytes, me, n);
      const end = shareStart(bytes, me + 1, n);
      const spins = engine.driver.issueSpins;
      status = wasm.twoShot(member, stamp, call, count, 0, from, to, start, end, kernel, spins);
      if (status === 0) return this.#done(seq, "all_reduce", ALL_REDUCE, call, count, output, bytes, issuedAt);
    } else {
      wasm.publish(member, stamp, call, count, 0, from, to);
      status = 1;
    }
    const work = this.begin(ALL_REDUCE, "all_reduce", input, redop, 0, from, to, count, bytes, kernel, seq, issuedAt);
    return this.end(work, output, bytes, status);
  }
}
