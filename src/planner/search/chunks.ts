/**
 * Interleaved pipelines (arXiv 2104.04473): every stage holds as many chunks of layers as every other, and all chunks are
 * alike, but that the embedding and the loss may stand in for one layer of the first and of the last chunk (Megatron-LM's
 * --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split).
 */

/** Most chunks of a stage that are considered: published recipes have 2 to 8. */
const MAX_CHUNKS = 8;

/** Whether a stage may hold so many layers in so many chunks. */
export function allowsLayers(chunks: number, stage: number, pp: number, numLayers: number): boolean {
  if (numLayers % chunks === 0) return true;
  return (stage === 0 || stage === pp - 1) && (numLayers + 1) % chunks === 0;
}

/** Layers of each stage, as even as the chunks allow; undefined where they do not divide. */
export function evenStages(numLayers: number, pp: number, chunks: number): readonly number[] | undefined {
  let best: readonly number[] | undefined;
  for (const [embedding, loss] of [
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
  ] as const) {
    const units = (numLayers + embedding + loss) / chunks;
    if (!Number.isInteger(units) || units < pp || (chunks === 1 && embedding + loss > 0)) continue;
    const counts = Array.from({ length: pp }, (_, stage) => {
      const whole = Math.floor(((stage + 1) * units) / pp) - Math.floor((stage * units) / pp);
      return whole * chunks - (stage === 0 ? embedding : 0) - (stage === pp - 1 ? loss : 0);
    });
    if (best === undefined || Math.max(...counts) < Math.max(...best)) best = counts;
  }
  return best;
}

/** Layers that the largest of `pp` stages holds at least. */
export function leastLargestStage(numLayers: number, pp: number, chunks: number): number {
  const even = Math.ceil(numLayers / pp);
  return chunks === 1 ? even : Math.max(even, Math.ceil(even / chunks) * chunks - 1);
}

/** Whether micro-batches go through an interleaved pipeline in whole rounds of as many as there are stages. */
export const makesRounds = (pp: number, microbatches: number): boolean => pp > 1 && microbatches % pp === 0;

/**
 * Numbers of chunks that an interleaved pipeline may have, most first; each further one is there because its stages are more
 * alike.
 */
export function chunkCounts(numLayers: number, pp: number): readonly number[] {
  const counts: number[] = [];
  let largest = Number.POSITIVE_INFINITY;
  for (let chunks = MAX_CHUNKS; chunks > 1; chunks--) {
    const most = Math.max(...(evenStages(numLayers, pp, chunks) ?? [Number.POSITIVE_INFINITY]));
    if (most >= largest) continue;
    counts.push(chunks);
    largest = most;
  }
  return counts;
}
