/** Random models of odd shapes: what the demo model does not show. */
import type { OracleConfig } from "./oracle.ts";
import type { WeightType } from "./random-model.ts";

export interface OddModel {
  readonly name: string;
  readonly config: OracleConfig;
  readonly files: { readonly type: WeightType; readonly numFiles: number; readonly seed: number };
}

export const MODELS: Readonly<Record<string, OddModel>> = {
  tied: {
    name: "tied, bf16 in 3 files, llama3 scaling, heads of 10 beside a hidden size of 44, vocabulary 101",
    config: {
      architectures: ["LlamaForCausalLM"],
      hidden_size: 44,
      intermediate_size: 90,
      num_hidden_layers: 3,
      num_attention_heads: 6,
      num_key_value_heads: 2,
      head_dim: 10,
      vocab_size: 101,
      max_position_embeddings: 64,
      rms_norm_eps: 1e-5,
      tie_word_embeddings: true,
      rope_theta: 500,
      rope_scaling: {
        rope_type: "llama3",
        factor: 4,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 32,
      },
    },
    files: { type: "BF16", numFiles: 3, seed: 11 },
  },
  untied: {
    name: "untied, f32, all biases, one KV head, odd MLP",
    config: {
      architectures: ["LlamaForCausalLM"],
      hidden_size: 36,
      intermediate_size: 37,
      num_hidden_layers: 4,
      num_attention_heads: 4,
      num_key_value_heads: 1,
      head_dim: 16,
      vocab_size: 50,
      max_position_embeddings: 64,
      rms_norm_eps: 1e-6,
      tie_word_embeddings: false,
      attention_bias: true,
      mlp_bias: true,
      rope_theta: 10000,
    },
    files: { type: "F32", numFiles: 1, seed: 22 },
  },
  qwen: {
    name: "Qwen2 biases, f16 in 2 files, linear scaling, a vocabulary of 9",
    config: {
      architectures: ["Qwen2ForCausalLM"],
      hidden_size: 20,
      intermediate_size: 24,
      num_hidden_layers: 5,
      num_attention_heads: 4,
      num_key_value_heads: 4,
      head_dim: 6,
      vocab_size: 9,
      max_position_embeddings: 40,
      rms_norm_eps: 1e-6,
      tie_word_embeddings: false,
      rope_theta: 1000,
      rope_scaling: { rope_type: "linear", factor: 2.5 },
    },
    files: { type: "F16", numFiles: 2, seed: 33 },
  },
  mistral: {
    name: "Mistral with a window of 5",
    config: {
      architectures: ["MistralForCausalLM"],
      hidden_size: 32,
      intermediate_size: 40,
      num_hidden_layers: 2,
      num_attention_heads: 8,
      num_key_value_heads: 4,
      head_dim: 8,
      vocab_size: 64,
      max_position_embeddings: 64,
      rms_norm_eps: 1e-5,
      tie_word_embeddings: false,
      sliding_window: 5,
    },
    files: { type: "BF16", numFiles: 1, seed: 44 },
  },
};
