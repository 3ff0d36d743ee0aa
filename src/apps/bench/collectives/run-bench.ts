/** `chorale bench` as library code: starts a world, measures an operation over sizes, gives the rows. */
import { availableParallelism } from "node:os";
import { type OperationName, operationInfo } from "../../../collectives/index.ts";
import { type DType, InvalidArgumentError, isLegal, UnsupportedError } from "../../../core/index.ts";
import type { BackendKind } from "../../../runtime/comm/index.ts";
import {
  type BackendName,
  type BackendOptions,
  backendKind,
  DEFAULT_BACKEND,
  type Isolation,
  LAUNCH_BACKENDS,
  MAX_RANKS,
  type NodesOptions,
} from "../../../runtime/world/index.ts";
import { ROW_PREFIX } from "./bench-rank.ts";
import type { BenchJob, BenchRedop, BenchReport, BenchRow, Drive } from "./bench-types.ts";
import { launchBench, otherRanks, ranksOfHost } from "./launch-bench.ts";
import { requireElements } from "./size-range.ts";

export interface BenchOptions {
  readonly op: OperationName;
  /** Number of ranks, of all hosts. */
  readonly ranks: number;
  /** Of several hosts, of a backend that can have some, with as many ranks each. The first host gets the rows. */
  readonly nodes?: NodesOptions;
  /** Sizes as nccl-tests prints them, bytes; see `sizeRange`. */
  readonly sizes: readonly number[];
  readonly backend?: BackendName;
  /** What each rank runs in: a thread of this process by default, or a process of its own (nccl). */
  readonly isolation?: Isolation;
  /** What the backend is told, as `launch()` takes it. */
  readonly backendOptions?: BackendOptions;
  readonly dtype?: DType;
  readonly redop?: BenchRedop;
  readonly root?: number;
  /** `queue` on backends with devices, as nccl-tests measures, and `wait` on others by default. */
  readonly drive?: Drive;
  /** Calls per loop; chosen by time by default. */
  readonly iterations?: number;
  readonly iterationsBySize?: readonly number[];
  /** Loops per size, of which the median counts; 5 by default. */
  readonly repeats?: number;
  readonly warmup?: number;
  /** Captures so many calls in a graph and times its replay; nccl only. */
  readonly graphCalls?: number;
  /** What serves the calls in place of the choice by size: `NAME[*INSTANCES][/CHUNKS]`. On backends that choose: threads, shm, tcp, cuda. */
  readonly algorithm?: string;
  readonly check?: boolean;
  readonly inPlace?: boolean;
  /** Called for each row when it is measured. */
  readonly onRow?: (row: BenchRow) => void;
  readonly timeoutMs?: number;
}

/** More calls in one graph than this are a typing error. */
const MAX_GRAPH_CALLS = 10_000;
export const DEFAULT_REPEATS = 5;
const RANK_MODULE = "apps/bench/collectives/bench-rank";

/**
 * Checks what can be checked without starting a world or finding an engine.
 * @param backends on which it is to be measured: one of them must be able to
 * @throws InvalidArgumentError, UnsupportedError for an operator that the dtype does not have, and for what none of the
 *   backends can do on any machine
 */
export async function checkBench(
  options: BenchOptions,
  backends: readonly BackendName[] = [options.backend ?? DEFAULT_BACKEND],
): Promise<void> {
  checkCall(options);
  const all = await Promise.all(LAUNCH_BACKENDS.map(backendKind));
  const refusals = all
    .filter(({ name }) => backends.includes(name as BackendName))
    .map((kind) => refusalOf(kind, options, all));
  if (refusals[0] !== undefined && !refusals.includes(undefined)) throw refusals[0];
}

function checkCall(options: BenchOptions): void {
  const { op, ranks, sizes, dtype = "f32", redop = "sum", root = 0, graphCalls = 0 } = options;
  const info = operationInfo(op);
  if (!Number.isInteger(ranks) || ranks < 1 || ranks > MAX_RANKS) {
    throw new InvalidArgumentError("-n", ranks, `an integer from 1 to ${MAX_RANKS}`);
  }
  for (const size of sizes) requireElements(size, { op, ranks, dtype });
  if (info.reduces && redop !== "preMulSum" && !isLegal(redop, dtype)) {
    throw new UnsupportedError(`${redop} on ${dtype}`, "bitwise operators are for integer dtypes");
  }
  if (info.pointToPoint && ranks < 2) throw new InvalidArgumentError("-n", ranks, `2 or more ranks for ${op}`);
  if (info.rooted && (!Number.isInteger(root) || root < 0 || root >= ranks)) {
    throw new InvalidArgumentError("--root", root, `a rank, an integer from 0 to ${ranks - 1}`);
  }
  if (!info.rooted && root !== 0) throw new InvalidArgumentError("--root", root, `none: ${op} has no root`);
  if (!Number.isInteger(graphCalls) || graphCalls < 0 || graphCalls > MAX_GRAPH_CALLS) {
    throw new InvalidArgumentError("-G", graphCalls, `a number of calls per graph, 1 to ${MAX_GRAPH_CALLS}`);
  }
  if (graphCalls > 0 && (info.pointToPoint || op === "barrier")) {
    throw new UnsupportedError(`-G with ${op}`, "a graph holds collectives that move data");
  }
}

/** What the backend cannot do of this on any machine. */
function refusalOf(
  { name, isolations, isolationReason, usesDevices }: BackendKind,
  { isolation, graphCalls = 0 }: BenchOptions,
  all: readonly BackendKind[],
): UnsupportedError | undefined {
  if (isolation !== undefined && !isolations.includes(isolation)) {
    return new UnsupportedError(
      `--isolation ${isolation} with the backend ${name}`,
      isolationReason ?? `its ranks run in a ${isolations.join(" or a ")}`,
    );
  }
  if (graphCalls === 0 || usesDevices) return undefined;
  const names = all.filter((kind) => kind.usesDevices).map((kind) => kind.name);
  return new UnsupportedError(`-G with the backend ${name}`, `graphs are captured on devices, by ${names.join(", ")}`);
}

/** How many ranks `chorale bench` takes by default: one for each device, or core (at least 2), at most `most`. @throws UnavailableError */
export async function defaultRanks(backend: BackendName, most: number): Promise<number> {
  const kind = await backendKind(backend);
  const room = await kind.availableRanks();
  return Math.min(kind.usesDevices ? room : Math.max(2, Math.min(availableParallelism(), room)), most);
}

/** How calls are driven by default. */
export async function defaultDrive(backend: BackendName): Promise<Drive> {
  return (await backendKind(backend)).usesDevices ? "queue" : "wait";
}

/**
 * Measures an operation. Time is the mean over a loop of calls and over the ranks; bandwidths as nccl-tests define
 * them (algorithm bandwidth is size / time, bus bandwidth that times `busFactor`).
 * @throws InvalidArgumentError, UnsupportedError for what the dtype or the backend does not have
 * @throws UnavailableError when the backend's engine is not on this machine
 * @example
 * import { bench } from "chorale/bench";
 *
 * const rows = await bench({ op: "all_reduce", ranks: 2, sizes: [4096], iterations: 100, check: true });
 * console.log(rows[0]?.wrong); // 0
 */
export async function bench(options: BenchOptions): Promise<BenchRow[]> {
  await checkBench(options);
  const { op, ranks, backend = DEFAULT_BACKEND, dtype = "f32", redop = "sum", root = 0 } = options;
  const { usesDevices, availableRanks, isolations } = await backendKind(backend);
  const isolation = options.isolation ?? isolations[0] ?? "thread";
  const most = await availableRanks();
  if (ranksOfHost(ranks, options.nodes) > most) {
    const because = usesDevices ? `the visible devices: ${backend} wants one per rank` : `with the backend ${backend}`;
    throw new InvalidArgumentError("-n", ranks, `at most ${most}, ${because}`);
  }
  const job: BenchJob = {
    op,
    dtype,
    redop,
    root,
    isolation,
    sizes: op === "barrier" ? [0] : options.sizes,
    drive: options.drive ?? (await defaultDrive(backend)),
    repeats: options.repeats ?? DEFAULT_REPEATS,
    graphCalls: options.graphCalls ?? 0,
    check: options.check ?? false,
    inPlace: options.inPlace ?? true,
    numRanks: ranks,
    ...(options.iterations === undefined ? {} : { iterations: options.iterations }),
    ...(options.iterationsBySize === undefined ? {} : { iterationsBySize: options.iterationsBySize }),
    ...(options.warmup === undefined ? {} : { warmup: options.warmup }),
    ...(options.algorithm === undefined ? {} : { algorithm: options.algorithm }),
  };
  const world = { ...options, ranks, backend, isolation, module: RANK_MODULE, prefix: ROW_PREFIX };
  const report = await launchBench<BenchReport, BenchJob, BenchRow>(job, world);
  if (report === undefined) return [];
  if ("numRanks" in report) throw otherRanks(report.numRanks, ranks);
  if ("algorithm" in report) throw new InvalidArgumentError("--algorithm", report.algorithm, report.accepted);
  if ("unsupported" in report) throw new UnsupportedError(report.unsupported, report.accepted);
  return [...report.rows];
}
