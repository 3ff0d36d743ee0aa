/** Known data in the buffers, wherever they lie, and the check of one call against the reference of collectives/. */
import {
  asPrecise,
  encodeSmallFloat,
  findWrong,
  isSmallFloat,
  operationInfo,
  referenceOutput,
} from "../../../collectives/index.ts";
import { type ArrayOf, type DType, newArray, type Tensor, type TypedArray } from "../../../core/index.ts";
import type { Communicator } from "../../../runtime/comm/index.ts";
import type { World } from "../../../runtime/world/index.ts";
import type { BenchJob } from "./bench-types.ts";
import { type Buffers, caller, elementCounts, redopOf, type TimedWork } from "./timed-calls.ts";

/** Values repeat after so many elements. */
const PERIOD = 5;
const POISON = 0xa5;

/** Small integers, so that a sum over any number of ranks that we have is exact in every dtype but the 8-bit floats. */
function value(rank: number, index: number): number {
  return (index * 7 + rank * 3) % PERIOD;
}

function fill(array: TypedArray, dtype: DType, rank: number): void {
  const period = Array.from({ length: PERIOD }, (_, i) => {
    const v = value(rank, i);
    return isSmallFloat(dtype) ? encodeSmallFloat(dtype, v) : typeof array[0] === "bigint" ? BigInt(v) : v;
  });
  for (let i = 0; i < array.length; i++) array[i] = period[i % PERIOD] as number;
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
export function fillInput(world: World, comm: Communicator, job: BenchJob, buffers: Buffers, count: number): void {
  const { input } = elementCounts(job.op, comm.size, count);
  write(world, buffers.input.slice(0, input), (array) => fill(array, job.dtype, comm.rank));
}

/** Makes one call on known data, the job's by default. @returns the wrong elements over all ranks */
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
  write(world, buffers.output.slice(0, lengths.output), (array) =>
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).fill(POISON),
  );
  fillInput(world, comm, job, buffers, count);
  if (inPlace && info.inPlace === "own part of output") {
    write(world, own(buffers.output), (array) => fill(array, job.dtype, comm.rank));
  }
  await call();
  let result = buffers.output.slice(0, lengths.output);
  if (inPlace && info.inPlace === "same") result = buffers.input.slice(0, lengths.output);
  if (inPlace && info.inPlace === "own part of input" && (job.op !== "scatter" || comm.rank === job.root)) {
    result = own(buffers.input);
  }
  const found = result.storage.kind === "device" ? world.download(result) : result.data;
  const wrong = wrongElements(comm, job, count, lengths.input, found);
  return (await comm.gatherObjects(wrong)).reduce((a, x) => a + x, 0);
}

function wrongElements(comm: Communicator, job: BenchJob, count: number, inputLength: number, found: TypedArray) {
  const n = comm.size;
  const inputs = Array.from({ length: n }, (_, rank) => {
    const array = newArray(job.dtype, inputLength);
    fill(array, job.dtype, rank);
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
