/**
 * The steps of one collective, from its announcement to its end: as messages (eager-rings.ts), as a plan, or as a share of
 * everybody's buffers. Each step is taken up again where a wait broke it off.
 */
import { ChoraleError, type DType } from "../../../core/index.ts";
import type { KernelOp } from "../../executor/internal.ts";
import { RING_FULL } from "./eager-code.ts";
import type { EagerRings } from "./eager-rings.ts";
import { stampOf } from "./layout.ts";
import { type MoveGroup, moveShare } from "./move.ts";
import type { PeerCalls } from "./peer-calls.ts";
import type { PlanRuns } from "./plan-runs.ts";
import { type ExchangeCounts, PHASE, type RunningPlan, type ThreadsWork } from "./threads-work.ts";

/** The group's engine, as far as the steps of its calls use it. */
interface StepEngine extends MoveGroup {
  readonly member: number;
  readonly failure: ChoraleError | undefined;
  readonly plans: PlanRuns;
  readonly rings: EagerRings;
  readonly peerCalls: PeerCalls;
  useParameter(dtype: DType, op: KernelOp, value: number | bigint): void;
  publishCounts(counts: ExchangeCounts): void;
  finishWork(work: ThreadsWork<unknown>): void;
  failWork(work: ThreadsWork<unknown>, error: unknown): void;
  failGroup(error: ChoraleError): ChoraleError;
  mismatch(work: ThreadsWork<unknown>, problem?: string): void;
}

export class CallSteps {
  readonly #engine: StepEngine;

  constructor(engine: StepEngine) {
    this.#engine = engine;
  }

  /** Takes the head of the queue as far as the other ranks allow, polling at most `spins` times for one of them. */
  advance(work: ThreadsWork<unknown>, spins: number): void {
    const engine = this.#engine;
    if (engine.failure !== undefined) {
      engine.failWork(work, engine.failure);
      return;
    }
    const { wasm, member } = engine;
    const stamp = stampOf(work.seq);
    if (work.phase === PHASE.queued) {
      work.state = "running";
      if (work.counts !== undefined) engine.publishCounts(work.counts);
      if (work.run !== undefined && !this.#bind(work, work.run)) return;
      if (this.#isEager(work)) {
        work.meets = hasRoot(work.op);
        work.phase = PHASE.eager;
        this.advance(work, spins);
        return;
      }
      if (engine.failure !== undefined) return;
      wasm.publish(member, stamp, work.call, work.count, work.extra, work.input, work.output);
      work.phase = PHASE.arriving;
    }
    if (work.phase === PHASE.eager) {
      if (!this.#exchange(work, stamp, spins)) return;
      if (!work.meets) {
        engine.finishWork(work);
        return;
      }
      work.phase = PHASE.arriving;
    }
    if (work.phase === PHASE.arriving) {
      // Where no rank needs to wait for this one's end, some may be calls ahead.
      const isPassable = work.op === "barrier" || work.meets || work.run?.endsAlone === true;
      const status = wasm.arrived(member, stamp, spins, Number(isPassable));
      if (status !== 0) {
        // A peer that runs ahead may overwrite what it announced while it is compared: then we look again.
        if (engine.peerCalls.disagree(work, isPassable)) engine.mismatch(work);
        else if (status < 0) this.advance(work, spins);
        return;
      }
      if (work.meets) {
        engine.finishWork(work);
        return;
      }
      work.phase = PHASE.moving;
    }
    if (work.phase === PHASE.moving && work.run !== undefined) {
      engine.plans.arrived(work.seq);
      work.run.prepared.launch();
      work.phase = PHASE.strands;
    }
    if (work.phase === PHASE.strands && work.run !== undefined) {
      if (!work.run.prepared.run(spins)) return;
      if (work.run.endsAlone) {
        engine.finishWork(work);
        return;
      }
      wasm.finish(member, stamp);
      work.phase = PHASE.finishing;
    }
    if (work.phase === PHASE.moving) {
      if (work.parameter !== undefined) {
        engine.useParameter(work.parameter.dtype, work.parameter.op, work.parameter.value);
      }
      const problem = moveShare(engine, work);
      if (problem !== undefined) {
        engine.mismatch(work, problem);
        return;
      }
      if (work.op === "barrier") {
        engine.finishWork(work);
        return;
      }
      wasm.finish(member, stamp);
      work.phase = PHASE.finishing;
    }
    if (wasm.finished(member, stamp, spins) === 0) engine.finishWork(work);
  }

  /** Whether a call goes as messages; their rings are made for the first one. Without memory for them the group fails. */
  #isEager(work: ThreadsWork<unknown>): boolean {
    const engine = this.#engine;
    if (work.run !== undefined) return false;
    try {
      return engine.rings.open(work) && engine.rings.prepare(work) !== undefined;
    } catch (error) {
      if (!(error instanceof ChoraleError)) throw error;
      engine.failGroup(error);
      return false;
    }
  }

  /** Gets on with a small collective. @returns whether its messages have been sent and received */
  #exchange(work: ThreadsWork<unknown>, stamp: number, spins: number): boolean {
    const engine = this.#engine;
    const { wasm, member, rings } = engine;
    const task = rings.taskOf(work.code)!;
    if (work.parameter !== undefined) {
      engine.useParameter(work.parameter.dtype, work.parameter.op, work.parameter.value);
    }
    const step = (polls: number) => wasm.eager(member, task.at, stamp, polls);
    let status = step(spins);
    // A member that is past this call has sent all its messages of it.
    const missing = status > 0 && status < RING_FULL ? status - 1 : -1;
    const isPast = missing >= 0 && engine.peerCalls.isPast(missing, work.seq);
    if (isPast) status = step(0);
    if (status === 0) return true;
    const isLost = isPast && status === missing + 1;
    if (status < 0 || isLost || engine.peerCalls.disagree(work, true)) engine.mismatch(work);
    return false;
  }

  /** Sets a plan's sizes, when no other call of this rank runs it. @returns false when there was no memory, which all ranks learn */
  #bind(work: ThreadsWork<unknown>, { prepared, partBytes }: RunningPlan): boolean {
    const engine = this.#engine;
    try {
      prepared.bind(partBytes);
    } catch (error) {
      if (!(error instanceof ChoraleError)) throw error;
      engine.failGroup(error);
      return false;
    }
    if (work.parameter !== undefined) prepared.parameter(work.parameter.op, work.parameter.value);
    return true;
  }
}

/** Collectives whose root does not hear of all others, or they not of it. */
function hasRoot(op: string): boolean {
  return op === "broadcast" || op === "reduce" || op === "gather" || op === "scatter";
}
