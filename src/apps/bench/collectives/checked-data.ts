/** Known data in the buffers, wherever they lie, and the check of one call against the reference of collectives/. */
import { asPrecise, encodeSmallFloat, findWrong, operationInfo, referenceOutput } from "../../../collectives/index.ts";
import { type ArrayOf, type DType, isSmallFloat, newArray, type Tensor, type TypedArray } from "../../../core/index.ts";
import type { Communicator } from "../../../runtime/comm/index.ts";
import type { World } from "../../../runtime/world/index.ts";
import type { BenchJob } from "./bench-types.ts";
import { type Buffers, caller, elementCounts, redopOf, type TimedWork } from "./timed-calls.ts";

/** Values repeat after so many elements: a prime, so that no chunk of a buffer looks like another one. */
const PERIOD = 4093;
/** Small integers, so that a sum over any number of ranks that we have is exact in every dtype but the 8-bit floats. */
const NUM_VALUES = 5;
const POISON = 0xa5;

/** One value of a rank's data, which is random for each seed. */
function value(seed: number, rank: number, index: number): number {
  let bits = Math.imul(seed ^ Math.imul(rank + 1, 0x9e3779b1), 0x85ebca6b) ^ Math.imul(index + 1, 0xc2b2ae35);
  bits = Math.imul(bits ^ (bits >>> 15), 0x2c1b3c6d);
  bits = Math.imul(bits ^ (bits >>> 12), 0x297a2d39);
  return ((bits ^ (bits >>> 15)) >>> 0) % NUM_VALUES;
}

function fill(array: TypedArray, dtype: DType, rank: number, seed: number): void {
  const period = Array.from({ length: Math.min(PERIOD, array.length) }, (_, i) => {
    const v = value(seed, rank, i);
    return isSmallFloat(dtype) ? encodeSmallFloat(dtype, v) : typeof array[0] === "bigint" ? BigInt(v) : v;
  });
  for (let i = 0; i < period.length; i++) array[i] = period[i] as number;
  for (let end = period.length; end < array.length; end *= 2)
    array.copyWithin(end, 0, Math.min(end, array.length - end));
}

/** Writes a tensor: directly where it is in host memory, by a copy where it is on a device. */
function write(world: World, tensor: Tensor, into: (array: TypedArray) => void): void {
  if (tensor.storage.kind !== "device") {
    into(tensor.data);
    return;
  }
  const array = newArray(tensor.dtype, tensor.size);
  into(array);
  world.upload(tensor, array as ArrayOf<DType>);
}

/** Puts this rank's known values into the elements of `input` that a call reads. */
export function fillInput(
  world: World,
  comm: Communicator,
  job: BenchJob,
  buffers: Buffers,
  count: number,
  seed = 0,
): void {
  const { input } = elementCounts(job.op, comm.size, count);
  write(world, buffers.input.slice(0, input), (array) => fill(array, job.dtype, comm.rank, seed));
}

/** Makes one call on fresh random data, the job's by default, with poison in its output. @returns the wrong elements over all ranks */
export async function checkCall(
  world: World,
  comm: Communicator,
  job: BenchJob,
  buffers: Buffers,
  count: number,
  inPlace: boolean,
  call: () => TimedWork = caller(comm, job, buffers, count, inPlace),
): Promise<number> {
  const n = comm.size;
  const info = operationInfo(job.op);
  const lengths = elementCounts(job.op, n, count);
  const own = (tensor: Tensor) => tensor.slice(comm.rank * count, (comm.rank + 1) * count);
  const seed = await comm.broadcastObject(Math.floor(Math.random() * 2 ** 31));
  write(world, buffers.output.slice(0, lengths.output), (array) =>
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).fill(POISON),
  );
  fillInput(world, comm, job, buffers, count, seed);
  if (inPlace && info.inPlace === "own part of output") {
    write(world, own(buffers.output), (array) => fill(array, job.dtype, comm.rank, seed));
  }
  await call();
  let result = buffers.output.slice(0, lengths.output);
  if (inPlace && info.inPlace === "same") result = buffers.input.slice(0, lengths.output);
  if (inPlace && info.inPlace === "own part of input" && (job.op !== "scatter" || comm.rank === job.root)) {
    result = own(buffers.input);
  }
  const found = result.storage.kind === "device" ? world.download(result) : result.data;
  const wrong = wrongElements(comm, job, count, lengths.input, found, seed);
  return (await comm.gatherObjects(wrong)).reduce((a, x) => a + x, 0);
}

function wrongElements(
  comm: Communicator,
  job: BenchJob,
  count: number,
  inputLength: number,
  found: TypedArray,
  seed: number,
): number {
  const n = comm.size;
  const inputs = Array.from({ length: n }, (_, rank) => {
    const array = newArray(job.dtype, inputLength);
    fill(array, job.dtype, rank, seed);
    return array as TypedArray;
  });
  const pointToPoint = job.op === "send" || job.op === "recv";
  const counts = Array.from({ length: n }, () => count);
  const segments = referenceOutput(pointToPoint ? "recv" : job.op, job.dtype, redopOf(comm, job), inputs, {
    numRanks: n,
    rank: comm.rank,
    count,
    root: pointToPoint ? (comm.rank + n - 1) % n : job.root,
    counts,
    sendCounts: counts.map(() => counts),
  });
  let wrong = 0;
  for (const { at, expected } of segments) {
    wrong += findWrong(asPrecise(expected, comm.capabilities().features["accumulatesInF32"]), found, at)?.count ?? 0;
  }
  return wrong;
}
