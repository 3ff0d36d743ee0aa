/**
 * The cases that move data: every operation, dtype, operator, size and way of passing buffers, each checked against
 * the reference of collectives/ on random data, with poisoned outputs and guard elements.
 */
import {
  asPrecise,
  findWrong,
  type OperationName,
  operationInfo,
  outputSegments,
  referenceReduce,
} from "../../collectives/index.ts";
import { DTYPES, type DType, newArray, type ReduceOp, sizeOf, type Tensor, type TypedArray } from "../../core/index.ts";
import type { CallOptions, Communicator, Data, Work } from "../../runtime/comm/index.ts";
import { type Buffer, elementsOf, makeBuffer, type StorageKind, samePlace } from "./guarded-buffers.ts";
import type { RankContext } from "./rank-context.ts";
import { digest, type Fill, fillRandom, hashOf } from "./seeded-random.ts";

export const COUNT_KINDS = ["zero", "one", "odd", "uneven", "pow2", "large"] as const;
export type CountKind = (typeof COUNT_KINDS)[number];
/** `none`: no output is given. `same`: the output is exactly the input. `own part`: in place in the larger buffer. */
export type Placement = "none" | "same" | "own part" | "apart";
export type CaseRedop = "sum" | "prod" | "min" | "max" | "avg" | "band" | "bor" | "bxor" | "preMulSum";

/** One case: plain data, so that it travels to the ranks. */
export interface DataCase {
  readonly op: OperationName;
  readonly dtype: DType;
  /** `none` for operations that do not reduce. */
  readonly redop: CaseRedop | "none";
  readonly ranks: number;
  readonly count: CountKind;
  readonly placement: Placement;
  readonly storage: StorageKind;
  readonly drive: "wait" | "await";
}

export function describeCase(c: DataCase): string {
  const redop = c.redop === "none" ? "" : ` ${c.redop}`;
  return `${c.op} ${c.dtype}${redop} ranks=${c.ranks} count=${c.count} output=${c.placement} ${c.storage} ${c.drive}`;
}

const LARGE_BYTES = 4 << 20;
/** Checking takes its time by the element: narrow types leave the thresholds above 512 KiB to the wide ones. */
const LARGE_ELEMENTS = 1 << 19;
/** Far beyond what a rank needs to check large results while the others wait for it, also with many ranks on few cores. */
const CALL: CallOptions = { timeoutMs: 120_000 };

/** Elements of a part, for a count kind. */
function countOf(c: DataCase): number {
  const info = operationInfo(c.op);
  const parts = info.input === "parts" || info.output === "parts" ? c.ranks : 1;
  switch (c.count) {
    case "zero":
      return 0;
    case "one":
      return 1;
    case "odd":
      return 1023;
    case "uneven":
      return 37 * c.ranks + 1;
    case "pow2":
      return 2048;
    case "large":
      return Math.floor(Math.min(LARGE_BYTES / sizeOf(c.dtype), LARGE_ELEMENTS) / parts) + 3;
  }
}

/** Everything about a case that is derived from its seed, the same on every rank. */
interface Shape {
  readonly n: number;
  readonly count: number;
  readonly root: number;
  readonly counts: readonly number[];
  readonly sendCounts: readonly (readonly number[])[];
  readonly redop: ReduceOp;
  readonly fill: Fill;
  readonly guard: number;
}

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

function shapeOf(comm: Communicator, c: DataCase, seed: number): Shape {
  const n = c.ranks;
  const count = countOf(c);
  const vary = (...key: number[]) =>
    c.count === "one" ? hashOf(seed, ...key) % 2 : hashOf(seed, ...key) % (count + 1);
  const isInteger = !DTYPES[c.dtype].isFloat;
  const redop: ReduceOp =
    c.redop === "none"
      ? "sum"
      : c.redop === "preMulSum"
        ? comm.preMulSum(isInteger ? premulInteger(c.dtype) : 0.7)
        : c.redop;
  return {
    n,
    count,
    root: hashOf(seed, 7) % n,
    counts: Array.from({ length: n }, (_, r) => vary(1, r)),
    sendCounts: Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => vary(2, i, j))),
    redop,
    fill: c.redop === "none" ? "bits" : c.redop === "prod" ? "factors" : "numbers",
    guard: hashOf(seed, 3) % 2 === 0 ? 3 : 16,
  };
}

function premulInteger(dtype: DType): number | bigint {
  return dtype === "i64" || dtype === "u64" ? 3_000_000_007n : 3;
}

/** Elements of `rank`'s input. */
function inputCount(c: DataCase, s: Shape, rank: number): number {
  const info = operationInfo(c.op);
  if (c.op === "all_gather_v") return s.counts[rank] ?? 0;
  if (c.op === "reduce_scatter_v") return sum(s.counts);
  if (c.op === "all_to_all_v") return sum(s.sendCounts[rank] ?? []);
  return info.input === "parts" ? s.n * s.count : s.count;
}

function outputElements(c: DataCase, s: Shape, rank: number): number {
  const info = operationInfo(c.op);
  if (c.op === "all_gather_v") return sum(s.counts);
  if (c.op === "reduce_scatter_v") return s.counts[rank] ?? 0;
  if (c.op === "all_to_all_v") return sum(s.sendCounts.map((row) => row[rank] ?? 0));
  return info.output === "parts" ? s.n * s.count : s.count;
}

/** Where a rank's own part starts in the larger buffer. */
function ownStart(c: DataCase, s: Shape, rank: number): number {
  return operationInfo(c.op).variable ? sum(s.counts.slice(0, rank)) : rank * s.count;
}

interface Prepared {
  readonly input: Data;
  readonly inputView: TypedArray;
  readonly output: Data | undefined;
  readonly buffers: readonly Buffer[];
  /** A buffer that must stay as it was: a rank that is not the root. */
  readonly bystander: Buffer | undefined;
}

/** Makes the buffers of a case on this rank, inputs filled, outputs poisoned. */
function prepare(context: RankContext, c: DataCase, s: Shape, seed: number): Prepared {
  const { world, comm } = context;
  const rank = comm.rank;
  const make = (count: number) => makeBuffer(world, c.storage, c.dtype, count, s.guard);
  const fill = (view: TypedArray, start = 0) => fillRandom(c.dtype, s.fill, seed, rank, start, view);
  const isRoot = rank === s.root;
  // A rank of scatter or broadcast that is not the root passes its output, where the root passes its input.
  if ((c.op === "scatter" || c.op === "broadcast") && !isRoot && (c.op === "scatter" || c.placement !== "apart")) {
    const buffer = make(s.count);
    return { input: buffer.data, inputView: buffer.view, output: undefined, buffers: [buffer], bystander: undefined };
  }
  const nIn = inputCount(c, s, rank);
  const nOut = outputElements(c, s, rank);
  const own = ownStart(c, s, rank);
  const rootOnly = operationInfo(c.op).outputAt === "root" && !isRoot;
  if (c.placement === "own part" && !rootOnly) {
    const large = make(Math.max(nIn, nOut));
    const gathers = operationInfo(c.op).inPlace === "own part of output";
    const input = gathers ? large.part(own, own + nIn) : large.data;
    const output = gathers ? large.data : large.part(own, own + nOut);
    const view = (gathers ? large.view.subarray(own, own + nIn) : large.view.subarray(0, nIn)) as TypedArray;
    fill(view);
    return { input, inputView: view, output, buffers: [large], bystander: undefined };
  }
  const input = make(nIn);
  fill(input.view);
  if (c.placement === "none" || c.placement === "own part") {
    return { input: input.data, inputView: input.view, output: undefined, buffers: [input], bystander: undefined };
  }
  if (c.placement === "same") {
    return { input: input.data, inputView: input.view, output: input.data, buffers: [input], bystander: undefined };
  }
  const output = make(rootOnly ? s.count : nOut);
  return {
    input: input.data,
    inputView: input.view,
    output: output.data,
    buffers: [input, output],
    bystander: rootOnly ? output : undefined,
  };
}

function issue(comm: Communicator, c: DataCase, s: Shape, p: Prepared): Work<Tensor> {
  const base = { ...CALL, dtype: c.dtype, ...(p.output === undefined ? {} : { output: p.output }) };
  const rank = comm.rank;
  switch (c.op) {
    case "all_reduce":
      return comm.allReduce(p.input, { ...base, op: s.redop });
    case "reduce":
      return comm.reduce(p.input, { ...base, op: s.redop, root: s.root });
    case "reduce_scatter":
      return comm.reduceScatter(p.input, { ...base, op: s.redop });
    case "reduce_scatter_v":
      return comm.reduceScatterV(p.input, { ...base, op: s.redop, counts: s.counts });
    case "broadcast":
      return comm.broadcast(p.input, { ...base, root: s.root });
    case "all_gather":
      return comm.allGather(p.input, base);
    case "all_gather_v":
      return comm.allGatherV(p.input, { ...base, counts: s.counts });
    case "all_to_all":
      return comm.allToAll(p.input, base);
    case "all_to_all_v":
      return comm.allToAllV(p.input, {
        ...base,
        sendCounts: s.sendCounts[rank] ?? [],
        recvCounts: s.sendCounts.map((row) => row[rank] ?? 0),
      });
    case "gather":
      return comm.gather(p.input, { ...base, root: s.root });
    case "scatter":
      return comm.scatter(p.input, { ...base, root: s.root });
    default:
      throw new Error(`${c.op} is not issued here`);
  }
}

/** Runs a case on this rank. @returns a digest of the result where all ranks must have the same one */
export async function runDataCase(context: RankContext, c: DataCase, seed: number): Promise<number | undefined> {
  const { comm } = context;
  const s = shapeOf(comm, c, seed);
  if (c.op === "send" || c.op === "recv") return runExchange(context, c, s, seed);
  if (c.op === "barrier") {
    const work = comm.barrier(CALL);
    if (c.drive === "wait") work.wait();
    else await work;
    return undefined;
  }
  const prepared = prepare(context, c, s, seed);
  for (const buffer of prepared.buffers) buffer.push();
  const work = issue(comm, c, s, prepared);
  const result = c.drive === "wait" ? work.wait() : await work;
  for (const buffer of prepared.buffers) buffer.pull();
  verify(context, c, s, prepared, result, seed);
  const isShared = c.op === "all_reduce" || c.op === "all_gather" || c.op === "all_gather_v" || c.op === "broadcast";
  const found = isShared ? digest(elementsOf(context.world, result)) : undefined;
  for (const buffer of prepared.buffers) buffer.release();
  return found;
}

function verify(context: RankContext, c: DataCase, s: Shape, p: Prepared, result: Tensor, seed: number): void {
  const { comm } = context;
  const rank = comm.rank;
  for (const buffer of p.buffers) if (!buffer.intact()) context.fail("bytes beside a buffer were written");
  if (p.bystander !== undefined && !p.bystander.untouched())
    context.fail("the output of a rank that is not root was written");
  const info = operationInfo(c.op);
  const receives = info.outputAt === "every" || rank === s.root;
  const keepsInput = !receives || c.placement === "apart" || (c.placement === "none" && info.inPlace !== "same");
  const passedInput =
    !(c.op === "scatter" && rank !== s.root) && !(c.op === "broadcast" && rank !== s.root && c.placement !== "apart");
  if (keepsInput && passedInput && !sameAsFilled(c, s, p.inputView, rank, seed)) context.fail("the input was changed");
  if (!receives) return;
  const expectedLength = outputElements(c, s, rank);
  if (result.dtype !== c.dtype) context.fail(`the result is ${result.dtype}`);
  if (result.size !== expectedLength) {
    context.fail(`the result has ${result.size} elements, expected ${expectedLength}`);
    return;
  }
  const { world } = context;
  verifyElements(context, c, s, elementsOf(world, result), seed, "result");
  if (p.output !== undefined && !samePlace(p.output, result)) {
    verifyElements(context, c, s, elementsOf(world, p.output), seed, "output");
  }
  const inPlace = c.placement === "none" && info.inPlace === "same";
  if (inPlace && !samePlace(p.input, result)) {
    verifyElements(context, c, s, elementsOf(world, p.input), seed, "buffer in place");
  }
}

function sameAsFilled(c: DataCase, s: Shape, view: TypedArray, rank: number, seed: number): boolean {
  const again = newArray(c.dtype, view.length);
  fillRandom(c.dtype, s.fill, seed, rank, 0, again);
  return firstDifference(again, view) < 0;
}

/** Index of the first element whose bits differ, or -1. */
function firstDifference(expected: TypedArray, actual: TypedArray): number {
  const x = Buffer.from(expected.buffer as ArrayBuffer, expected.byteOffset, expected.byteLength);
  const y = Buffer.from(actual.buffer as ArrayBuffer, actual.byteOffset, actual.byteLength);
  if (x.equals(y)) return -1;
  let byte = 0;
  while (byte < x.length && x[byte] === y[byte]) byte++;
  return Math.floor(byte / expected.BYTES_PER_ELEMENT);
}

function verifyElements(
  context: RankContext,
  c: DataCase,
  s: Shape,
  actual: TypedArray,
  seed: number,
  what: string,
): void {
  const { comm } = context;
  const segments = outputSegments(c.op, {
    numRanks: s.n,
    rank: comm.rank,
    count: s.count,
    root: s.root,
    counts: s.counts,
    sendCounts: s.sendCounts,
  });
  for (const segment of segments) {
    let { at, length, start } = segment;
    if (c.op === "all_reduce" && length > 8192) {
      // The digests say that all ranks hold the same, so each needs to check its share only.
      const first = Math.floor((length * comm.rank) / s.n);
      length = Math.floor((length * (comm.rank + 1)) / s.n) - first;
      at += first;
      start += first;
    }
    const inputOf = (rank: number) => {
      const array = newArray(c.dtype, length);
      fillRandom(c.dtype, s.fill, seed, rank, start, array);
      return array as TypedArray;
    };
    if (segment.from !== undefined) {
      const index = firstDifference(inputOf(segment.from), actual.subarray(at, at + length) as TypedArray);
      if (index >= 0)
        context.fail(`the ${what} is not, bit for bit, what rank ${segment.from} gave, from element ${at + index} on`);
      continue;
    }
    const inputs = Array.from({ length: s.n }, (_, r) => inputOf(r));
    const expected = asPrecise(
      referenceReduce(c.dtype, s.redop, inputs),
      comm.capabilities().features["accumulatesInF32"],
    );
    const wrong = findWrong(expected, actual, at);
    if (wrong !== undefined) {
      context.fail(
        `${wrong.count} wrong elements of the ${what}; [${wrong.index}] is ${wrong.actual}, expected ${wrong.expected}`,
      );
    }
  }
}

/** Send to the next rank, receive from the one before, all sending first. */
async function runExchange(context: RankContext, c: DataCase, s: Shape, seed: number): Promise<undefined> {
  const { world, comm } = context;
  const next = (comm.rank + 1) % s.n;
  const previous = (comm.rank + s.n - 1) % s.n;
  const out = makeBuffer(world, c.storage, c.dtype, s.count, s.guard);
  const into = makeBuffer(world, c.storage, c.dtype, s.count, s.guard);
  fillRandom(c.dtype, s.fill, seed, comm.rank, 0, out.view);
  const options = { ...CALL, dtype: c.dtype };
  out.push();
  into.push();
  const sending = comm.send(out.data, next, options);
  const receiving = comm.recv(into.data, previous, options);
  if (c.drive === "wait") {
    receiving.wait();
    sending.wait();
  } else await Promise.all([sending, receiving]);
  out.pull();
  into.pull();
  if (!out.intact() || !into.intact()) context.fail("bytes beside a buffer were written");
  if (!sameAsFilled(c, s, out.view, comm.rank, seed)) context.fail("the sent data was changed");
  if (!sameAsFilled(c, s, into.view, previous, seed)) context.fail("what was received is not what was sent");
  out.release();
  into.release();
  return undefined;
}
