/**
 * More well-known models by name, in rows: shapes from the `config.json` of their Hugging Face pages. `test/planner/
 * names.test.ts` compares the counts that they give with the published ones.
 */

import { wordTable } from "../../core/index.ts";

export type Config = Readonly<Record<string, unknown>>;
/** Hidden size, layers, heads, KV heads, MLP columns, vocabulary. */
type Shape = readonly [number, number, number, number, number, number];

export function dense(model_type: string, shape: Shape, max_position_embeddings: number, more: Config = {}): Config {
  const [hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, intermediate_size, vocab_size] =
    shape;
  return {
    model_type,
    hidden_size,
    num_hidden_layers,
    num_attention_heads,
    num_key_value_heads,
    intermediate_size,
    vocab_size,
    max_position_embeddings,
    dtype: "bfloat16",
    ...more,
  };
}

export const tied = { tie_word_embeddings: true };
const K32 = 32_768;
const K128 = 131_072;
const K256 = 262_144;

export const llama = (shape: Shape, context: number, more: Config = {}) => dense("llama", shape, context, more);
const qwen2 = (shape: Shape, context = K32, more: Config = {}) => dense("qwen2", shape, context, more);
const qwen3 = (shape: Shape, context = 40_960, more: Config = {}) =>
  dense("qwen3", shape, context, { head_dim: 128, ...more });
export const qwen3Moe = (shape: Shape, context: number, width: number, numExperts: number): Config =>
  dense("qwen3_moe", shape, context, {
    head_dim: 128,
    moe_intermediate_size: width,
    num_experts: numExperts,
    num_experts_per_tok: 8,
  });
const mistral = (shape: Shape, context: number, more: Config = {}) =>
  dense("mistral", shape, context, { head_dim: 128, ...more });
const cohere = (shape: Shape, context: number, more: Config = {}) =>
  dense("cohere", shape, context, { ...tied, dtype: "float16", ...more });
export const encoder = (
  model_type: string,
  hidden: number,
  layers: number,
  vocab: number,
  positions: number,
  types: number,
) =>
  dense(
    model_type,
    [hidden, layers, Math.max(12, hidden / 64), Math.max(12, hidden / 64), 4 * hidden, vocab],
    positions,
    {
      dtype: "float32",
      type_vocab_size: types,
    },
  );
export const withText = (model_type: string, text_config: Config, vision_config: Config = {}): Config => ({
  model_type,
  text_config,
  vision_config,
  dtype: "bfloat16",
});

/** A tower of SigLIP's shape, as all Gemma 3 from 4B have. */
export const SIGLIP = {
  hidden_size: 1152,
  image_size: 896,
  intermediate_size: 4304,
  num_hidden_layers: 27,
  patch_size: 14,
};
const gemma3 = (shape: Shape, headDim: number, sliding_window: number): Config =>
  dense("gemma3_text", shape, shape[0] > 2000 ? K128 : K32, { head_dim: headDim, sliding_window, ...tied });
const gemma3n = (layers: number, columns: number): Config =>
  withText("gemma3n", {
    hidden_size: 2048,
    intermediate_size: columns,
    num_hidden_layers: layers,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 256,
    vocab_size: 262_400,
    max_position_embeddings: K32,
  });

/** Decoders before Llama: by the names of hidden size, layers and heads, which the presets give in this order. */
const early =
  (names: readonly [hidden: string, layers: string, heads: string], rest: Config) =>
  (...sizes: readonly [hidden: number, layers: number, heads: number]): Config => ({
    ...Object.fromEntries(names.map((name, index) => [name, sizes[index]])),
    ...rest,
  });
const GPT_NAMES = ["n_embd", "n_layer", "n_head"] as const;
const opt = early(["hidden_size", "num_hidden_layers", "num_attention_heads"], {
  model_type: "opt",
  dtype: "float16",
  vocab_size: 50_272,
  max_position_embeddings: 2048,
});
const bloom = early(["hidden_size", "n_layer", "n_head"], {
  model_type: "bloom",
  dtype: "float16",
  vocab_size: 250_880,
});
const gptNeo = early(["hidden_size", "num_layers", "num_heads"], {
  model_type: "gpt_neo",
  dtype: "float32",
  vocab_size: 50_257,
});
export const gpt2 = early(GPT_NAMES, { model_type: "gpt2", dtype: "float32", vocab_size: 50_257, n_positions: 1024 });
const gptBigCode = { model_type: "gpt_bigcode", dtype: "bfloat16", vocab_size: 49_152, n_positions: 8192 };
const bigCode = early(GPT_NAMES, gptBigCode);
const mpt = early(["d_model", "n_layers", "n_heads"], {
  model_type: "mpt",
  dtype: "bfloat16",
  vocab_size: 50_432,
  max_seq_len: 2048,
});
export const falcon = (hidden_size: number, num_hidden_layers: number, num_attention_heads: number, more: Config) => ({
  model_type: "falcon",
  dtype: "bfloat16",
  hidden_size,
  num_hidden_layers,
  num_attention_heads,
  parallel_attn: true,
  bias: false,
  vocab_size: 65_024,
  ...more,
});
const neox = (hidden: number, layers: number, heads: number): Config =>
  dense("gpt_neox", [hidden, layers, heads, heads, 4 * hidden, 50_304], 2048, { dtype: "float16" });
const LATENT = { kv_lora_rank: 512, qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128 };
export const BLOCK_FP8 = { quantization_config: { quant_method: "fp8", weight_block_size: [128, 128] } };
/**
 * Models of DeepSeek's kind: columns of an expert, experts, shared ones, how many a token takes, and how many of the first
 * layers are dense.
 */
export function latentMoe(
  model_type: string,
  shape: Shape,
  context: number,
  [moe_intermediate_size, n_routed_experts, n_shared_experts, num_experts_per_tok, first_k_dense_replace]: readonly [
    width: number,
    experts: number,
    shared: number,
    perToken: number,
    dense: number,
  ],
  more: Config = {},
): Config {
  return {
    ...dense(model_type, shape, context, LATENT),
    moe_intermediate_size,
    n_routed_experts,
    n_shared_experts,
    num_experts_per_tok,
    first_k_dense_replace,
    ...more,
  };
}
export const deepseekV3 = (model_type: string, more: Config): Config =>
  latentMoe(model_type, [7168, 61, 128, 128, 18_432, 129_280], 163_840, [2048, 256, 1, 8, 3], {
    q_lora_rank: 1536,
    ...BLOCK_FP8,
    ...more,
  });
const LIMITED_GROUPS = { n_group: 8, topk_group: 4 };
// Its card's checkpoint has the experts in int4.
const INT4_GROUPS_OF_32 = { quant_method: "awq", bits: 4, group_size: 32 };
const kimiK2 = deepseekV3("kimi_k2", {
  num_attention_heads: 64,
  num_key_value_heads: 64,
  n_routed_experts: 384,
  first_k_dense_replace: 1,
  n_group: 1,
  topk_group: 1,
  vocab_size: 163_840,
  max_position_embeddings: K128,
});
const glmMoe = (shape: Shape, context: number, more: Config): Config =>
  dense("glm4_moe", shape, context, {
    head_dim: 128,
    attention_bias: true,
    n_shared_experts: 1,
    num_experts_per_tok: 8,
    ...more,
  });
const GLM45 = { moe_intermediate_size: 1536, n_routed_experts: 160, first_k_dense_replace: 3, use_qk_norm: true };
const QWEN3_VISION = { depth: 27, hidden_size: 1152, intermediate_size: 4304 };
const QWEN3_SMALL_VISION = { depth: 24, hidden_size: 1024, intermediate_size: 4096 };
const qwen2Vl = (shape: Shape, intermediate_size: number, more: Config = {}): Config => ({
  ...dense("qwen2_5_vl", shape, 128_000, more),
  vision_config: { depth: 32, hidden_size: 1280, intermediate_size },
});
type Hybrid = readonly [experts: number, perToken: number | undefined, columns: number, mambaHeads: number];
/** Granite 4's hybrids: `columns` are those of the shared expert, or of the MLP where there are no experts. */
const graniteHybrid = (
  shape: Shape,
  [num_local_experts, num_experts_per_tok, columns, mamba_n_heads]: Hybrid,
): Config =>
  dense("granitemoehybrid", shape, K128, {
    ...tied,
    num_local_experts,
    num_experts_per_tok,
    shared_intermediate_size: columns,
    mamba_n_heads,
  });
const mllama = (shape: Shape): Config => withText("mllama", dense("mllama_text_model", shape, K128));

/**
 * Layers of NVIDIA's Nemotron that a search thinned out: every layer here has the average width, and the layers that kept
 * their attention come first. The total is the card's.
 */
const nemotronNas = (shape: Shape, context: number, attentionLayers: number): Config =>
  dense("nemotron-nas", shape, context, { num_attention_layers: attentionLayers });

const QWEN25_7B: Shape = [3584, 28, 28, 4, 18_944, 152_064];
const QWEN25_3B: Shape = [2048, 36, 16, 2, 11_008, 151_936];
const QWEN25_32B: Shape = [5120, 64, 40, 8, 27_648, 152_064];
const QWEN25_72B: Shape = [8192, 80, 64, 8, 29_568, 152_064];
const QWEN3_4B: Shape = [2560, 36, 32, 8, 9728, 151_936];
const QWEN3_30B: Shape = [2048, 48, 32, 4, 6144, 151_936];
const QWEN3_235B: Shape = [4096, 94, 64, 4, 12_288, 151_936];
const MISTRAL_SMALL: Shape = [5120, 40, 32, 8, 32_768, 131_072];
const MISTRAL_NEMO: Shape = [5120, 40, 32, 8, 14_336, 131_072];
const MISTRAL_7B: Shape = [4096, 32, 32, 8, 14_336, 32_000];
const LLAMA3_70B: Shape = [8192, 80, 64, 8, 28_672, 128_256];
const PIXTRAL = { hidden_size: 1024, num_hidden_layers: 24, intermediate_size: 4096 };

/** Configs by preset name. */
export const FAMILY_CONFIGS: Readonly<Record<string, Config>> = wordTable({
  "llama-3-70b": llama(LLAMA3_70B, 8192),
  "llama-3.2-11b-vision": mllama([4096, 40, 32, 8, 14_336, 128_256]),
  "llama-3.2-90b-vision": mllama([8192, 100, 64, 8, 28_672, 128_256]),
  "codellama-7b": llama([4096, 32, 32, 32, 11_008, 32_016], 16_384),
  "codellama-13b": llama([5120, 40, 40, 40, 13_824, 32_016], 16_384),
  "codellama-34b": llama([8192, 48, 64, 8, 22_016, 32_000], 16_384),
  "codellama-70b": llama([8192, 80, 64, 8, 28_672, 32_016], 4096),
  "tinyllama-1.1b": llama([2048, 22, 32, 4, 5632, 32_000], 2048),
  "llama-3.3-nemotron-super-49b": nemotronNas([8192, 80, 64, 8, 20_480, 128_256], K128, 49),
  "nemotron-nano-9b-v2": dense("nemotron_h", [4480, 56, 40, 8, 15_680, 131_072], K128, {
    hybrid_override_pattern: "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
  }),
  "nemotron-nano-12b-v2": dense("nemotron_h", [5120, 62, 40, 8, 20_480, 131_072], K128, {
    hybrid_override_pattern: "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-",
  }),
  "mistral-7b-v0.1": mistral(MISTRAL_7B, K32, { sliding_window: 4096 }),
  "mistral-7b-v0.2": mistral(MISTRAL_7B, K32),
  "mistral-7b-v0.3": mistral([4096, 32, 32, 8, 14_336, 32_768], K32),
  "mistral-small-24b": mistral(MISTRAL_SMALL, K32),
  "mistral-small-3.1-24b": withText("mistral3", mistral(MISTRAL_SMALL, K128), PIXTRAL),
  "mistral-small-3.2-24b": withText("mistral3", mistral(MISTRAL_SMALL, K128), PIXTRAL),
  "magistral-small": mistral(MISTRAL_SMALL, 40_960),
  "devstral-small": mistral(MISTRAL_SMALL, K128),
  "mistral-small-22b": mistral([6144, 56, 48, 8, 16_384, 32_768], K32),
  "codestral-22b": mistral([6144, 56, 48, 8, 16_384, 32_768], K32),
  "ministral-8b": mistral([4096, 36, 32, 8, 12_288, 131_072], K32),
  "pixtral-12b": withText("pixtral", mistral(MISTRAL_NEMO, K128), PIXTRAL),
  "qwen2.5-3b": qwen2(QWEN25_3B, K32, tied),
  "qwen2-0.5b": qwen2([896, 24, 14, 2, 4864, 151_936], K32, tied),
  "qwen2-1.5b": qwen2([1536, 28, 12, 2, 8960, 151_936], K32, tied),
  "qwen2-7b": qwen2(QWEN25_7B),
  "qwen2-72b": qwen2(QWEN25_72B),
  "qwen1.5-7b": qwen2([4096, 32, 32, 32, 11_008, 151_936]),
  "qwen1.5-14b": qwen2([5120, 40, 40, 40, 13_696, 152_064]),
  "qwen1.5-32b": qwen2([5120, 64, 40, 8, 27_392, 152_064]),
  "qwen1.5-72b": qwen2([8192, 80, 64, 64, 24_576, 152_064]),
  "qwen1.5-110b": qwen2([8192, 80, 64, 8, 49_152, 152_064]),
  "qwen1.5-moe-a2.7b": dense("qwen2_moe", [2048, 24, 16, 16, 5632, 151_936], 8192, {
    moe_intermediate_size: 1408,
    shared_expert_intermediate_size: 5632,
    num_experts: 60,
    num_experts_per_tok: 4,
  }),
  "qwq-32b": qwen2(QWEN25_32B, K128),
  "qwen2.5-vl-3b": qwen2Vl(QWEN25_3B, 3420, tied),
  "qwen2.5-vl-7b": qwen2Vl(QWEN25_7B, 3420),
  "qwen2.5-vl-32b": qwen2Vl(QWEN25_32B, 3456),
  "qwen2.5-vl-72b": qwen2Vl(QWEN25_72B, 3456),
  // Qwen2-VL's MLPs have two matrices of 5120 columns where 2.5's have three.
  "qwen2-vl-2b": qwen2Vl([1536, 28, 12, 2, 8960, 151_936], 3413, tied),
  "qwen2-vl-7b": qwen2Vl(QWEN25_7B, 3413),
  "qwen2-vl-72b": qwen2Vl(QWEN25_72B, 3413),
  "qwen3-1.7b": qwen3([2048, 28, 16, 8, 6144, 151_936], 40_960, tied),
  "qwen3-embedding-8b": qwen3([4096, 36, 32, 8, 12_288, 151_665], 40_960, tied),
  "qwen3-4b-2507": qwen3(QWEN3_4B, K256, tied),
  "qwen3-30b-a3b-2507": qwen3Moe(QWEN3_30B, K256, 768, 128),
  "qwen3-235b-a22b-2507": qwen3Moe(QWEN3_235B, K256, 1536, 128),
  "qwen3-coder-30b-a3b": qwen3Moe(QWEN3_30B, K256, 768, 128),
  "qwen3-coder-480b-a35b": qwen3Moe([6144, 62, 96, 8, 8192, 151_936], K256, 2560, 160),
  "qwen3-next-80b-a3b": dense("qwen3_next", [2048, 48, 16, 2, 5120, 151_936], K256, {
    head_dim: 256,
    moe_intermediate_size: 512,
    shared_expert_intermediate_size: 512,
    num_experts: 512,
    num_experts_per_tok: 10,
  }),
  "qwen3-vl-2b": withText("qwen3_vl", qwen3([2048, 28, 16, 8, 6144, 151_936], K256, tied), QWEN3_SMALL_VISION),
  "qwen3-vl-4b": withText("qwen3_vl", qwen3(QWEN3_4B, K256, tied), QWEN3_SMALL_VISION),
  "qwen3-vl-8b": withText("qwen3_vl", qwen3([4096, 36, 32, 8, 12_288, 151_936], K256), QWEN3_VISION),
  "qwen3-vl-32b": withText("qwen3_vl", qwen3([5120, 64, 64, 8, 25_600, 151_936], K256), QWEN3_VISION),
  "qwen3-vl-30b-a3b": withText("qwen3_vl_moe", qwen3Moe(QWEN3_30B, K256, 768, 128), QWEN3_VISION),
  "qwen3-vl-235b-a22b": withText("qwen3_vl_moe", qwen3Moe(QWEN3_235B, K256, 1536, 128), QWEN3_VISION),
  "deepseek-r1-distill-qwen-1.5b": qwen2([1536, 28, 12, 2, 8960, 151_936], K128),
  "deepseek-r1-distill-qwen-7b": qwen2(QWEN25_7B, K128),
  "deepseek-r1-distill-qwen-14b": qwen2([5120, 48, 40, 8, 13_824, 152_064], K128),
  "deepseek-r1-distill-qwen-32b": qwen2(QWEN25_32B, K128),
  "deepseek-r1-distill-llama-8b": llama([4096, 32, 32, 8, 14_336, 128_256], K128),
  "deepseek-r1-distill-llama-70b": llama(LLAMA3_70B, K128),
  "deepseek-r1-0528-qwen3-8b": qwen3([4096, 36, 32, 8, 12_288, 151_936], K128),
  "deepseek-v3.1": deepseekV3("deepseek_v3", LIMITED_GROUPS),
  "deepseek-v3.2": deepseekV3("deepseek_v32", { ...LIMITED_GROUPS, index_n_heads: 64, index_head_dim: 128 }),
  "deepseek-llm-7b": llama([4096, 30, 32, 32, 11_008, 102_400], 4096),
  "deepseek-llm-67b": llama([8192, 95, 64, 8, 22_016, 102_400], 4096),
  "deepseek-coder-1.3b": llama([2048, 24, 16, 16, 5504, 32_256], 16_384),
  "deepseek-coder-6.7b": llama([4096, 32, 32, 32, 11_008, 32_256], 16_384),
  "deepseek-coder-33b": llama([7168, 62, 56, 8, 19_200, 32_256], 16_384),
  "kimi-k2": kimiK2,
  "kimi-k2-thinking": { ...kimiK2, max_position_embeddings: 2 * K128, quantization_config: INT4_GROUPS_OF_32 },
  "moonlight-16b-a3b": latentMoe("deepseek_v3", [2048, 27, 16, 16, 11_264, 163_840], 8192, [1408, 64, 2, 6, 1], {
    q_lora_rank: null,
  }),
  "gemma-3-270m": gemma3([640, 18, 4, 1, 2048, 262_144], 256, 512),
  "gemma-3-12b": withText("gemma3", gemma3([3840, 48, 16, 8, 15_360, 262_208], 256, 1024), SIGLIP),
  "gemma-3-27b": withText("gemma3", gemma3([5376, 62, 32, 16, 21_504, 262_208], 128, 1024), SIGLIP),
  "gemma-3n-e2b": gemma3n(30, 8192),
  "gemma-3n-e4b": gemma3n(35, 16_384),
  "phi-1.5": dense("phi", [2048, 24, 32, 32, 8192, 51_200], 2048),
  "phi-2": dense("phi", [2560, 32, 32, 32, 10_240, 51_200], 2048),
  "phi-3-mini-128k": dense("phi3", [3072, 32, 32, 32, 8192, 32_064], K128),
  "phi-3-medium-128k": dense("phi3", [5120, 40, 40, 10, 17_920, 32_064], K128),
  "phi-3-small": llama([4096, 32, 32, 8, 14_336, 100_352], 8192, tied),
  "phi-3.5-mini": dense("phi3", [3072, 32, 32, 32, 8192, 32_064], K128),
  "phi-3.5-moe": dense("phimoe", [4096, 32, 32, 8, 6400, 32_064], K128, {
    num_local_experts: 16,
    num_experts_per_tok: 2,
    attention_bias: true,
    lm_head_bias: true,
  }),
  "glm-4-9b": dense("glm4", [4096, 40, 32, 2, 13_696, 151_552], K32, { attention_bias: true, head_dim: 128 }),
  "glm-4-32b": dense("glm4", [6144, 61, 48, 2, 23_040, 151_552], K32, { head_dim: 128 }),
  "glm-4.5": glmMoe([5120, 92, 96, 8, 12_288, 151_552], K128, GLM45),
  "glm-4.6": glmMoe([5120, 92, 96, 8, 12_288, 151_552], 202_752, GLM45),
  "glm-4.7": glmMoe([5120, 92, 96, 8, 12_288, 151_552], 202_752, GLM45),
  "glm-4.5-air": glmMoe([4096, 46, 96, 8, 10_944, 151_552], K128, {
    moe_intermediate_size: 1408,
    n_routed_experts: 128,
    first_k_dense_replace: 1,
  }),
  "minimax-m2": dense("minimax_m2", [3072, 62, 48, 8, 1536, 200_064], 196_608, {
    head_dim: 128,
    num_local_experts: 256,
    num_experts_per_tok: 8,
    ...BLOCK_FP8,
  }),
  "granite-3.3-2b": dense("granite", [2048, 40, 32, 8, 8192, 49_159], K128, tied),
  "granite-3.3-8b": dense("granite", [4096, 40, 32, 8, 12_800, 49_159], K128, tied),
  "granite-4.0-h-small": graniteHybrid([4096, 40, 32, 8, 768, 100_352], [72, 10, 1536, 128]),
  "granite-4.0-h-tiny": graniteHybrid([1536, 40, 12, 4, 512, 100_352], [64, 6, 1024, 48]),
  "granite-4.0-h-micro": graniteHybrid([2048, 40, 32, 8, 8192, 100_352], [0, undefined, 8192, 64]),
  "granite-4.0-micro": dense("granite", [2560, 40, 40, 8, 8192, 100_352], K128, tied),
  "granite-20b-code": bigCode(6144, 52, 48),
  "granite-34b-code": bigCode(6144, 88, 48),
  "falcon3-1b": llama([2048, 18, 8, 4, 8192, 131_072], 8192, { head_dim: 256 }),
  "falcon3-3b": llama([3072, 22, 12, 4, 9216, 131_072], K32, { head_dim: 256 }),
  "falcon3-7b": llama([3072, 28, 12, 4, 23_040, 131_072], K32, { head_dim: 256 }),
  "falcon3-10b": llama([3072, 40, 12, 4, 23_040, 131_072], K32, { head_dim: 256 }),
  "falcon-h1-7b": dense("falcon_h1", [3072, 44, 12, 2, 12_288, 130_048], K256, {
    head_dim: 128,
    mamba_d_ssm: 3072,
    mamba_n_heads: 24,
  }),
  "falcon-mamba-7b": {
    model_type: "falcon_mamba",
    dtype: "bfloat16",
    hidden_size: 4096,
    num_hidden_layers: 64,
    intermediate_size: 8192,
    state_size: 16,
    vocab_size: 65_024,
  },
  "olmo-2-1b": dense("olmo2", [2048, 16, 16, 16, 8192, 100_352], 4096),
  "olmo-2-13b": dense("olmo2", [5120, 40, 40, 40, 13_824, 100_352], 4096),
  "olmo-2-32b": dense("olmo2", [5120, 64, 40, 8, 27_648, 100_352], 4096),
  "olmo-3-7b": dense("olmo3", [4096, 32, 32, 32, 11_008, 100_278], 65_536, { sliding_window: 4096 }),
  "olmo-3-32b": dense("olmo3", [5120, 64, 40, 8, 27_648, 100_278], 65_536, { sliding_window: 4096 }),
  "command-r-08-2024": cohere([8192, 40, 64, 8, 24_576, 256_000], K128),
  "command-a": dense("cohere2", [12_288, 64, 96, 8, 36_864, 256_000], K128, {
    ...tied,
    head_dim: 128,
    sliding_window: 4096,
  }),
  "aya-expanse-8b": cohere([4096, 32, 32, 8, 14_336, 256_000], 8192),
  "aya-expanse-32b": cohere([8192, 40, 64, 8, 24_576, 256_000], K128),
  "smollm2-135m": llama([576, 30, 9, 3, 1536, 49_152], 8192, tied),
  "smollm2-360m": llama([960, 32, 15, 5, 2560, 49_152], 8192, tied),
  "smollm2-1.7b": llama([2048, 24, 32, 32, 8192, 49_152], 8192, tied),
  "smollm3-3b": dense("smollm3", [2048, 36, 16, 4, 11_008, 128_256], 65_536, tied),
  "starcoder2-3b": dense("starcoder2", [3072, 30, 24, 2, 12_288, 49_152], 16_384, tied),
  "starcoder2-7b": dense("starcoder2", [4608, 32, 36, 4, 18_432, 49_152], 16_384, tied),
  "starcoder2-15b": dense("starcoder2", [6144, 40, 48, 4, 24_576, 49_152], 16_384),
  starcoder: bigCode(6144, 40, 48),
  "gpt-j-6b": { model_type: "gptj", dtype: "float16", n_embd: 4096, n_layer: 28, n_head: 16, vocab_size: 50_400 },
  "gpt-neo-125m": gptNeo(768, 12, 12),
  "gpt-neo-1.3b": gptNeo(2048, 24, 16),
  "gpt-neo-2.7b": gptNeo(2560, 32, 20),
  "gpt2-medium": gpt2(1024, 24, 16),
  "gpt2-large": gpt2(1280, 36, 20),
  distilgpt2: gpt2(768, 6, 12),
  "pythia-160m": neox(768, 12, 12),
  "pythia-410m": neox(1024, 24, 16),
  "pythia-1b": neox(2048, 16, 8),
  "pythia-1.4b": neox(2048, 24, 16),
  "pythia-2.8b": neox(2560, 32, 32),
  "pythia-12b": dense("gpt_neox", [5120, 36, 40, 40, 20_480, 50_688], 2048, { dtype: "float16" }),
  "opt-125m": opt(768, 12, 12),
  "opt-1.3b": opt(2048, 24, 32),
  "opt-2.7b": opt(2560, 32, 32),
  "opt-6.7b": opt(4096, 32, 32),
  "opt-13b": opt(5120, 40, 40),
  "opt-30b": opt(7168, 48, 56),
  "opt-66b": opt(9216, 64, 72),
  "bloom-560m": bloom(1024, 24, 16),
  "bloom-1b7": bloom(2048, 24, 16),
  "bloom-3b": bloom(2560, 30, 32),
  "bloom-7b1": bloom(4096, 30, 32),
  bloom: bloom(14_336, 70, 112),
  "mpt-7b": mpt(4096, 32, 32),
  "mpt-30b": mpt(7168, 48, 64),
  "stablelm-2-1.6b": dense("stablelm", [2048, 24, 32, 32, 5632, 100_352], 4096, { use_qkv_bias: true }),
  "stablelm-3b-4e1t": dense("stablelm", [2560, 32, 32, 32, 6912, 50_304], 4096),
  "yi-6b": llama([4096, 32, 32, 4, 11_008, 64_000], 4096),
  "yi-9b": llama([4096, 48, 32, 4, 11_008, 64_000], 4096),
  "yi-34b": llama([7168, 60, 56, 8, 20_480, 64_000], 4096),
  "internlm2.5-7b": llama([4096, 32, 32, 8, 14_336, 92_544], K32),
  "internlm2.5-20b": llama([6144, 48, 48, 8, 16_384, 92_544], K32),
  "baichuan2-7b": llama([4096, 32, 32, 32, 11_008, 125_696], 4096),
  "baichuan2-13b": llama([5120, 40, 40, 40, 13_696, 125_696], 4096),
  "eurollm-9b": llama([4096, 42, 32, 8, 12_288, 128_000], 4096),
  "bielik-11b": llama([4096, 50, 32, 8, 14_336, 32_128], 32_768),
  "solar-10.7b": llama([4096, 48, 32, 8, 14_336, 32_000], 4096),
  "grok-1": dense("mixtral", [6144, 64, 48, 8, 32_768, 131_072], 8192, {
    ...tied,
    head_dim: 128,
    num_local_experts: 8,
    num_experts_per_tok: 2,
  }),
  dbrx: {
    model_type: "dbrx",
    dtype: "bfloat16",
    d_model: 6144,
    n_heads: 48,
    n_layers: 40,
    vocab_size: 100_352,
    max_seq_len: K32,
  },
  "seed-oss-36b": dense("seed_oss", [5120, 64, 80, 8, 27_648, 155_136], 524_288, { head_dim: 128 }),
  "ernie-4.5-0.3b": dense("ernie4_5", [1024, 18, 16, 2, 3072, 103_424], K128, { ...tied, head_dim: 128 }),
  "ernie-4.5-21b-a3b": dense("ernie4_5_moe", [2560, 28, 20, 4, 12_288, 103_424], K128, {
    ...tied,
    moe_intermediate_size: 1536,
    moe_num_experts: 64,
    moe_k: 6,
  }),
  "ernie-4.5-300b-a47b": dense("ernie4_5_moe", [8192, 54, 64, 8, 28_672, 103_424], K128, {
    tie_word_embeddings: false,
    moe_intermediate_size: 3584,
    moe_num_experts: 64,
    moe_k: 8,
    moe_num_shared_experts: 0,
    moe_layer_start_index: 3,
  }),
  "hunyuan-a13b": dense("hunyuan_v1_moe", [4096, 32, 32, 8, 3072, 128_167], K32, {
    ...tied,
    num_experts: 64,
    moe_topk: 8,
  }),
  "exaone-3.5-2.4b": llama([2560, 30, 32, 8, 7168, 102_400], K32, { ...tied, head_dim: 80 }),
  "exaone-3.5-7.8b": llama([4096, 32, 32, 8, 14_336, 102_400], K32),
  "exaone-3.5-32b": llama([5120, 64, 40, 8, 27_392, 102_400], K32),
  "exaone-4.0-32b": dense("exaone4", [5120, 64, 40, 8, 27_392, 102_400], K128),
  "bge-m3": encoder("xlm-roberta", 1024, 24, 250_002, 8194, 1),
  "xlm-roberta-base": encoder("xlm-roberta", 768, 12, 250_002, 514, 1),
  "xlm-roberta-large": encoder("xlm-roberta", 1024, 24, 250_002, 514, 1),
  "roberta-base": encoder("roberta", 768, 12, 50_265, 514, 1),
  "roberta-large": encoder("roberta", 1024, 24, 50_265, 514, 1),
  "bge-small-en": encoder("bert", 384, 12, 30_522, 512, 2),
  "all-minilm-l6-v2": encoder("bert", 384, 6, 30_522, 512, 2),
  "all-minilm-l12-v2": encoder("bert", 384, 12, 30_522, 512, 2),
});
