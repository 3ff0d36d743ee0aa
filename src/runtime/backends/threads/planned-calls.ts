/**
 * Calls on world tensors that a plan serves, found again without text: by operation, dtype, operator, root, size and what the
 * call names with `algorithm:`. Plans and names that nobody has used yet, and values that cannot go through a plan as they
 * are, are left to the careful path.
 */
import type { CollectiveName } from "../../../collectives/index.ts";
import type { DType, NamedReduceOp } from "../../../core/index.ts";
import { packCall, rolesOf } from "../../comm/index.ts";
import {
  type Choice,
  type Choices,
  isCarriedAsIs,
  knownPlanOf,
  SERVED_OPINION,
  type ServingPlan,
} from "../../executor/internal.ts";
import type { CodedOp } from "./fast-issue.ts";
import type { PlanRun, PlanRuns } from "./plan-runs.ts";
import { plainExtra, planDetail } from "./plan-work.ts";
import { type RunningPlan, runningPlan } from "./threads-work.ts";

/** The group, as far as its plans need it. */
interface PlannedGroup {
  readonly me: number;
  readonly size: number;
  readonly choices: Choices;
  readonly plans: PlanRuns;
}

/** Choices that are remembered for one operation: programs with more of them look some up again. */
const MAX_KNOWN = 64;

/** What tells calls of one operation apart, beside their sizes. */
interface CallKey {
  readonly dtype: DType;
  readonly redop: NamedReduceOp | undefined;
  readonly root: number;
  /** What the call names; absent where tables choose. */
  readonly algorithm: string | undefined;
}

/** What serves calls of one operation, key and range of sizes. */
class PlannedCall implements CallKey {
  readonly dtype: DType;
  readonly redop: NamedReduceOp | undefined;
  readonly root: number;
  readonly algorithm: string | undefined;
  readonly word: number;
  readonly choice: Choice;
  /** A kernel serves them: nothing else is set. */
  readonly isKernel: boolean;
  readonly detail: string = "";
  /** Whether this rank has an input and an output. */
  readonly reads: boolean;
  readonly writes: boolean;
  readonly #group: PlannedGroup;
  readonly #serving: ServingPlan | undefined;
  /** The values go through the plan as they are. */
  readonly #isPlain: boolean;
  /** A size that it served: programs repeat themselves. */
  #lastBytes = -1;
  /** A result that lies on the input was seen, and is right. */
  #mayOverlap = false;
  #run: PlanRun | undefined;
  #running: RunningPlan | undefined;
  #extra = 0;

  constructor(group: PlannedGroup, op: CollectiveName, { dtype, redop, root, algorithm }: CallKey, choice: Choice) {
    this.dtype = dtype;
    this.redop = redop;
    this.root = root;
    this.algorithm = algorithm;
    this.word = packCall(op, dtype, redop, root);
    this.choice = choice;
    this.isKernel = choice.served.kind === "kernel";
    this.#group = group;
    this.#serving = this.isKernel ? undefined : knownPlanOf(choice, root);
    const { reads, writes } = rolesOf({ op, rank: group.me, root });
    this.reads = reads;
    this.writes = writes && this.#serving?.plan.ranks[group.me]?.output.chunks !== 0;
    this.#isPlain = false;
    if (this.#serving === undefined) return;
    const { plan, hash } = this.#serving;
    this.#isPlain = isCarriedAsIs({ plan, dtype, op: redop ?? "sum" });
    this.detail = planDetail({ plan, hash, opinion: SERVED_OPINION });
  }

  /** Whether it serves a call of this kind and size. */
  isFor(
    dtype: DType,
    redop: NamedReduceOp | undefined,
    root: number,
    bytes: number,
    algorithm: string | undefined,
  ): boolean {
    const isKind = this.dtype === dtype && this.redop === redop && this.root === root;
    return isKind && this.algorithm === algorithm && (bytes === this.#lastBytes || this.#reaches(bytes));
  }

  #reaches(bytes: number): boolean {
    const { fromBytes, toBytes } = this.choice;
    if (bytes < fromBytes || bytes >= toBytes) return false;
    this.#lastBytes = bytes;
    return true;
  }

  /** Whether it was made before its plan was: then it has to be made again. */
  get isEarly(): boolean {
    return !this.isKernel && this.#serving === undefined;
  }

  /** Of the plan, in the fingerprint. */
  get extra(): number {
    return this.#extra;
  }

  /**
   * Sees to it that the plan is prepared. @param overlaps the result lies on the input
   * @returns false for a call that has to take the careful path
   */
  prepare(overlaps: boolean): boolean {
    return this.#run?.use.isKept === true && (!overlaps || this.#mayOverlap) ? true : this.#prepareAnew(overlaps);
  }

  #prepareAnew(overlaps: boolean): boolean {
    const serving = this.#serving;
    if (serving === undefined || !this.#isPlain || (overlaps && !serving.worksInPlace())) return false;
    this.#mayOverlap ||= overlaps;
    const { plans, size } = this.#group;
    const op = this.redop ?? "sum";
    const run = plans.open(serving.plan, serving.hash, this.dtype, op);
    if (op === "avg") run.prepared.parameter(op, size);
    this.#run = run;
    this.#running = undefined;
    this.#extra = plainExtra(run.hashWord);
    return true;
  }

  /** The prepared plan as a work of a size has it. */
  running(partBytes: number): RunningPlan {
    const known = this.#running;
    if (known?.partBytes === partBytes) return known;
    const { plan, endsAlone } = this.#serving as ServingPlan;
    this.#running = runningPlan(this.#run as PlanRun, plan, partBytes, endsAlone);
    return this.#running;
  }
}

export class PlannedCalls {
  readonly #group: PlannedGroup;
  /** By the operation's code, the last one used first. */
  readonly #known: PlannedCall[][] = [];

  constructor(group: PlannedGroup) {
    this.#group = group;
  }

  /**
   * What serves a call: see `PlannedCall`. `bytes`: of the larger of a rank's two buffers.
   * @returns undefined for an algorithm that no call has named yet
   */
  find(
    { op, code }: CodedOp<CollectiveName>,
    dtype: DType,
    redop: NamedReduceOp | undefined,
    root: number,
    bytes: number,
    algorithm: string | undefined,
  ): PlannedCall | undefined {
    const last = this.#known[code]?.[0];
    if (last?.isFor(dtype, redop, root, bytes, algorithm) === true) return last;
    return this.#search(code, op, { dtype, redop, root, algorithm }, bytes);
  }

  #search(code: number, op: CollectiveName, key: CallKey, bytes: number): PlannedCall | undefined {
    const { dtype, redop, root, algorithm } = key;
    this.#known[code] ??= [];
    const known = this.#known[code];
    for (let i = 0; i < known.length; i++) {
      const one = known[i] as PlannedCall;
      if (!one.isFor(dtype, redop, root, bytes, algorithm)) continue;
      if (i > 0) {
        known[i] = known[0] as PlannedCall;
        known[0] = one;
      }
      return one;
    }
    const { choices } = this.#group;
    const choice = algorithm === undefined ? choices.choose(op, dtype, bytes) : choices.knownName(op, algorithm);
    if (choice === undefined) return undefined;
    const made = new PlannedCall(this.#group, op, key, choice);
    if (made.isEarly) return made;
    if (known.length >= MAX_KNOWN) known.pop();
    known.unshift(made);
    return made;
  }
}
