/** Sizes as nccl-tests has them: from -b to -e by -f, and none at which a call would move nothing. */
import { type OperationName, reportedCount } from "../../../collectives/index.ts";
import { type DType, InvalidArgumentError, sizeOf } from "../../../core/index.ts";

/** More sizes than this are a typing error of the factor, not a table. */
const MAX_SIZES = 1000;

/**
 * The sizes from `min` to `max`, each `factor` times the one before, as nccl-tests' -b -e -f; each is there once.
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
  const sizes = new Set<number>();
  for (let size = min; size <= max; size *= factor) sizes.add(Math.round(size));
  return [...sizes];
}

/** A call whose sizes are asked about. */
export interface SizedCall {
  readonly op: OperationName;
  readonly ranks: number;
  readonly dtype: DType;
}

/** The smallest size at which the call moves something: one element, or one for each rank. 0 for a barrier. */
export function leastSize({ op, ranks, dtype }: SizedCall): number {
  return sizeOf(dtype) * reportedCount(op, ranks, 1);
}

/**
 * Refuses a size that would be rounded down to no element.
 * @param argument what the size is called: `-b` or `-e`
 * @throws InvalidArgumentError
 */
export function requireElements(size: number, call: SizedCall, argument = "-b"): void {
  const least = leastSize(call);
  if (size >= least) return;
  const each = reportedCount(call.op, call.ranks, 1) > 1 ? ` for each of ${call.ranks} ranks` : "";
  throw new InvalidArgumentError(argument, size, `at least ${least} bytes, one element of ${call.dtype}${each}`);
}
