/**
 * Models by name that came out from the end of 2025 on, in rows, as in preset-families.ts. Sources, read on 24 November
 * 2026: the `config.json` files of the Hub that ai-dynamo/aiconfigurator holds (`model_configs/`, of August 2026), the model
 * scripts of THUDM/slime and MaxText, Megatron-Bridge's pages and tests, TensorRT-LLM's and SGLang's tests (Mistral Large 3).
 * `presets-of-2026.test.ts` compares the counts that these give with the published ones. Recalled, and confirmed by nothing but
 * that count (or, for Qwen3.5's 0.8B, 2B, 4B and 9B, by the towers' file size): the vision towers of small Qwen3.5 models,
 * Jamba Large, LFM2 but for 350M, MLP widths of Ministral 8B and 14B and of Falcon-H1 34B, and its vocabulary.
 */
import { wordTable } from "../../core/index.ts";
import { BLOCK_FP8, type Config, dense, latentMoe, tied, withText } from "./preset-families.ts";

const K256 = 262_144;
const K128 = 131_072;
const M1 = 1_048_576;

type Shape = Parameters<typeof dense>[1];

interface Delta {
  /** Value heads of a delta net; keys have 16. */
  readonly values: number;
  /** Hidden size, layers and MLP columns of the vision tower. */
  readonly vision: readonly [number, number, number];
  readonly more?: Config;
}

const TOWERS = { small: [768, 12, 3072], middle: [1024, 24, 4096], large: [1152, 27, 4304] } as const;

/** Qwen3.5 and 3.6: three gated delta nets for one attention, a vision tower. */
function qwen35(shape: Shape, { values, vision, more = {} }: Delta, isMixture = false): Config {
  const [hidden_size, depth, intermediate_size] = vision;
  const text = dense(isMixture ? "qwen3_5_moe_text" : "qwen3_5_text", shape, K256, {
    head_dim: 256,
    linear_num_key_heads: 16,
    linear_num_value_heads: values,
    ...more,
  });
  return withText(isMixture ? "qwen3_5_moe" : "qwen3_5", text, { hidden_size, depth, intermediate_size });
}

/** Experts, how many a token takes, and the columns of each, the shared one included. */
const qwenExperts = (num_experts: number, num_experts_per_tok: number, width: number): Config => ({
  num_experts,
  num_experts_per_tok,
  moe_intermediate_size: width,
  shared_expert_intermediate_size: width,
});

const attentionEvery = (period: number, numLayers: number): string[] =>
  Array.from({ length: numLayers }, (_, index) =>
    (index + 1) % period === 0 ? "full_attention" : "sliding_attention",
  );

/** Gemma 4's small models: vectors for each layer, a cache that the last layers share, ears and eyes. */
const gemma4Small = (shape: Shape, period: number, more: Config): Config => ({
  ...withText(
    "gemma4",
    dense("gemma4_text", shape, K128, {
      ...tied,
      layer_types: attentionEvery(period, shape[1]),
      sliding_window: 512,
      hidden_size_per_layer_input: 256,
      ...more,
    }),
    { hidden_size: 768, num_hidden_layers: 16, intermediate_size: 3072 },
  ),
  audio_config: {},
});

const gemma4Large = (shape: Shape, num_global_key_value_heads: number, more: Config = {}): Config =>
  withText(
    "gemma4",
    dense("gemma4_text", shape, K256, {
      ...tied,
      layer_types: attentionEvery(6, shape[1]),
      sliding_window: 1024,
      hidden_size_per_layer_input: 0,
      attention_k_eq_v: true,
      num_global_key_value_heads,
      ...more,
    }),
    { hidden_size: 1152, num_hidden_layers: 27, intermediate_size: 4304 },
  );

/** GLM's latent attention, wider than DeepSeek's. */
const GLM_LATENT = { qk_nope_head_dim: 192, v_head_dim: 256 };
const glm5 = latentMoe("glm_moe_dsa", [6144, 78, 64, 64, 12_288, 154_880], 202_752, [2048, 256, 1, 8, 3], {
  ...GLM_LATENT,
  q_lora_rank: 2048,
  index_n_heads: 32,
  index_head_dim: 128,
});

/** Nemotron 3: hidden size, attention heads, Mamba heads, experts, how many a token takes, columns of an expert. */
function nemotron3(
  shape: readonly [number, number, number, number, number, number],
  pattern: string,
  more: Config = {},
) {
  const [hidden, heads, mambaHeads, n_routed_experts, num_experts_per_tok, width] = shape;
  return dense("nemotron_h", [hidden, pattern.length, heads, 2, width, 131_072], K256, {
    hybrid_override_pattern: pattern,
    mamba_num_heads: mambaHeads,
    mamba_head_dim: 64,
    n_routed_experts,
    num_experts_per_tok,
    moe_intermediate_size: width,
    moe_shared_expert_intermediate_size: 2 * width,
    ...more,
  });
}

/** DeepSeek V4: `starts` are the ratios of the first two layers; then 4 and 128 in turn. */
const deepseekV4 = (shape: Shape, starts: number, more: Config): Config =>
  dense("deepseek_v4", shape, M1, {
    head_dim: 512,
    compress_ratios: Array.from({ length: shape[1] }, (_, index) => (index < 2 ? starts : index % 2 === 0 ? 4 : 128)),
    index_n_heads: 64,
    index_head_dim: 128,
    sliding_window: 128,
    num_experts_per_tok: 6,
    expert_dtype: "fp4",
    ...BLOCK_FP8,
    ...more,
  });

const ministral3 = (shape: Shape, more: Config = {}): Config =>
  withText("mistral3", dense("ministral3", shape, K256, { head_dim: 128, ...more }), {
    hidden_size: 1024,
    num_hidden_layers: 24,
    intermediate_size: 4096,
  });

/** LLaVA: a text model of Llama 2's or Mistral's shape behind CLIP's ViT-L/14. */
const llava = (model_type: string, textType: string, shape: Shape, context: number): Config =>
  withText(model_type, dense(textType, shape, context));

const jamba = (shape: Shape): Config => dense("jamba", shape, K256, { num_experts: 16, num_experts_per_tok: 2 });

/** LFM2: the layers that attend; the others are short convolutions. */
const lfm2 = (shape: Shape, attending: readonly number[], more: Config = {}): Config =>
  dense("lfm2", shape, 128_000, { full_attn_idxs: attending, ...more });

const qwen27b = qwen35([5120, 64, 24, 4, 17_408, 248_320], { values: 48, vision: TOWERS.large });
const qwen35b = qwen35(
  [2048, 40, 16, 2, 512, 248_320],
  { values: 32, vision: TOWERS.large, more: qwenExperts(256, 8, 512) },
  true,
);

/** Configs by preset name. */
export const CONFIGS_OF_2026: Readonly<Record<string, Config>> = wordTable({
  "qwen3.5-0.8b": qwen35([1024, 24, 8, 2, 3584, 248_320], { values: 16, vision: TOWERS.small, more: tied }),
  "qwen3.5-2b": qwen35([2048, 24, 8, 2, 6144, 248_320], { values: 16, vision: TOWERS.middle, more: tied }),
  "qwen3.5-4b": qwen35([2560, 32, 16, 4, 9216, 248_320], { values: 32, vision: TOWERS.middle, more: tied }),
  "qwen3.5-9b": qwen35([4096, 32, 16, 4, 12_288, 248_320], { values: 32, vision: TOWERS.large }),
  "qwen3.5-27b": qwen27b,
  "qwen3.6-27b": qwen27b,
  "qwen3.5-35b-a3b": qwen35b,
  "qwen3.6-35b-a3b": qwen35b,
  "qwen3.5-122b-a10b": qwen35(
    [3072, 48, 32, 2, 1024, 248_320],
    { values: 64, vision: TOWERS.large, more: qwenExperts(256, 8, 1024) },
    true,
  ),
  "qwen3.5-397b-a17b": qwen35(
    [4096, 60, 32, 2, 1024, 248_320],
    { values: 64, vision: TOWERS.large, more: qwenExperts(512, 10, 1024) },
    true,
  ),
  "gemma-4-e2b": gemma4Small([1536, 35, 8, 1, 6144, 262_144], 5, {
    num_kv_shared_layers: 20,
    use_double_wide_mlp: true,
  }),
  "gemma-4-e4b": gemma4Small([2560, 42, 8, 2, 10_240, 262_144], 6, { num_kv_shared_layers: 18 }),
  "gemma-4-26b-a4b": gemma4Large([2816, 30, 16, 8, 2112, 262_144], 2, {
    enable_moe_block: true,
    num_experts: 128,
    top_k_experts: 8,
    moe_intermediate_size: 704,
  }),
  "gemma-4-31b": gemma4Large([5376, 60, 32, 16, 21_504, 262_144], 4),
  "deepseek-v4-flash": deepseekV4([4096, 43, 64, 1, 2048, 129_280], 0, {
    q_lora_rank: 1024,
    o_groups: 8,
    moe_intermediate_size: 2048,
    n_routed_experts: 256,
  }),
  "deepseek-v4-pro": deepseekV4([7168, 61, 128, 1, 3072, 129_280], 128, {
    q_lora_rank: 1536,
    o_groups: 16,
    moe_intermediate_size: 3072,
    n_routed_experts: 384,
  }),
  "glm-5": glm5,
  "glm-5.1": glm5,
  // One indexer in four layers picks for itself and the three that follow.
  "glm-5.2": {
    ...glm5,
    max_position_embeddings: M1,
    indexer_types: Array.from({ length: 78 }, (_, index) => (index < 3 || (index - 2) % 4 === 0 ? "full" : "shared")),
  },
  "glm-4.7-flash": latentMoe("glm4_moe_lite", [2048, 47, 20, 20, 10_240, 154_880], 202_752, [1536, 64, 1, 4, 1], {
    ...GLM_LATENT,
    q_lora_rank: 768,
  }),
  "nemotron-3-nano-30b-a3b": nemotron3(
    [2688, 32, 64, 128, 6, 1856],
    "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
  ),
  "nemotron-3-super-120b-a12b": nemotron3(
    [4096, 32, 128, 512, 22, 2688],
    "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
    { moe_latent_size: 1024 },
  ),
  "nemotron-3-ultra-550b-a55b": nemotron3(
    [8192, 64, 256, 512, 22, 5120],
    "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    { moe_latent_size: 2048 },
  ),
  "mistral-large-3": latentMoe("deepseek_v3", [7168, 61, 128, 128, 16_384, 131_072], 294_912, [4096, 128, 1, 4, 3], {
    q_lora_rank: 1536,
    ...BLOCK_FP8,
  }),
  "ministral-3-3b": ministral3([3072, 26, 32, 8, 9216, 131_072], tied),
  "ministral-3-8b": ministral3([4096, 34, 32, 8, 14_336, 131_072]),
  "ministral-3-14b": ministral3([5120, 40, 32, 8, 16_384, 131_072]),
  "llava-1.5-7b": llava("llava", "llama", [4096, 32, 32, 32, 11_008, 32_064], 4096),
  "llava-1.5-13b": llava("llava", "llama", [5120, 40, 40, 40, 13_824, 32_064], 4096),
  "llava-1.6-vicuna-7b": llava("llava_next", "llama", [4096, 32, 32, 32, 11_008, 32_064], 4096),
  "llava-1.6-vicuna-13b": llava("llava_next", "llama", [5120, 40, 40, 40, 13_824, 32_064], 4096),
  "llava-1.6-mistral-7b": llava("llava_next", "mistral", [4096, 32, 32, 8, 14_336, 32_064], 32_768),
  "jamba-mini": jamba([4096, 32, 32, 8, 14_336, 65_536]),
  "jamba-large": jamba([8192, 72, 64, 8, 24_576, 65_536]),
  "falcon-h1-34b": dense("falcon_h1", [5120, 72, 20, 4, 21_504, 261_120], K256, {
    head_dim: 128,
    mamba_d_ssm: 4096,
    mamba_n_heads: 32,
    mamba_n_groups: 2,
  }),
  "granite-4.0-350m": dense("granite", [1024, 28, 16, 4, 2048, 100_352], 32_768, tied),
  "granite-4.0-1b": dense("granite", [2048, 40, 16, 4, 4096, 100_352], K128, tied),
  "lfm2-350m": lfm2([1024, 16, 16, 8, 6656, 65_536], [2, 5, 8, 10, 12, 14]),
  "lfm2-700m": lfm2([1536, 16, 24, 8, 10_240, 65_536], [2, 5, 8, 10, 12, 14]),
  "lfm2-1.2b": lfm2([2048, 16, 32, 8, 12_288, 65_536], [2, 5, 8, 10, 12, 14]),
  "lfm2-8b-a1b": {
    ...dense("lfm2_moe", [2048, 24, 32, 8, 7168, 65_536], 128_000),
    full_attn_idxs: [2, 6, 10, 14, 18, 21],
    num_experts: 32,
    num_experts_per_tok: 4,
    num_dense_layers: 2,
    moe_intermediate_size: 1792,
  },
});
