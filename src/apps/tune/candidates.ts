/** What may serve a collective: the library's algorithms with instances and chunks, ranked by simulated time. */
import { ALGORITHMS } from "../../authoring/algorithms/index.ts";
import { compile } from "../../authoring/compiler/index.ts";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import { type CpuCosts, simulateCpu } from "../../authoring/simulator/index.ts";
import type { CollectiveName } from "../../collectives/index.ts";

export interface Candidate {
  /** `NAME[*INSTANCES][/CHUNKS]`. */
  readonly label: string;
  readonly plan: ExecutionPlan;
}

/** Strands of a rank share its core: more instances only shorten the waits between pipelined steps. */
const INSTANCES = [1, 2, 4];
const CHUNKS = [4, 16, 64];
/** Plans with more operations take longer to prove than tuning may take. */
export const MAX_OPS = 4000;
/** Simulated time is off by some tens of percent: whoever is within this factor of the best is measured. */
const CLOSE = 1.6;

/** All candidates of a collective, compiled but not proved: the ranks prove those that they run. */
export function candidatesOf(collective: CollectiveName, numRanks: number): readonly Candidate[] {
  const found: Candidate[] = [];
  const entries = ALGORITHMS.filter(
    (entry) => entry.collective === collective && entry.legal(numRanks) && !entry.needsSwitch,
  );
  for (const entry of entries) {
    const variants = [
      ...INSTANCES.map((instances) => ({ instances, chunks: undefined })),
      ...(entry.takesChunks ? CHUNKS.map((chunks) => ({ instances: 1, chunks })) : []),
    ];
    for (const { instances, chunks } of variants) {
      const args = {
        numRanks,
        ...(instances === 1 ? {} : { instances }),
        ...(chunks === undefined ? {} : { chunks }),
      };
      const plan = compile(entry.make(args), { verify: false });
      if (numOpsOf(plan) > MAX_OPS) continue;
      const label = `${entry.name}${instances === 1 ? "" : `*${instances}`}${chunks === undefined ? "" : `/${chunks}`}`;
      found.push({ label, plan });
    }
  }
  return found;
}

export function numOpsOf({ ranks }: ExecutionPlan): number {
  return ranks.reduce((sum, { strands }) => sum + strands.reduce((n, { ops }) => n + ops.length, 0), 0);
}

/** The candidates that are worth measuring at a size: by simulated time, at most `most` of them. */
export function rankCandidates<C extends Candidate>(
  candidates: readonly C[],
  sizeBytes: number,
  costs: CpuCosts,
  most: number,
): readonly C[] {
  const timed = candidates
    .map((candidate) => ({ candidate, run: simulateCpu(candidate.plan, { sizeBytes, costs }) }))
    .filter(({ run }) => run.completed)
    .sort((a, b) => a.run.timeUs - b.run.timeUs);
  const best = timed[0]?.run.timeUs ?? 0;
  return timed
    .filter(({ run }) => run.timeUs <= CLOSE * best)
    .slice(0, most)
    .map(({ candidate }) => candidate);
}
