/**
 * What a reduction must give, worked out in float64 (and BigInt for 64-bit integers) independently of any kernel, with
 * the room that an honest implementation has: integers none; floats the rounding of their accumulator in any order of
 * the ranks. 16- and 8-bit floats accumulate in f32 and round once, so a kernel that rounds after every addition
 * fails. min and max are exact and pass NaN on. Integer sums wrap; avg divides the wrapped sum, towards zero.
 */
import {
  DTYPES,
  type DType,
  dtypeOf,
  InvariantError,
  isSmallFloat,
  newArray,
  type PreMulSum,
  type ReduceOp,
  type TypedArray,
} from "../core/index.ts";
import { encodeSmallFloat, smallFloatTables } from "./small-floats.ts";

/** Expected elements. `slack` 0 means exact up to the final rounding; `bits` means bit for bit. */
export type Expected =
  | { readonly kind: "bits"; readonly dtype: DType; readonly bits: TypedArray }
  | { readonly kind: "real"; readonly dtype: DType; readonly values: Float64Array; readonly slack: Float64Array };

/** What is wrong with a result: how many elements, and the first one in full. */
export interface Wrong {
  readonly count: number;
  readonly index: number;
  readonly actual: string;
  readonly expected: string;
}

const UNIT_ROUNDOFF = { f32: 2 ** -24, f64: 2 ** -53 } as const;
/** Where numbers no longer get finer towards zero: the spacing of the smallest ones. */
const SMALLEST = { f32: 2 ** -149, f64: 2 ** -1074 } as const;

/** Decodes elements [start, end) to numbers. Not for i64 and u64. */
function decode(dtype: DType, array: TypedArray, start: number, end: number): Float64Array {
  const out = new Float64Array(end - start);
  if (isSmallFloat(dtype)) {
    const { values } = smallFloatTables(dtype);
    for (let i = 0; i < out.length; i++) out[i] = values[Number(array[start + i])] ?? Number.NaN;
  } else {
    for (let i = 0; i < out.length; i++) out[i] = Number(array[start + i]);
  }
  return out;
}

function wide(
  op: ReduceOp,
  dtype: "i64" | "u64",
  inputs: readonly TypedArray[],
  start: number,
  end: number,
): TypedArray {
  const out = newArray(dtype, end - start);
  const wrap = dtype === "i64" ? (x: bigint) => BigInt.asIntN(64, x) : (x: bigint) => BigInt.asUintN(64, x);
  const n = BigInt(inputs.length);
  const scalar = typeof op === "object" ? BigInt(op.scalar) : 1n;
  const combine = INTEGER_COMBINE[typeof op === "object" ? "sum" : op];
  for (let i = start; i < end; i++) {
    let value = (inputs[0] as BigInt64Array)[i] as bigint;
    if (typeof op === "object") value *= scalar;
    for (let r = 1; r < inputs.length; r++) {
      const next = (inputs[r] as BigInt64Array)[i] as bigint;
      value = combine(value, typeof op === "object" ? next * scalar : next);
    }
    value = wrap(value);
    out[i - start] = op === "avg" ? value / n : value;
  }
  return out;
}

const INTEGER_COMBINE: Readonly<Record<Exclude<ReduceOp, PreMulSum>, (a: bigint, b: bigint) => bigint>> = {
  sum: (a, b) => a + b,
  avg: (a, b) => a + b,
  prod: (a, b) => a * b,
  // Math.min is not for bigint.
  min: (a, b) => [a, b][Number(b < a)] ?? a,
  max: (a, b) => [a, b][Number(b > a)] ?? a,
  band: (a, b) => a & b,
  bor: (a, b) => a | b,
  bxor: (a, b) => a ^ b,
};

function narrow(op: ReduceOp, dtype: DType, inputs: readonly TypedArray[], start: number, end: number): TypedArray {
  const out = newArray(dtype, end - start);
  const n = inputs.length;
  const scalar = typeof op === "object" ? Number(op.scalar) : 1;
  const one = newArray(dtype, 1);
  for (let i = start; i < end; i++) {
    let value = Number((inputs[0] as Int32Array)[i]);
    if (typeof op === "object") value = Math.imul(value, scalar);
    for (let r = 1; r < n; r++) {
      const x = Number((inputs[r] as Int32Array)[i]);
      switch (op) {
        case "sum":
        case "avg":
          value += x;
          break;
        case "prod":
          value = Math.imul(value, x);
          break;
        case "min":
          value = Math.min(x, value);
          break;
        case "max":
          value = Math.max(x, value);
          break;
        case "band":
          value &= x;
          break;
        case "bor":
          value |= x;
          break;
        case "bxor":
          value ^= x;
          break;
        default:
          value += Math.imul(x, scalar);
      }
    }
    one[0] = value; // a store into a typed array wraps
    out[i - start] = op === "avg" ? Math.trunc(Number(one[0]) / n) : value;
  }
  return out;
}

function real(op: ReduceOp, dtype: DType, inputs: readonly TypedArray[], start: number, end: number): Expected {
  const length = end - start;
  const n = inputs.length;
  const values = decode(dtype, inputs[0] as TypedArray, start, end);
  const slack = new Float64Array(length);
  const u = dtype === "f64" ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32;
  if (op === "min" || op === "max") {
    const pick = op === "min" ? Math.min : Math.max; // both give NaN when either is NaN
    for (let r = 1; r < n; r++) {
      const x = decode(dtype, inputs[r] as TypedArray, start, end);
      for (let i = 0; i < length; i++) values[i] = pick(values[i] as number, x[i] as number);
    }
    return { kind: "real", dtype, values, slack: slack.fill(-1) };
  }
  if (op === "prod") {
    for (let r = 1; r < n; r++) {
      const x = decode(dtype, inputs[r] as TypedArray, start, end);
      for (let i = 0; i < length; i++) values[i] = (values[i] as number) * (x[i] as number);
    }
    const roundings = (dtype === "f64" ? 2 : 1) * (n - 1) * u * 1.01;
    if (n > 2 || dtype !== "f32")
      for (let i = 0; i < length; i++)
        slack[i] = Number.isFinite(values[i]) ? Math.abs(values[i] as number) * roundings : 0;
    return { kind: "real", dtype, values, slack };
  }
  if (op !== "sum" && op !== "avg" && typeof op === "string")
    throw new InvariantError(`${op} has no meaning on ${dtype}`);
  const scalar = typeof op === "object" ? roundTo(dtype, Number(op.scalar)) : 1;
  const absolute = new Float64Array(length);
  for (let r = 0; r < n; r++) {
    const x = r === 0 ? values : decode(dtype, inputs[r] as TypedArray, start, end);
    for (let i = 0; i < length; i++) {
      const term = (x[i] as number) * scalar;
      values[i] = r === 0 ? term : (values[i] as number) + term;
      absolute[i] = (absolute[i] as number) + Math.abs(term);
    }
  }
  // Roundings of the accumulator beside the last one, which rounding to the dtype covers for f32 with two ranks.
  let roundings = n - 1;
  if (op === "avg") roundings += n > 1 ? 2 : 0;
  if (typeof op === "object") roundings += n > 1 ? 1 : 0;
  if (dtype === "f64") roundings *= 2;
  if (dtype === "f32" && op === "sum" && n === 2) roundings = 0;
  const divisor = op === "avg" ? n : 1;
  // Products and quotients of the smallest numbers are off by half their spacing, whatever their size: one a rank where
  // each multiplies its own, one of the whole otherwise, and one of `values` (Higham, Accuracy and Stability, 2.1).
  const underflow = n > 1 && op !== "sum" ? n * (dtype === "f64" ? SMALLEST.f64 : SMALLEST.f32) : 0;
  for (let i = 0; i < length; i++) {
    values[i] = (values[i] as number) / divisor;
    // Nothing is uncertain about infinity.
    slack[i] = Number.isFinite(values[i]) ? ((absolute[i] as number) / divisor) * roundings * u * 1.01 + underflow : 0;
  }
  return { kind: "real", dtype, values, slack };
}

/** Rounds a number to a float dtype. */
function roundTo(dtype: DType, x: number): number {
  if (dtype === "f32") return Math.fround(x);
  if (!isSmallFloat(dtype)) return x;
  return smallFloatTables(dtype).values[encodeSmallFloat(dtype, x)] ?? Number.NaN;
}

/**
 * The reduction of elements [start, end) of every rank's input.
 * @param inputs one array per rank, bit patterns for 16- and 8-bit floats
 * @example
 * referenceReduce("f32", "sum", [new Float32Array([1, 2]), new Float32Array([3, 4])]) // values 4, 6
 */
export function referenceReduce(
  dtype: DType,
  op: ReduceOp,
  inputs: readonly TypedArray[],
  start = 0,
  end: number = inputs[0]?.length ?? 0,
): Expected {
  if (dtype === "i64" || dtype === "u64") return { kind: "bits", dtype, bits: wide(op, dtype, inputs, start, end) };
  if (!DTYPES[dtype].isFloat) return { kind: "bits", dtype, bits: narrow(op, dtype, inputs, start, end) };
  return real(op, dtype, inputs, start, end);
}

/** What a copy must give: the bits of elements [start, end). */
export function referenceCopy(dtype: DType, input: TypedArray, start = 0, end: number = input.length): Expected {
  return { kind: "bits", dtype, bits: input.slice(start, end) as TypedArray };
}

/** How much coarser than f32 (2^-23) the spacing of a small float's values is. */
const COARSER = { f16: 2 ** 13, bf16: 2 ** 16, f8e4m3: 2 ** 20, f8e5m2: 2 ** 21 } as const;

/**
 * Allows more where an engine rounds 16- and 8-bit sums at every step, and says so: as much more as its values are
 * coarser than f32.
 * @param accumulatesInF32 the engine's claim among its features; anything but `false` counts as true
 */
export function asPrecise(expected: Expected, accumulatesInF32: unknown): Expected {
  if (accumulatesInF32 !== false || expected.kind === "bits") return expected;
  const factor = (COARSER as Readonly<Record<string, number>>)[expected.dtype] ?? 1;
  return { ...expected, slack: expected.slack.map((s) => s * factor) };
}

/**
 * Compares a result with what is expected of it.
 * @returns `undefined` when every element is right
 * @example
 * findWrong(referenceReduce("i8", "sum", [new Int8Array([100]), new Int8Array([100])]), new Int8Array([-56])) // undefined
 */
export function findWrong(expected: Expected, actual: TypedArray, offset = 0): Wrong | undefined {
  let count = 0;
  let first = -1;
  const length = expected.kind === "bits" ? expected.bits.length : expected.values.length;
  const right =
    expected.kind === "bits" ? exactRule(expected.bits, actual, offset) : realRule(expected, actual, offset);
  for (let i = 0; i < length; i++) {
    if (right(i)) continue;
    if (count === 0) first = i;
    count++;
  }
  if (count === 0) return undefined;
  const shown =
    expected.kind === "bits"
      ? `bits ${String(expected.bits[first])}`
      : `${expected.values[first]}${(expected.slack[first] ?? 0) > 0 ? ` +- ${expected.slack[first]}` : ""} rounded to ${expected.dtype}`;
  const bits = actual[offset + first];
  const value = bits === undefined ? "nothing" : describe(expected.dtype, bits);
  return { count, index: offset + first, actual: value, expected: shown };
}

function describe(dtype: DType, bits: number | bigint): string {
  return isSmallFloat(dtype) ? `${smallFloatTables(dtype).values[Number(bits)]} (bits ${bits})` : String(bits);
}

function exactRule(bits: TypedArray, actual: TypedArray, offset: number): (i: number) => boolean {
  if (dtypeOf(bits) === "f32" || dtypeOf(bits) === "f64") {
    return (i) => Object.is(bits[i], actual[offset + i]);
  }
  return (i) => bits[i] === actual[offset + i];
}

function realRule(
  expected: Extract<Expected, { kind: "real" }>,
  actual: TypedArray,
  offset: number,
): (i: number) => boolean {
  const { dtype, values, slack } = expected;
  if (isSmallFloat(dtype)) {
    const tables = smallFloatTables(dtype);
    return (i) => {
      const bits = Number(actual[offset + i]);
      const value = values[i] as number;
      const s = slack[i] as number;
      const got = tables.values[bits] as number;
      if (Number.isNaN(value)) return Number.isNaN(got);
      if (s < 0) return got === value;
      return (tables.high[bits] as number) >= value - s && (tables.low[bits] as number) <= value + s;
    };
  }
  const round = dtype === "f32" ? Math.fround : (x: number) => x;
  return (i) => {
    const got = Number(actual[offset + i]);
    const value = values[i] as number;
    const s = slack[i] as number;
    if (Number.isNaN(value)) return Number.isNaN(got);
    if (s < 0) return got === value;
    return got >= round(value - s) && got <= round(value + s);
  };
}
