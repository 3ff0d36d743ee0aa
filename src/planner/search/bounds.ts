/** What no placement, split or link can beat: bounds on the score of a candidate, and of all variants of the same axes. */

import { leastLargestStage } from "./chunks.ts";
import type { SearchRequest } from "./enumerate.ts";
import { batchUs, replicaTimes, scoreOf } from "./evaluate.ts";
import type { Candidate } from "./schedule.ts";
import type { Totals } from "./split.ts";
import type { StageModel } from "./stage.ts";

/** A hair below, so that rounding never makes a bound exceed what it bounds. */
const BELOW = 1 - 1e-9;

/** The fastest class throughout, the least latency between stages, layers spread as evenly as whole layers can be. */
export function candidateBound(
  { model, workload, objective }: SearchRequest,
  candidate: Candidate,
  stages: readonly StageModel[],
  leastHopUs: number,
): number {
  const { pp } = candidate.axes;
  const [first] = stages;
  if (first === undefined) return Number.POSITIVE_INFINITY;
  const isMixed = stages.length > 1;
  const whole = isMixed ? leastPerLayer(stages) : first.time(0, model.numLayers, true, true);
  const memory =
    objective === "memory" ? Math.min(...stages.map((stage) => stage.leastMemoryBytes())) : Number.POSITIVE_INFINITY;
  // What follows the last microbatch of a training step falls on the stages in parallel.
  const training = workload.mode === "training";
  const hops = (pp - 1) * leastHopUs;
  const largest = leastLargestStage(model.numLayers, pp, candidate.chunks);
  const perStage = isMixed ? { a: 0, b: 0 } : first.leastTime(largest);
  const totals: Totals = {
    sumA: whole.a + (training ? 2 : workload.outputTokens > 0 ? 1 : 0) * hops,
    maxA: Math.max(whole.a / pp, perStage.a),
    sumB: training ? whole.b / pp : whole.b + hops,
    maxB: Math.max(whole.b / pp, training ? 0 : perStage.b),
    maxMemory: memory,
  };
  const us = batchUs(workload, replicaTimes(workload, first.schedule, totals));
  return scoreOf(workload, objective, candidate, us, memory) * BELOW;
}

/** A split chooses the class for each layer, so that sums by class are a bound only where there is one. */
function leastPerLayer(stages: readonly StageModel[]): { a: number; b: number } {
  const numLayers = stages[0]?.model.numLayers ?? 0;
  let a = 0;
  let b = 0;
  for (let layer = 0; layer < numLayers; layer++) {
    const times = stages.map((stage) => stage.time(layer, layer + 1, false, false));
    a += Math.min(...times.map((time) => time.a));
    b += Math.min(...times.map((time) => time.b));
  }
  return { a, b };
}

/**
 * What no variant of a training step can beat, from the ones with the fewest and the most sequences a pass: time a sequence
 * falls with the sequences, a bubble grows with them.
 */
export function variantsBound(
  { model, workload, objective }: SearchRequest,
  { small, large }: { readonly small: StageModel; readonly large: StageModel },
  idleShare: number,
  leastHopUs: number,
): number {
  const { candidate } = small;
  const { pp } = candidate.axes;
  const layers = Math.ceil(model.numLayers / pp);
  const largest = (stage: StageModel) =>
    Math.max(stage.time(0, model.numLayers, true, true).a / pp, stage.leastTime(layers).a);
  const work = (candidate.batchPerReplica / large.candidate.microBatch) * largest(large);
  const hops = 2 * (pp - 1) * leastHopUs;
  const idle = small.time(0, model.numLayers, true, true).a + hops - largest(small);
  const us = work + idleShare * Math.max(0, idle);
  return scoreOf(workload, objective, candidate, us, 0) * BELOW;
}
