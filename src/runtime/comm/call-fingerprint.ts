/**
 * The fingerprint of a call: what must be equal on all ranks, in three 32-bit words. The first two carry the call
 * itself, so a mismatch can be told in words from either side; the third is a hash of the rest (scalar, counts).
 */
import { describeCall, type OperationName } from "../../collectives/index.ts";
import { DTYPE_NAMES, type DType, REDUCE_OPS, type ReduceOp } from "../../core/index.ts";

/** Every operation that is counted, recorded and fingerprinted. Only ever append: codes stand in dumps. */
export const WIRE_OPS = [
  "all_reduce",
  "broadcast",
  "reduce",
  "all_gather",
  "all_gather_v",
  "reduce_scatter",
  "reduce_scatter_v",
  "all_to_all",
  "all_to_all_v",
  "gather",
  "scatter",
  "barrier",
  "send",
  "recv",
  "broadcast_object",
  "gather_objects",
  "split",
  /** Of a graph that was captured: see the NCCL backend. */
  "replay",
  /** A plan of the caller's own. */
  "run",
] as const;
export type WireOp = (typeof WIRE_OPS)[number];

const OP_CODES = Object.fromEntries(WIRE_OPS.map((op, code) => [op, code])) as Record<WireOp, number>;
const DTYPE_CODES = Object.fromEntries(DTYPE_NAMES.map((dtype, code) => [dtype, code])) as Record<DType, number>;
const REDOP_CODES = Object.fromEntries([...REDUCE_OPS, "preMulSum"].map((op, code) => [op, code])) as Record<
  string,
  number
>;

export const opCode = (op: WireOp): number => OP_CODES[op];
const redopCode = (op: ReduceOp): number => REDOP_CODES[typeof op === "string" ? op : "preMulSum"] as number;

/** Packs operation, dtype, reduce operator and root (a rank below 65,536) into one word. */
export function packCall(op: WireOp, dtype: DType | undefined, redop: ReduceOp | undefined, root: number): number {
  return (
    OP_CODES[op] |
    ((dtype === undefined ? 15 : DTYPE_CODES[dtype]) << 6) |
    ((redop === undefined ? 15 : redopCode(redop)) << 10) |
    (root << 14)
  );
}

export interface UnpackedCall {
  readonly op: WireOp;
  readonly dtype: DType | undefined;
  readonly redop: string | undefined;
  readonly root: number;
}
export function unpackCall(word: number): UnpackedCall {
  return {
    op: WIRE_OPS[word & 63] ?? "barrier",
    dtype: DTYPE_NAMES[(word >>> 6) & 15],
    redop: [...REDUCE_OPS, "preMulSum"][(word >>> 10) & 15],
    root: (word >>> 14) & 0xffff,
  };
}

/** A fingerprint's first two words as a person would write the call; `count` is of one part, of a graph its hash. */
export function describeWords(word: number, count: number): string {
  const { op, dtype, redop, root } = unpackCall(word);
  if (op === "broadcast_object") return `${op}(root ${root})`;
  if (op === "run") return `run(${redop ?? "sum"}, parts of ${count} x ${dtype ?? "u8"})`;
  if (op === "replay") return `replay(graph ${(count >>> 0).toString(16).padStart(8, "0")})`;
  if (op === "gather_objects" || op === "split" || op === "barrier") return `${op}()`;
  const text = describeCall({
    op: op satisfies OperationName,
    numRanks: 1,
    rank: 0,
    dtype: dtype ?? "u8",
    inputCount: count,
    root,
    peer: root,
    ...(redop === undefined || redop === "preMulSum" ? {} : { redop: redop as ReduceOp }),
  });
  return redop === "preMulSum" ? text.replace("sum", "preMulSum") : text;
}

const bits = new DataView(new ArrayBuffer(8));

/** Mixes numbers into a 32-bit hash (FNV-1a over their float64 bits): the third word. 0 stands for "nothing". */
export function hashNumbers(values: readonly (number | bigint)[]): number {
  let hash = 0x811c9dc5;
  for (const value of values) {
    if (typeof value === "bigint") bits.setBigInt64(0, BigInt.asIntN(64, value));
    else bits.setFloat64(0, value);
    for (let i = 0; i < 8; i++) hash = Math.imul(hash ^ bits.getUint8(i), 0x01000193);
  }
  return hash | 0;
}
