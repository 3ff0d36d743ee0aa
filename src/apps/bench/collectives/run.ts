/** `chorale bench` as library code: starts a world, measures an operation over sizes, gives the rows. */
import { type OperationName, operationInfo } from "../../../authoring/collectives/index.ts";
import {
  type DType,
  InvalidArgumentError,
  isLegal,
  type NamedReduceOp,
  UnsupportedError,
} from "../../../core/index.ts";
import { type BackendName, launch, loadableUrl, MAX_RANKS } from "../../../runtime/world/index.ts";
import { ROW_PREFIX } from "./rank.ts";
import type { BenchJob, BenchRow, Drive } from "./types.ts";

export interface BenchOptions {
  readonly op: OperationName;
  /** Number of ranks. */
  readonly ranks: number;
  /** Sizes as nccl-tests prints them, bytes; see `sizeRange`. */
  readonly sizes: readonly number[];
  readonly backend?: BackendName;
  readonly dtype?: DType;
  readonly redop?: NamedReduceOp;
  readonly root?: number;
  readonly drive?: Drive;
  readonly iterations?: number;
  readonly iterationsBySize?: readonly number[];
  readonly warmup?: number;
  readonly check?: boolean;
  readonly inPlace?: boolean;
  /** Called for each row when it is measured. */
  readonly onRow?: (row: BenchRow) => void;
  readonly timeoutMs?: number;
}

/** More sizes than this are a typing error of the factor, not a table. */
const MAX_SIZES = 1000;
const RANK_MODULE = "apps/bench/ranks/bench-rank";

/**
 * The sizes from `min` to `max`, each `factor` times the one before, as nccl-tests' -b -e -f.
 * @throws InvalidArgumentError when they are not positive, or the factor is not above 1 or makes more than 1000 sizes
 * @example
 * sizeRange(1024, 4096, 2) // [1024, 2048, 4096]
 */
export function sizeRange(min: number, max: number, factor: number): number[] {
  if (!(min > 0)) throw new InvalidArgumentError("-b", min, "a size above 0");
  if (!(max >= min)) throw new InvalidArgumentError("-e", max, `a size of at least ${min}, the first one (-b)`);
  if (!(factor > 1)) throw new InvalidArgumentError("-f", factor, "a factor above 1");
  if (Math.log(max / min) / Math.log(factor) > MAX_SIZES) {
    throw new InvalidArgumentError(
      "-f",
      factor,
      `a factor that makes at most ${MAX_SIZES} sizes from ${min} to ${max}`,
    );
  }
  const sizes: number[] = [];
  for (let size = min; size <= max; size *= factor) sizes.push(Math.round(size));
  return sizes;
}

/**
 * Checks what can be checked without starting a world.
 * @throws InvalidArgumentError, UnsupportedError for an operator that the dtype does not have
 */
export function checkBench(options: BenchOptions): void {
  const { op, ranks, dtype = "f32", redop = "sum", root = 0 } = options;
  const info = operationInfo(op);
  if (!Number.isInteger(ranks) || ranks < 1 || ranks > MAX_RANKS) {
    throw new InvalidArgumentError("-n", ranks, `an integer from 1 to ${MAX_RANKS}`);
  }
  if (info.reduces && !isLegal(redop, dtype)) {
    throw new UnsupportedError(`${redop} on ${dtype}`, "bitwise operators are for integer dtypes");
  }
  if (info.pointToPoint && ranks < 2) throw new InvalidArgumentError("-n", ranks, `2 or more ranks for ${op}`);
  if (info.rooted && (!Number.isInteger(root) || root < 0 || root >= ranks)) {
    throw new InvalidArgumentError("--root", root, `a rank, an integer from 0 to ${ranks - 1}`);
  }
}

/**
 * Measures an operation. Time is the mean over a loop of calls and over the ranks; bandwidths as nccl-tests define
 * them (algorithm bandwidth is size / time, bus bandwidth that times `busFactor`).
 * @throws InvalidArgumentError, UnsupportedError for an operator that the dtype does not have
 * @example
 * import { bench } from "chorale/bench";
 *
 * const rows = await bench({ op: "all_reduce", ranks: 2, sizes: [4096], iterations: 100, check: true });
 * console.log(rows[0]?.wrong); // 0
 */
export async function bench(options: BenchOptions): Promise<BenchRow[]> {
  checkBench(options);
  const { op, ranks, dtype = "f32", redop = "sum", root = 0 } = options;
  const job: BenchJob = {
    op,
    dtype,
    redop,
    root,
    sizes: op === "barrier" ? [0] : options.sizes,
    drive: options.drive ?? "wait",
    check: options.check ?? false,
    inPlace: options.inPlace ?? true,
    ...(options.iterations === undefined ? {} : { iterations: options.iterations }),
    ...(options.iterationsBySize === undefined ? {} : { iterationsBySize: options.iterationsBySize }),
    ...(options.warmup === undefined ? {} : { warmup: options.warmup }),
  };
  const [rows] = await launch<BenchRow[], BenchJob>({
    ranks,
    module: loadableUrl(RANK_MODULE),
    data: job,
    ...(options.backend === undefined ? {} : { backend: options.backend }),
    ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
    onOutput: ({ rank, stream, text }) => {
      if (text.startsWith(ROW_PREFIX)) options.onRow?.(JSON.parse(text.slice(ROW_PREFIX.length)) as BenchRow);
      else process.stderr.write(`[${rank}${stream === "stderr" ? " stderr" : ""}] ${text}\n`);
    },
  });
  return rows ?? [];
}
