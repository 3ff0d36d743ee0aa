/** The GPT-2 line and encoders: ungated MLPs, layer norms with biases, learned positions or early rotary models. */
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { gqa, languageHead, layer, mlp, norms, tokenEmbedding, weight } from "./build.ts";
import {
  type Architecture,
  basics,
  type Draft,
  dividedHeads,
  ends,
  intermediate,
  MAX_LAYERS,
  repeat,
} from "./draft.ts";

export function gpt2(config: ConfigReader): Draft {
  const hiddenSize = config.int(["n_embd", "hidden_size"], { max: 1 << 20 });
  const numLayers = config.int(["n_layer", "num_hidden_layers"], { max: MAX_LAYERS });
  const numHeads = config.int(["n_head", "num_attention_heads"], { max: 1 << 16 });
  const vocabSize = config.int("vocab_size", { max: 1 << 26 });
  const positions = config.int(["n_positions", "n_ctx"], { max: 1 << 26 });
  const headDim = dividedHeads(config, hiddenSize, numHeads);
  const tied = config.bool("tie_word_embeddings", true);
  const kind = layer(
    gqa({ hiddenSize, numHeads, numKvHeads: numHeads, headDim, qkvBias: true, outBias: true }),
    mlp(hiddenSize, config.optionalInt("n_inner", { max: 1 << 22 }) ?? 4 * hiddenSize, { gated: false, bias: true }),
    norms("norm", 2, hiddenSize, true),
  );
  return {
    hiddenSize,
    vocabSize,
    numHeads,
    numKvHeads: numHeads,
    headDim,
    contextLength: positions,
    tied,
    layers: repeat(numLayers, kind),
    embeddings: [
      tokenEmbedding(vocabSize, hiddenSize),
      weight("position.weight", "embedding", [positions, hiddenSize]),
    ],
    head: [...norms("final_norm", 1, hiddenSize, true), ...languageHead(vocabSize, hiddenSize, tied)],
  };
}

export const gptNeox: Architecture = (config) => {
  const base = basics(config);
  const bias = config.bool("attention_bias", true);
  const kind = layer(
    gqa({ ...base, numKvHeads: base.numHeads, qkvBias: bias, outBias: bias }),
    mlp(base.hiddenSize, intermediate(config), { gated: false, bias: true }),
    norms("norm", 2, base.hiddenSize, true),
  );
  return { ...base, numKvHeads: base.numHeads, ...ends(base, true), layers: repeat(base.numLayers, kind) };
};

export function falcon(config: ConfigReader): Draft {
  const hiddenSize = config.int("hidden_size", { max: 1 << 20 });
  const numLayers = config.int(["num_hidden_layers", "n_layer"], { max: MAX_LAYERS });
  const numHeads = config.int(["num_attention_heads", "n_head"], { max: 1 << 16 });
  const vocabSize = config.int("vocab_size", { max: 1 << 26 });
  const headDim = dividedHeads(config, hiddenSize, numHeads);
  const newDecoder = config.bool("new_decoder_architecture", false);
  const parallel = config.bool("parallel_attn", true);
  const bias = config.bool("bias", false);
  const numKvHeads = newDecoder
    ? config.int(["num_kv_heads", "n_head_kv"], { max: 1 << 16, default: numHeads })
    : config.bool("multi_query", true)
      ? 1
      : numHeads;
  if (numHeads % numKvHeads !== 0) {
    throw config.error("num_kv_heads", `is ${numKvHeads}; expected a divisor of num_attention_heads ${numHeads}`);
  }
  const numNorms = config.int("num_ln_in_parallel_attn", { default: newDecoder || !parallel ? 2 : 1, max: 2 });
  const tied = config.bool("tie_word_embeddings", true);
  const kind = layer(
    gqa({ hiddenSize, numHeads, numKvHeads, headDim, qkvBias: bias, outBias: bias }),
    mlp(hiddenSize, config.int("ffn_hidden_size", { default: 4 * hiddenSize, max: 1 << 24 }), { gated: false, bias }),
    norms("norm", numNorms, hiddenSize, true),
  );
  return {
    hiddenSize,
    vocabSize,
    numHeads,
    numKvHeads,
    headDim,
    contextLength: config.optionalInt("max_position_embeddings") ?? 2048,
    tied,
    layers: repeat(numLayers, kind),
    embeddings: [tokenEmbedding(vocabSize, hiddenSize)],
    head: [...norms("final_norm", 1, hiddenSize, true), ...languageHead(vocabSize, hiddenSize, tied)],
  };
}

export const bert: Architecture = (config) => {
  const base = basics(config, { tied: true });
  const { hiddenSize, vocabSize } = base;
  const positions = config.int("max_position_embeddings", { max: 1 << 26 });
  const types = config.int("type_vocab_size", { min: 0, default: 2 });
  const kind = layer(
    gqa({ ...base, numKvHeads: base.numHeads, qkvBias: true, outBias: true }),
    mlp(hiddenSize, intermediate(config), { gated: false, bias: true }),
    norms("norm", 2, hiddenSize, true),
  );
  return {
    ...base,
    numKvHeads: base.numHeads,
    contextLength: positions,
    isDecoder: false,
    tied: true,
    layers: repeat(base.numLayers, kind),
    embeddings: [
      tokenEmbedding(vocabSize, hiddenSize),
      weight("position.weight", "embedding", [positions, hiddenSize]),
      ...(types > 0 ? [weight("token_type.weight", "embedding", [types, hiddenSize])] : []),
      ...norms("embedding_norm", 1, hiddenSize, true),
    ],
    head: [weight("pooler.weight", "head", [hiddenSize, hiddenSize]), weight("pooler.bias", "head", [hiddenSize])],
    assumptions: ["counts the encoder with its pooler, without task heads"],
  };
};
