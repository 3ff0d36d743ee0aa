/** Tuning on one rank: contenders of each size in turn, then a longer look at those that seem to be faster. */
import { operationInfo, partCount, reportedCount } from "../../collectives/index.ts";
import { sizeOf, UnsupportedError } from "../../core/index.ts";
import type { World } from "../../runtime/world/index.ts";
import { type Buffers, type Contender, contenderCall, type Measured, measureContenders } from "../bench/internal.ts";
import type { SecondLook, TuneFigure, TuneJob, TuneReading, TuneReport } from "./tune-types.ts";

/** What rank 0 prints when a size is done. */
export const TUNE_PREFIX = "chorale-tune-size ";
/** Second looks at a size, at most. */
const MOST_SECOND = 2;

/** Measures. @returns the readings of the sizes that the budget allowed, on every rank */
async function runTuneRank(world: World, job: TuneJob): Promise<TuneReport> {
  const { comm } = world;
  // Hosts that were given different numbers of ranks: what was listed is for another world.
  if (comm.size !== job.numRanks) return { readings: [], topology: undefined, numRanks: comm.size };
  // Groups over sockets learn in a call how they lie on their hosts.
  await comm.barrier();
  const began = performance.now();
  const elementBytes = sizeOf(job.dtype);
  const countOf = (sizeBytes: number) => partCount(job.op, comm.size, Math.floor(sizeBytes / elementBytes));
  const most = Math.max(...job.sizes.map(({ sizeBytes }) => reportedCount(job.op, comm.size, countOf(sizeBytes))));
  const buffers: Buffers = { input: world.tensor(job.dtype, [most]), output: world.tensor(job.dtype, [most]) };
  const plain = { ...job, sizes: [], contenders: [] };
  const { base, beside } = job;
  const readings: TuneReading[] = [];
  for (const [index, { sizeBytes, labels, graphCalls }] of job.sizes.entries()) {
    // The clocks of the ranks differ: one of them decides for all.
    if (!(await comm.broadcastObject(performance.now() - began < job.budgetMs))) break;
    const here = { ...plain, ...(graphCalls === undefined ? {} : { graphCalls }) };
    const count = countOf(sizeBytes);
    const measure = (those: readonly Contender[], repeats: number, inPlace = false, as = here) =>
      measureContenders(world, comm, { ...as, repeats, inPlace }, those, buffers, count, index === 0);
    const named = (name: string): Contender => ({ kind: "algorithm", name });
    let runnable = await runnableOf(comm, job, buffers, count, labels);
    if (job.most !== undefined && runnable.length > job.most) {
      const seen = await measure(runnable.map(named), 1);
      runnable = fastestOf(runnable, seen, job.most);
    }
    const contenders = [base, ...beside, ...runnable.map(named)];
    const measured = await measure(contenders, job.repeats);
    const figure = ({ timing, wrong, served, captured }: Measured, label = served): TuneFigure => ({
      label,
      ...(captured !== undefined && { captured }),
      timeUs: timing.us,
      wrong: wrong ?? 0,
    });
    const figures = measured.slice(1 + beside.length).map((one, i) => figure(one, runnable[i]));
    const own = figure(measured[0] as Measured);
    const seconds = [...figures]
      .filter(({ wrong, timeUs }) => wrong === 0 && timeUs < own.timeUs)
      .sort((a, b) => a.timeUs - b.timeUs)
      .slice(0, MOST_SECOND)
      .map(({ label }) => named(label));
    const look = async (inPlace: boolean, as = here): Promise<Pick<SecondLook, "ratios" | "ofFastest">[]> => {
      const [first, ...again] = await measure([base, ...seconds], job.secondRepeats, inPlace, as);
      const before = first?.timing.loops ?? [];
      return again.map(({ timing: { loops }, wrong }) => ({
        ratios: loops.map((us, loop) => (wrong === 0 ? (before[loop] ?? 0) / us : 0)),
        ofFastest: wrong === 0 ? Math.min(...before) / Math.min(...loops) : 0,
      }));
    };
    const apart = seconds.length === 0 ? [] : await look(false);
    const isOnTop = job.servesInPlace && operationInfo(job.op).inPlace !== "never";
    const onTop = seconds.length === 0 || !isOnTop ? [] : await look(true);
    const isDirect = job.asksDirect === true && graphCalls !== undefined;
    const direct = seconds.length === 0 || !isDirect ? [] : await look(false, plain);
    const second = seconds.map(({ name }, i) => ({
      label: name,
      ratios: apart[i]?.ratios ?? [],
      ofFastest: apart[i]?.ofFastest ?? 0,
      inPlaceRatios: onTop[i]?.ratios ?? [],
      directRatios: direct[i]?.ratios ?? [],
    }));
    const compared = measured.slice(1, 1 + beside.length).map((one) => figure(one));
    readings.push({ sizeBytes, base: own, beside: compared, others: figures, second });
    if (comm.rank === 0) console.log(TUNE_PREFIX + sizeBytes);
  }
  const { topology } = comm.capabilities().features;
  return { readings, numRanks: comm.size, topology: typeof topology === "string" ? topology : undefined };
}

/** The fastest, and those that were wrong, which are told. */
function fastestOf(labels: readonly string[], seen: readonly Measured[], most: number): readonly string[] {
  const all = labels.map((label, i) => ({ label, us: seen[i]?.timing.us ?? 0, wrong: seen[i]?.wrong ?? 0 }));
  const fastest = all
    .filter(({ wrong }) => wrong === 0)
    .sort((a, b) => a.us - b.us)
    .slice(0, most);
  return [...all.filter(({ wrong }) => wrong > 0), ...fastest].map(({ label }) => label);
}

/** Those that run here: what they ask of a device or of hosts is known when they are first called, on all ranks alike. */
async function runnableOf(
  comm: World["comm"],
  job: TuneJob,
  buffers: Buffers,
  count: number,
  labels: readonly string[],
): Promise<readonly string[]> {
  if (!job.mayRefuse) return labels;
  const found: string[] = [];
  for (const name of labels) {
    const call = contenderCall(
      comm,
      { ...job, sizes: [], contenders: [] },
      { kind: "algorithm", name },
      buffers,
      count,
    );
    try {
      await call();
      found.push(name);
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
    }
  }
  return found;
}

export default runTuneRank;
