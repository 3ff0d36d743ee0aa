/** PreMulSum operators: NCCL makes them per communicator and element type; they are kept and freed with it. */

import { type DType, decodeFloat, encodeFloat, isSmallFloat, sizeOf, viewAs } from "../../../core/index.ts";
import type { NcclCall } from "./calls.ts";
import type { NcclLibrary } from "./library.ts";
import type { PrepareContext } from "./prepare.ts";
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

/**
 * Multiplies one rank's small floats on the host, `recv = send * scalar` rounded once. Blocks for two copies.
 * @returns true: the result is in `recv`
 */
export function scaleOnHost({ at, stream }: PrepareContext, call: NcclCall, scalar: number | bigint): boolean {
  const { dtype, count } = call;
  const sizeBytes = count * sizeOf(dtype);
  if (count === 0 || !isSmallFloat(dtype)) return true;
  const pinned = at.pinned.take(sizeBytes);
  try {
    at.device.call("cuMemcpyDtoHAsync_v2", "preMulSum", pinned.address, call.send, sizeBytes, stream.handle);
    stream.synchronize("preMulSum");
    const bits = viewAs(dtype, pinned.buffer, 0, count);
    const factor = decodeFloat(dtype, encodeFloat(dtype, Number(scalar)));
    for (let i = 0; i < count; i++)
      bits[i] = encodeFloat(dtype, Math.fround(decodeFloat(dtype, bits[i] ?? 0) * factor));
    at.device.call("cuMemcpyHtoDAsync_v2", "preMulSum", call.recv, pinned.address, sizeBytes, stream.handle);
    stream.synchronize("preMulSum");
  } finally {
    at.pinned.giveBack(pinned);
  }
  return true;
}
