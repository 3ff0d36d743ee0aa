/**
 * Programs and their compilation. `program` runs the callback once and keeps what it recorded; `compile` is pure and
 * may be called again with other options. Nothing is global: any number of programs may be built, also within each other.
 */
import { InvalidArgumentError, PlanError } from "../../core/index.ts";
import { type AutoSyncMode, checkPairing, lowerRank, lowerSound, Recorder } from "../compiler/index.ts";
import { type MscclppHeader, mscclppCollective, writeMscclppPieces } from "../interchange/index.ts";
import {
  type ChannelKind,
  collectiveChunks,
  DEFAULT_PLAN_OPTIONS,
  deepFreeze,
  type ExecutionPlan,
  limitViolations,
  type PlanCollective,
  type PlanOptions,
  type RankPlan,
  type SourceLocation,
} from "../plan/index.ts";
import { renderFindings, verifyPlan } from "../verifier/index.ts";
import { Builder } from "./builder.ts";
import { callSite, MAX_LOCATED } from "./call-site.ts";

/**
 * Options of a program; all but name and collective have MSCCL++'s defaults. A name that is written out is also the mark
 * on the types of the program's values: those of another program are refused.
 */
export interface ProgramOptions<Name extends string = string> {
  readonly name: Name;
  readonly collective: PlanCollective;
  readonly instances?: number;
  readonly protocol?: PlanOptions["protocol"];
  /** Join neighbouring operations. */
  readonly fusion?: boolean;
  /**
   * `strand` (default): block-wide synchronisation by dependences. `full`: also between strands and ranks, by the order
   * in which the program is written. `none`: only what the program says.
   */
  readonly autoSync?: AutoSyncMode;
  readonly reuseResources?: boolean;
  readonly numThreadsPerBlock?: number;
  readonly useDoubleScratchBuffer?: boolean;
  readonly bufferAlignment?: number;
  readonly minMessageSizeBytes?: number | bigint;
  readonly maxMessageSizeBytes?: number | bigint;
  /** How `Builder.copy` reaches another rank; memory unless told. */
  readonly links?: (from: number, to: number) => ChannelKind;
  /** Free words for whoever chooses among programs. Not part of the plan. */
  readonly tags?: Readonly<Record<string, string | number>>;
  readonly ranksPerNode?: number;
}

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
}

/** Type of a program file's default export, and of every entry of the library. */
export type ProgramFactory<Args = Record<string, never>> = (args: Args) => Program;

const AUTO_SYNC: readonly AutoSyncMode[] = ["none", "strand", "full"];

function sizeOption(argument: string, value: number | bigint): bigint {
  const big = typeof value === "bigint" ? value : Number.isSafeInteger(value) ? BigInt(value) : -1n;
  if (big < 0n || big >= 2n ** 64n)
    throw new InvalidArgumentError(argument, value, "a number of bytes from 0 to 2^64 - 1");
  return big;
}
function countOption(argument: string, value: number): number {
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError(argument, value, "an integer, 1 or more");
  return value;
}

/** How many parts a rank's buffers are made of (see `plan-layout.ts` of plan/). */
function segmentsOf(c: PlanCollective, rank: number): { readonly input: number; readonly output: number } {
  const n = c.numRanks;
  const atRoot = rank === (c.root ?? 0);
  switch (c.operation) {
    case "all_gather":
      return { input: 1, output: n };
    case "reduce_scatter":
      return { input: n, output: 1 };
    case "all_to_all":
      return { input: n, output: n };
    case "gather":
      return { input: 1, output: atRoot ? n : 1 };
    case "scatter":
      return { input: atRoot ? n : 1, output: 1 };
    default:
      return { input: 1, output: 1 };
  }
}

/**
 * Builds a program: runs `build` once and records what it calls.
 * @throws InvalidArgumentError at the wrong call, with its place in the file
 * @example
 * import { allGather, compile, program } from "chorale/language";
 *
 * const direct = program({ name: "direct all-gather", collective: allGather(2), autoSync: "full" }, (p) => {
 *   for (const from of p.ranks) for (const to of p.ranks) p.copy(to.output.at(from.id), from.input.at(0));
 * });
 * compile(direct).ranks.length; // 2
 */
export function program<const Name extends string>(
  options: ProgramOptions<Name>,
  build: (p: Builder<Name>) => void,
): Program {
  const { name, collective, links = () => "memory" as const, autoSync = "strand" } = options;
  if (!AUTO_SYNC.includes(autoSync)) throw new InvalidArgumentError("autoSync", autoSync, AUTO_SYNC.join(", "));
  const planOptions: PlanOptions = {
    protocol: options.protocol ?? DEFAULT_PLAN_OPTIONS.protocol,
    instances: countOption("instances", options.instances ?? 1),
    reuseResources: options.reuseResources ?? false,
    numThreadsPerBlock: countOption(
      "numThreadsPerBlock",
      options.numThreadsPerBlock ?? DEFAULT_PLAN_OPTIONS.numThreadsPerBlock,
    ),
    useDoubleScratchBuffer: options.useDoubleScratchBuffer ?? false,
    bufferAlignment: countOption("bufferAlignment", options.bufferAlignment ?? DEFAULT_PLAN_OPTIONS.bufferAlignment),
    minMessageSizeBytes: sizeOption(
      "minMessageSizeBytes",
      options.minMessageSizeBytes ?? DEFAULT_PLAN_OPTIONS.minMessageSizeBytes,
    ),
    maxMessageSizeBytes: sizeOption(
      "maxMessageSizeBytes",
      options.maxMessageSizeBytes ?? DEFAULT_PLAN_OPTIONS.maxMessageSizeBytes,
    ),
  };
  const chunks = collectiveChunks(collective) ?? [];
  const located: { recorder?: Recorder } = {};
  const locate = (failing: boolean): SourceLocation | undefined =>
    failing || (located.recorder?.numOps ?? 0) < MAX_LOCATED ? callSite() : undefined;
  const recorder = new Recorder({
    numRanks: collective.numRanks,
    inputChunks: (rank) => chunks[rank]?.input ?? 0,
    outputChunks: (rank) => chunks[rank]?.output ?? 0,
    strict: true,
    locate,
  });
  located.recorder = recorder;
  // An average is a sum that whoever runs the plan divides once, at the end.
  const op = collective.reduceOp ?? "sum";
  // A function that returns nothing may also be async: what it called after its first await would be lost.
  const returned: unknown = build(new Builder<Name>(recorder, op === "avg" ? "sum" : op, links));
  if (returned instanceof Promise) {
    returned.catch(() => undefined);
    throw new InvalidArgumentError("what the callback of program returns", "a promise", "a callback that is not async");
  }
  recorder.close();
  return Object.freeze({
    name,
    collective,
    options: Object.freeze(planOptions),
    fusion: options.fusion ?? true,
    autoSync,
    tags: options.tags ?? {},
    ranksPerNode: options.ranksPerNode ?? collective.numRanks,
    recorder,
  });
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
  const compat = options.compat === "mscclpp";
  const plan = deepFreeze(compat ? compileCompat(p, options) : compileSound(p, options));
  if (options.target === "mscclpp") requireExecutor(plan);
  if (options.verify ?? !compat) requireProof(plan);
  return plan;
}

/** Places that an error lists in full. */
const MAX_SHOWN = 3;

function requireProof(plan: ExecutionPlan): void {
  const { ok, findings } = verifyPlan(plan, { lint: false });
  if (ok) return;
  const errors = findings.filter((finding) => finding.severity === "error");
  throw new PlanError(plan.name ?? "program", errors, renderFindings(plan, errors.slice(0, MAX_SHOWN)));
}

function compileSound(p: Program, { onPass }: CompileOptions): ExecutionPlan {
  const ranks = lowerSound(p.recorder, {
    collective: p.collective,
    segments: (rank) => segmentsOf(p.collective, rank),
    instances: p.options.instances,
    fusion: p.fusion,
    autoSync: p.autoSync,
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

function* compatRanks(p: Program, finished: boolean): Generator<RankPlan> {
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

/**
 * Writes the MSCCL++ plan of a program in pieces, one rank in memory at a time. With `compat`, byte for byte what the
 * MSCCL++ 0.9 DSL prints.
 */
export function writeMscclpp(p: Program, sink: (piece: string) => void, options: CompileOptions = {}): void {
  const compat = options.compat === "mscclpp";
  const header: MscclppHeader = {
    name: p.name,
    collective: mscclppCollective({ collective: p.collective }),
    inPlace: p.collective.inPlace,
    options: p.options,
  };
  writeMscclppPieces(
    header,
    compat ? compatRanks(p, false) : compile(p, { ...options, target: "mscclpp" }).ranks,
    sink,
  );
}
