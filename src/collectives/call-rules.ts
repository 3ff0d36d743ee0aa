/**
 * When a call is legal: divisibility, lengths, root and peer range, operator and dtype, in-place forms and overlap.
 * Every backend checks these before anything moves, with the same words. Nothing here allocates unless a rule is
 * broken, because it runs on the fast path. Rules need only what one rank knows; that ranks agree is the fingerprint's
 * business.
 */
import {
  DTYPES,
  type DType,
  InvalidArgumentError,
  isLegal,
  REDUCE_OPS,
  type ReduceOp,
  show,
  UnsupportedError,
} from "../core/index.ts";
import { described } from "../core/internal.ts";
import { type InPlace, OPERATIONS, type OperationInfo, type OperationName } from "./operation-table.ts";

/** A stretch of memory: `storage` is compared by identity (an ArrayBuffer, a device allocation). */
export interface Region {
  readonly storage: unknown;
  readonly byteOffset: number;
  readonly sizeBytes: number;
}

/** Says whether two stretches of memory share a byte. Empty ones share none. */
export function overlaps(a: Region, b: Region): boolean {
  return (
    a.storage === b.storage &&
    a.sizeBytes > 0 &&
    b.sizeBytes > 0 &&
    a.byteOffset < b.byteOffset + b.sizeBytes &&
    b.byteOffset < a.byteOffset + a.sizeBytes
  );
}

/** @throws InvalidArgumentError unless `root` is a rank of the group */
export function checkRoot(root: number, numRanks: number): void {
  if (!Number.isInteger(root) || root < 0 || root >= numRanks) {
    throw new InvalidArgumentError("root", root, `a rank of the group, an integer from 0 to ${numRanks - 1}`);
  }
}

/** @throws InvalidArgumentError unless `peer` is another rank of the group: a rank cannot send to itself */
export function checkPeer(peer: number, rank: number, numRanks: number): void {
  if (!Number.isInteger(peer) || peer < 0 || peer >= numRanks || peer === rank) {
    throw new InvalidArgumentError(
      "peer",
      peer,
      numRanks === 1
        ? "another rank, and this group has only one"
        : `a rank of the group other than this one (${rank}), an integer from 0 to ${numRanks - 1}`,
    );
  }
}

/** @throws InvalidArgumentError unless a deadline is a positive number of milliseconds (Infinity: none) */
export function checkTimeout(timeoutMs: number | undefined): void {
  if (timeoutMs !== undefined && !(typeof timeoutMs === "number" && timeoutMs > 0)) {
    throw new InvalidArgumentError("timeoutMs", timeoutMs, "a number of milliseconds above 0");
  }
}

const INTEGER_RANGE = {
  i8: [-(2n ** 7n), 2n ** 7n - 1n],
  u8: [0n, 2n ** 8n - 1n],
  i32: [-(2n ** 31n), 2n ** 31n - 1n],
  u32: [0n, 2n ** 32n - 1n],
  i64: [-(2n ** 63n), 2n ** 63n - 1n],
  u64: [0n, 2n ** 64n - 1n],
} as const;

/**
 * Checks a `preMulSum` scalar against the dtype it multiplies: any number for floats, a value that the dtype holds for
 * integers.
 * @throws InvalidArgumentError
 */
export function checkScalar(scalar: number | bigint, dtype: DType): void {
  if (DTYPES[dtype].isFloat) {
    if (typeof scalar === "number" || typeof scalar === "bigint") return;
    throw new InvalidArgumentError("scalar", scalar, "a number");
  }
  const [low, high] = INTEGER_RANGE[dtype as keyof typeof INTEGER_RANGE];
  const whole = typeof scalar === "bigint" || Number.isInteger(scalar);
  if (!whole || scalar < low || scalar > high) {
    throw new InvalidArgumentError("scalar", scalar, `an integer that ${dtype} holds, from ${low} to ${high}`);
  }
}

/**
 * Checks that an operator is one of chorale's and is defined for `dtype`.
 * @throws InvalidArgumentError for a value that is not an operator, and for a scalar that does not fit the dtype
 * @throws UnsupportedError for bitwise operators on floats
 */
export function checkReduceOp(op: ReduceOp, dtype: DType): void {
  if (op === "sum") return;
  if (typeof op === "object" && op !== null && op.kind === "preMulSum") {
    checkScalar(op.scalar, dtype);
    return;
  }
  if (!(REDUCE_OPS as readonly unknown[]).includes(op)) {
    throw new InvalidArgumentError("op", op, `${REDUCE_OPS.join(", ")}, or preMulSum(scalar)`);
  }
  if (!isLegal(op, dtype)) throw new UnsupportedError(`${op} on ${dtype}`, "bitwise operators are for integer dtypes");
}

/** @throws InvalidArgumentError unless `counts` holds one whole number of elements, 0 or more, per rank */
export function checkCounts(counts: readonly number[] | undefined, numRanks: number, argument = "counts"): void {
  if (!Array.isArray(counts) || counts.length !== numRanks || counts.some((c) => !Number.isSafeInteger(c) || c < 0)) {
    throw new InvalidArgumentError(
      argument,
      counts,
      `${numRanks} element counts (one per rank), integers of 0 or more`,
    );
  }
}

/** What one rank passes to an operation. Counts are in elements. */
export interface Call {
  readonly op: OperationName;
  readonly numRanks: number;
  readonly rank: number;
  readonly dtype: DType;
  /** Elements of the input that the caller passed (of the output, for `recv` and on ranks of `scatter` other than root). */
  readonly inputCount: number;
  /** Elements of the output that the caller passed; absent when it passed none. */
  readonly outputCount?: number | undefined;
  readonly outputDtype?: DType | undefined;
  readonly root?: number | undefined;
  readonly peer?: number | undefined;
  readonly redop?: ReduceOp | undefined;
  readonly counts?: readonly number[] | undefined;
  readonly sendCounts?: readonly number[] | undefined;
  readonly recvCounts?: readonly number[] | undefined;
}

const sum = (values: readonly number[]) => {
  let total = 0;
  for (const value of values) total += value;
  return total;
};

/** Elements of this rank's output, for a call that is otherwise legal. 0 where this rank has none. */
export function outputCount(call: Call): number {
  const { op, numRanks: n, rank, inputCount } = call;
  switch (op) {
    case "all_reduce":
    case "broadcast":
    case "recv":
      return inputCount;
    case "reduce":
      return rank === (call.root ?? 0) ? inputCount : 0;
    case "all_gather":
      return inputCount * n;
    case "gather":
      return rank === (call.root ?? 0) ? inputCount * n : 0;
    case "reduce_scatter":
      return inputCount / n;
    case "scatter":
      return rank === (call.root ?? 0) ? inputCount / n : inputCount;
    case "all_to_all":
      return inputCount;
    case "all_gather_v":
      return sum(call.counts ?? []);
    case "reduce_scatter_v":
      return call.counts?.[rank] ?? 0;
    case "all_to_all_v":
      return sum(call.recvCounts ?? []);
    case "send":
    case "barrier":
      return 0;
  }
}

/**
 * The count that all ranks must agree on, in elements of a part: what a fingerprint carries. For operations with
 * parts of different sizes, the sum of the counts (0 for `all_to_all_v`, whose ranks need not agree).
 */
export function agreedCount(call: Call): number {
  const { op, numRanks: n, inputCount } = call;
  switch (op) {
    case "reduce_scatter":
    case "all_to_all":
      return inputCount / n;
    case "scatter":
      return call.rank === (call.root ?? 0) ? inputCount / n : inputCount;
    case "all_gather_v":
    case "reduce_scatter_v":
      return sum(call.counts ?? []);
    case "all_to_all_v":
    case "barrier":
      return 0;
    default:
      return inputCount;
  }
}

function wrongLength(argument: string, count: number, accepted: string): never {
  throw new InvalidArgumentError(argument, described(`${count} elements`), accepted);
}

function checkInput(call: Call, info: OperationInfo): void {
  const { op, numRanks: n, rank, inputCount } = call;
  if (op === "all_gather_v") {
    const own = call.counts?.[rank] ?? 0;
    if (inputCount !== own) wrongLength("input", inputCount, `counts[${rank}] = ${own} elements`);
  } else if (op === "reduce_scatter_v") {
    const total = sum(call.counts ?? []);
    if (inputCount !== total) wrongLength("input", inputCount, `the sum of counts, ${total} elements`);
  } else if (op === "all_to_all_v") {
    const total = sum(call.sendCounts ?? []);
    if (inputCount !== total) wrongLength("input", inputCount, `the sum of sendCounts, ${total} elements`);
  } else if (
    info.input === "parts" &&
    inputCount % n !== 0 &&
    (info.inputAt === "every" || rank === (call.root ?? 0))
  ) {
    wrongLength("input", inputCount, `a multiple of ${n} elements, one part per rank`);
  }
}

/**
 * Checks everything about a call that one rank can know, except memory (see `checkPlacement`).
 * @throws InvalidArgumentError naming the argument, its value and what is accepted
 * @throws UnsupportedError for an operator that the dtype does not have
 */
export function checkCall(call: Call): void {
  const info: OperationInfo = OPERATIONS[call.op];
  if (info.rooted) checkRoot(call.root ?? 0, call.numRanks);
  if (info.pointToPoint) checkPeer(call.peer ?? Number.NaN, call.rank, call.numRanks);
  if (info.reduces) checkReduceOp(call.redop ?? "sum", call.dtype);
  if (info.variable) {
    if (call.op === "all_to_all_v") {
      checkCounts(call.sendCounts, call.numRanks, "sendCounts");
      checkCounts(call.recvCounts, call.numRanks, "recvCounts");
      const toSelf = call.sendCounts?.[call.rank];
      if (toSelf !== call.recvCounts?.[call.rank]) {
        throw new InvalidArgumentError(
          `recvCounts[${call.rank}]`,
          call.recvCounts?.[call.rank],
          `sendCounts[${call.rank}] = ${toSelf}, what this rank sends to itself`,
        );
      }
    } else checkCounts(call.counts, call.numRanks);
  }
  if (info.input !== "none") checkInput(call, info);
  if (call.outputCount === undefined || info.output === "none" || call.op === "recv") return;
  if (info.outputAt === "root" && call.rank !== (call.root ?? 0)) return;
  if (call.outputDtype !== undefined && call.outputDtype !== call.dtype) {
    throw new InvalidArgumentError("output", call.outputDtype, `the input's dtype, ${call.dtype}`);
  }
  const expected = outputCount(call);
  if (call.outputCount !== expected)
    wrongLength("output", call.outputCount, `${expected} elements (${equation(call)})`);
}

/** How the length of an output comes about, for an error message. */
function equation(call: Call): string {
  const { op, numRanks: n, inputCount, rank } = call;
  switch (op) {
    case "all_gather":
    case "gather":
      return `input ${inputCount} x ${n} ranks`;
    case "scatter":
      if (rank !== (call.root ?? 0)) return `the input, which is this rank's part`;
      return `input ${inputCount} / ${n} ranks`;
    case "reduce_scatter":
      return `input ${inputCount} / ${n} ranks`;
    case "reduce_scatter_v":
      return `counts[${rank}]`;
    case "all_gather_v":
      return "the sum of counts";
    case "all_to_all_v":
      return "the sum of recvCounts";
    default:
      return "as the input";
  }
}

const RULE_TEXT: Readonly<Record<InPlace, string>> = {
  same: "memory apart from the input, or exactly the input",
  "own part of output": "an output apart from the input, or one whose own part of this rank is exactly the input",
  "own part of input": "an output apart from the input, or exactly this rank's own part of the input",
  never: "memory apart from the input: this operation has no in-place form",
};

/**
 * Checks where the output lies relative to the input.
 * @param ownOffsetBytes where this rank's own part starts in the larger buffer, in bytes
 * @returns whether the call is in place
 * @throws InvalidArgumentError when they overlap in a way that the operation has no form for
 */
export function checkPlacement(op: OperationName, input: Region, output: Region, ownOffsetBytes: number): boolean {
  if (!overlaps(input, output)) return false;
  const rule = OPERATIONS[op].inPlace as InPlace;
  const shift = output.byteOffset - input.byteOffset;
  if (rule === "same" && shift === 0 && input.sizeBytes === output.sizeBytes) return true;
  if (rule === "own part of output" && shift === -ownOffsetBytes) return true;
  if (rule === "own part of input" && shift === ownOffsetBytes) return true;
  throw new InvalidArgumentError(
    "output",
    described(
      `memory that overlaps the input (bytes ${output.byteOffset}..${output.byteOffset + output.sizeBytes} and ${input.byteOffset}..${input.byteOffset + input.sizeBytes} of one buffer)`,
    ),
    `${RULE_TEXT[rule]} (${op})`,
  );
}

/** Where this rank's own part starts in the larger buffer, in elements; `part` is the count of a part. */
export function ownOffset(rank: number, part: number, counts?: readonly number[]): number {
  if (counts === undefined) return rank * part;
  let offset = 0;
  for (let r = 0; r < rank; r++) offset += counts[r] ?? 0;
  return offset;
}

/** A call as a person would write it: `all_reduce(f32[1024], sum)`. */
export function describeCall(call: Call): string {
  const info: OperationInfo = OPERATIONS[call.op];
  const parts: string[] = [];
  if (info.input !== "none" || call.op === "recv") parts.push(`${call.dtype}[${call.inputCount}]`);
  if (info.reduces) {
    const op = call.redop ?? "sum";
    parts.push(typeof op === "string" ? op : `preMulSum(${show(op.scalar)})`);
  }
  if (info.rooted) parts.push(`root ${call.root ?? 0}`);
  if (info.pointToPoint) parts.push(`peer ${call.peer}`);
  if (call.counts !== undefined) parts.push(`counts ${show(call.counts)}`);
  return `${call.op}(${parts.join(", ")})`;
}
