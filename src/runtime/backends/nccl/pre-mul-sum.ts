/** PreMulSum operators: NCCL makes them per communicator and element type; they are kept and freed with it. */

import {
  type DType,
  decodeFloat,
  encodeFloat,
  isSmallFloat,
  sizeOf,
  type TypedArray,
  viewAs,
} from "../../../core/index.ts";
import { NCCL_DTYPE, type NcclLibrary, SCALAR_HOST_IMMEDIATE } from "../../../foreign/nccl/index.ts";
import type { NcclCall } from "./nccl-calls.ts";
import type { PrepareContext } from "./prepare.ts";
import { encodeScalar } from "./scalar.ts";

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
 * Multiplies one rank's elements on the host, `recv = send * scalar` in the dtype: rounded once, integers wrap. Blocks
 * for two copies. In a group of one NCCL 2.28 leaves fp8 unscaled, and the last elements of what is not a multiple of
 * 16 bytes.
 */
export function scaleOnHost({ at, stream }: PrepareContext, call: NcclCall, scalar: number | bigint): void {
  const { dtype } = call;
  const count = call.counts.length > 0 ? call.counts.reduce((a, b) => a + b, 0) : call.count;
  const sizeBytes = count * sizeOf(dtype);
  if (count === 0) return;
  const pinned = at.pinned.take(sizeBytes);
  try {
    at.device.call("cuMemcpyDtoHAsync_v2", "preMulSum", pinned.address, call.send, sizeBytes, stream.handle);
    stream.synchronize("preMulSum");
    scale(dtype, viewAs(dtype, pinned.buffer, 0, count), scalar);
    at.device.call("cuMemcpyHtoDAsync_v2", "preMulSum", call.recv, pinned.address, sizeBytes, stream.handle);
    stream.synchronize("preMulSum");
  } finally {
    at.pinned.giveBack(pinned);
  }
}

function scale(dtype: DType, values: TypedArray, scalar: number | bigint): void {
  if (values instanceof BigInt64Array || values instanceof BigUint64Array) {
    const factor = BigInt(scalar);
    for (let i = 0; i < values.length; i++) values[i] = (values[i] ?? 0n) * factor;
  } else if (isSmallFloat(dtype)) {
    const factor = decodeFloat(dtype, encodeFloat(dtype, Number(scalar)));
    for (let i = 0; i < values.length; i++) {
      values[i] = encodeFloat(dtype, Math.fround(decodeFloat(dtype, values[i] ?? 0) * factor));
    }
  } else if (dtype === "f32" || dtype === "f64") {
    const factor = dtype === "f32" ? Math.fround(Number(scalar)) : Number(scalar);
    for (let i = 0; i < values.length; i++) values[i] = (values[i] ?? 0) * factor;
  } else {
    for (let i = 0; i < values.length; i++) values[i] = Math.imul(values[i] ?? 0, Number(scalar));
  }
}
