/** What a work carries beside its buffers: the reduction's kernel and scalar, and the counts of each rank's part. */
import { DTYPES, type DType, decodeFloat, encodeFloat, isSmallFloat, type ReduceOp } from "../../../core/index.ts";
import { hashNumbers } from "../../comm/index.ts";
import { kernelOf } from "./move.ts";
import type { Parts, ThreadsWork } from "./threads-work.ts";

/** Sets how elements are reduced, and makes ranks whose scalars differ notice it. */
export function setOperator(work: ThreadsWork<unknown>, dtype: DType, redop: ReduceOp, numRanks: number): void {
  work.kernel = kernelOf(dtype, redop);
  if (redop === "avg") work.parameter = { dtype, op: redop, value: numRanks };
  if (typeof redop === "string") return;
  const value = DTYPES[dtype].isFloat
    ? isSmallFloat(dtype)
      ? decodeFloat(dtype, encodeFloat(dtype, Number(redop.scalar)))
      : Number(redop.scalar)
    : redop.scalar;
  work.parameter = { dtype, op: "preMulSum", value };
  work.extra = hashNumbers([typeof value === "bigint" ? value : Number(value)]);
  work.detail = ` with scalar ${redop.scalar}`;
}

/** Makes ranks notice it that have other things done behind their calls. */
export function setEpilogue(work: ThreadsWork<unknown>, { agreed }: { readonly agreed: string }): void {
  work.extra ^= hashNumbers([...Buffer.from(agreed)]);
  work.detail += ` with ${agreed} behind it`;
}

/** Lays the parts of a buffer out one after the other. */
export function partsOf(counts: readonly number[], elementBytes: number): Parts {
  const sizes = counts.map((count) => count * elementBytes);
  let total = 0;
  const offsets = sizes.map((bytes) => {
    total += bytes;
    return total - bytes;
  });
  const detail = ` counts [${counts.join(", ")}]`;
  return { counts: [...counts], elementBytes, sizes, offsets, total, hash: hashNumbers(counts), detail };
}

/** Sets how many elements each rank's part has, and makes ranks whose counts differ notice it. */
export function setCounts(work: ThreadsWork<unknown>, counts: readonly number[], elementBytes: number): void {
  const parts = partsOf(counts, elementBytes);
  work.extra ^= parts.hash;
  work.parts = parts;
  work.detail += parts.detail;
}
