/** What candidates of the same axes and batch differ in: in training ZeRO stage, micro-batch, recomputation, chunks of a pipeline. */
import { candidateBound, variantsBound } from "./bounds.ts";
import { makesRounds } from "./chunks.ts";
import type { AxesGroup, SearchRequest } from "./enumerate.ts";
import { type Candidate, PLAIN } from "./schedule.ts";
import { StageModel } from "./stage.ts";
import type { Workload } from "./workload.ts";

/** A candidate with what its score cannot be better than. */
export interface Bounded {
  readonly candidate: Candidate;
  readonly classes: AxesGroup["classes"];
  readonly bound: number;
}

/** Micro-batches that are tried when none is asked for. */
const MICRO_BATCHES = [1, 2, 4, 8, 16];
/** Layers more than an even share that a stage must hold before slower variants are not looked at. */
const ROOMY_LAYERS = 2;

function microBatches(workload: Workload, { axes, batchPerReplica }: AxesGroup): readonly number[] {
  if (workload.microBatch !== undefined) return [Math.min(workload.microBatch, batchPerReplica)];
  const fills = (size: number) => batchPerReplica % size === 0 && batchPerReplica / size >= axes.pp;
  return MICRO_BATCHES.filter((size) => size === 1 || fills(size));
}

/** Chunks of a stage: those that interleave, and one, unless interleaving is asked for. */
function chunksOf(
  { workload, cache }: SearchRequest,
  { pp }: Candidate["axes"],
  microbatches: number,
): readonly number[] {
  const { pipelineSchedule: asked } = workload;
  if (pp === 1 || (asked !== undefined && asked !== "interleaved")) return [1];
  const interleaved = makesRounds(pp, microbatches) ? cache.chunkCounts(pp) : [];
  return asked === "interleaved" ? interleaved : [...interleaved, 1];
}

type Variant = Pick<Candidate, "zeroStage" | "microBatch" | "checkpointing" | "chunks">;

/** The least recomputation last: `checkpointing` of the same ZeRO stage, micro-batch and chunks comes with the least first. */
function variantsOf(request: SearchRequest, group: AxesGroup): readonly Variant[] {
  const { workload } = request;
  if (workload.mode !== "training") return [PLAIN];
  const { dp, ep, cp } = group.axes;
  // Sharing the optimizer saves memory and mostly time; the exchanges of a tiny model take longer in two halves.
  const isShared = dp * ep * cp > 1;
  const stages = workload.zeroStages.filter((stage) => stage === 0 || workload.zeroStages.length === 1 || isShared);
  return stages.flatMap((zeroStage) =>
    microBatches(workload, group).flatMap((microBatch) =>
      chunksOf(request, group.axes, Math.ceil(group.batchPerReplica / microBatch)).flatMap((chunks) =>
        workload.checkpointing.map((checkpointing) => ({ zeroStage, microBatch, chunks, checkpointing })),
      ),
    ),
  );
}

const roomName = ({ zeroStage, microBatch, chunks }: Candidate) => `${zeroStage} ${microBatch} ${chunks}`;

/** Whether all stages have room for more layers than their even share. */
function isRoomy({ model, workload, objective }: SearchRequest, [stage, ...others]: readonly StageModel[]): boolean {
  if (workload.mode !== "training" || workload.checkpointing.length < 2) return false;
  if (objective === "memory" || stage === undefined || others.length > 0) return false;
  const { axes, chunks } = stage.candidate;
  const { pp } = axes;
  const available = stage.blockClass.kind.availableBytes;
  const share = Math.min(model.numLayers, Math.ceil(model.numLayers / pp) + Math.max(ROOMY_LAYERS, chunks));
  const fits = (index: number) => {
    const first = index === pp - 1 ? model.numLayers - share : Math.min(index * share, model.numLayers - share);
    return stage.memoryBytes(first, first + share, index) <= available;
  };
  if (!fits(0) || !fits(pp - 1)) return false;
  // Where layers are alike, those between hold less than the first, which has the embedding and the most in flight.
  if (model.layerKinds.length > 1) for (let index = 1; index < pp - 1; index++) if (!fits(index)) return false;
  return true;
}

/** The candidates of a group, without those that recompute more than they must where less fits with room to spare. */
export function candidatesOf(request: SearchRequest, group: AxesGroup, leastHopUs: number): readonly Bounded[] {
  const { model, workload, cache } = request;
  const { axes, batchPerReplica, classes } = group;
  // By ZeRO stage, micro-batch and chunks, the least recomputation that fits with room to spare.
  const roomy = new Map<string, number>();
  const found: Bounded[] = [];
  for (const variant of variantsOf(request, group)) {
    const candidate: Candidate = { axes, batchPerReplica, ...variant };
    const recomputation = workload.checkpointing.indexOf(candidate.checkpointing);
    if ((roomy.get(roomName(candidate)) ?? recomputation) < recomputation) continue;
    const stages = classes.map((cls) => new StageModel(cache, model, workload, candidate, cls, undefined));
    if (isRoomy(request, stages)) roomy.set(roomName(candidate), recomputation);
    found.push({ candidate, classes, bound: candidateBound(request, candidate, stages, leastHopUs) });
  }
  return found;
}

/**
 * What no candidate of a group can beat: the work with the most sequences a pass, the bubble with the fewest and the most chunks;
 * ZeRO, recomputation and exchanges only cost time. Candidates of devices of several kinds are all made at once.
 */
export function groupBound(request: SearchRequest, group: AxesGroup, leastHopUs: number): number {
  const { model, workload, cache, objective } = request;
  const { axes, batchPerReplica, classes } = group;
  const [blockClass, ...others] = classes;
  if (workload.mode !== "training" || objective === "memory" || blockClass === undefined || others.length > 0) return 0;
  const [checkpointing = "none"] = workload.checkpointing;
  const sizes = microBatches(workload, group);
  const stageOf = (microBatch: number) => {
    const candidate: Candidate = { axes, batchPerReplica, zeroStage: 0, microBatch, checkpointing, chunks: 1 };
    return new StageModel(cache, model, workload, candidate, blockClass, undefined);
  };
  const small = stageOf(sizes[0] ?? 1);
  const most = sizes.at(-1) ?? 1;
  const large = most === small.candidate.microBatch ? small : stageOf(most);
  const idleShare = Math.min(small.schedule.idleShare, 1 / (chunksOf(request, axes, 0)[0] ?? 1));
  return variantsBound(request, { small, large }, idleShare, leastHopUs);
}
