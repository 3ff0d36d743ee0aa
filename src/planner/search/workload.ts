/** What is asked of the model: how many sequences, how long, in which formats, for inference or training. */
import { InvalidArgumentError } from "../../core/index.ts";
import { ENGINES, type Engine, type TimeConstants } from "../cost/profiles.ts";
import { CHECKPOINTING, type Checkpointing } from "../memory/activations.ts";
import { type KvFormatName, kvFormat, type WeightFormat, weightFormat } from "../memory/formats.ts";
import type { KvFormat } from "../memory/kv-cache.ts";
import {
  type GradientFormat,
  gradientBytes,
  type MethodSpec,
  type OptimizerName,
  type OptimizerSpec,
  optimizerSpec,
  trainingMethod,
  type ZeroStage,
} from "../memory/training.ts";
import type { ModelSpec } from "../model/spec.ts";
import type { Objective } from "../plan.ts";

export interface WorkloadRequest {
  /** Tokens of a sequence, prompt and output together. Default: the model's, at most 8192. */
  readonly contextTokens?: number;
  /** Default: an eighth of the context, at most 512; 0 for training and encoders. */
  readonly outputTokens?: number;
  /** Sequences in flight over all replicas; the global batch of a training step. Default: 1 for latency, as many as fit for throughput. */
  readonly batch?: number;
  /** Format of the weights. Default: what the model's files have. */
  readonly quant?: string;
  readonly kv?: KvFormatName;
  /** Trains with this method in place of serving. */
  readonly train?: string;
  readonly zeroStage?: ZeroStage;
  /** What is kept for the backward pass. Default: the least recomputation that fits. */
  readonly checkpointing?: Checkpointing;
  /** Sequences of one forward and backward pass of a replica. Default: the best of 1 to 16 that divides its batch. */
  readonly microBatch?: number;
  /** Default: adamw. */
  readonly optimizer?: OptimizerName;
  /** Default: bf16. */
  readonly gradients?: GradientFormat;
  /** What linear layers multiply in. Default: bf16. */
  readonly trainPrecision?: TrainPrecision;
  /** Default: the faster of interleaved, where the layers divide, and `1f1b`, which keeps fewer activations. */
  readonly pipelineSchedule?: PipelineSchedule;
  /** What waits in host memory: optimizer states, or these and the weights. Default: nothing. */
  readonly offload?: Offload;
  /** Tokens of each sequence that the policy generates before a step of PPO or GRPO. Default: rollouts are not counted. */
  readonly rolloutTokens?: number;
  /** Matrices that LoRA adapts. Default: all. */
  readonly loraTargets?: LoraTargets;
  /** Whose kernels and schedulers time the plan. Default: the engine that people run the format with on the device. */
  readonly engine?: Engine;
  /** Constants of the model of time that stand before the shipped ones (a calibration of one's own). */
  readonly constants?: TimeConstants;
  /** Plans beyond the model's context: positions are scaled (RoPE scaling), whatever that does to quality. */
  readonly forceContext?: boolean;
  /** Share of the prompt's tokens that a prefix cache holds already. Default: 0. */
  readonly prefixHits?: number;
  /** Most tokens of one pass of a prefill: vLLM's max_num_batched_tokens. Default: 8192; llama.cpp's 512. */
  readonly prefillChunkTokens?: number;
  /** Share of the experts' exchange that another half of the batch computes behind (two-batch overlap). Default: 0. */
  readonly expertOverlap?: number;
  /** Tokens that a draft (or multi-token prediction) proposes a step, and the share that is accepted. Default: none. */
  readonly speculation?: Speculation;
}

export const TRAIN_PRECISIONS = ["bf16", "fp8"] as const;
export type TrainPrecision = (typeof TRAIN_PRECISIONS)[number];
export const PIPELINE_SCHEDULES = ["interleaved", "1f1b", "zero-bubble"] as const;
export type PipelineSchedule = (typeof PIPELINE_SCHEDULES)[number];
export const OFFLOADS = ["none", "optimizer", "all"] as const;
export type Offload = (typeof OFFLOADS)[number];
export const LORA_TARGETS = ["all", "attention", "qv"] as const;
export type LoraTargets = (typeof LORA_TARGETS)[number];

export interface Speculation {
  /** Proposed tokens a step. */
  readonly tokens: number;
  /** Probability that one more of them is accepted. */
  readonly acceptance: number;
}

export interface Workload {
  readonly mode: "inference" | "training";
  readonly contextTokens: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Undefined: choose. */
  readonly batch: number | undefined;
  readonly format: WeightFormat;
  readonly kvName: string;
  readonly kv: KvFormat;
  readonly activationBytes: number;
  readonly activationFormat: string;
  readonly method: MethodSpec | undefined;
  readonly zeroStages: readonly ZeroStage[];
  /** Those to try, cheapest in time first. */
  readonly checkpointing: readonly Checkpointing[];
  /** Undefined: choose. */
  readonly microBatch: number | undefined;
  readonly optimizer: OptimizerSpec;
  readonly gradientBytes: number;
  readonly trainPrecision: TrainPrecision;
  /** Undefined: choose. */
  readonly pipelineSchedule: PipelineSchedule | undefined;
  readonly offload: Offload;
  readonly loraTargets: LoraTargets;
  readonly engine: Engine | undefined;
  readonly constants: TimeConstants | undefined;
  readonly prefixHits: number;
  /** Undefined: the engine's default. */
  readonly prefillChunkTokens: number | undefined;
  readonly expertOverlap: number;
  readonly speculation: Speculation | undefined;
  /** Tokens of a sequence that a decode step yields on average: 1 without speculation. */
  readonly tokensPerStep: number;
}

const DEFAULT_CONTEXT = 8192;
const DEFAULT_OUTPUT = 512;
const DEFAULT_TRAINING_BATCH = 64;

function count(value: number, argument: string, min: number, max: number): number {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new InvalidArgumentError(argument, value, `an integer from ${min} to ${max}`);
  }
  return value;
}

/** LoRA of a checkpoint that is stored in 4 or 8 bits trains on it as it is: that is QLoRA. Others are expanded to 16 bits. */
function onStoredBase(method: MethodSpec, model: ModelSpec): MethodSpec {
  if (method.method !== "lora" || !/^(nf4|int8|gptq-|awq-)/.test(model.weightFormat)) return method;
  return { ...method, method: "qlora", baseFormat: weightFormat(model.weightFormat) };
}

/**
 * Completes a request with the model's own figures.
 * @throws InvalidArgumentError for a number out of range, an unknown format or method, a context beyond the model's
 */
export function resolveWorkload(model: ModelSpec, request: WorkloadRequest, objective: Objective): Workload {
  const longest = model.contextLength ?? 2 ** 27;
  const contextTokens = request.contextTokens ?? Math.min(longest, DEFAULT_CONTEXT);
  const most = request.forceContext === true ? 2 ** 27 : Math.max(1, Math.min(longest + 1, 2 ** 27));
  if (Number.isInteger(contextTokens) && contextTokens > most && contextTokens <= 2 ** 27) {
    throw new InvalidArgumentError(
      "context",
      contextTokens,
      `an integer from 1 to ${longest}, which is what the model was trained for; --force-context (RoPE scaling) plans beyond it`,
    );
  }
  count(contextTokens, "context", 1, 2 ** 27);
  const training = request.train !== undefined;
  const method = request.train === undefined ? undefined : onStoredBase(trainingMethod(request.train), model);
  const generates = model.isDecoder && !training && contextTokens > 1;
  const outputTokens = generates
    ? count(
        request.outputTokens ?? Math.max(1, Math.min(DEFAULT_OUTPUT, Math.floor(contextTokens / 8))),
        "output tokens",
        0,
        contextTokens - 1,
      )
    : 0;
  const format = training
    ? (method?.baseFormat ?? weightFormat("bf16"))
    : weightFormat(request.quant ?? model.weightFormat);
  if (training && request.quant !== undefined) {
    throw new InvalidArgumentError("quant", request.quant, "nothing: a training method brings its own format (qlora)");
  }
  const wide = format.name === "f32";
  // llama.cpp keeps its cache in f16 unless told otherwise.
  const isHalf = format.compute === "f16" || request.engine === "llama.cpp";
  const kvName = request.kv ?? (isHalf ? "f16" : wide ? "f32" : "bf16");
  const oneOf = <T extends string>(value: T | undefined, names: readonly T[], argument: string): T => {
    const [first] = names;
    if (value !== undefined && !names.includes(value)) {
      throw new InvalidArgumentError(argument, value, `one of ${names.join(", ")}`);
    }
    return value ?? (first as T);
  };
  if (request.checkpointing !== undefined) oneOf(request.checkpointing, CHECKPOINTING, "checkpointing");
  if (request.engine !== undefined) oneOf(request.engine, ENGINES, "engine");
  const microBatch =
    request.microBatch === undefined ? undefined : count(request.microBatch, "micro-batch", 1, 2 ** 20);
  const prefixHits = request.prefixHits ?? 0;
  if (!(prefixHits >= 0 && prefixHits < 1)) {
    throw new InvalidArgumentError("prefix hits", prefixHits, "a share from 0 to below 1");
  }
  const { expertOverlap = 0, prefillChunkTokens } = request;
  if (!(expertOverlap >= 0 && expertOverlap <= 1)) {
    throw new InvalidArgumentError("expert overlap", expertOverlap, "a share from 0 to 1");
  }
  if (request.expertOverlap !== undefined && model.layerKinds.every(({ mlp }) => mlp.kind !== "moe")) {
    throw new InvalidArgumentError("expert overlap", expertOverlap, `nothing: ${model.name} has no experts`);
  }
  if (prefillChunkTokens !== undefined) count(prefillChunkTokens, "prefill chunk", 1, 2 ** 24);
  const { speculation } = request;
  if (speculation !== undefined) {
    count(speculation.tokens, "speculated tokens", 1, 64);
    if (!(speculation.acceptance >= 0 && speculation.acceptance < 1)) {
      throw new InvalidArgumentError("acceptance", speculation.acceptance, "a probability from 0 to below 1");
    }
  }
  // Accepted tokens and the one that the model itself adds (arXiv 2211.17192, equation 1).
  const tokensPerStep =
    speculation === undefined
      ? 1
      : (1 - speculation.acceptance ** (speculation.tokens + 1)) / (1 - speculation.acceptance);
  if (request.zeroStage !== undefined && ![0, 1, 2, 3].includes(request.zeroStage)) {
    throw new InvalidArgumentError("zero stage", request.zeroStage, "0, 1, 2 or 3");
  }
  return {
    mode: training ? "training" : "inference",
    contextTokens,
    promptTokens: contextTokens - outputTokens,
    outputTokens,
    batch:
      request.batch === undefined
        ? training
          ? DEFAULT_TRAINING_BATCH
          : objective === "throughput" && model.isDecoder
            ? undefined
            : 1
        : count(request.batch, "batch", 1, 2 ** 24),
    format,
    kvName,
    kv: kvFormat(kvName),
    activationBytes: wide ? 4 : 2,
    activationFormat: wide ? "f32" : kvName === "f16" ? "f16" : "bf16",
    method,
    zeroStages: training ? (request.zeroStage === undefined ? [0, 1, 2, 3] : [request.zeroStage]) : [0],
    checkpointing: request.checkpointing === undefined ? CHECKPOINTING : [request.checkpointing],
    microBatch,
    optimizer: optimizerSpec(request.optimizer ?? "adamw"),
    gradientBytes: gradientBytes(request.gradients ?? "bf16"),
    trainPrecision: oneOf(request.trainPrecision, TRAIN_PRECISIONS, "train precision"),
    pipelineSchedule:
      request.pipelineSchedule && oneOf(request.pipelineSchedule, PIPELINE_SCHEDULES, "pipeline schedule"),
    offload: oneOf(request.offload, OFFLOADS, "offload"),
    loraTargets: oneOf(request.loraTargets, LORA_TARGETS, "LoRA targets"),
    engine: request.engine,
    constants: request.constants,
    prefixHits,
    prefillChunkTokens,
    expertOverlap,
    speculation,
    tokensPerStep,
  };
}
