/**
 * From a recorded program to a plan, by the sound lowering or, on request, by the one that equals MSCCL++'s. The only
 * file of the compiler that knows both: nothing else here stands on mscclpp/.
 */
import { deepFreeze, InvalidArgumentError, PlanError } from "../../core/index.ts";
import {
  type ExecutionPlan,
  limitViolations,
  type PlanCollective,
  type PlanOptions,
  type RankPlan,
  segmentsOf,
} from "../plan/index.ts";
import { provePlanOnce, renderFindings } from "../verifier/index.ts";
import { type AutoSyncMode, lowerSound } from "./lower-program.ts";
import { checkPairing, lowerRank } from "./mscclpp/mscclpp-lowering.ts";
import type { Recorder } from "./recorder.ts";

/** A recorded program. */
export interface Program {
  readonly name: string;
  readonly collective: PlanCollective;
  readonly options: PlanOptions;
  readonly fusion: boolean;
  readonly autoSync: AutoSyncMode;
  readonly tags: Readonly<Record<string, string | number>>;
  readonly ranksPerNode: number;
  /** What was recorded. For `compile`. */
  readonly recorder: Recorder;
  /** The program's plan, compiled and proved when it is first asked for. @throws PlanError as `compile` does */
  readonly plan: () => ExecutionPlan;
}

export interface CompileOptions {
  /** `mscclpp`: exactly the plan that the MSCCL++ 0.9 DSL would make, its defects included. */
  readonly compat?: "mscclpp";
  /** `mscclpp`: refuse what its executor cannot hold. */
  readonly target?: "chorale" | "mscclpp";
  /** Prove the plan right (default, but for `compat`, which keeps upstream's mistakes). */
  readonly verify?: boolean;
  /** Hears the plan after each pass. */
  readonly onPass?: (pass: string, plan: ExecutionPlan) => void;
  /**
   * Called when `autoSync: "full"` has decided what to insert: most of what compiling holds at its peak, 280 bytes an
   * operation, is garbage from here on, and the plan is not made yet.
   */
  readonly onSynchronized?: () => void;
}

function planOf(p: Program, ranks: readonly RankPlan[], mode: ExecutionPlan["mode"], instances: number): ExecutionPlan {
  return {
    schemaVersion: 1,
    name: p.name,
    mode,
    collective: p.collective,
    options: { ...p.options, instances },
    ranks,
    sources: p.recorder.sources,
  };
}

/**
 * Compiles a program to a plan. Pure: the program can be compiled again.
 * @throws PlanError when the verifier finds the plan wrong: the program's synchronisation, or the program, is at fault
 * @throws PlanError with `target: "mscclpp"` when a limit of its executor is exceeded
 * @throws InvalidArgumentError when signals and waits do not pair
 */
export function compile(p: Program, options: CompileOptions = {}): ExecutionPlan {
  if (typeof p?.recorder !== "object") {
    throw new InvalidArgumentError(
      "program",
      p,
      "a Program, such as program(...) or an algorithm of the library returns",
    );
  }
  const compat = options.compat === "mscclpp";
  const plan = deepFreeze(compat ? compileCompat(p, options) : compileSound(p, options));
  if (options.target === "mscclpp") requireExecutor(plan);
  if (options.verify ?? !compat) requireProof(plan);
  return plan;
}

/** Places that an error lists in full. */
const MAX_SHOWN = 3;

function requireProof(plan: ExecutionPlan): void {
  const verdict = provePlanOnce(plan);
  if (verdict === undefined || verdict.ok) return;
  const errors = verdict.findings.filter((finding) => finding.severity === "error");
  throw new PlanError(plan.name ?? "program", errors, renderFindings(plan, errors, MAX_SHOWN));
}

function compileSound(p: Program, { onPass, onSynchronized }: CompileOptions): ExecutionPlan {
  const ranks = lowerSound(p.recorder, {
    collective: p.collective,
    segments: (rank) => segmentsOf(p.collective, rank),
    instances: p.options.instances,
    fusion: p.fusion,
    autoSync: p.autoSync,
    ...(onSynchronized === undefined ? {} : { onSynchronized }),
    ...(onPass === undefined
      ? {}
      : {
          onPass: (pass: string, make: () => readonly RankPlan[], instances: number) => {
            onPass(pass, deepFreeze(planOf(p, make(), "sound", instances)));
          },
        }),
  });
  return planOf(p, ranks, "sound", p.options.instances);
}

function compileCompat(p: Program, { onPass }: CompileOptions): ExecutionPlan {
  const ranks = [...compatRanks(p, true)].map((rank) => {
    const segments = segmentsOf(p.collective, rank.rank);
    return {
      ...rank,
      input: { ...rank.input, segments: segments.input },
      output: { ...rank.output, segments: segments.output },
    };
  });
  const plan = planOf(p, ranks, "mscclpp", p.options.instances);
  onPass?.("mscclpp", plan);
  return plan;
}

/**
 * Makes the ranks' plans as the MSCCL++ 0.9 DSL does, one at a time.
 * @param finished whether operations lose their synchronisation masks, as a plan needs
 * @throws InvalidArgumentError when signals and waits do not pair
 */
export function* compatRanks(p: Program, finished: boolean): Generator<RankPlan> {
  checkPairing(p.recorder);
  const options = { instances: p.options.instances, fusion: p.fusion, autoSync: p.autoSync !== "none", finished };
  for (const record of p.recorder.ranks) yield lowerRank(record, options);
}

/** @throws PlanError listing what the MSCCL++ executor cannot hold */
function requireExecutor(plan: ExecutionPlan): void {
  const problems = limitViolations(plan).map((violation) => {
    const at = violation.source === undefined ? undefined : plan.sources[violation.source];
    return {
      code: violation.limit,
      rank: violation.rank,
      strand: violation.strand,
      op: violation.op ?? -1,
      message: `${violation.message}, at rank ${violation.rank}, strand ${violation.strand}${at === undefined ? "" : ` (${at.file}:${at.line})`}`,
      hint: "fewer ranks, or fewer operations a strand, or compile for chorale's own executors",
    };
  });
  if (problems.length > 0) throw new PlanError(`${plan.name ?? "program"} for the MSCCL++ executor`, problems);
}
