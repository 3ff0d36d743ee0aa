/** PreMulSum operators: NCCL makes them per communicator and element type; they are kept and freed with it. */

import type { DType } from "../../../core/index.ts";
import type { NcclLibrary } from "./library.ts";
import { encodeScalar } from "./scalar.ts";
import { NCCL_DTYPE, SCALAR_HOST_IMMEDIATE } from "./symbols.ts";

export class PreMulSumOperators {
  readonly #library: NcclLibrary;
  readonly #made = new Map<string, number>();

  constructor(library: NcclLibrary) {
    this.#library = library;
  }

  /** The operator that multiplies by `scalar`; made on first use. @throws NativeError */
  get(comm: bigint, dtype: DType, scalar: number | bigint): number {
    const key = `${dtype} ${scalar}`;
    let op = this.#made.get(key);
    if (op === undefined) {
      const out = new Int32Array(1);
      const { api } = this.#library;
      const value = encodeScalar(dtype, scalar);
      const status = api.ncclRedOpCreatePreMulSum(out, value, NCCL_DTYPE[dtype], SCALAR_HOST_IMMEDIATE, comm);
      this.#library.check("ncclRedOpCreatePreMulSum", status, comm);
      op = out[0] ?? 0;
      this.#made.set(key, op);
    }
    return op;
  }

  /** Frees them; the communicator is still open. */
  close(comm: bigint): void {
    for (const op of this.#made.values()) this.#library.api.ncclRedOpDestroy(op, comm);
    this.#made.clear();
  }
}
