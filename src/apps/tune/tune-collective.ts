/**
 * `chorale tune OP` as library code: candidates are ranked by the simulator (on devices: listed by size), the best of them
 * measured beside the shipped choice with results checked, and one is chosen only where repeated loops in turn show it to be
 * clearly faster. On cores the same times fit the simulator's constants; on devices the replay of graphs is timed; over sockets one
 * loop of each listed candidate says which ones are measured.
 */

import { proofOf } from "../../authoring/plan/index.ts";
import { type CpuCosts, type CpuFit, type CpuMeasurement, fitCpuCosts } from "../../authoring/simulator/index.ts";
import { provePlan } from "../../authoring/verifier/index.ts";
import { type CollectiveName, operationInfo } from "../../collectives/index.ts";
import { type DType, InvalidArgumentError } from "../../core/index.ts";
import { cpuTopology } from "../../machine/cost/index.ts";
import type { Isolation } from "../../runtime/comm/index.ts";
import type { ChoiceRow, ChoiceTable } from "../../runtime/executor/internal.ts";
import { SERVED_COLLECTIVES } from "../../runtime/executor/internal.ts";
import { type BackendName, backendKind, type NodesOptions } from "../../runtime/world/index.ts";
import { checkBench } from "../bench/index.ts";
import { median } from "../bench/internal.ts";
import { type Candidate, candidatesOf, rankCandidates } from "./candidates.ts";
import { deviceCandidates, graphCallsOf } from "./device-candidates.ts";
import { BUDGET_S, HOW_MEASURED, measured, requireSizes, requireTunable } from "./measuring-world.ts";
import { shippedWay, socketCandidates } from "./socket-candidates.ts";
import type { TuneFigure, TuneJob, TuneReading } from "./tune-types.ts";

/** Candidates measured at one size: on cores the best by simulated time, over sockets by one loop of each. */
const MOST_CANDIDATES = 4;
/** How much faster than the shipped choice a candidate must be, by the median of the loops and by the fastest, and in how many. */
const CLEARLY = 1.05;
const IN_LOOPS = 0.8;
export interface TuneOptions {
  readonly op: CollectiveName;
  readonly ranks: number;
  /** Sizes, bytes of the larger of a rank's two buffers, ascending. */
  readonly sizes: readonly number[];
  readonly dtype?: DType;
  readonly backend?: BackendName;
  /** What ranks run in: threads by default, on tcp processes. */
  readonly isolation?: Isolation;
  /** Constants by which candidates are ranked. */
  readonly costs: CpuCosts;
  readonly budgetSeconds?: number;
  /** Of several hosts, of a backend that can have some: `ranks` are those of all, as many on each. The first host gets the result. */
  readonly nodes?: NodesOptions;
  /** Is told what is going on. */
  readonly onProgress?: (text: string) => void;
}

/** One size: what was there, what was found, what is chosen. */
export interface TunedSize {
  readonly sizeBytes: number;
  readonly shipped: TuneFigure;
  /** All that was measured, the fastest first. */
  readonly measured: readonly TuneFigure[];
  readonly chosen: string;
  /** What is chosen for captured calls, where that is another one. */
  readonly captured?: string;
  /** Time of the shipped choice over the chosen one's, the smaller of the median over loops in turn and of the fastest loops; 1 where the shipped one stays. */
  readonly ratio: number;
}

export interface TuneResult {
  readonly op: CollectiveName;
  readonly backend: BackendName;
  readonly ranks: number;
  readonly dtype: DType;
  readonly topology: string;
  readonly rows: readonly TunedSize[];
  /** Sizes that the time did not allow. */
  readonly skipped: readonly number[];
  /** What to use from now on; `undefined` where nothing is clearly faster than the shipped choice. */
  readonly table: ChoiceTable | undefined;
  /** Algorithms that gave wrong results, with the sizes. */
  readonly wrong: readonly string[];
  /** The simulator's constants for the cores; absent where ranks run on devices. */
  readonly fit: CpuFit | undefined;
  /** The times that the constants were fitted to. */
  readonly measurements: readonly CpuMeasurement[];
}

/**
 * Tunes one collective for one number of ranks and element type.
 * @throws InvalidArgumentError, UnsupportedError for what cannot be tuned
 * @example
 * import { tuneCollective } from "chorale/tune";
 * import { DEFAULT_CPU_COSTS } from "chorale/simulator";
 *
 * const { rows } = await tuneCollective({
 *   op: "all_gather",
 *   ranks: 2,
 *   sizes: [65536],
 *   costs: DEFAULT_CPU_COSTS,
 *   budgetSeconds: 1,
 * });
 * console.log(rows[0]?.shipped.wrong); // 0
 */
export async function tuneCollective(options: TuneOptions): Promise<TuneResult> {
  const { op, ranks, sizes, dtype = "f32", backend = "threads", costs, onProgress = () => {} } = options;
  if (!(SERVED_COLLECTIVES as readonly string[]).includes(op)) {
    throw new InvalidArgumentError("operation", op, `one of ${SERVED_COLLECTIVES.join(", ")}`);
  }
  const kind = await backendKind(backend);
  requireTunable(kind, ranks);
  await checkBench({ op, ranks, sizes, dtype, backend });
  const ways = kind.ways?.(op);
  const isOnCores = !kind.usesDevices && ways === undefined;
  requireSizes(sizes, ranks, isOnCores);
  if (isOnCores) onProgress("compiling candidates");
  const { isolation = kind.isolations[0] ?? "thread" } = options;
  const candidates = isOnCores ? candidatesOf(op, ranks) : [];
  const bySize = sizes.map((sizeBytes): TuneJob["sizes"][number] => {
    if (kind.usesDevices)
      return { sizeBytes, labels: deviceCandidates(op, ranks, sizeBytes), graphCalls: graphCallsOf(sizeBytes) };
    if (ways !== undefined) return { sizeBytes, labels: socketCandidates(ways, op, ranks, sizeBytes) };
    return {
      sizeBytes,
      labels: rankCandidates(candidates, sizeBytes, costs, MOST_CANDIDATES).map(({ label }) => label),
    };
  });
  const job: TuneJob = {
    op,
    dtype,
    redop: "sum",
    root: 0,
    isolation,
    base: { kind: "choice", name: "shipped" },
    beside: [],
    servesInPlace: true,
    sizes: bySize,
    numRanks: ranks,
    mayRefuse: !isOnCores,
    ...(ways === undefined ? {} : { most: MOST_CANDIDATES }),
    ...(kind.usesDevices ? { asksDirect: true } : {}),
    ...HOW_MEASURED,
    budgetMs: 1000 * (options.budgetSeconds ?? BUDGET_S),
  };
  const report = await measured(job, { ranks, backend, choices: "shipped", nodes: options.nodes, onProgress });
  const found = report?.readings ?? [];
  const topology = report?.topology ?? cpuTopology(ranks);
  const readings = ways === undefined ? found : found.map((one) => overSockets(one, topology));
  const rows = readings.map(chosenOf);
  if (isOnCores) onProgress("fitting the simulator");
  const measurements = measurementsOf(readings, candidates);
  return {
    op,
    backend,
    ranks,
    dtype,
    topology,
    rows,
    skipped: sizes.slice(readings.length),
    table: tableOf({ ...options, backend, topology }, rows, sizes.slice(readings.length)),
    wrong: readings.flatMap(({ sizeBytes, others }) =>
      others.filter(({ wrong }) => wrong > 0).map(({ label }) => `${label} at ${sizeBytes} bytes`),
    ),
    fit: !isOnCores ? undefined : fitCpuCosts(measurements, costs),
    measurements,
  };
}

/**
 * A reading with the name that tables have for what served by itself, and without that among the others; nor are calls by the
 * memory of hosts where none has two ranks, which are made flat.
 */
function overSockets({ base, others, second, ...rest }: TuneReading, topology: string): TuneReading {
  const label = shippedWay(base.label);
  const sharesNothing = topology.endsWith(" hosts of 1");
  const isOther = (one: { readonly label: string }) =>
    one.label !== label && one.label !== base.label && !(sharesNothing && one.label.startsWith("hierarchical"));
  return { ...rest, base: { ...base, label }, others: others.filter(isOther), second: second.filter(isOther) };
}

/**
 * Chooses at one size: the shipped choice, unless another one was clearly faster in the second look. What is that in graphs, and slower
 * in direct calls, serves captured calls alone.
 */
export function chosenOf({ sizeBytes, base: shipped, others, second }: TuneReading): TunedSize {
  const measured = [...others].sort((a, b) => a.timeUs - b.timeUs);
  const faster = second
    .flatMap(({ label, ratios, ofFastest, inPlaceRatios, directRatios }) => {
      // On a busy machine a few slow loops of the shipped choice pass for a fast candidate: the fastest loops must agree.
      const ratio = Math.min(median(ratios), ofFastest);
      const isClear = ratio >= CLEARLY && ratios.filter((one) => one > 1).length >= IN_LOOPS * ratios.length;
      // The same choice serves calls in place, where some algorithms need a copy.
      const isNoWorseInPlace = inPlaceRatios.length === 0 || median(inPlaceRatios) >= 1;
      const servesDirect = directRatios.length === 0 || median(directRatios) * CLEARLY >= 1;
      return isClear && isNoWorseInPlace ? [{ label, ratio, servesDirect }] : [];
    })
    .sort((a, b) => b.ratio - a.ratio);
  const [best] = faster;
  if (best === undefined) {
    const { label: chosen, captured } = shipped;
    return { sizeBytes, shipped, measured, chosen, ...(captured !== undefined && { captured }), ratio: 1 };
  }
  const { label: captured, ratio } = best;
  const chosen = faster.find(({ servesDirect }) => servesDirect)?.label ?? shipped.label;
  return { sizeBytes, shipped, measured, chosen, ...(captured !== chosen && { captured }), ratio };
}

/** The rows of a table: each measured size's choice, up to the next one. `skipped`: sizes that were not measured, above. */
export function tableOf(
  {
    op,
    ranks,
    dtype = "f32",
    backend = "threads",
    topology = cpuTopology(ranks),
    program,
  }: Pick<TuneOptions, "op" | "ranks" | "dtype" | "backend"> & Pick<ChoiceTable, "topology" | "program">,
  rows: readonly TunedSize[],
  skipped: readonly number[] = [],
): ChoiceTable | undefined {
  const made: ChoiceRow[] = [];
  for (const { sizeBytes, chosen, captured, measured, shipped } of rows) {
    const own = usesOf(chosen, captured);
    if (isLike(made.at(-1), own)) continue;
    const timed = captured ?? chosen;
    const timeUs = measured.find(({ label }) => label === timed)?.timeUs ?? shipped.timeUs;
    // Below the smallest measured size nothing is known: the shipped choice stays there.
    const before = usesOf(shipped.label, shipped.captured);
    if (made.length === 0 && !isLike(own, before)) made.push({ fromBytes: 0, ...before });
    made.push({ fromBytes: made.length === 0 ? 0 : sizeBytes, ...own, timeUs: Number(timeUs.toPrecision(4)) });
  }
  const isShipped = ({ chosen, captured, shipped }: TunedSize) =>
    chosen === shipped.label && captured === shipped.captured;
  if (rows.every(isShipped)) return undefined;
  const last = rows.at(-1)?.shipped;
  const [next] = skipped;
  if (next !== undefined && last !== undefined) {
    const behind = usesOf(last.label, last.captured);
    if (!isLike(made.at(-1), behind)) made.push({ fromBytes: next, ...behind });
  }
  return {
    backend,
    collective: op,
    ranks: [ranks, ranks],
    topology,
    ...(operationInfo(op).reduces ? { dtypes: [dtype] } : {}),
    ...(program === undefined ? {} : { program }),
    rows: made,
  };
}

type Uses = Pick<ChoiceRow, "use" | "captured">;

const usesOf = (use: string, captured: string | undefined): Uses => ({
  use,
  ...(captured !== undefined && { captured }),
});

const isLike = (a: Uses | undefined, b: Uses) => a?.use === b.use && a.captured === b.captured;

function measurementsOf(readings: readonly TuneReading[], candidates: readonly Candidate[]): CpuMeasurement[] {
  const plans = new Map(candidates.map(({ label, plan }) => [label, plan]));
  return readings.flatMap(({ sizeBytes, others }) =>
    others.flatMap(({ label, timeUs, wrong }) => {
      const plan = plans.get(label);
      if (plan === undefined || wrong > 0) return [];
      if (proofOf(plan) === undefined) provePlan(plan);
      const proof = proofOf(plan);
      return [{ name: label, plan, sizeBytes, timeUs, endsAlone: proof?.ok === true && proof.endsAlone() }];
    }),
  );
}
