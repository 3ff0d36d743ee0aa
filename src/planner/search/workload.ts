/** What is asked of the model: how many sequences, how long, in which formats, for inference or training. */
import { InvalidArgumentError } from "../../core/index.ts";
import { CHECKPOINTING, type Checkpointing } from "../memory/activations.ts";
import { type KvFormatName, kvFormat, type WeightFormat, weightFormat } from "../memory/formats.ts";
import type { KvFormat } from "../memory/kv-cache.ts";
import { type MethodSpec, trainingMethod, type ZeroStage } from "../memory/training.ts";
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
  readonly checkpointing?: Checkpointing;
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
  readonly checkpointing: Checkpointing;
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

/**
 * Completes a request with the model's own figures.
 * @throws InvalidArgumentError for a number out of range, an unknown format or method, a context beyond the model's
 */
export function resolveWorkload(model: ModelSpec, request: WorkloadRequest, objective: Objective): Workload {
  const longest = model.contextLength ?? 2 ** 27;
  const contextTokens = count(
    request.contextTokens ?? Math.min(longest, DEFAULT_CONTEXT),
    "context",
    1,
    Math.max(1, Math.min(longest, 2 ** 27)),
  );
  const training = request.train !== undefined;
  const method = request.train === undefined ? undefined : trainingMethod(request.train);
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
  const kvName = request.kv ?? (wide ? "f32" : format.compute === "f16" ? "f16" : "bf16");
  const checkpointing = request.checkpointing ?? "selective";
  if (!CHECKPOINTING.includes(checkpointing)) {
    throw new InvalidArgumentError("checkpointing", checkpointing, `one of ${CHECKPOINTING.join(", ")}`);
  }
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
    checkpointing,
  };
}
