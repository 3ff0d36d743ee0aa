/**
 * Runs of a plan that this group has run before, on world tensors and without options: `comm.run` in a loop costs what the
 * same plan costs as a choice. What is learnt of a run is what the careful path found (plan-call.ts, plan-work.ts); a call
 * that differs in anything but its size takes that path again.
 */
import { checkPartBytes, type ExecutionPlan, proofOf, type RankPlan } from "../../../authoring/plan/index.ts";
import { type DType, type NamedReduceOp, type ReduceOp, sizeOf, type Tensor } from "../../../core/index.ts";
import { packCall, type QuickWork, type Runnable, type RunOptions } from "../../comm/index.ts";
import { type Choice, isCarriedAsIs, type TunedRun } from "../../executor/internal.ts";
import { apart, isRefused } from "./argument-checks.ts";
import { FastIssue, OPS } from "./fast-issue.ts";
import type { GroupEngine } from "./group-engine.ts";
import type { PlanRun } from "./plan-runs.ts";
import { plainExtra, planDetail } from "./plan-work.ts";
import { type Arena, ownTensor } from "./storage.ts";
import { type RunningPlan, runningPlan } from "./threads-work.ts";

/** Runs that are remembered: programs with more of them take the careful path for some. */
const MAX_KNOWN = 16;

/** A run as it was checked: all but the buffers, and the size, which may change. */
class KnownRun {
  /** What tables say of the program, for a range of sizes. */
  readonly choice: Choice | undefined;
  /** As the program has it; what runs is the choice's. */
  readonly given: ExecutionPlan;
  readonly plan: ExecutionPlan;
  readonly dtype: DType;
  readonly op: NamedReduceOp;
  readonly word: number;
  readonly extra: number;
  readonly detail: string;
  readonly reads: boolean;
  readonly writes: boolean;
  readonly run: PlanRun;
  readonly #endsAlone: boolean;
  /** Parts of this rank's buffers. */
  readonly #inputParts: number;
  readonly #outputParts: number;
  #inputBytes = -1;
  #outputBytes = -1;
  #running: RunningPlan | undefined;

  constructor(given: ExecutionPlan, { call, choice }: TunedRun, rank: number, run: PlanRun) {
    const { plan } = call;
    this.given = given;
    this.choice = choice;
    const { input, output } = plan.ranks[rank] as RankPlan;
    const { exact } = run.prepared.shape;
    this.plan = plan;
    this.dtype = call.dtype;
    this.op = call.op as NamedReduceOp;
    this.word = packCall("run", this.dtype, this.op, 0);
    this.extra = plainExtra(run.hashWord);
    this.detail = planDetail(call);
    this.reads = input.chunks !== 0;
    this.writes = output.chunks !== 0;
    this.run = run;
    this.#endsAlone = call.endsAlone;
    this.#inputParts = exact ? input.chunks : input.segments;
    this.#outputParts = exact ? output.chunks : output.segments;
  }

  /** Whether the choice is for buffers of these sizes. */
  serves(inputBytes: number, outputBytes: number): boolean {
    if (this.choice === undefined) return true;
    const { mostParts } = this.run.prepared.shape;
    const bytes = mostParts * (this.reads ? inputBytes / this.#inputParts : outputBytes / this.#outputParts);
    return bytes >= this.choice.fromBytes && bytes < this.choice.toBytes;
  }

  /** Bytes of a part for buffers of these sizes; -1 for sizes that the plan refuses. */
  partBytes(inputBytes: number, outputBytes: number): number {
    const known = this.#running;
    if (known !== undefined && inputBytes === this.#inputBytes && outputBytes === this.#outputBytes) {
      return known.partBytes;
    }
    const { minMessageSizeBytes: least, maxMessageSizeBytes: most } = this.plan.options;
    const message = Math.max(inputBytes, outputBytes);
    if (message < least || message > most) return -1;
    const partBytes = this.reads ? inputBytes / this.#inputParts : outputBytes / this.#outputParts;
    if (this.writes && partBytes * this.#outputParts !== outputBytes) return -1;
    const { shape } = this.run.prepared;
    if (partBytes % sizeOf(this.dtype) !== 0 || isRefused(() => checkPartBytes(shape, partBytes))) return -1;
    this.#inputBytes = inputBytes;
    this.#outputBytes = outputBytes;
    this.#running = runningPlan(this.run, this.plan, partBytes, this.#endsAlone);
    return partBytes;
  }

  /** Of the size that `partBytes` was asked for last. */
  running(): RunningPlan {
    return this.#running as RunningPlan;
  }
}

export class RepeatedRuns {
  readonly #engine: GroupEngine;
  readonly #arena: Arena;
  readonly #issue: FastIssue;
  /** The last one used first. */
  readonly #known: KnownRun[] = [];

  constructor(engine: GroupEngine, arena: Arena, timeoutMs: number) {
    this.#engine = engine;
    this.#arena = arena;
    this.#issue = new FastIssue(engine, timeoutMs);
  }

  /**
   * Remembers a run that was checked and issued, where its like can be issued without the checks.
   * @param given the program's plan, in whose place another one may have run
   */
  learn(given: ExecutionPlan, tuned: TunedRun): void {
    const { call, choice } = tuned;
    const { plan, hash, dtype, shared, op } = call;
    if (shared !== undefined || proofOf(plan)?.ok !== true) return;
    if (typeof op !== "string" || op === "avg" || !isCarriedAsIs(call)) return;
    const run = this.#engine.plans.open(plan, hash, dtype, op);
    if (this.#known.some((one) => one.run === run && one.given === given && one.choice === choice)) return;
    if (this.#known.length >= MAX_KNOWN) this.#known.pop();
    this.#known.unshift(new KnownRun(given, tuned, this.#engine.me, run));
  }

  /** Issues a run like one before; `undefined` for every other call, and for what is wrong with this one. */
  call(given: Runnable, options: RunOptions): QuickWork<Tensor | undefined> | undefined {
    const engine = this.#engine;
    if (this.#known.length === 0 || !engine.isIdle || typeof given !== "object" || given === null) return undefined;
    if (!isPlain(options)) return undefined;
    if (!engine.isSound) return undefined;
    const input = ownTensor(this.#arena, options.input);
    const output = ownTensor(this.#arena, options.output);
    if (input === undefined && options.input !== undefined) return undefined;
    if (output === undefined && options.output !== undefined) return undefined;
    const [from, inputBytes] = [input?.byteOffset ?? 0, input?.sizeBytes ?? 0];
    const [to, outputBytes] = [output?.byteOffset ?? 0, output?.sizeBytes ?? 0];
    const dtype = (input ?? output)?.dtype;
    const known = dtype === undefined ? undefined : this.#find(given, dtype, options.op, inputBytes, outputBytes);
    if (known === undefined || known.reads !== (input !== undefined) || known.writes !== (output !== undefined)) {
      return undefined;
    }
    if (output !== undefined && output.dtype !== dtype) return undefined;
    if (known.reads && known.writes && !apart(from, inputBytes, to, outputBytes)) return undefined;
    const partBytes = known.partBytes(inputBytes, outputBytes);
    if (partBytes < 0 || !known.run.use.isKept) return undefined;
    const typed = (input ?? output) as Tensor;
    const count = partBytes / sizeOf(known.dtype);
    const reported = Math.max(inputBytes, outputBytes);
    return this.#issue.plan(known, OPS.run, typed, known.op, 0, from, to, count, partBytes, output, reported);
  }

  #find(
    given: Runnable,
    dtype: DType,
    op: ReduceOp | undefined,
    inputBytes: number,
    outputBytes: number,
  ): KnownRun | undefined {
    const plan = "plan" in given && typeof given.plan === "function" ? given.plan() : (given as ExecutionPlan);
    for (let i = 0; i < this.#known.length; i++) {
      const one = this.#known[i] as KnownRun;
      if (one.given !== plan || one.dtype !== dtype || (op ?? plan.collective.reduceOp ?? "sum") !== one.op) continue;
      if (!one.serves(inputBytes, outputBytes)) continue;
      if (i > 0) {
        this.#known[i] = this.#known[0] as KnownRun;
        this.#known[0] = one;
      }
      return one;
    }
    return undefined;
  }
}

/** Whether a call has nothing but buffers and an operator. */
function isPlain(options: RunOptions): boolean {
  const { signal, timeoutMs, dtype, force } = options;
  const { algorithm } = options as { readonly algorithm?: unknown };
  return (
    signal === undefined &&
    timeoutMs === undefined &&
    dtype === undefined &&
    force === undefined &&
    algorithm === undefined
  );
}
