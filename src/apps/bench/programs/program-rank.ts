/** A benchmark of programs on one rank: contenders are checked, then timed in turn, size by size. */
import type { Communicator } from "../../../runtime/comm/index.ts";
import type { World } from "../../../runtime/world/index.ts";
import { captureCalls } from "../collectives/bench-rank.ts";
import { measurementOf, type Timing, timeInTurn } from "../collectives/call-timing.ts";
import { checkCall, fillInput } from "../collectives/checked-data.ts";
import { rowStart, setUp } from "../collectives/job-setup.ts";
import type { Buffers } from "../collectives/timed-calls.ts";
import { contenderCall } from "./program-calls.ts";
import type { Contender, ProgramJob, ProgramRow } from "./program-types.ts";

/** What rank 0 prints when a row is done. */
export const PROGRAM_ROW_PREFIX = "chorale-program-row ";

/** Runs the benchmark. @returns a row for each size and each contender but the first, on every rank */
async function runProgramRank(world: World, job: ProgramJob): Promise<ProgramRow[]> {
  const { comm } = world;
  const n = comm.size;
  const { counts, buffers } = setUp(world, job);
  const rows: ProgramRow[] = [];
  for (const [index, count] of counts.entries()) {
    const measured = await measureContenders(world, comm, job, job.contenders, buffers, count, index === 0);
    const start = rowStart(comm, job, count);
    const figures = ({ timing, wrong }: Measured) => measurementOf(timing, job.op, n, start.sizeBytes, wrong);
    const [first, ...others] = measured;
    if (first === undefined) continue;
    for (const [i, other] of others.entries()) {
      const row: ProgramRow = {
        ...start,
        repeats: job.repeats,
        program: job.contenders[i + 1]?.name ?? "",
        inPlace: job.inPlace,
        ...figures(other),
        builtIn: { name: first.served, ...figures(first) },
        ratio: other.timing.us === 0 ? 0 : first.timing.us / other.timing.us,
      };
      rows.push(row);
      if (comm.rank === 0) console.log(PROGRAM_ROW_PREFIX + JSON.stringify(row));
    }
  }
  return rows;
}

/** One contender's figures. */
export interface Measured {
  readonly timing: Timing;
  /** Wrong elements over all ranks; `null` when not checked. */
  readonly wrong: number | null;
  /** What served it, by the communicator's own count. */
  readonly served: string;
  /** What served it in a graph, where that was another one. */
  readonly captured?: string;
}

/** Checks and times contenders at one size, in turn. */
export async function measureContenders(
  world: World,
  comm: Communicator,
  job: ProgramJob,
  contenders: readonly Contender[],
  buffers: Buffers,
  count: number,
  first: boolean,
): Promise<Measured[]> {
  const calls = contenders.map((contender) => contenderCall(comm, job, contender, buffers, count));
  const wrong: (number | null)[] = [];
  const served: string[] = [];
  const counts = () => ({ ...comm.stats().choices });
  const countedSince = (before: Readonly<Record<string, number>>) => {
    const after = counts();
    const changed = Object.keys(after).find((key) => key.startsWith(`${job.op} `) && after[key] !== before[key]);
    return changed?.slice(job.op.length + 1);
  };
  const plain = { ...job, graphCalls: 0 };
  for (const [i, call] of calls.entries()) {
    const before = counts();
    wrong.push(job.check ? await checkCall(world, comm, plain, buffers, count, job.inPlace, () => call()) : null);
    if (!job.check) await call();
    served.push(countedSince(before) ?? contenders[i]?.name ?? "");
  }
  fillInput(world, comm, plain, buffers, count);
  const { graphCalls } = job;
  const captured: (string | undefined)[] = [];
  const graphs = (graphCalls === undefined ? [] : calls).map((call) => {
    const before = counts();
    const graph = captureCalls(comm, call, graphCalls ?? 1);
    captured.push(countedSince(before));
    return graph;
  });
  const steps = graphCalls === undefined ? calls.map((call) => ({ run: () => call(), calls: 1 })) : graphs;
  const timings = await timeInTurn(comm, steps, job, job.iterations, first);
  for (const graph of graphs) graph.close();
  return timings.map((timing, i) => {
    const inGraph = captured[i];
    const isOther = inGraph !== undefined && inGraph !== served[i];
    return { timing, wrong: wrong[i] ?? null, served: served[i] ?? "", ...(isOther && { captured: inGraph }) };
  });
}

export default runProgramRank;
