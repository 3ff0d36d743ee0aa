/** The step behind the all-reduce on a CPU, for backends whose tensors are in host memory. Computed in f64, rounded where it is stored. */
import { type ArrayOf, type DType, decodeFloat, encodeFloat, invariant, type TypedArray } from "../../core/index.ts";
import type { Operand } from "../comm/index.ts";
import type { NormCall, NormDType } from "./norm-call.ts";

/** Elements of a type as numbers, and back. */
interface Elements {
  readonly read: (at: number) => number;
  readonly write: (at: number, value: number) => void;
}

/** All values of a 16-bit type, by their bits. */
const VALUES = new Map<DType, Float32Array>();
function valuesOf(dtype: "f16" | "bf16"): Float32Array {
  let values = VALUES.get(dtype);
  if (values === undefined) {
    values = Float32Array.from({ length: 1 << 16 }, (_, bits) => decodeFloat(dtype, bits));
    VALUES.set(dtype, values);
  }
  return values;
}

function elementsOf({ tensor, array }: Operand, dtype: NormDType): Elements {
  const data = (array ?? tensor?.data) as TypedArray | undefined;
  invariant(data !== undefined, "a backend without epilogues has its tensors in host memory");
  const all = data as ArrayOf<"f32" | "f16">;
  if (dtype === "f32")
    return {
      read: (at) => all[at] as number,
      write: (at, value) => {
        all[at] = value;
      },
    };
  const values = valuesOf(dtype);
  return {
    read: (at) => values[all[at] as number] as number,
    write: (at, value) => {
      all[at] = encodeFloat(dtype, value);
    },
  };
}

/** Adds the residual to the sum that is in the output, and normalizes: what is stored as the new residual is what is normalized. */
export function addAndNormalize(call: NormCall): void {
  const { dtype, weightDType, rows, hidden, eps } = call;
  const [sums, residual] = [elementsOf(call.output, dtype), elementsOf(call.residual, dtype)];
  const [added, weight] = [elementsOf(call.residualOutput, dtype), elementsOf(call.weight, weightDType)];
  for (let row = 0; row < rows; row++) {
    const first = row * hidden;
    let squares = 0;
    for (let at = first; at < first + hidden; at++) {
      added.write(at, sums.read(at) + residual.read(at));
      const value = added.read(at);
      squares += value * value;
    }
    const scale = 1 / Math.sqrt(squares / hidden + eps);
    for (let i = 0; i < hidden; i++) sums.write(first + i, added.read(first + i) * scale * weight.read(i));
  }
}
