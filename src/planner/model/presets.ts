/**
 * Well-known models by name: the fields of their published `config.json` that decide size and shape. The counts that
 * these configs give are compared with published ones in `architectures.test.ts`.
 */
import { InvalidArgumentError, wordTable } from "../../core/index.ts";
import { weightFormat } from "../memory/formats.ts";
import { refuseEncoderDecoderName } from "./encoder-decoders.ts";
import { modelFromConfig } from "./from-config.ts";
import {
  type Config,
  deepseekV3,
  dense,
  encoder,
  FAMILY_CONFIGS,
  falcon,
  gpt2,
  latentMoe,
  llama,
  qwen3Moe,
  SIGLIP,
} from "./preset-families.ts";
import { containedPreset, readName } from "./preset-names.ts";
import { CONFIGS_OF_2026 } from "./presets-of-2026.ts";
import type { ModelSpec } from "./spec.ts";

const bf16 = { dtype: "bfloat16" };

const LLAMA3 = 131_072;
const qwen25 = { model_type: "qwen2" };
const qwen3 = { model_type: "qwen3", head_dim: 128 };
const gemma = { model_type: "gemma", head_dim: 256, tie_word_embeddings: true };
const gemma2 = { model_type: "gemma2", head_dim: 256, sliding_window: 4096, tie_word_embeddings: true };
const gemma3 = { model_type: "gemma3_text", head_dim: 256, sliding_window: 1024, tie_word_embeddings: true };
const phi3 = { model_type: "phi3" };
const mixtral = { model_type: "mixtral", num_local_experts: 8, num_experts_per_tok: 2 };
const cohere = { model_type: "cohere", tie_word_embeddings: true };
const neox = { model_type: "gpt_neox", dtype: "float16", max_position_embeddings: 2048 };

const gptOss = (numLayers: number, num_local_experts: number): Config =>
  dense("gpt_oss", [2880, numLayers, 64, 8, 2880, 201_088], LLAMA3, {
    head_dim: 64,
    num_local_experts,
    num_experts_per_tok: 4,
    sliding_window: 128,
    quantization_config: { quant_method: "mxfp4" },
  });

const LLAMA4_VISION = {
  hidden_size: 1408,
  intermediate_size: 5632,
  num_hidden_layers: 34,
  patch_size: 14,
  image_size: 336,
  projector_input_dim: 4096,
  projector_output_dim: 4096,
  vision_output_dim: 4096,
};
function llama4(num_local_experts: number, interleave_moe_layer_step: number): Config {
  return {
    model_type: "llama4",
    ...bf16,
    text_config: {
      hidden_size: 5120,
      num_hidden_layers: 48,
      num_attention_heads: 40,
      num_key_value_heads: 8,
      head_dim: 128,
      intermediate_size: 8192,
      intermediate_size_mlp: 16_384,
      num_local_experts,
      num_experts_per_tok: 1,
      interleave_moe_layer_step,
      attention_chunk_size: 8192,
      vocab_size: 202_048,
      max_position_embeddings: 1_048_576,
    },
    vision_config: LLAMA4_VISION,
  };
}

/** Configs by preset name. */
export const MODEL_CONFIGS: Readonly<Record<string, Config>> = wordTable({
  "llama-2-7b": llama([4096, 32, 32, 32, 11_008, 32_000], 4096, { dtype: "float16" }),
  "llama-2-13b": llama([5120, 40, 40, 40, 13_824, 32_000], 4096, { dtype: "float16" }),
  "llama-2-70b": llama([8192, 80, 64, 8, 28_672, 32_000], 4096, { dtype: "float16" }),
  "llama-3-8b": llama([4096, 32, 32, 8, 14_336, 128_256], 8192),
  "llama-3.1-8b": llama([4096, 32, 32, 8, 14_336, 128_256], LLAMA3),
  "llama-3.1-70b": llama([8192, 80, 64, 8, 28_672, 128_256], LLAMA3),
  "llama-3.3-70b": llama([8192, 80, 64, 8, 28_672, 128_256], LLAMA3),
  "llama-3.1-405b": llama([16_384, 126, 128, 8, 53_248, 128_256], LLAMA3),
  "llama-3.2-1b": llama([2048, 16, 32, 8, 8192, 128_256], LLAMA3, { tie_word_embeddings: true, head_dim: 64 }),
  "llama-3.2-3b": llama([3072, 28, 24, 8, 8192, 128_256], LLAMA3, { tie_word_embeddings: true, head_dim: 128 }),
  "llama-4-scout": llama4(16, 1),
  "llama-4-maverick": llama4(128, 2),
  "mistral-7b": llama([4096, 32, 32, 8, 14_336, 32_000], 32_768, { model_type: "mistral" }),
  "mistral-large-2": llama([12_288, 88, 96, 8, 28_672, 32_768], LLAMA3, { model_type: "mistral", head_dim: 128 }),
  "mistral-nemo": llama([5120, 40, 32, 8, 14_336, 131_072], LLAMA3, { model_type: "mistral", head_dim: 128 }),
  "mixtral-8x7b": llama([4096, 32, 32, 8, 14_336, 32_000], 32_768, mixtral),
  "mixtral-8x22b": llama([6144, 56, 48, 8, 16_384, 32_000], 65_536, mixtral),
  "qwen2.5-0.5b": llama([896, 24, 14, 2, 4864, 151_936], 32_768, { ...qwen25, tie_word_embeddings: true }),
  "qwen2.5-1.5b": llama([1536, 28, 12, 2, 8960, 151_936], 32_768, { ...qwen25, tie_word_embeddings: true }),
  "qwen2.5-7b": llama([3584, 28, 28, 4, 18_944, 152_064], 32_768, qwen25),
  "qwen2.5-14b": llama([5120, 48, 40, 8, 13_824, 152_064], 32_768, qwen25),
  "qwen2.5-32b": llama([5120, 64, 40, 8, 27_648, 152_064], 32_768, qwen25),
  "qwen2.5-72b": llama([8192, 80, 64, 8, 29_568, 152_064], 32_768, qwen25),
  "qwen2-57b-a14b": llama([3584, 28, 28, 4, 18_944, 151_936], 32_768, {
    model_type: "qwen2_moe",
    moe_intermediate_size: 2560,
    shared_expert_intermediate_size: 20_480,
    num_experts: 64,
    num_experts_per_tok: 8,
  }),
  "qwen3-0.6b": llama([1024, 28, 16, 8, 3072, 151_936], 40_960, { ...qwen3, tie_word_embeddings: true }),
  "qwen3-4b": llama([2560, 36, 32, 8, 9728, 151_936], 40_960, { ...qwen3, tie_word_embeddings: true }),
  "qwen3-8b": llama([4096, 36, 32, 8, 12_288, 151_936], 40_960, qwen3),
  "qwen3-14b": llama([5120, 40, 40, 8, 17_408, 151_936], 40_960, qwen3),
  "qwen3-32b": llama([5120, 64, 64, 8, 25_600, 151_936], 40_960, qwen3),
  "qwen3-30b-a3b": qwen3Moe([2048, 48, 32, 4, 6144, 151_936], 40_960, 768, 128),
  "qwen3-235b-a22b": qwen3Moe([4096, 94, 64, 4, 12_288, 151_936], 40_960, 1536, 128),
  "gemma-2b": llama([2048, 18, 8, 1, 16_384, 256_000], 8192, gemma),
  "gemma-7b": llama([3072, 28, 16, 16, 24_576, 256_000], 8192, gemma),
  "gemma-2-2b": llama([2304, 26, 8, 4, 9216, 256_000], 8192, gemma2),
  "gemma-2-9b": llama([3584, 42, 16, 8, 14_336, 256_000], 8192, gemma2),
  "gemma-2-27b": llama([4608, 46, 32, 16, 36_864, 256_000], 8192, { ...gemma2, head_dim: 128 }),
  "gemma-3-1b": llama([1152, 26, 4, 1, 6912, 262_144], 32_768, { ...gemma3, sliding_window: 512 }),
  "gemma-3-4b": {
    model_type: "gemma3",
    ...bf16,
    text_config: {
      hidden_size: 2560,
      intermediate_size: 10_240,
      num_hidden_layers: 34,
      sliding_window: 1024,
      max_position_embeddings: 131_072,
    },
    vision_config: SIGLIP,
  },
  "phi-3-mini": llama([3072, 32, 32, 32, 8192, 32_064], 4096, { ...phi3, sliding_window: 2047 }),
  "phi-3-medium": llama([5120, 40, 40, 10, 17_920, 32_064], 4096, { ...phi3, sliding_window: 2047 }),
  "phi-4": llama([5120, 40, 40, 10, 17_920, 100_352], 16_384, phi3),
  "phi-4-mini": llama([3072, 32, 24, 8, 8192, 200_064], 131_072, { ...phi3, tie_word_embeddings: true }),
  gpt2: gpt2(768, 12, 12),
  "gpt2-xl": gpt2(1600, 48, 25),
  "gpt-neox-20b": llama([6144, 44, 64, 64, 24_576, 50_432], 2048, neox),
  "pythia-6.9b": llama([4096, 32, 32, 32, 16_384, 50_432], 2048, neox),
  "gpt-oss-20b": gptOss(24, 32),
  "gpt-oss-120b": gptOss(36, 128),
  "falcon-7b": falcon(4544, 32, 71, { multi_query: true, new_decoder_architecture: false }),
  "falcon-40b": falcon(8192, 60, 128, { num_kv_heads: 8, new_decoder_architecture: true }),
  "falcon-180b": falcon(14_848, 80, 232, { num_kv_heads: 8, new_decoder_architecture: true }),
  "deepseek-v2-lite": latentMoe("deepseek_v2", [2048, 27, 16, 16, 10_944, 102_400], 163_840, [1408, 64, 2, 6, 1]),
  "deepseek-v2": latentMoe("deepseek_v2", [5120, 60, 128, 128, 12_288, 102_400], 163_840, [1536, 160, 2, 6, 1], {
    q_lora_rank: 1536,
  }),
  "deepseek-v3": deepseekV3("deepseek_v3", {}),
  "deepseek-r1": deepseekV3("deepseek_v3", {}),
  "command-r": llama([8192, 40, 64, 64, 22_528, 256_000], LLAMA3, { ...cohere, dtype: "float16" }),
  "command-r-plus": llama([12_288, 64, 96, 8, 33_792, 256_000], LLAMA3, {
    ...cohere,
    dtype: "float16",
    use_qk_norm: true,
  }),
  "command-r7b": llama([4096, 32, 32, 8, 14_336, 256_000], 132_096, {
    ...cohere,
    model_type: "cohere2",
    sliding_window: 4096,
  }),
  "olmo-1b": llama([2048, 16, 16, 16, 8192, 50_304], 2048, { model_type: "olmo", tie_word_embeddings: true }),
  "olmo-7b": llama([4096, 32, 32, 32, 11_008, 50_304], 2048, { model_type: "olmo" }),
  "olmo-2-7b": llama([4096, 32, 32, 32, 11_008, 100_352], 4096, { model_type: "olmo2" }),
  "olmoe-1b-7b": llama([2048, 16, 16, 16, 1024, 50_304], 4096, {
    model_type: "olmoe",
    num_experts: 64,
    num_experts_per_tok: 8,
  }),
  "bert-base": encoder("bert", 768, 12, 30_522, 512, 2),
  "bert-large": encoder("bert", 1024, 24, 30_522, 512, 2),
  ...FAMILY_CONFIGS,
  ...CONFIGS_OF_2026,
});

export const MODEL_PRESETS: readonly string[] = Object.keys(MODEL_CONFIGS);

const made = new Map<string, ModelSpec>();

interface Found {
  readonly key: string;
  readonly format: string | undefined;
  readonly assumptions: readonly string[];
}

/** What Ollama's library does not have in Q4_K_M: GPT-OSS is published in 4 bits, encoders are small. */
const KEEPS_FORMAT = ["gpt-oss", "bert-", "bge-", "xlm-roberta"];

function find(text: string): Found | undefined {
  const { keys, format, assumption, isOllamaTag } = readName(text);
  const assumptions = assumption === undefined ? [] : [assumption];
  const key = keys.find((name) => Object.hasOwn(MODEL_CONFIGS, name));
  if (key !== undefined) {
    if (!isOllamaTag || format !== undefined || KEEPS_FORMAT.some((kept) => key.startsWith(kept)))
      return { key, format, assumptions };
    return { key, format: "q4_k_m", assumptions: ["a tag of Ollama: q4_k_m, its usual format, assumed"] };
  }
  const contained = containedPreset(keys[0] ?? text, MODEL_PRESETS);
  if (contained === undefined) return undefined;
  return {
    key: contained,
    format,
    assumptions: [`no model of this name is known: read as ${contained}`, ...assumptions],
  };
}

/**
 * Finds a preset's name: case, a leading organisation, and suffixes of tuning, date and quantization do not matter.
 * Undefined when there is none.
 */
export function findModelPreset(text: string): string | undefined {
  return find(text)?.key;
}

/**
 * A well-known model by name. A suffix that names a format (`-AWQ`, `-FP8`, `-GGUF`) sets the weights' format.
 * @throws InvalidArgumentError naming the presets; UnsupportedError for an encoder-decoder
 * @example
 * modelPreset("llama-3.1-8b").numLayers // 32
 */
export function modelPreset(name: string): ModelSpec {
  refuseEncoderDecoderName(name);
  const found = find(name);
  if (found === undefined) {
    throw new InvalidArgumentError("model", name, `one of ${MODEL_PRESETS.join(", ")}`);
  }
  const { key, format, assumptions } = found;
  let model = made.get(key);
  if (model === undefined) {
    model = modelFromConfig(MODEL_CONFIGS[key], `preset ${key}`, key);
    made.set(key, model);
  }
  const isMillion = /[-_]1m(?=[-_.]|$)/i.test(name);
  if (format === undefined && assumptions.length === 0 && !isMillion) return model;
  return {
    ...model,
    // Qwen's cards of the -1M models: 1,010,000 tokens.
    ...(isMillion ? { contextLength: key.startsWith("qwen") ? 1_010_000 : 2 ** 20 } : {}),
    weightFormat: format === undefined ? model.weightFormat : weightFormat(format).name,
    assumptions: [...model.assumptions, ...assumptions],
  };
}
