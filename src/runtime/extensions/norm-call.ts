/** From what a program gives to one checked call of `allReduceResidualRmsNorm`: where something is wrong, nothing is sent. */
import { overlaps } from "../../collectives/index.ts";
import { type DType, InvalidArgumentError, Tensor } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { checkOptions, type Data, type Operand, type OutputOptions, operand, optionsOf } from "../comm/index.ts";

/** Element types that the extension takes. */
export const NORM_DTYPES = ["f32", "f16", "bf16"] as const;
export type NormDType = (typeof NORM_DTYPES)[number];

/** What `allReduceResidualRmsNorm` is given. */
export interface ResidualRmsNormOptions extends OutputOptions {
  /** [rows, hidden], f32, f16 or bf16: this rank's part of the sum. */
  readonly input: Data;
  /** [rows, hidden] of the same type: what the sum is added to. The same values on all ranks. */
  readonly residual: Data;
  /** [hidden], f32, f16 or bf16. The same values on all ranks. */
  readonly weight: Data;
  /** What is added to the mean of the squares: a number from 0 on. 1e-6 by default. */
  readonly eps?: number;
  /** Where the sum with the residual goes. By default it takes the residual's place. */
  readonly residualOutput?: Data;
  /**
   * On GPUs: false has a kernel of its own do what is behind the sum, also where one kernel could do both. It is for measuring.
   */
  readonly fuse?: boolean;
}

/** A call of which all is known that one rank can know. */
export interface NormCall {
  readonly dtype: NormDType;
  readonly weightDType: NormDType;
  readonly rows: number;
  readonly hidden: number;
  readonly eps: number;
  readonly fuse: boolean;
  readonly input: Operand;
  readonly output: Operand;
  readonly residual: Operand;
  readonly residualOutput: Operand;
  readonly weight: Operand;
  /** Those of the all-reduce. */
  readonly options: OutputOptions & { readonly output: Data };
}

const NAMES = [
  ...["input", "residual", "weight", "eps", "output", "residualOutput", "fuse"],
  ...["algorithm", "timeoutMs", "signal", "dtype"],
];

const isNormDType = (dtype: DType): dtype is NormDType => (NORM_DTYPES as readonly DType[]).includes(dtype);

/** @throws InvalidArgumentError, ClosedError for a tensor that was freed, AbortedError for a signal that was raised */
export function checkNormCall(given: ResidualRmsNormOptions): NormCall {
  const { eps = 1e-6, fuse = true, algorithm, timeoutMs, signal, dtype: named } = optionsOf(given);
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined && !NAMES.includes(name))
      throw new InvalidArgumentError("options of allReduceResidualRmsNorm", name, `one of ${NAMES.join(", ")}`);
  }
  checkOptions(given);
  if (typeof eps !== "number" || !(eps >= 0 && Number.isFinite(eps)))
    throw new InvalidArgumentError("eps", eps, "a finite number, 0 or more");
  if (typeof fuse !== "boolean") throw new InvalidArgumentError("fuse", fuse, "true or false");
  const input = operand(given.input, named, "input");
  const { dtype, count } = input;
  if (!isNormDType(dtype)) throw new InvalidArgumentError("input's dtype", dtype, `one of ${NORM_DTYPES.join(", ")}`);
  const of = (data: Data, argument: string) => {
    const one = operand(data, data instanceof Tensor ? undefined : dtype, argument);
    if (one.dtype !== dtype) throw new InvalidArgumentError(`${argument}'s dtype`, one.dtype, `the input's, ${dtype}`);
    if (one.count !== count)
      throw new InvalidArgumentError(
        argument,
        described(`${one.count} elements`),
        `as many as the input has, ${count}`,
      );
    return one;
  };
  const residual = of(given.residual, "residual");
  const output = given.output === undefined ? input : of(given.output, "output");
  const residualOutput = given.residualOutput === undefined ? residual : of(given.residualOutput, "residualOutput");
  const weight = weightOf(given.weight, dtype);
  const hidden = weight.count;
  checkRows(given, hidden, count);
  checkApart({ input, output, residual, residualOutput, weight });
  const options = {
    output: given.output ?? given.input,
    ...(named !== undefined && { dtype: named }),
    ...(algorithm !== undefined && { algorithm }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(signal !== undefined && { signal }),
  };
  const buffers = { input, output, residual, residualOutput, weight };
  return { dtype, weightDType: weight.dtype, rows: count / hidden, hidden, eps, fuse, ...buffers, options };
}

function weightOf(data: Data, dtype: NormDType): Operand & { readonly dtype: NormDType } {
  // Of arrays that hold either, one has the input's type.
  const isHalf = data instanceof Uint16Array;
  const weight = operand(data, isHalf && dtype !== "f32" ? dtype : undefined, "weight");
  const { dtype: own } = weight;
  if (!isNormDType(own)) throw new InvalidArgumentError("weight's dtype", own, `one of ${NORM_DTYPES.join(", ")}`);
  if (weight.count === 0)
    throw new InvalidArgumentError("weight", described("no elements"), "hidden elements, 1 at least");
  return { ...weight, dtype: own };
}

/** Rows are as long as the weight is. @throws InvalidArgumentError */
function checkRows(given: ResidualRmsNormOptions, hidden: number, count: number): void {
  if (count % hidden !== 0) {
    const accepted = `a multiple of the weight's ${hidden}: [rows, hidden]`;
    throw new InvalidArgumentError("input", described(`${count} elements`), accepted);
  }
  for (const name of ["input", "residual", "output", "residualOutput"] as const) {
    const data = given[name];
    if (!(data instanceof Tensor) || data.shape.length < 2 || data.shape.at(-1) === hidden) continue;
    const accepted = `rows of ${hidden}, as many as the weight has`;
    throw new InvalidArgumentError(name, described(`the shape [${data.shape.join(", ")}]`), accepted);
  }
}

/** A result may lie on what it takes the place of, and on nothing else. @throws InvalidArgumentError */
function checkApart(buffers: Pick<NormCall, "input" | "output" | "residual" | "residualOutput" | "weight">): void {
  const refuse = (a: keyof typeof buffers, b: keyof typeof buffers, mayBeSame: boolean) => {
    const [x, y] = [buffers[a].region, buffers[b].region];
    if (x === y && mayBeSame) return;
    if (!overlaps(x, y) || (mayBeSame && x.byteOffset === y.byteOffset)) return;
    throw new InvalidArgumentError(a, described(`memory that overlaps the ${b}`), `memory apart from the ${b}`);
  };
  refuse("output", "input", true);
  refuse("residualOutput", "residual", true);
  for (const one of ["residual", "residualOutput", "weight"] as const) {
    refuse("output", one, false);
    if (one !== "weight") refuse(one, "input", false);
  }
  refuse("residualOutput", "weight", false);
}
