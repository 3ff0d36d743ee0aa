/**
 * How values are carried through a plan, so that a result is rounded once whatever the plan combines when: 16- and 8-bit
 * floats in f32, averages divided after the last sum, scalars multiplied before the first.
 */
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import {
  DTYPES,
  type DType,
  decodeFloat,
  encodeFloat,
  isSmallFloat,
  type ReduceOp,
  UnsupportedError,
} from "../../../core/index.ts";
import type { KernelOp } from "../wasm/reduce-kernels.ts";
import { reductionDepth } from "./reduction-depth.ts";

/** Operators whose result depends on when it is rounded. */
const ROUNDING = new Set<KernelOp>(["sum", "prod", "avg", "preMulSum"]);

export interface Carriage {
  /** The element type that the plan runs on. */
  readonly dtype: DType;
  /** The operator of its reductions. */
  readonly op: KernelOp;
  /** 16- and 8-bit floats are carried in f32, because the plan combines what it combined before. */
  readonly widened: boolean;
  /** Inputs are multiplied before the plan, outputs divided after it. */
  readonly scaled: boolean;
  readonly divided: boolean;
}

interface Carried {
  readonly plan: ExecutionPlan;
  readonly dtype: DType;
  readonly op: ReduceOp;
}

/** Whether values go through a plan as they are. */
export function isCarriedAsIs(call: Carried): boolean {
  const { dtype, scaled, divided } = carriageOf(call);
  return dtype === call.dtype && !scaled && !divided;
}

/** @throws UnsupportedError for an average whose parts nobody can tell */
export function carriageOf({ plan, dtype, op }: Carried): Carriage {
  const name: KernelOp = typeof op === "string" ? op : "preMulSum";
  const plain = { dtype, op: name, widened: false, scaled: false, divided: false };
  if (!ROUNDING.has(name) || (!isSmallFloat(dtype) && name !== "avg" && name !== "preMulSum")) return plain;
  if (reductionDepth(plan) < 2) return plain;
  if (name === "avg" && plan.collective.operation === "custom") {
    throw new UnsupportedError(
      "avg in a custom collective that combines in several steps",
      "sum, and divide afterwards",
    );
  }
  const widened = isSmallFloat(dtype);
  return {
    dtype: widened ? "f32" : dtype,
    op: name === "prod" ? "prod" : "sum",
    widened,
    scaled: name === "preMulSum",
    divided: name === "avg",
  };
}

/** The scalar as the dtype holds it; 1 where there is none. */
export function scalarOf(op: ReduceOp, dtype: DType): number | bigint {
  if (typeof op === "string") return 1;
  if (!DTYPES[dtype].isFloat) return op.scalar;
  return isSmallFloat(dtype) ? decodeFloat(dtype, encodeFloat(dtype, Number(op.scalar))) : Number(op.scalar);
}
