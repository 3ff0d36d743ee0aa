/** `chorale bench FILE.ts` as library code: a program of the user's beside the built-in choice, over sizes. */
import { type ExecutionPlan, hashPlan, proofOf } from "../../../authoring/plan/index.ts";
import { provePlan } from "../../../authoring/verifier/index.ts";
import { OPERATION_NAMES, type OperationName } from "../../../collectives/index.ts";
import { InvalidArgumentError, PlanError, UnsupportedError } from "../../../core/index.ts";
import { type BackendName, type BackendOptions, backendKind, DEFAULT_BACKEND } from "../../../runtime/world/index.ts";
import type { BenchRedop, Drive } from "../collectives/bench-types.ts";
import { launchBench } from "../collectives/launch-bench.ts";
import { checkBench, DEFAULT_REPEATS } from "../collectives/run-bench.ts";
import { PROGRAM_ROW_PREFIX } from "./program-rank.ts";
import type { ProgramJob, ProgramRow } from "./program-types.ts";

const RANK_MODULE = "apps/bench/programs/program-rank";

export interface ProgramBenchOptions {
  readonly plan: ExecutionPlan;
  /** Sizes as nccl-tests prints them, bytes; see `sizeRange`. */
  readonly sizes: readonly number[];
  readonly backend?: BackendName;
  readonly backendOptions?: BackendOptions;
  readonly dtype?: ProgramJob["dtype"];
  readonly redop?: BenchRedop;
  readonly drive?: Drive;
  /** Calls per loop; chosen by time by default. */
  readonly iterations?: number;
  /** Loops per size, of which the median counts; 5 by default. */
  readonly repeats?: number;
  readonly warmup?: number;
  readonly check?: boolean;
  /** Called for each row when it is measured. */
  readonly onRow?: (row: ProgramRow) => void;
  readonly timeoutMs?: number;
}

/** The collective of a plan as an operation of the Communicator. @throws UnsupportedError for one that it does not have */
export function programOperation(plan: ExecutionPlan): OperationName {
  const { operation } = plan.collective;
  const found = OPERATION_NAMES.find((name) => name === operation);
  if (found !== undefined && found !== "barrier" && !found.endsWith("_v")) return found;
  const accepted = OPERATION_NAMES.filter((name) => name !== "barrier" && !name.endsWith("_v"));
  throw new UnsupportedError(
    `bench of a program for ${operation}`,
    `a program is measured beside the built-in ${accepted.join(", ")}`,
  );
}

/**
 * Measures a plan beside what the backend chooses for the same call, in the same loops. The plan is proved once, here.
 * @throws PlanError for a plan that is wrong, UnsupportedError for a collective that no call of the Communicator has, or
 *   a backend that runs no plans
 * @example
 * import { ringAllReduce } from "chorale/algorithms";
 * import { benchProgram } from "chorale/bench";
 *
 * const plan = ringAllReduce({ numRanks: 2 }).plan();
 * const rows = await benchProgram({ plan, sizes: [4096], iterations: 50, check: true });
 * console.log(rows[0]?.wrong, rows[0]?.builtIn.name); // 0 two-shot-kernel
 */
export async function benchProgram(options: ProgramBenchOptions): Promise<ProgramRow[]> {
  const { plan, backend = DEFAULT_BACKEND, dtype = "f32", redop = plan.collective.reduceOp ?? "sum" } = options;
  const op = programOperation(plan);
  const ranks = plan.ranks.length;
  const root = plan.collective.root ?? 0;
  await checkBench({ op, ranks, sizes: options.sizes, backend, dtype, redop, root });
  const kind = await backendKind(backend);
  if (kind.servesPlans !== true) {
    const accepted = "it is measured beside what a backend chooses, and that one does not choose among algorithms";
    throw new UnsupportedError(`bench of a program on ${backend}`, accepted);
  }
  const most = await kind.availableRanks();
  if (ranks > most) throw new InvalidArgumentError("-n", ranks, `at most ${most}, with the backend ${backend}`);
  if (proofOf(plan) === undefined) provePlan(plan);
  const proof = proofOf(plan);
  if (proof?.ok !== true) throw new PlanError(plan.name ?? "the plan", [], proof?.opinion);
  const job: ProgramJob = {
    op,
    dtype,
    redop,
    root,
    isolation: "thread",
    sizes: options.sizes,
    drive: options.drive ?? "wait",
    repeats: options.repeats ?? DEFAULT_REPEATS,
    check: options.check ?? false,
    inPlace: plan.collective.inPlace,
    contenders: [
      { kind: "choice", name: "built-in" },
      { kind: "plan", name: plan.name ?? hashPlan(plan), plan, endsAlone: proof.endsAlone() },
    ],
    ...(options.iterations === undefined ? {} : { iterations: options.iterations }),
    ...(options.warmup === undefined ? {} : { warmup: options.warmup }),
  };
  const world = { ...options, ranks, backend, module: RANK_MODULE, prefix: PROGRAM_ROW_PREFIX };
  return (await launchBench<ProgramRow[], ProgramJob, ProgramRow>(job, world)) ?? [];
}
