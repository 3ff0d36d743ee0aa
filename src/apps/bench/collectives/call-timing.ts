/**
 * How long a call takes: loops of calls between two barriers, each loop's mean averaged over the ranks (as nccl-tests
 * does), and of several loops the median, so that one disturbance does not make a row.
 */
import { performance } from "node:perf_hooks";
import { busFactor, type OperationName } from "../../../collectives/index.ts";
import type { Communicator } from "../../../runtime/comm/index.ts";
import type { BenchJob, Measurement } from "./bench-types.ts";
import type { TimedWork } from "./timed-calls.ts";

/** About how long the calls of one size take together when no count is given, ms. */
const BUDGET_MS = 60;
const MAX_ITERATIONS = 20_000;
/** Calls that are queued without waiting: fewer than the launches that CUDA holds before it blocks the caller. */
const MAX_QUEUED = 500;
/** About how long, and how many calls at most, a size is exercised before it is timed. */
const WARM_MS = 40;
const WARM_CALLS = 6_000;
/** Between them is a pause, and a look at how long a call takes by now. */
const ROUNDS = 4;
/** The first size finds nothing compiled. */
const FIRST_LONGER = 5;
const cell = new Int32Array(new SharedArrayBuffer(4));

export interface Timing {
  readonly us: number;
  readonly minUs: number;
  readonly maxUs: number;
  readonly iterations: number;
  /** Each loop's mean over its calls and the ranks, in the order of measurement. */
  readonly loops: readonly number[];
}

/** What a row says of loops of calls that moved `sizeBytes`, as nccl-tests counts them, among `ranks`. */
export function measurementOf(
  { us, minUs, maxUs }: Timing,
  op: OperationName,
  ranks: number,
  sizeBytes: number,
  wrong: number | null,
): Measurement {
  const algbwGBps = us === 0 ? 0 : sizeBytes / us / 1e3;
  return { timeUs: us, minUs, maxUs, algbwGBps, busbwGBps: algbwGBps * busFactor(op, ranks), wrong };
}

/** What is repeated: a call, or the replay of a graph that holds `calls` of them. */
export interface Step {
  readonly run: () => TimedWork;
  readonly calls: number;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  const upper = sorted[half] ?? 0;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[half - 1] ?? 0)) / 2;
}

/** Runs `steps` steps after a barrier. @returns ms */
async function loop(comm: Communicator, { run }: Step, drive: BenchJob["drive"], steps: number): Promise<number> {
  comm.barrier().wait();
  const began = performance.now();
  if (drive === "wait") for (let i = 0; i < steps; i++) run().wait();
  else if (drive === "await") for (let i = 0; i < steps; i++) await run();
  else {
    for (let left = steps; left > 0; left -= MAX_QUEUED) {
      const queued: TimedWork[] = [];
      for (let i = Math.min(left, MAX_QUEUED); i > 1; i--) queued.push(run());
      run().wait();
      // They are done; a work that nobody looks at is reported as a forgotten await.
      for (const work of queued) work.wait();
    }
  }
  return performance.now() - began;
}

/** How steps are timed: as of `BenchJob`. */
export type TimingOptions = Pick<BenchJob, "drive" | "repeats" | "warmup">;

/** A step that is warm, and how often it runs in a loop. */
interface Prepared {
  readonly step: Step;
  readonly iterations: number;
}

/** Finds out how long a step takes, and warms it up. */
async function prepare(
  comm: Communicator,
  step: Step,
  job: TimingOptions,
  fixed: number | undefined,
  first: boolean,
): Promise<Prepared> {
  const steps = (calls: number) => Math.max(1, Math.ceil(calls / step.calls));
  const run = (calls: number) => loop(comm, step, job.drive, steps(calls));
  // The most patient rank decides.
  const callMsOf = async (ms: number, calls: number) =>
    Math.max(1e-4, ...(await comm.gatherObjects(ms / (steps(calls) * step.calls))));
  // The first calls pay for touching the memory, and any may be disturbed: the best of three.
  await run(3);
  let callMs = await callMsOf(Math.min(await run(5), await run(5), await run(5)), 5);
  const callsIn = (ms: number, least: number, most: number) => Math.min(most, Math.max(least, Math.round(ms / callMs)));
  // Calls that nothing is compiled for take a hundred times as long: how many fill a loop is seen as they warm up, by the last
  // round, as a lucky one would have loops of seconds on a busy machine. Compilers work on threads of their own: ranks that
  // spin on all cores must let them.
  const longer = first ? FIRST_LONGER : 1;
  for (let left = job.warmup === undefined ? ROUNDS : Math.min(job.warmup, 1); left > 0; left--) {
    const each = job.warmup ?? Math.ceil(callsIn(WARM_MS * longer, 4, WARM_CALLS * longer) / ROUNDS);
    callMs = await callMsOf(await run(each), each);
    Atomics.wait(cell, 0, 0, 2);
  }
  return { step, iterations: steps(fixed ?? callsIn(BUDGET_MS / job.repeats, 5, MAX_ITERATIONS)) * step.calls };
}

/**
 * Times a step.
 * @param fixed calls per loop; chosen by time by default
 * @param first whether it is the first one measured in this world
 */
export async function time(
  comm: Communicator,
  step: Step,
  job: TimingOptions,
  fixed: number | undefined,
  first: boolean,
): Promise<Timing> {
  return (await timeInTurn(comm, [step], job, fixed, first))[0] as Timing;
}

/** Times several steps, a loop of each in turn, so that whatever disturbs the machine disturbs them alike. */
export async function timeInTurn(
  comm: Communicator,
  steps: readonly Step[],
  job: TimingOptions,
  fixed: number | undefined,
  first: boolean,
): Promise<Timing[]> {
  const all: Prepared[] = [];
  for (const step of steps) all.push(await prepare(comm, step, job, fixed, first && all.length === 0));
  const mine: number[][] = all.map(() => []);
  for (let i = 0; i < job.repeats; i++) {
    for (const [s, { step, iterations }] of all.entries()) {
      const ms = await loop(comm, step, job.drive, Math.ceil(iterations / step.calls));
      mine[s]?.push((ms * 1e3) / iterations);
    }
  }
  const ranks = await comm.gatherObjects(mine);
  return all.map(({ iterations }, s) => {
    const loops = (mine[s] as number[]).map(
      (_, i) => ranks.reduce((sum, rank) => sum + (rank[s]?.[i] ?? 0), 0) / ranks.length,
    );
    return { us: median(loops), minUs: Math.min(...loops), maxUs: Math.max(...loops), iterations, loops };
  });
}
