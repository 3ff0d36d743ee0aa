/** How far a result of `quantizedAllReduce` can lie from the exact one. */
import { FLOAT_FORMATS, InvalidArgumentError } from "../../core/index.ts";
import {
  numParts,
  QUANTIZED_DTYPES,
  QUANTIZED_FORMATS,
  QUANTIZED_OPS,
  type QuantizedDType,
  type QuantizedFormat,
  type QuantizedOp,
  SCALED_FORMATS,
} from "./block-layout.ts";
import { checkOneOf } from "./quantized-options.ts";

/** What is known of one element over all ranks. */
export interface QuantizedMagnitudes {
  /** The sum over ranks of the element's magnitude, `|x_0| + |x_1| + ...`. */
  readonly magnitude: number;
  /** The sum over ranks of the largest finite magnitude in the element's block. */
  readonly largest: number;
  /** Magnitude of the exact sum, where it is known: `magnitude` otherwise, which it never exceeds. */
  readonly sum?: number;
}
export interface QuantizedBoundOptions {
  readonly numRanks: number;
  /** `e4m3` by default. */
  readonly format?: QuantizedFormat;
  /** `sum` by default. */
  readonly op?: QuantizedOp;
  /** Of the tensor; `f32` by default. */
  readonly dtype?: QuantizedDType;
}

/** Half the spacing of f32 at 1: what one f32 operation rounds by, relatively. */
const F32_UNIT = 2 ** -24;
const LEAST_SCALE = 2 ** -127;
const LARGEST_F32 = (2 - 2 ** -23) * 2 ** 127;
/** Half a unit in the last place of the element type, where sums are rounded to it. */
const OUTPUT_UNIT: { readonly [D in QuantizedDType]: number } = { f32: 0, f16: 2 ** -11, bf16: 2 ** -8 };
/** Half the element type's smallest step: results that were quantised have no more bits than it, and are rounded by this alone. */
const OUTPUT_STEP: { readonly [D in QuantizedDType]: number } = { f32: 0, f16: 2 ** -25, bf16: 2 ** -134 };
/** The bound is computed in f64, a few operations deep. */
const UPWARDS = 1 + 2 ** -40;

/**
 * Bounds `|result - exact|` of one element of `quantizedAllReduce`, whatever the values are. With `u` = 2^-4 for e4m3 and 2^-3
 * for e5m2 (half a unit in the last place), `h` = 2^-10 and 2^-17 (half the smallest step), `m` = 224 and 28672 (half the largest value), `n` ranks, `A` =
 * `magnitude`, `L` = `largest` and `S` = `sum`:
 *
 * - the ranks' rounding: `E1 = u A + h (L / m + n 2^-127)`
 * - the sum in f32: `E2 = g (A + E1)`, where `g = (n - 1) 2^-24 / (1 - (n - 1) 2^-24)`; `avg` divides, and rounds by 2^-24 once more
 * - the rounding of the sum: `E3 = u (S + E1 + E2) + h ((L + E1' + E2') / m + 2^-127)`, with E1' and E2' those of `A = L`
 * - a result in f16 or bf16: 2^-25 or 2^-134, which only the smallest values need
 *
 * Of two ranks the sum is not rounded to the format: in place of E3, `v (S + E1 + E2)` with `v` = 2^-11 for f16, 2^-8 for bf16 and 0 for f32.
 *
 * Mostly that is `u (A + S)` and little more: at most an eighth of `A` for e4m3, a quarter for e5m2. 0 for one rank, whose result is
 * its input; infinite where a sum can leave f32 (the element is NaN then) or f16.
 * @throws InvalidArgumentError
 * @example
 * import { quantizedAllReduceErrorBound } from "chorale/extensions";
 *
 * // Two ranks gave 3 and -1, in blocks whose largest magnitudes are 4 and 8.
 * const bound = quantizedAllReduceErrorBound({ magnitude: 4, largest: 12, sum: 2 }, { numRanks: 2 });
 * console.log(bound < 0.4); // true
 */
export function quantizedAllReduceErrorBound(magnitudes: QuantizedMagnitudes, options: QuantizedBoundOptions): number {
  checkObject("magnitudes", magnitudes, "an object, such as { magnitude: 4, largest: 12 }");
  checkObject("options", options, "an object, such as { numRanks: 2 }");
  const { magnitude, largest, sum = magnitude } = magnitudes;
  const { numRanks, format = "e4m3", op = "sum", dtype = "f32" } = options;
  checkOneOf("format", format, QUANTIZED_FORMATS);
  checkOneOf("op", op, QUANTIZED_OPS);
  checkOneOf("dtype", dtype, QUANTIZED_DTYPES);
  if (!Number.isInteger(numRanks) || numRanks < 1)
    throw new InvalidArgumentError("numRanks", numRanks, "a whole number, 1 or more");
  for (const [name, value] of Object.entries({ magnitude, largest, sum })) {
    if (typeof value !== "number" || !(value >= 0)) throw new InvalidArgumentError(name, value, "a number, 0 or more");
  }
  if (numRanks === 1) return 0;
  const { mantissaBits, bias, maxFinite } = FLOAT_FORMATS[SCALED_FORMATS[format].dtype];
  const unit = 2 ** -(mantissaBits + 1);
  const halfStep = 2 ** (-bias - mantissaBits);
  const leastScaled = maxFinite / 2;
  const chain = ((numRanks - 1) * F32_UNIT) / (1 - (numRanks - 1) * F32_UNIT);
  /** Of the f32 sum of elements whose magnitudes sum to `a`. */
  const ofSum = (a: number) => {
    const rounded = unit * a + halfStep * (largest / leastScaled + numRanks * LEAST_SCALE);
    return rounded + chain * (a + rounded);
  };
  const error = ofSum(magnitude);
  if (!(magnitude + error < LARGEST_F32)) return Number.POSITIVE_INFINITY;
  const divisor = op === "avg" ? numRanks : 1;
  const divided = op === "avg" ? (x: number) => F32_UNIT * x + 2 ** -150 : () => 0;
  const most = (sum + error) / divisor;
  const before = error / divisor + divided(most);
  const mostOfBlock = Math.min(LARGEST_F32, ((largest + ofSum(largest)) / divisor) * (1 + F32_UNIT));
  const isQuantizedAgain = numParts(numRanks) > 1;
  const after = isQuantizedAgain
    ? unit * (most + divided(most)) + halfStep * (mostOfBlock / leastScaled + LEAST_SCALE)
    : OUTPUT_UNIT[dtype] * (most + divided(most));
  const whole = (before + after + OUTPUT_STEP[dtype]) * UPWARDS;
  const largestOutput = dtype === "f32" ? LARGEST_F32 : FLOAT_FORMATS[dtype].maxFinite;
  return sum / divisor + whole > largestOutput && !(isQuantizedAgain && dtype !== "f16")
    ? Number.POSITIVE_INFINITY
    : whole;
}

/** @throws InvalidArgumentError */
function checkObject(name: string, value: unknown, accepted: string): void {
  if (typeof value !== "object" || value === null) throw new InvalidArgumentError(name, value, accepted);
}
