/** The sizes that -b, -e and -f ask for, of every command that goes over sizes. */
import { type DType, InvalidArgumentError, parseSize } from "../../core/index.ts";
import { leastSize, requireElements, type SizedCall, sizeRange } from "../bench/internal.ts";

export interface SizeFlags {
  readonly min?: string;
  readonly max?: string;
  readonly factor: number;
}

/** The first and the last size where the flags give none. */
export interface DefaultSizes {
  readonly min: number;
  readonly max: number;
}

/**
 * Reads the sizes, rounded down to whole elements as nccl-tests does, each once. A default gives way to what is given: the first size to a smaller last one, and to the least that the call can have.
 * @throws InvalidArgumentError for sizes at which the call would move nothing, and for those that make no range
 */
export function sizesOf({ min, max, factor }: SizeFlags, defaults: DefaultSizes, call: SizedCall): number[] {
  if (call.op === "barrier") {
    for (const [flag, value] of [["-b", min] as const, ["-e", max] as const])
      if (value !== undefined) throw new InvalidArgumentError(flag, value, "none: a barrier moves no data");
    return [0];
  }
  const first = min === undefined ? undefined : parseSize(min, "-b");
  const last = max === undefined ? undefined : parseSize(max, "-e");
  if (first !== undefined) requireElements(first, call, "-b");
  if (last !== undefined) requireElements(last, call, "-e");
  const from = first ?? Math.max(leastSize(call), Math.min(defaults.min, last ?? defaults.min));
  const unit = leastSize(call);
  const sizes = sizeRange(from, last ?? Math.max(defaults.max, from), factor);
  return [...new Set(sizes.map((size) => Math.floor(size / unit) * unit))];
}

/** As `sizesOf`, of plans: they may cut an element's worth of time among their ranks, so one element is the least. */
export function elementSizesOf(flags: SizeFlags, defaults: DefaultSizes, dtype: DType = "f32"): number[] {
  return sizesOf(flags, defaults, { op: "broadcast", ranks: 1, dtype });
}
