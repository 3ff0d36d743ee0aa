/**
 * `chorale tune FILE` as library code: variants of a user's program are compiled, proved, ranked by the simulator and measured
 * beside the program as written and what serves the collective otherwise, with every result checked. What is clearly faster
 * than the program as written takes its place in `comm.run`, size by size.
 */
import { planToJson } from "../../authoring/interchange/index.ts";
import { type ExecutionPlan, hashPlan, proofOf } from "../../authoring/plan/index.ts";
import type { CpuCosts } from "../../authoring/simulator/index.ts";
import { provePlan } from "../../authoring/verifier/index.ts";
import type { CollectiveName } from "../../collectives/index.ts";
import { type DType, InvalidArgumentError, PlanError, UnsupportedError } from "../../core/index.ts";
import { cpuTopology } from "../../machine/cost/index.ts";
import type { Isolation } from "../../runtime/comm/index.ts";
import {
  AS_WRITTEN,
  CHOICES_SCHEMA_VERSION,
  type ChoiceTable,
  isServed,
  SERVED_COLLECTIVES,
  type StoredPlan,
} from "../../runtime/executor/internal.ts";
import { type BackendName, backendKind } from "../../runtime/world/index.ts";
import { checkBench } from "../bench/index.ts";
import type { Contender } from "../bench/internal.ts";
import { rankCandidates } from "./candidates.ts";
import { graphCallsOf } from "./device-candidates.ts";
import { BUDGET_S, HOW_MEASURED, measured, requireSizes, requireTunable } from "./measuring-world.ts";
import {
  type ProgramSearch,
  type ProgramSource,
  type ProgramVariant,
  type RankingMachine,
  rankOnDevices,
  shapedLabels,
  variantsOf,
} from "./program-variants.ts";
import { chosenOf, type TunedSize, tableOf } from "./tune-collective.ts";
import type { TuneFigure, TuneJob } from "./tune-types.ts";

/** Variants that are measured on cores at one size. */
const MOST_ON_CORES = 4;

export interface TuneProgramOptions {
  /** The program as written, and what it is with other arguments. */
  readonly sources: readonly [ProgramSource, ...ProgramSource[]];
  /** Sizes, bytes of the larger of a rank's two buffers, ascending. */
  readonly sizes: readonly number[];
  readonly dtype?: DType;
  readonly backend?: BackendName;
  /** What ranks run in. Threads by default. */
  readonly isolation?: Isolation;
  readonly search?: ProgramSearch;
  /** Constants by which variants are ranked on cores. */
  readonly costs: CpuCosts;
  /** The machine on which variants for devices are ranked; all of them are measured where it is absent. */
  readonly rankedOn?: RankingMachine;
  readonly budgetSeconds?: number;
  /** Calls of a loop, and of a graph where one is timed; chosen by time by default. */
  readonly iterations?: number;
  /** Is told what is going on. */
  readonly onProgress?: (text: string) => void;
}

/** One size of a program: `shipped` is the program as written. */
export interface TunedProgramSize extends TunedSize {
  /** What serves the collective where no program is run. */
  readonly builtIn: TuneFigure;
  /** On devices, where that is not what serves it. */
  readonly nccl?: TuneFigure;
}

export interface TuneProgramResult {
  readonly program: string;
  /** Of the plan as written: `comm.run` of what has this hash uses the table. */
  readonly hash: string;
  readonly op: CollectiveName;
  readonly backend: BackendName;
  readonly ranks: number;
  readonly dtype: DType;
  readonly topology: string;
  readonly variants: readonly Pick<ProgramVariant, "label" | "differs">[];
  readonly rows: readonly TunedProgramSize[];
  /** Sizes that the time did not allow. */
  readonly skipped: readonly number[];
  /** What to use from now on; `undefined` where nothing is clearly faster than the program as written. */
  readonly table: ChoiceTable | undefined;
  /** The plans that the table names. */
  readonly plans: Readonly<Record<string, StoredPlan>>;
  /** Variants that gave wrong results, with the sizes. */
  readonly wrong: readonly string[];
}

/**
 * Tunes one program for its number of ranks and one element type.
 * @throws PlanError for a program that is wrong, UnsupportedError for one in place or of a collective that no call of the
 *   Communicator has, InvalidArgumentError
 * @example
 * import { ringAllReduce } from "chorale/algorithms";
 * import { DEFAULT_CPU_COSTS } from "chorale/simulator";
 * import { tuneProgram } from "chorale/tune";
 *
 * const { rows } = await tuneProgram({
 *   sources: [{ differs: "", program: ringAllReduce({ numRanks: 2 }) }],
 *   sizes: [65536],
 *   costs: DEFAULT_CPU_COSTS,
 *   iterations: 50,
 * });
 * console.log(rows[0]?.shipped.label, rows[0]?.shipped.wrong); // as-written 0
 */
export async function tuneProgram(options: TuneProgramOptions): Promise<TuneProgramResult> {
  const { sizes, dtype = "f32", backend = "threads", isolation = "thread", search = {}, iterations } = options;
  const { onProgress = () => {} } = options;
  const kind = await backendKind(backend);
  if (kind.ways !== undefined)
    throw new UnsupportedError(
      `tune of a program on ${backend}`,
      "comm.run has it run as it is written there: threads or cuda",
    );
  onProgress("compiling variants");
  const variants = variantsOf(options.sources, search, kind.usesDevices);
  const [written] = variants;
  const { plan } = written;
  const { op, redop, root } = callOf(plan);
  const ranks = plan.ranks.length;
  requireTunable(kind, ranks);
  await checkBench({ op, ranks, sizes, dtype, redop, root, backend, isolation });
  requireSizes(sizes, ranks, !kind.usesDevices);
  const most = await kind.availableRanks();
  if (ranks > most) throw new InvalidArgumentError("-n", ranks, `at most ${most}, with the backend ${backend}`);
  requireProof(plan);
  const offered = sizes.map((sizeBytes) => labelsAt(variants, sizeBytes, options, kind.usesDevices));
  onProgress("proving variants");
  const isRight = provedAmong(variants, new Set(offered.flat().map(nameOf)));
  const job: TuneJob = {
    op,
    dtype,
    redop,
    root,
    isolation,
    base: { kind: "algorithm", name: written.label },
    beside: [{ kind: "choice", name: "built-in" }, ...(kind.usesDevices ? [NCCL] : [])],
    servesInPlace: false,
    numRanks: ranks,
    mayRefuse: kind.usesDevices,
    sizes: sizes.map((sizeBytes, i) => ({
      sizeBytes,
      labels: (offered[i] ?? []).filter((label) => isRight.has(nameOf(label)) && label !== written.label),
      ...(kind.usesDevices ? { graphCalls: iterations ?? graphCallsOf(sizeBytes) } : {}),
    })),
    ...HOW_MEASURED,
    ...(iterations === undefined ? {} : { iterations, warmup: iterations }),
    budgetMs: 1000 * (options.budgetSeconds ?? BUDGET_S),
  };
  const plans = storedPlans(op, [written, ...variants.filter(({ label }) => isRight.has(label))]);
  const choices = { schemaVersion: CHOICES_SCHEMA_VERSION, source: "tuning", date: "", tables: [], plans } as const;
  const report = await measured(job, { ranks, backend, choices, onProgress });
  const readings = report?.readings ?? [];
  const rows = readings.map((reading): TunedProgramSize => {
    const base = { ...reading.base, label: AS_WRITTEN };
    const [builtIn = base, nccl] = reading.beside;
    const isNccl = nccl === undefined || builtIn.label === nccl.label;
    return { ...chosenOf({ ...reading, base }), builtIn, ...(isNccl ? {} : { nccl }) };
  });
  const hash = hashPlan(plan);
  const topology = report?.topology ?? cpuTopology(ranks);
  const table = tableOf({ op, ranks, dtype, backend, topology, program: hash }, rows, sizes.slice(readings.length));
  const used = new Set(table?.rows.map(({ use }) => nameOf(use)));
  return {
    program: plan.name ?? "program",
    hash,
    op,
    backend,
    ranks,
    dtype,
    topology,
    variants: variants.map(({ label, differs }) => ({ label, differs })),
    rows,
    skipped: sizes.slice(readings.length),
    table,
    plans: Object.fromEntries(Object.entries(plans).filter(([name]) => used.has(name))),
    wrong: rows.flatMap(({ sizeBytes, shipped, measured: others }) =>
      [shipped, ...others].filter(({ wrong }) => wrong > 0).map(({ label }) => `${label} at ${sizeBytes} bytes`),
    ),
  };
}

const NCCL: Contender = { kind: "algorithm", name: "nccl" };

/** A label without the kernel's shape: the name of a plan. */
const nameOf = (label: string) => label.split("@", 1)[0] as string;

/** The call of the Communicator that does what the program does. @throws UnsupportedError */
function callOf({ name = "the program", collective }: ExecutionPlan) {
  const { operation, reduceOp: redop = "sum", root = 0, inPlace } = collective;
  if (!isServed(operation)) {
    const accepted = `its results are checked, and its times compared, with the built-in ${SERVED_COLLECTIVES.join(", ")}`;
    throw new UnsupportedError(`tune of ${name}, a program for ${operation}`, accepted);
  }
  if (inPlace) {
    const accepted = "what is tuned reads one buffer and writes another; write the program without inPlace";
    throw new UnsupportedError(`tune of ${name}, a program in place`, accepted);
  }
  return { op: operation as TuneJob["op"] & CollectiveName, redop, root };
}

function requireProof(plan: ExecutionPlan): void {
  if (proofOf(plan) === undefined) provePlan(plan);
  const proof = proofOf(plan);
  if (proof?.ok !== true) throw new PlanError(plan.name ?? "the program", [], proof?.opinion);
}

/** Names of those that the verifier passes. */
function provedAmong(variants: readonly ProgramVariant[], names: ReadonlySet<string>): ReadonlySet<string> {
  const right = variants.filter(({ label, plan }) => {
    if (!names.has(label)) return false;
    if (proofOf(plan) === undefined) provePlan(plan);
    return proofOf(plan)?.ok === true;
  });
  return new Set(right.map(({ label }) => label));
}

/** What is worth measuring at a size. */
function labelsAt(
  variants: readonly ProgramVariant[],
  sizeBytes: number,
  { costs, rankedOn, search = {}, dtype = "f32" }: TuneProgramOptions,
  onDevices: boolean,
): readonly string[] {
  if (!onDevices) return rankCandidates(variants, sizeBytes, costs, MOST_ON_CORES).map(({ label }) => label);
  const ranked = rankedOn === undefined ? variants : rankOnDevices(variants, sizeBytes, rankedOn);
  return ranked.flatMap((variant) => shapedLabels(variant, sizeBytes, { dtype }, search));
}

function storedPlans(collective: CollectiveName, variants: readonly ProgramVariant[]): Record<string, StoredPlan> {
  return Object.fromEntries(
    variants.map(({ label, plan }) => [
      label,
      { collective, plan: JSON.parse(planToJson(plan)) as StoredPlan["plan"] },
    ]),
  );
}
