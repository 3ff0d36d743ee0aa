/**
 * A benchmark on one rank. Buffers are zero-copy tensors of the world, made once for the largest size; a size's calls
 * run back to back between two barriers; the time is the mean of the loop, averaged over the ranks as nccl-tests does.
 */
import { performance } from "node:perf_hooks";
import {
  busFactor,
  encodeSmallFloat,
  findWrong,
  isSmallFloat,
  operationInfo,
  partCount,
  referenceOutput,
  reportedCount,
} from "../../../authoring/collectives/index.ts";
import { type DType, newArray, sizeOf, type Tensor, type TypedArray } from "../../../core/index.ts";
import type { Communicator, Work } from "../../../runtime/comm/index.ts";
import type { World } from "../../../runtime/world/index.ts";
import type { BenchJob, BenchRow, Measurement } from "./types.ts";

/** What rank 0 prints when a row is done, so that tables grow while the benchmark runs. */
export const ROW_PREFIX = "chorale-bench-row ";
/** About how long the calls of one size take together when no count is given, ms. */
const BUDGET_MS = 60;
const MAX_ITERATIONS = 20_000;
/** About how long, and how many calls at most, a size is exercised before it is timed. */
const WARM_MS = 40;
const WARM_CALLS = 6_000;
/** The first size finds nothing compiled. */
const FIRST_LONGER = 5;
const cell = new Int32Array(new SharedArrayBuffer(4));

interface Buffers {
  readonly input: Tensor;
  readonly output: Tensor;
}

/** Runs the benchmark. @returns the rows, on every rank; also printed by rank 0 as they come */
export async function runBenchRank(world: World, job: BenchJob): Promise<BenchRow[]> {
  const { comm } = world;
  const n = comm.size;
  const elementBytes = sizeOf(job.dtype);
  const counts = job.sizes.map((size) => partCount(job.op, n, Math.floor(size / elementBytes)));
  const largest = reportedCount(job.op, n, Math.max(0, ...counts));
  const buffers: Buffers = { input: world.tensor(job.dtype, [largest]), output: world.tensor(job.dtype, [largest]) };
  const info = operationInfo(job.op);
  const rows: BenchRow[] = [];
  for (const [index, count] of counts.entries()) {
    const reported = reportedCount(job.op, n, count);
    const fixed = job.iterationsBySize?.[index] ?? job.iterations;
    const measure = async (inPlace: boolean) => {
      const wrong = job.check ? await check(comm, job, buffers, count, inPlace) : null;
      fill(buffers.input.data, job.dtype, comm.rank, 0);
      const call = caller(comm, job, buffers, count, inPlace);
      const timing = await time(comm, call, job, fixed, index === 0);
      const algbwGBps = timing.us === 0 ? 0 : (reported * elementBytes) / timing.us / 1e3;
      const measurement: Measurement = {
        timeUs: timing.us,
        algbwGBps,
        busbwGBps: algbwGBps * busFactor(job.op, n),
        wrong,
      };
      return { measurement, iterations: timing.iterations };
    };
    const apart = await measure(false);
    const hasInPlace = job.inPlace && info.inPlace !== "never" && !info.pointToPoint;
    const row: BenchRow = {
      op: job.op,
      backend: comm.backend,
      ranks: n,
      sizeBytes: reported * elementBytes,
      count,
      dtype: job.dtype,
      redop: info.reduces ? job.redop : "none",
      root: info.rooted ? job.root : -1,
      drive: job.drive,
      iterations: apart.iterations,
      ...apart.measurement,
      inPlace: hasInPlace ? (await measure(true)).measurement : null,
    };
    rows.push(row);
    if (comm.rank === 0) console.log(ROW_PREFIX + JSON.stringify(row));
  }
  return rows;
}

/** Small integers, so that a sum over any number of ranks that we have is exact in every dtype but the 8-bit floats. */
function value(rank: number, index: number): number {
  return (index * 7 + rank * 3) % 5;
}

function fill(array: TypedArray, dtype: DType, rank: number, start: number): void {
  const period = Array.from({ length: 5 }, (_, i) => {
    const v = value(rank, start + i);
    return isSmallFloat(dtype) ? encodeSmallFloat(dtype, v) : typeof array[0] === "bigint" ? BigInt(v) : v;
  });
  for (let i = 0; i < array.length; i++) array[i] = period[i % 5] as number;
}

/** Makes the call to be timed; tensors and options are made once. */
function caller(
  comm: Communicator,
  job: BenchJob,
  { input, output }: Buffers,
  count: number,
  inPlace: boolean,
): () => Work<unknown> {
  const n = comm.size;
  const { root, redop: op } = job;
  const isRoot = comm.rank === root;
  const part = input.slice(0, count);
  const parts = input.slice(0, operationInfo(job.op).input === "parts" ? n * count : count);
  const outPart = output.slice(0, count);
  switch (job.op) {
    case "all_reduce":
      return inPlace ? () => comm.allReduce(part, { op }) : () => comm.allReduce(part, { op, output: outPart });
    case "reduce":
      return inPlace ? () => comm.reduce(part, { op, root }) : () => comm.reduce(part, { op, root, output: outPart });
    case "broadcast":
      return inPlace ? () => comm.broadcast(part, { root }) : () => comm.broadcast(part, { root, output: outPart });
    case "all_gather":
    case "gather": {
      const whole = output.slice(0, n * count);
      const own = whole.slice(comm.rank * count, (comm.rank + 1) * count);
      if (job.op === "all_gather") return () => comm.allGather(inPlace ? own : part, { output: whole });
      return isRoot
        ? () => comm.gather(inPlace ? own : part, { root, output: whole })
        : () => comm.gather(part, { root });
    }
    case "reduce_scatter": {
      const own = parts.slice(comm.rank * count, (comm.rank + 1) * count);
      return () => comm.reduceScatter(parts, { op, output: inPlace ? own : outPart });
    }
    case "scatter": {
      const own = parts.slice(comm.rank * count, (comm.rank + 1) * count);
      return isRoot
        ? () => comm.scatter(parts, { root, output: inPlace ? own : outPart })
        : () => comm.scatter(outPart, { root });
    }
    case "all_to_all": {
      const whole = output.slice(0, n * count);
      return () => comm.allToAll(parts, { output: whole });
    }
    case "all_gather_v": {
      const counts = Array.from({ length: n }, () => count);
      const whole = output.slice(0, n * count);
      const own = whole.slice(comm.rank * count, (comm.rank + 1) * count);
      return () => comm.allGatherV(inPlace ? own : part, { counts, output: whole });
    }
    case "reduce_scatter_v": {
      const counts = Array.from({ length: n }, () => count);
      const own = parts.slice(comm.rank * count, (comm.rank + 1) * count);
      return () => comm.reduceScatterV(parts, { op, counts, output: inPlace ? own : outPart });
    }
    case "all_to_all_v": {
      const counts = Array.from({ length: n }, () => count);
      const whole = output.slice(0, n * count);
      return () => comm.allToAllV(parts, { sendCounts: counts, recvCounts: counts, output: whole });
    }
    case "barrier":
      return () => comm.barrier();
    case "send":
    case "recv": {
      const next = (comm.rank + 1) % n;
      const previous = (comm.rank + n - 1) % n;
      return () => {
        comm.send(part, next);
        return comm.recv(outPart, previous);
      };
    }
  }
}

/** Wrong elements over all ranks, of one call on known data. */
async function check(comm: Communicator, job: BenchJob, b: Buffers, count: number, inPlace: boolean): Promise<number> {
  const n = comm.size;
  const info = operationInfo(job.op);
  const inputLength = info.input === "parts" ? n * count : count;
  const inputs = Array.from({ length: n }, (_, rank) => {
    const array = newArray(job.dtype, inputLength);
    fill(array, job.dtype, rank, 0);
    return array as TypedArray;
  });
  const sentinel = newArray(job.dtype, 1);
  new Uint8Array(sentinel.buffer).fill(0xa5);
  b.output.data.fill(sentinel[0] as never);
  fill(b.input.data, job.dtype, comm.rank, 0);
  const gathers = info.inPlace === "own part of output";
  if (inPlace && gathers)
    fill(b.output.data.subarray(comm.rank * count, (comm.rank + 1) * count), job.dtype, comm.rank, 0);
  await caller(comm, job, b, count, inPlace)();
  let result: TypedArray = b.output.data;
  if (inPlace && info.inPlace === "same") result = b.input.data;
  if (inPlace && info.inPlace === "own part of input" && (job.op !== "scatter" || comm.rank === job.root)) {
    result = b.input.data.subarray(comm.rank * count);
  }
  let wrong = 0;
  const from = job.op === "send" || job.op === "recv" ? (comm.rank + n - 1) % n : job.root;
  const counts = Array.from({ length: n }, () => count);
  const segments = referenceOutput(job.op === "send" ? "recv" : job.op, job.dtype, job.redop, inputs, {
    numRanks: n,
    rank: comm.rank,
    count,
    root: from,
    counts,
    sendCounts: counts.map(() => counts),
  });
  for (const { at, expected } of segments) wrong += findWrong(expected, result, at)?.count ?? 0;
  const all = await comm.gatherObjects(wrong);
  return all.reduce((a, x) => a + x, 0);
}

async function time(
  comm: Communicator,
  call: () => Work<unknown>,
  job: BenchJob,
  fixed: number | undefined,
  first: boolean,
): Promise<{ us: number; iterations: number }> {
  const loop = async (iterations: number): Promise<number> => {
    comm.barrier().wait();
    const began = performance.now();
    if (job.drive === "wait") for (let i = 0; i < iterations; i++) call().wait();
    else for (let i = 0; i < iterations; i++) await call();
    return performance.now() - began;
  };
  // The first calls pay for touching the memory, and any may be disturbed: the best of three. The most patient rank decides.
  await loop(3);
  const mine = Math.min(await loop(5), await loop(5), await loop(5)) / 5;
  const callMs = Math.max(1e-4, ...(await comm.gatherObjects(mine)));
  const callsIn = (ms: number, least: number, most: number) => Math.min(most, Math.max(least, Math.round(ms / callMs)));
  if (job.warmup !== undefined) await loop(job.warmup);
  else {
    // Compilers work on threads of their own: ranks that spin on all cores must let them.
    const longer = first ? FIRST_LONGER : 1;
    const each = Math.ceil(callsIn(WARM_MS * longer, 4, WARM_CALLS * longer) / 4);
    for (let i = 0; i < 4; i++) {
      await loop(each);
      Atomics.wait(cell, 0, 0, 2);
    }
  }
  const iterations = fixed ?? callsIn(BUDGET_MS, 5, MAX_ITERATIONS);
  const tookMs = await loop(iterations);
  const all = await comm.gatherObjects((tookMs * 1e3) / iterations);
  return { us: all.reduce((a, x) => a + x, 0) / all.length, iterations };
}
