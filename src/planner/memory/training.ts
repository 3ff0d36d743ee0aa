/**
 * Training methods: how many bytes each parameter costs beside its weight. Mixed-precision Adam keeps bf16 weights and
 * gradients, and f32 momentum, variance and master weights: 16 bytes a parameter (ZeRO, arXiv 1910.02054, section 3.1).
 * Adapters: LoRA (arXiv 2106.09685), QLoRA (arXiv 2305.14314), prefix tuning (arXiv 2101.00190).
 */
import { InvalidArgumentError } from "../../core/index.ts";
import type { ModelSpec, WeightSpec } from "../model/spec.ts";
import type { WeightFormat } from "./formats.ts";
import { weightFormat } from "./formats.ts";
import { modelBytes } from "./weights.ts";

export const TRAINING_METHODS = ["full", "lora", "qlora", "prefix", "dpo", "rlhf", "grpo", "distillation"] as const;
export type TrainingMethod = (typeof TRAINING_METHODS)[number];

export type ZeroStage = 0 | 1 | 2 | 3;

const GRADIENT_BYTES = 2;
/** Momentum and variance in f32. */
const OPTIMIZER_BYTES = 8;
const MASTER_BYTES = 4;

export const GRADIENT_FORMATS = ["bf16", "f32"] as const;
export type GradientFormat = (typeof GRADIENT_FORMATS)[number];

/** Bytes of a gradient. @throws InvalidArgumentError naming the formats */
export function gradientBytes(name: GradientFormat): number {
  if (!GRADIENT_FORMATS.includes(name)) {
    throw new InvalidArgumentError("gradients", name, `one of ${GRADIENT_FORMATS.join(", ")}`);
  }
  return name === "f32" ? 4 : 2;
}

export interface OptimizerSpec {
  readonly name: OptimizerName;
  /** Bytes of states for each trained parameter. */
  readonly stateBytes: number;
  /** Bytes of states that wait in host memory. */
  readonly pagedBytes: number;
  /** Bytes of an f32 copy of each trained parameter; 0 where the weights themselves are updated. */
  readonly masterBytes: number;
}

export const OPTIMIZERS = ["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "sgd", "muon"] as const;
export type OptimizerName = (typeof OPTIMIZERS)[number];

/**
 * What an optimizer keeps. AdamW: two moments in f32. 8-bit: two bytes and block scales (arXiv 2110.02861), on bf16 weights
 * (the paged one keeps them in host memory; with a batch of one pass it is taken to be fused with the backward pass, so that no
 * gradients are held, and where gradients are accumulated they are counted). Adafactor: rows and columns (arXiv 1804.04235). SGD and Muon: one momentum.
 * @throws InvalidArgumentError naming them
 */
export function optimizerSpec(name: OptimizerName): OptimizerSpec {
  switch (name) {
    case "adamw":
      return { name, stateBytes: OPTIMIZER_BYTES, pagedBytes: 0, masterBytes: MASTER_BYTES };
    case "adamw-8bit":
      return { name, stateBytes: 2.06, pagedBytes: 0, masterBytes: 0 };
    case "paged-adamw-8bit":
      return { name, stateBytes: 0, pagedBytes: 2.06, masterBytes: 0 };
    case "adafactor":
      return { name, stateBytes: 0.02, pagedBytes: 0, masterBytes: MASTER_BYTES };
    case "sgd":
    case "muon":
      return { name, stateBytes: 4, pagedBytes: 0, masterBytes: MASTER_BYTES };
    default:
      throw new InvalidArgumentError("optimizer", name, `one of ${OPTIMIZERS.join(", ")}`);
  }
}

/** Which matrices LoRA adapts. */
function isAdapted(weight: WeightSpec, targets: "all" | "attention" | "qv"): boolean {
  if (!weight.isLinear) return false;
  if (targets === "all") return true;
  if (weight.component !== "attention") return false;
  return targets === "attention" || /^attention\.(q|v)\./.test(weight.name);
}

export interface MethodSpec {
  readonly method: TrainingMethod;
  /** Format of the frozen base of an adapter method; the trained weights are bf16 otherwise. */
  readonly baseFormat: WeightFormat;
  /** Copies of the model that are trained (policy, critic). */
  readonly trainedModels: number;
  /** Copies that only run forward (reference, reward model, teacher). */
  readonly frozenModels: number;
  /** Set for adapter methods: the base is frozen and only these train. */
  readonly adapter:
    | { readonly kind: "lora"; readonly rank: number }
    | { readonly kind: "prefix"; readonly tokens: number }
    | undefined;
}

/**
 * Reads a method's name: `full`, `lora`, `lora-32` (rank), `qlora`, `qlora-8bit`, `prefix`, `dpo`, `rlhf` (or `ppo`), `grpo`,
 * `distillation`.
 * @throws InvalidArgumentError naming the methods
 */
export function trainingMethod(text: string, argument = "train"): MethodSpec {
  const lower = text.toLowerCase();
  const bf16 = weightFormat("bf16");
  const base = { baseFormat: bf16, trainedModels: 1, frozenModels: 0, adapter: undefined };
  const lora = /^lora(?:-(\d{1,4}))?$/.exec(lower);
  if (lora !== null) {
    return { ...base, method: "lora", adapter: { kind: "lora", rank: rankOf(lora[1], argument, text) } };
  }
  const qlora = /^qlora(?:-(\d)bit)?(?:-(\d{1,4}))?$/.exec(lower);
  if (qlora !== null && [undefined, "2", "3", "4", "8"].includes(qlora[1])) {
    const bits = qlora[1] ?? "4";
    const baseFormat = weightFormat(
      bits === "4" ? "nf4" : bits === "8" ? "int8" : bits === "2" ? "int2" : "gptq-3-g128",
    );
    return { ...base, method: "qlora", baseFormat, adapter: { kind: "lora", rank: rankOf(qlora[2], argument, text) } };
  }
  switch (lower) {
    case "full":
      return { ...base, method: "full" };
    case "prefix":
      return { ...base, method: "prefix", adapter: { kind: "prefix", tokens: 32 } };
    case "dpo":
      return { ...base, method: "dpo", frozenModels: 1 };
    case "grpo":
      // The policy trains, the reference runs forward; there is no critic (arXiv 2402.03300).
      return { ...base, method: "grpo", frozenModels: 1 };
    case "rlhf":
    case "ppo":
      // PPO: policy and critic train; reference and reward model run forward (InstructGPT, arXiv 2203.02155).
      return { ...base, method: "rlhf", trainedModels: 2, frozenModels: 2 };
    case "distillation":
      return { ...base, method: "distillation", frozenModels: 1 };
    default:
      throw new InvalidArgumentError(
        argument,
        text,
        "full, lora, lora-RANK, qlora, qlora-8bit, prefix, dpo, rlhf (ppo), grpo or distillation",
      );
  }
}

function rankOf(text: string | undefined, argument: string, whole: string): number {
  const rank = text === undefined ? 16 : Number(text);
  if (rank < 1 || rank > 4096) throw new InvalidArgumentError(argument, whole, "a LoRA rank from 1 to 4096");
  return rank;
}

/** Trainable elements of one layer's adapters on one tp rank: r * (in + out) for every matrix, cut as the matrix is. */
export function adapterElements(
  model: ModelSpec,
  kind: number,
  spec: MethodSpec,
  tp: number,
  ep: number,
  targets: "all" | "attention" | "qv" = "all",
): number {
  const layer = model.layerKinds[kind];
  if (layer === undefined || spec.adapter === undefined) return 0;
  if (spec.adapter.kind === "prefix") {
    const kv =
      layer.attention.kind === "gqa"
        ? layer.attention.numKvHeads * layer.attention.headDim
        : layer.attention.kind === "mla"
          ? layer.attention.kvLoraRank
          : 0;
    return Math.ceil((2 * spec.adapter.tokens * kv) / tp);
  }
  const { rank } = spec.adapter;
  return layer.weights.reduce((sum, weight) => {
    if (!isAdapted(weight, targets)) return sum;
    const [out = 0, input = 0] = weight.shape;
    const cut = weight.cut === "replicated" ? 1 : tp;
    const wide = weight.cutsInput ? out + input / cut : out / cut + input;
    return sum + Math.ceil(rank * wide) * (weight.perExpert ? Math.ceil(weight.copies / ep) : weight.copies);
  }, 0);
}

export interface TrainingMemory {
  readonly weightsBytes: number;
  readonly gradientBytes: number;
  readonly optimizerBytes: number;
  readonly masterBytes: number;
  readonly totalBytes: number;
}

/**
 * Bytes that training a model takes on one device without sharding and without activations: what the ancestors call
 * the training estimate, with the gradients and master weights that they left out.
 * @example
 * // 16 bytes a parameter for full fine-tuning:
 * import { estimateTrainingMemory, modelPreset, trainingMethod } from "chorale/planner";
 * estimateTrainingMemory(modelPreset("llama-3.1-8b"), trainingMethod("full")).totalBytes / 8030261248 // 16
 */
export function estimateTrainingMemory(model: ModelSpec, spec: MethodSpec): TrainingMemory {
  return trainingMemory(model, spec, optimizerSpec("adamw"), GRADIENT_BYTES);
}

/** None where a paged optimizer steps in the backward pass. */
export const leastGradientBytes = (held: {
  readonly optimizer: OptimizerSpec;
  readonly gradientBytes: number;
}): number => (held.optimizer.pagedBytes > 0 ? 0 : held.gradientBytes);

/** The same with another optimizer and gradients of another width. */
export function trainingMemory(
  model: ModelSpec,
  spec: MethodSpec,
  optimizer: Pick<OptimizerSpec, "stateBytes" | "masterBytes">,
  bytesOfGradient: number,
): TrainingMemory {
  const copies = spec.trainedModels + spec.frozenModels;
  const base = modelBytes(model, spec.baseFormat);
  const adapters = model.layers.reduce((sum, kind) => sum + adapterElements(model, kind, spec, 1, 1), 0);
  const trained =
    spec.adapter === undefined ? (modelBytes(model, weightFormat("bf16")) / 2) * spec.trainedModels : adapters;
  const weightsBytes = base * copies + (spec.adapter === undefined ? 0 : 2 * adapters);
  const gradientBytes = trained * bytesOfGradient;
  const optimizerBytes = trained * optimizer.stateBytes;
  const masterBytes = trained * optimizer.masterBytes;
  return {
    weightsBytes,
    gradientBytes,
    optimizerBytes,
    masterBytes,
    totalBytes: weightsBytes + gradientBytes + optimizerBytes + masterBytes,
  };
}
