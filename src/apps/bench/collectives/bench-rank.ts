/**
 * A benchmark on one rank. Buffers are tensors of the world, made once for the largest size, in host or in device
 * memory as the backend has it; a size is checked, then timed, out of place and in place.
 */
import { operationInfo } from "../../../collectives/index.ts";
import { InvalidArgumentError, UnsupportedError } from "../../../core/index.ts";
import type { Communicator, Work } from "../../../runtime/comm/index.ts";
import type { World } from "../../../runtime/world/index.ts";
import type { BenchJob, BenchReport, BenchRow, Measurement } from "./bench-types.ts";
import { measurementOf, type Step, type Timing, time } from "./call-timing.ts";
import { checkCall, fillInput } from "./checked-data.ts";
import { rowStart, setUp } from "./job-setup.ts";
import { copyBytesPerUs, memoryTraffic } from "./memory-roofline.ts";
import { type Buffers, caller } from "./timed-calls.ts";

/** What rank 0 prints when a row is done, so that tables grow while the benchmark runs. */
export const ROW_PREFIX = "chorale-bench-row ";

/** Runs the benchmark. @returns the rows, on every rank; also printed by rank 0 as they come */
export async function runBenchRank(world: World, job: BenchJob): Promise<BenchReport> {
  // Hosts that were given different numbers of ranks.
  if (job.numRanks !== undefined && world.size !== job.numRanks) return { numRanks: world.size };
  const missing = whyNot(world.comm, job);
  if (missing !== undefined) return missing;
  try {
    return { rows: await measureSizes(world, job) };
  } catch (error) {
    // Which names there are is known where the algorithms are. All ranks refuse before anything moves.
    if (job.algorithm !== undefined && error instanceof InvalidArgumentError && error.argument === "algorithm") {
      return { algorithm: job.algorithm, accepted: error.accepted };
    }
    if (job.algorithm !== undefined && error instanceof UnsupportedError) {
      return { unsupported: error.what, accepted: error.accepted };
    }
    throw error;
  }
}

async function measureSizes(world: World, job: BenchJob): Promise<BenchRow[]> {
  const { comm } = world;
  const n = comm.size;
  const info = operationInfo(job.op);
  const { counts, buffers } = setUp(world, job);
  const rows: BenchRow[] = [];
  for (const [index, count] of counts.entries()) {
    const start = rowStart(comm, job, count);
    const fixed = job.iterationsBySize?.[index] ?? job.iterations;
    const copied = await copyBytesPerUs(comm, start.sizeBytes);
    const traffic = memoryTraffic(job.op, n, start.sizeBytes);
    const measure = async (inPlace: boolean) => {
      const wrong = job.check ? await checkCall(world, comm, job, buffers, count, inPlace) : null;
      fillInput(world, comm, job, buffers, count);
      const timing = await timeCalls(comm, job, buffers, count, inPlace, fixed, index === 0);
      const measurement: Measurement = {
        ...measurementOf(timing, job.op, n, start.sizeBytes, wrong),
        roofline: copied === undefined || timing.us === 0 ? null : traffic / timing.us / copied,
      };
      return { measurement, iterations: timing.iterations };
    };
    const apart = await measure(false);
    const hasInPlace = job.inPlace && info.inPlace !== "never" && !info.pointToPoint;
    const row: BenchRow = {
      ...start,
      iterations: apart.iterations,
      repeats: job.repeats,
      graphCalls: job.graphCalls,
      ...apart.measurement,
      inPlace: hasInPlace ? (await measure(true)).measurement : null,
    };
    rows.push(row);
    if (comm.rank === 0) console.log(ROW_PREFIX + JSON.stringify(row));
  }
  return rows;
}

/** Times the calls as they are, or the replay of a graph that holds them. */
async function timeCalls(
  comm: Communicator,
  job: BenchJob,
  buffers: Buffers,
  count: number,
  inPlace: boolean,
  fixed: number | undefined,
  first: boolean,
): Promise<Timing> {
  const call = caller(comm, job, buffers, count, inPlace);
  // Without an argument: the call is made on the communicator itself.
  if (job.graphCalls === 0) return time(comm, { run: () => call(), calls: 1 }, job, fixed, first);
  // A graph holds only calls of kinds that were made before, on every rank.
  await call();
  await comm.barrier();
  const step = captureCalls(comm, call, job.graphCalls);
  try {
    return await time(comm, step, job, fixed, first);
  } finally {
    await comm.barrier();
    step.close();
  }
}

/** The replay of a graph that holds a call so many times. @throws UnsupportedError where the backend has no graphs */
export function captureCalls(
  comm: Communicator,
  call: (on?: Communicator) => unknown,
  calls: number,
): Step & { close(): void } {
  if (!capturesGraphs(comm)) throw new UnsupportedError("-G", `the backend ${comm.backend} captures no graphs`);
  const graph = comm.capture((group) => {
    for (let i = 0; i < calls; i++) call(group);
  });
  return { run: () => comm.replay(graph), calls, close: () => graph.close() };
}

/** What communicators on devices have beside the contract. */
interface GraphCommunicator extends Communicator {
  capture(record: (group: Communicator) => void): { close(): void };
  replay(graph: { close(): void }): Work<unknown>;
}

function capturesGraphs(comm: Communicator): comm is GraphCommunicator {
  return typeof (comm as Partial<GraphCommunicator>).capture === "function";
}

/** Why this backend cannot run the job here, by its own table. */
function whyNot(comm: Communicator, job: BenchJob): Extract<BenchReport, { unsupported: unknown }> | undefined {
  const has = comm.capabilities();
  const on = `with the backend ${comm.backend}${has.engineVersion === undefined ? "" : ` ${has.engineVersion}`}`;
  if (!has.operations.includes(job.op)) {
    return { unsupported: `${job.op} ${on}`, accepted: `it has ${has.operations.join(", ")}` };
  }
  if (!has.dtypes.includes(job.dtype)) {
    return { unsupported: `${job.dtype} ${on}`, accepted: `it has ${has.dtypes.join(", ")}` };
  }
  const ops = has.reduceOps[job.dtype] ?? [];
  if (operationInfo(job.op).reduces && !ops.includes(job.redop)) {
    return { unsupported: `${job.redop} on ${job.dtype} ${on}`, accepted: `it has ${ops.join(", ")}` };
  }
  return undefined;
}

export default runBenchRank;
