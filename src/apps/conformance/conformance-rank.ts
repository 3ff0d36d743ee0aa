/** The suite on one rank: runs its share of every case, and tells the front end what was wrong. */
import { performance } from "node:perf_hooks";
import type { World } from "../../runtime/world/index.ts";
import { whyNot } from "./case-selection.ts";
import { type DataCase, runDataCase } from "./data-cases.ts";
import type { RankContext } from "./rank-context.ts";
import { hashOf } from "./seeded-random.ts";
import { SEMANTIC_CASES } from "./semantic-cases.ts";
import { openSharedWords, type SharedWords } from "./shared-words.ts";

/** What the front end sends to each rank. */
export interface ConformanceJob {
  readonly seed: number;
  readonly full: boolean;
  readonly interleavings: number;
  readonly programCalls: number;
  readonly dataCases: readonly DataCase[];
  /** Names of the semantic cases. */
  readonly semanticCases: readonly string[];
  /** What all ranks see, by the places that `SHARED` names. */
  readonly shared: SharedWords;
}

/** Where the words that ranks share are: one for cases that watch each other, then one for each rank and each case. */
export const SHARED = {
  /** How many cases the rank has begun. */
  begun: (rank: number): number => 1 + rank,
  /** Microseconds that the case took on the rank that was longest in it. */
  micros: (index: number, ranks: number): number => 1 + ranks + index,
} as const;

export interface CaseFailure {
  /** Place in the job: data cases first, then semantic ones. */
  readonly index: number;
  readonly problem: string;
  /** The rank could not go on with the world. */
  readonly fatal: boolean;
}

export interface RankReport {
  readonly failures: readonly CaseFailure[];
  /** Digests of the data cases' results, `null` where ranks may differ. */
  readonly digests: readonly (number | null)[];
  /** Cases that the backend cannot run, [index, why]. */
  readonly skipped: readonly (readonly [number, string])[];
  readonly numDone: number;
  /** The slowest cases, [index, ms]. */
  readonly slowest: readonly (readonly [number, number])[];
}

function storeMax(words: Int32Array, at: number, value: number): void {
  let old = Atomics.load(words, at);
  while (old < value) {
    const seen = Atomics.compareExchange(words, at, old, value);
    if (seen === old) return;
    old = seen;
  }
}

/** Runs a job. Never throws: what goes wrong is in the report. */
export async function runConformanceRank(world: World, job: ConformanceJob): Promise<RankReport> {
  const failures: CaseFailure[] = [];
  const digests: (number | null)[] = [];
  const skipped: [number, string][] = [];
  const has = world.comm.capabilities();
  const times: [number, number][] = [];
  let index = 0;
  const shared = openSharedWords(job.shared);
  const context: RankContext = {
    world,
    comm: world.comm,
    shared,
    seed: job.seed,
    full: job.full,
    interleavings: job.interleavings,
    programCalls: job.programCalls,
    fail: (problem) => failures.push({ index, problem, fatal: false }),
  };
  const attempt = async (run: () => Promise<void>): Promise<boolean> => {
    Atomics.store(shared, SHARED.begun(world.rank), index + 1);
    const began = performance.now();
    try {
      await run();
      const ms = performance.now() - began;
      times.push([index, ms]);
      storeMax(shared, SHARED.micros(index, world.size), Math.ceil(1000 * ms));
      return true;
    } catch (error) {
      failures.push({
        index,
        problem: error instanceof Error ? (error.stack ?? error.message) : String(error),
        fatal: true,
      });
      world.comm.abort(`conformance case ${index} failed on rank ${world.rank}`);
      return false;
    }
  };
  const report = (): RankReport => ({
    failures,
    digests,
    skipped,
    numDone: index,
    slowest: times.sort((a, b) => b[1] - a[1]).slice(0, 5),
  });
  for (const c of job.dataCases) {
    const why = whyNot(c, has);
    if (why !== undefined) {
      skipped.push([index, why]);
      digests[index++] = null;
      continue;
    }
    const done = await attempt(async () => {
      digests[index] = (await runDataCase(context, c, hashOf(job.seed, index))) ?? null;
    });
    if (!done) return report();
    index++;
  }
  for (const name of job.semanticCases) {
    const found = SEMANTIC_CASES.find((c) => c.name === name);
    const missing = [
      ...(found?.needs?.filter((op) => !has.operations.includes(op)) ?? []),
      ...(found?.needsFeatures?.filter((feature) => has.features[feature] === false) ?? []),
    ];
    const onHost = has.deviceTensors ? found?.onHost : undefined;
    if (missing.length > 0 || onHost !== undefined) {
      skipped.push([index++, onHost ?? `no ${missing.join(", ")}`]);
      continue;
    }
    Atomics.store(shared, 0, 0);
    const done = await attempt(async () => {
      await world.comm.barrier({ timeoutMs: 20_000 });
      if (found === undefined) context.fail("no such case");
      else await found.run(context);
      await world.comm.barrier({ timeoutMs: 20_000 });
    });
    if (!done) return report();
    index++;
  }
  return report();
}

export default runConformanceRank;
