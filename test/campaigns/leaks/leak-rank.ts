/**
 * The leak campaign on one rank: thousands of collectives or of splits in one world, with the gauges read after a
 * warm-up and after each phase. Tensors come and go meanwhile, and every way of waiting is used.
 */
import { performance } from "node:perf_hooks";
import type { Communicator } from "chorale/comm";
import type { Tensor } from "chorale/core";
import { deviceOf, type World } from "chorale/world";
import { collectGarbage, type HostGauges, hostGauges } from "./process-gauges.ts";

export interface LeakJob {
  readonly collectives: number;
  readonly splits: number;
  /** Only the calls, without a warm-up and without readings: for worlds that are counted as a whole. */
  readonly brief?: boolean;
}

/** How far a phase is. */
export interface LeakProgress {
  readonly phase: "collectives" | "splits" | "inits";
  readonly count: number;
  readonly of: number;
  readonly tookMs: number;
  /** What rank 0's device has less of than when the phase began, also what is in use now. Absent without devices. */
  readonly deviceBytes?: number;
  /** What rank 0's process has more in memory than when the phase began. */
  readonly rssBytes?: number;
}

/** What rank 0 prints before its progress, as JSON on one line. */
export const PROGRESS_PREFIX = "chorale-leaks-progress ";

export interface RankGauges extends HostGauges {
  /** Free memory of the device; the communication heap's use, negated, on backends without devices. Bytes. */
  readonly freeBytes: number;
  /** Blocks that the pool has given out, where there is one. */
  readonly poolBytes: number;
}

export interface PhaseReport {
  readonly phase: "collectives" | "splits";
  readonly count: number;
  readonly tookMs: number;
  readonly before: RankGauges;
  readonly after: RankGauges;
}

/** Calls before the first reading: libraries and compilers take what they keep. */
const WARM_CALLS = 1_000;
const WARM_SPLITS = 8;
const COUNT = 256;
/** New tensors every so many calls. */
const TENSORS_EVERY = 50;
/**
 * A call in every so many of the groups that are made: the first call of a group has NCCL connect its members over every
 * channel, which takes longer than the split, and a hundred of a thousand show what connections leave behind.
 */
const CALL_EVERY = 10;
/** Calls in each of the first groups too: the warm-up meets every form of group that comes later. */
const CALL_FIRST = 6;
/**
 * Groups that are open at once in the warm-up: a group that was closed is freed a little later, when the next may be open
 * already, and the driver keeps what the most objects that there ever were have taken (2 MiB at a time).
 */
const WARM_TOGETHER = 4;
const PROGRESS_EVERY_MS = 2_000;

/** Says from rank 0 how far a phase is, now and then and at its end. */
function progressOf(world: World, phase: LeakProgress["phase"], of: number): (count: number) => void {
  const began = performance.now();
  const device = deviceOf(world)?.device;
  const freeBytes = device?.memoryInfo().freeBytes ?? 0;
  const residentBytes = process.memoryUsage.rss();
  let saidMs = 0;
  return (count) => {
    const tookMs = Math.round(performance.now() - began);
    if (world.rank !== 0 || (count < of && tookMs - saidMs < PROGRESS_EVERY_MS)) return;
    saidMs = tookMs;
    const less = device === undefined ? {} : { deviceBytes: freeBytes - device.memoryInfo().freeBytes };
    const rssBytes = process.memoryUsage.rss() - residentBytes;
    const progress: LeakProgress = { phase, count, of, tookMs, rssBytes, ...less };
    console.log(PROGRESS_PREFIX + JSON.stringify(progress));
  };
}

function gauges(world: World): RankGauges {
  const { usedBytes } = world.comm.stats().memory;
  const at = deviceOf(world);
  return {
    ...hostGauges(),
    poolBytes: usedBytes,
    freeBytes: at === undefined ? -usedBytes : at.device.memoryInfo().freeBytes,
  };
}

/** How often, and for how long at most, it is looked whether closed groups are freed, ms. */
const LOOK_MS = 50;
const FREED_MS = 10_000;

/**
 * Waits until the device's free memory is the same in several looks: a group that was closed is freed at the next moment
 * at which all its members pause, and not before `close` settles.
 */
async function untilFreed(world: World): Promise<void> {
  const device = deviceOf(world)?.device;
  if (device === undefined) return;
  let [last, numSame] = [-1, 0];
  for (let waitedMs = 0; waitedMs < FREED_MS && numSame < 4; waitedMs += LOOK_MS) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    const { freeBytes } = device.memoryInfo();
    numSame = freeBytes === last ? numSame + 1 : 0;
    last = freeBytes;
  }
}

async function read(world: World): Promise<RankGauges> {
  await world.comm.barrier();
  await untilFreed(world);
  await world.comm.barrier();
  await collectGarbage();
  await world.comm.barrier();
  deviceOf(world)?.device.synchronize();
  // One after the other: reading the list of descriptors opens one, and threads share the list.
  let found: RankGauges | undefined;
  for (let turn = 0; turn < world.size; turn++) {
    if (turn === world.rank) found = gauges(world);
    await world.comm.barrier();
  }
  return found as RankGauges;
}

type Tell = (count: number) => void;

async function collectives(world: World, comm: Communicator, count: number, tell?: Tell): Promise<void> {
  const n = comm.size;
  let tensors: Tensor[] = [];
  for (let i = 0; i < count; i++) {
    if (i % TENSORS_EVERY === 0) {
      await comm.barrier();
      tell?.(i);
      for (const tensor of tensors) world.free(tensor);
      tensors = [world.tensor("f32", [n * COUNT]), world.tensor("f32", [n * COUNT])];
    }
    const [whole, other] = tensors as [Tensor, Tensor];
    const part = whole.slice(0, COUNT);
    const work =
      i % 7 === 0
        ? comm.allGather(part, { output: other })
        : i % 7 === 1
          ? comm.reduceScatter(other, { output: part })
          : i % 7 === 2
            ? comm.broadcast(whole, { root: i % n })
            : i % 7 === 3
              ? comm.allToAll(whole, { output: other })
              : i % 700 === 4
                ? comm.gatherObjects({ step: i })
                : i % 70 === 5
                  ? comm.allReduce(new Float32Array(COUNT))
                  : comm.allReduce(part, i % 2 === 0 ? {} : { output: other.slice(0, COUNT) });
    if (i % 3 === 0) work.wait();
    else if (i % 3 === 1) await work;
    // Every third is left to the ones after it.
  }
  await comm.barrier();
  for (const tensor of tensors) world.free(tensor);
  tell?.(count);
}

async function splits(world: World, count: number, tell?: Tell): Promise<void> {
  const { comm } = world;
  const x = world.tensor("f32", [COUNT]);
  for (let i = 0; i < count; i++) {
    const child = await comm.split(i % 2 === 0 ? 0 : comm.rank % 2, i % 3 === 0 ? -comm.rank : comm.rank);
    if (child === undefined) throw new Error("split gave no group");
    if (i % CALL_EVERY === 0 || i < CALL_FIRST) await child.allReduce(x);
    await child.close();
    tell?.(i);
  }
  await comm.barrier();
  world.free(x);
  tell?.(count);
}

/** Has several groups at once, each with connections, in both of the forms that `splits` makes. */
async function together(world: World, count: number): Promise<void> {
  const { comm } = world;
  const x = world.tensor("f32", [COUNT]);
  for (const color of [0, comm.rank % 2]) {
    const children: Communicator[] = [];
    for (let i = 0; i < count; i++) {
      const child = await comm.split(color, comm.rank);
      if (child === undefined) throw new Error("split gave no group");
      children.push(child);
      await child.allReduce(x);
    }
    for (const child of children) await child.close();
  }
  await comm.barrier();
  world.free(x);
}

/** Runs the campaign. @returns the gauges around each phase; none of a brief one */
export async function runLeakRank(world: World, job: LeakJob): Promise<PhaseReport[]> {
  if (job.brief === true) {
    await collectives(world, world.comm, job.collectives);
    await splits(world, job.splits);
    return [];
  }
  await collectives(world, world.comm, Math.min(WARM_CALLS, job.collectives));
  await splits(world, Math.min(WARM_SPLITS, job.splits));
  if (job.splits > 0) await together(world, WARM_TOGETHER);
  const reports: PhaseReport[] = [];
  let before = await read(world);
  const phase = async (name: PhaseReport["phase"], count: number, run: (tell: Tell) => Promise<void>) => {
    if (count === 0) return;
    const began = performance.now();
    await run(progressOf(world, name, count));
    const tookMs = performance.now() - began;
    const after = await read(world);
    reports.push({ phase: name, count, tookMs, before, after });
    before = after;
  };
  await phase("collectives", job.collectives, (tell) => collectives(world, world.comm, job.collectives, tell));
  await phase("splits", job.splits, (tell) => splits(world, job.splits, tell));
  return reports;
}

export default runLeakRank;
