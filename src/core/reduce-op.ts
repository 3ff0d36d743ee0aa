/** Reduce operators, and what each means for each dtype. */
import { DTYPES, type DType } from "./dtype.ts";
import { oneOf } from "./one-of.ts";

/** The named operators. Bitwise ones are for integers only. Order here is ours: engines' enums differ, never share one. */
export const REDUCE_OPS = ["sum", "prod", "min", "max", "avg", "band", "bor", "bxor"] as const;
export type NamedReduceOp = (typeof REDUCE_OPS)[number];

/** Every input is multiplied by `scalar` (in the collective's dtype) before the sum. Made by `Communicator.preMulSum`. */
export interface PreMulSum {
  readonly kind: "preMulSum";
  readonly scalar: number | bigint;
}

export type ReduceOp = NamedReduceOp | PreMulSum;

/** Says whether `op` is defined for `dtype`. */
export function isLegal(op: ReduceOp, dtype: DType): boolean {
  return op === "band" || op === "bor" || op === "bxor" ? !DTYPES[dtype].isFloat : true;
}

/**
 * Reads an operator's name.
 * @throws InvalidArgumentError naming the operators
 */
export function parseReduceOp(text: string, argument = "redop"): NamedReduceOp {
  return oneOf(text, argument, REDUCE_OPS);
}
