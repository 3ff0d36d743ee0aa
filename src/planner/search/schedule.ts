/** A layout to be judged, and how its batch goes through the pipeline: decode in turns, prefill in chunks, microbatches. */
import { PREFILL_CHUNK_TOKENS } from "../cost/constants.ts";
import type { Engine } from "../cost/profiles.ts";
import type { Checkpointing } from "../memory/activations.ts";
import type { ZeroStage } from "../memory/training.ts";
import type { PlanAxisSizes } from "../plan.ts";
import type { Workload } from "./workload.ts";

/** A layout to be judged: axes, sequences a replica (of one ep rank), ZeRO stage. */
export interface Candidate {
  readonly axes: PlanAxisSizes;
  readonly batchPerReplica: number;
  readonly zeroStage: ZeroStage;
  /** Training: sequences of one forward and backward pass, and what is kept for the latter. */
  readonly microBatch: number;
  readonly checkpointing: Checkpointing;
  /** Chunks of layers that each stage of an interleaved pipeline holds; 1: not interleaved. */
  readonly chunks: number;
}

/** What distinguishes nothing in inference. */
export const PLAIN = { zeroStage: 0, microBatch: 1, checkpointing: "none", chunks: 1 } as const;

/** Share of 1F1B's bubble that a zero-bubble schedule leaves (arXiv 2401.10241). */
const ZERO_BUBBLE = 1 / 3;

/** How a batch goes through the pipeline. */
export interface Schedule {
  /** Microbatches that decode in turns, and sequences in each. */
  readonly decodeBatches: number;
  readonly decodeSequences: number;
  /** Passes of a prefill, and tokens and sequences in each. */
  readonly prefillPasses: number;
  readonly prefillTokens: number;
  readonly prefillSequences: number;
  /** Microbatches of one training step. */
  readonly trainBatches: number;
  /** Share of 1F1B's bubble that the schedule leaves: an interleaved one a part for each chunk of a stage (arXiv 2104.04473). */
  readonly idleShare: number;
}

/**
 * Splits a replica's batch into what passes through the pipeline at once. llama.cpp decodes all sequences in one batch, stage
 * after stage: its stages overlap in prefill only.
 */
export function scheduleOf(workload: Workload, candidate: Candidate, engine: Engine): Schedule {
  const batch = candidate.batchPerReplica;
  const { pp } = candidate.axes;
  const decodeBatches = engine === "llama.cpp" ? 1 : Math.min(pp, batch);
  // What a prefix cache holds is not computed again; one token is, to have something to go on from.
  const prompt = Math.max(1, Math.ceil(workload.promptTokens * (1 - workload.prefixHits)));
  const most = workload.prefillChunkTokens ?? PREFILL_CHUNK_TOKENS[engine === "llama.cpp" ? engine : "others"];
  let perPass = Math.max(1, Math.min(batch, Math.floor(most / prompt)));
  perPass = Math.min(perPass, Math.ceil(batch / Math.min(batch, pp)));
  const chunks = Math.ceil(prompt / most);
  return {
    decodeBatches,
    decodeSequences: Math.ceil(batch / decodeBatches),
    prefillPasses: chunks > 1 ? batch * chunks : Math.ceil(batch / perPass),
    prefillTokens: chunks > 1 ? Math.ceil(prompt / chunks) : perPass * prompt,
    prefillSequences: chunks > 1 ? 1 : perPass,
    trainBatches: Math.ceil(batch / candidate.microBatch),
    idleShare: workload.pipelineSchedule === "zero-bubble" ? ZERO_BUBBLE : 1 / candidate.chunks,
  };
}
