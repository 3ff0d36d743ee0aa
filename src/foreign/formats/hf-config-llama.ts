/**
 * Reads config.json and generation_config.json of the Llama family of Hugging Face transformers: LlamaForCausalLM, and
 * the two that differ from it only by a bias or a window, MistralForCausalLM and Qwen2ForCausalLM. Field names and
 * defaults are those of transformers' configuration_llama.py, configuration_mistral.py and configuration_qwen2.py;
 * rope types those of modeling_rope_utils.py. A config whose model would compute something other than what this reader
 * describes (yarn and longrope scaling, partial rotary embeddings, quantised weights, other activations) is refused by
 * name.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { FormatError, show, wordTable } from "../../core/index.ts";
import { readJsonFile } from "./json.ts";

/** How rotary frequencies are made. */
export type RopeScaling =
  | { readonly kind: "default" }
  | { readonly kind: "linear"; readonly factor: number }
  | {
      readonly kind: "llama3";
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalMaxPositions: number;
    };

/** The shape of a Llama-family model: everything that its forward pass depends on. */
export interface LlamaConfig {
  readonly architecture: LlamaArchitecture;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  /** Even; need not be hiddenSize / numHeads. */
  readonly headDim: number;
  readonly vocabSize: number;
  readonly maxPositions: number;
  readonly rmsNormEps: number;
  readonly ropeTheta: number;
  readonly ropeScaling: RopeScaling;
  /** Biases of the q, k and v projections. */
  readonly qkvBias: boolean;
  /** Bias of the output projection of attention. */
  readonly outputBias: boolean;
  readonly mlpBias: boolean;
  /** The head uses the embedding's matrix. */
  readonly tiedEmbeddings: boolean;
  /** Positions that attention sees, where the model limits them. */
  readonly slidingWindow: number | undefined;
  readonly bosTokenId: number | undefined;
  /** Tokens that end a generation; empty when the config names none. */
  readonly eosTokenIds: readonly number[];
  /** Element type that the config states, as it states it. Each tensor's own is in its file. */
  readonly dtype: string | undefined;
}

export const LLAMA_ARCHITECTURES = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"] as const;
export type LlamaArchitecture = (typeof LLAMA_ARCHITECTURES)[number];

const BY_MODEL_TYPE: Readonly<Record<string, LlamaArchitecture>> = wordTable({
  llama: "LlamaForCausalLM",
  mistral: "MistralForCausalLM",
  qwen2: "Qwen2ForCausalLM",
});

/** A count of something: 2^31 bounds every product of two of them below 2^53 * 2^9, and no model comes near. */
const count = z
  .int()
  .min(1)
  .max(2 ** 31 - 1);
const tokenId = z
  .int()
  .min(0)
  .max(2 ** 31 - 1);
const tokenIds = z.union([tokenId, z.array(tokenId).max(4096)]).nullish();
const positive = z.number().positive();

const ropeSchema = z.object({
  rope_type: z.string().nullish(),
  type: z.string().nullish(),
  rope_theta: positive.nullish(),
  factor: positive.nullish(),
  low_freq_factor: positive.nullish(),
  high_freq_factor: positive.nullish(),
  original_max_position_embeddings: count.nullish(),
  partial_rotary_factor: z.number().nullish(),
});

const configSchema = z.object({
  architectures: z.array(z.string()).max(16).nullish(),
  model_type: z.string().nullish(),
  hidden_size: count,
  intermediate_size: count,
  num_hidden_layers: count.max(100_000),
  num_attention_heads: count,
  num_key_value_heads: count.nullish(),
  head_dim: count.nullish(),
  vocab_size: count,
  max_position_embeddings: count.nullish(),
  rms_norm_eps: z.number().min(0).nullish(),
  hidden_act: z.string().nullish(),
  rope_theta: positive.nullish(),
  rope_scaling: ropeSchema.nullish(),
  rope_parameters: ropeSchema.nullish(),
  partial_rotary_factor: z.number().nullish(),
  attention_bias: z.boolean().nullish(),
  mlp_bias: z.boolean().nullish(),
  tie_word_embeddings: z.boolean().nullish(),
  sliding_window: count.nullish(),
  use_sliding_window: z.boolean().nullish(),
  layer_types: z.array(z.string()).nullish(),
  bos_token_id: tokenIds,
  eos_token_id: tokenIds,
  dtype: z.string().nullish(),
  torch_dtype: z.string().nullish(),
  quantization_config: z.unknown().optional(),
});
type RawConfig = z.infer<typeof configSchema>;

const generationSchema = z.object({ eos_token_id: tokenIds });

function check<T>(schema: z.ZodType<T>, json: unknown, where: string): T {
  const result = schema.safeParse(json);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const path = issue?.path.map(String) ?? [];
  let value = json;
  for (const key of path) value = (value as Record<string, unknown> | undefined)?.[key];
  throw new FormatError(
    where,
    value === undefined ? "is missing" : `is ${show(value)}; ${issue?.message ?? "invalid"}`,
    path.length === 0 ? {} : { field: path.join(".") },
  );
}

/** The list of end tokens that a config's `eos_token_id` stands for. */
function asList(ids: number | readonly number[] | null | undefined): readonly number[] {
  return Object.freeze(typeof ids === "number" ? [ids] : [...(ids ?? [])]);
}

function architectureOf(raw: RawConfig, where: string): LlamaArchitecture {
  const accepted = `one of ${LLAMA_ARCHITECTURES.join(", ")}`;
  const name = raw.architectures?.[0];
  if (name === undefined) {
    const type = raw.model_type ?? undefined;
    const found = type !== undefined && Object.hasOwn(BY_MODEL_TYPE, type) ? BY_MODEL_TYPE[type] : undefined;
    if (found !== undefined) return found;
    throw new FormatError(
      where,
      `is ${show(raw.model_type)}; expected one of ${Object.keys(BY_MODEL_TYPE).join(", ")}`,
      {
        field: "model_type",
      },
    );
  }
  const found = LLAMA_ARCHITECTURES.find((known) => known === name);
  if (found === undefined) {
    throw new FormatError(where, `is ${show(name)}; expected ${accepted}`, { field: "architectures" });
  }
  return found;
}

function readRope(raw: RawConfig, where: string): { theta: number; scaling: RopeScaling } {
  // transformers 5 writes rope_parameters, earlier versions rope_theta and rope_scaling.
  const field = raw.rope_parameters != null ? "rope_parameters" : "rope_scaling";
  const rope = raw.rope_parameters ?? raw.rope_scaling ?? {};
  const theta = raw.rope_parameters?.rope_theta ?? raw.rope_theta ?? raw.rope_scaling?.rope_theta ?? 10_000;
  const partial = rope.partial_rotary_factor ?? raw.partial_rotary_factor ?? 1;
  if (partial !== 1) {
    throw new FormatError(where, `is ${partial}; only 1 (the whole head is rotated) is supported`, {
      field: "partial_rotary_factor",
    });
  }
  const need = (key: "factor" | "low_freq_factor" | "high_freq_factor" | "original_max_position_embeddings") => {
    const value = rope[key];
    if (value == null) throw new FormatError(where, "is missing", { field: `${field}.${key}` });
    return value;
  };
  const type = rope.rope_type ?? rope.type ?? "default";
  switch (type) {
    case "dynamic":
    // The frequencies change only beyond max_position_embeddings, where this reader's users do not go.
    case "default":
      return { theta, scaling: { kind: "default" } };
    case "linear":
      return { theta, scaling: { kind: "linear", factor: need("factor") } };
    case "llama3": {
      const scaling = {
        kind: "llama3",
        factor: need("factor"),
        lowFreqFactor: need("low_freq_factor"),
        highFreqFactor: need("high_freq_factor"),
        originalMaxPositions: need("original_max_position_embeddings"),
      } as const;
      if (scaling.highFreqFactor <= scaling.lowFreqFactor) {
        throw new FormatError(where, `is ${scaling.highFreqFactor}; expected more than low_freq_factor`, {
          field: `${field}.high_freq_factor`,
        });
      }
      return { theta, scaling };
    }
    default:
      throw new FormatError(where, `is ${show(type)}; supported are default, linear, dynamic and llama3`, {
        field: `${field}.rope_type`,
      });
  }
}

/**
 * Checks a parsed config.json.
 * @throws FormatError naming the field
 * @example
 * import { parseLlamaConfig } from "chorale/formats";
 * const config = parseLlamaConfig(
 *   {
 *     architectures: ["LlamaForCausalLM"],
 *     hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 256,
 *   },
 *   "config.json",
 * );
 * console.log(config.headDim, config.numKvHeads); // 16 4
 */
export function parseLlamaConfig(json: unknown, where: string): LlamaConfig {
  const raw = check(configSchema, json, where);
  const architecture = architectureOf(raw, where);
  const refuse = (field: string, problem: string): never => {
    throw new FormatError(where, problem, { field });
  };
  const act = raw.hidden_act ?? "silu";
  if (act !== "silu" && act !== "swish") refuse("hidden_act", `is ${show(act)}; only silu is supported`);
  if (raw.quantization_config != null) {
    refuse("quantization_config", "is set; only plain f32, f16 and bf16 weights are supported");
  }

  const numHeads = raw.num_attention_heads;
  const numKvHeads = raw.num_key_value_heads ?? numHeads;
  if (numKvHeads > numHeads || numHeads % numKvHeads !== 0) {
    refuse("num_key_value_heads", `is ${numKvHeads}; expected a divisor of num_attention_heads (${numHeads})`);
  }
  const headDim = raw.head_dim ?? raw.hidden_size / numHeads;
  if (!Number.isInteger(headDim)) {
    refuse(
      "num_attention_heads",
      `is ${numHeads}; expected a divisor of hidden_size (${raw.hidden_size}), or head_dim`,
    );
  }
  if (headDim % 2 !== 0) refuse("head_dim", `is ${headDim}; rotary embeddings need an even number`);
  if (!Number.isSafeInteger(numHeads * headDim * raw.hidden_size)) {
    refuse("num_attention_heads", `is ${numHeads}: with head_dim ${headDim} a projection has more than 2^53 weights`);
  }

  const isQwen = architecture === "Qwen2ForCausalLM";
  const isLlama = architecture === "LlamaForCausalLM";
  const attentionBias = raw.attention_bias ?? false;
  if (isQwen && raw.use_sliding_window === true) {
    refuse("use_sliding_window", "is true; windows that differ from layer to layer are not supported");
  }
  const window = architecture === "MistralForCausalLM" ? (raw.sliding_window ?? undefined) : undefined;
  const { theta, scaling } = readRope(raw, where);
  const bos = asList(raw.bos_token_id)[0];
  return Object.freeze({
    architecture,
    hiddenSize: raw.hidden_size,
    intermediateSize: raw.intermediate_size,
    numLayers: raw.num_hidden_layers,
    numHeads,
    numKvHeads,
    headDim,
    vocabSize: raw.vocab_size,
    maxPositions: raw.max_position_embeddings ?? (isLlama ? 2048 : isQwen ? 32_768 : 131_072),
    rmsNormEps: raw.rms_norm_eps ?? 1e-6,
    ropeTheta: theta,
    ropeScaling: Object.freeze(scaling),
    qkvBias: isQwen || (isLlama && attentionBias),
    outputBias: isLlama && attentionBias,
    mlpBias: isLlama && (raw.mlp_bias ?? false),
    tiedEmbeddings: raw.tie_word_embeddings ?? false,
    slidingWindow: window,
    bosTokenId: bos,
    eosTokenIds: asList(raw.eos_token_id),
    dtype: raw.dtype ?? raw.torch_dtype ?? undefined,
  });
}

/**
 * Checks a parsed generation_config.json.
 * @returns its end tokens; `undefined` when it does not name any
 * @throws FormatError naming the field
 */
export function parseGenerationEos(json: unknown, where: string): readonly number[] | undefined {
  const raw = check(generationSchema, json, where);
  return raw.eos_token_id == null ? undefined : asList(raw.eos_token_id);
}

/**
 * Reads the config of a Hugging Face folder. The end tokens of generation_config.json, where there are any, replace
 * those of config.json, as in transformers' `generate`.
 * @throws FormatError naming the file and the field
 */
export function readLlamaConfig(folder: string): LlamaConfig {
  const path = join(folder, "config.json");
  const config = parseLlamaConfig(readJsonFile(path), path);
  const generationPath = join(folder, "generation_config.json");
  if (!existsSync(generationPath)) return config;
  const eosTokenIds = parseGenerationEos(readJsonFile(generationPath), generationPath);
  return eosTokenIds === undefined ? config : Object.freeze({ ...config, eosTokenIds });
}
