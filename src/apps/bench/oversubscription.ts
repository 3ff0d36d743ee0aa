/**
 * What waiting costs when ranks share cores: a rank that stays away must not make the others burn the processor, and
 * small calls must stay fast although not everybody can spin.
 */
import { performance } from "node:perf_hooks";
import { launch, loadableUrl, type World } from "../../runtime/world/index.ts";
import type { Drive } from "./collectives/bench-types.ts";

export interface OversubscribedJob {
  readonly drive: Drive;
  /** How long rank 0 sleeps before it enters the barrier, ms. */
  readonly sleepMs: number;
  readonly numCalls: number;
}

export interface OversubscribedResult {
  readonly ranks: number;
  readonly drive: Drive;
  /** CPU time of the whole process while rank 0 slept and the others waited, seconds. */
  readonly cpuSeconds: number;
  readonly sleptSeconds: number;
  /** A 1 KiB f32 all-reduce on rank 0, us. */
  readonly allReduceMedianUs: number;
  readonly allReduceP99Us: number;
}

/** Runs on each rank. */
export async function runOversubscribedRank(world: World, job: OversubscribedJob): Promise<OversubscribedResult> {
  const { comm } = world;
  const x = world.tensor("f32", [256]);
  const output = world.tensor("f32", [256]);
  const call = async () => {
    const work = comm.allReduce(x, { output });
    if (job.drive === "wait") work.wait();
    else await work;
  };
  for (let i = 0; i < 50; i++) await call();
  const samples = new Float64Array(job.numCalls);
  for (let i = 0; i < job.numCalls; i++) {
    const began = performance.now();
    await call();
    samples[i] = (performance.now() - began) * 1e3;
  }
  samples.sort();
  await comm.barrier();
  // Sleeps without an event loop or a timer of this thread.
  const cell = new Int32Array(new SharedArrayBuffer(4));
  Atomics.wait(cell, 0, 0, 200);
  const cpuBefore = process.cpuUsage();
  const began = performance.now();
  if (comm.rank === 0) Atomics.wait(cell, 0, 0, job.sleepMs);
  const cpu = process.cpuUsage(cpuBefore);
  const sleptSeconds = (performance.now() - began) / 1e3;
  const work = comm.barrier();
  if (job.drive === "wait") work.wait();
  else await work;
  return {
    ranks: comm.size,
    drive: job.drive,
    cpuSeconds: (cpu.user + cpu.system) / 1e6,
    sleptSeconds,
    allReduceMedianUs: samples[job.numCalls >> 1] ?? 0,
    allReduceP99Us: samples[Math.floor(job.numCalls * 0.99)] ?? 0,
  };
}

/**
 * Measures a world with more ranks than cores.
 * @example
 * import { measureOversubscribed } from "chorale/bench";
 *
 * const result = await measureOversubscribed({ ranks: 4, sleepMs: 100, numCalls: 20 });
 * console.log(result.cpuSeconds < 1); // true
 */
export async function measureOversubscribed(options: {
  readonly ranks: number;
  readonly drive?: Drive;
  readonly sleepMs?: number;
  readonly numCalls?: number;
}): Promise<OversubscribedResult> {
  const { ranks, drive = "wait", sleepMs = 5_000, numCalls = 1_000 } = options;
  const [result] = await launch<OversubscribedResult, OversubscribedJob>({
    ranks,
    module: loadableUrl("apps/bench/oversubscription"),
    data: { drive, sleepMs, numCalls },
    timeoutMs: 120_000,
  });
  return result as OversubscribedResult;
}

export default runOversubscribedRank;
