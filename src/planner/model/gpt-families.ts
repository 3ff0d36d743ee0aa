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
import type { WeightSpec } from "./spec.ts";

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

/** What the early decoders share: multi-head attention, an ungated MLP, layer norms with biases. */
interface EarlyShape {
  readonly hiddenSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads?: number;
  readonly vocabSize: number;
  readonly columns: number;
  readonly contextLength: number | undefined;
  readonly tied: boolean;
  readonly qkvBias: boolean;
  readonly outBias: boolean;
  readonly mlpBias: boolean;
  readonly numNorms: number;
  readonly normBias: boolean;
  readonly headBias?: boolean;
}

function early(config: ConfigReader, shape: EarlyShape, embeddings: readonly WeightSpec[] = []): Draft {
  const { hiddenSize, numLayers, numHeads, vocabSize, tied, numNorms, normBias, headBias = false } = shape;
  const headDim = dividedHeads(config, hiddenSize, numHeads);
  const numKvHeads = shape.numKvHeads ?? numHeads;
  const kind = layer(
    gqa({ hiddenSize, numHeads, numKvHeads, headDim, qkvBias: shape.qkvBias, outBias: shape.outBias }),
    mlp(hiddenSize, shape.columns, { gated: false, bias: shape.mlpBias }),
    norms("norm", numNorms, hiddenSize, normBias),
  );
  return {
    hiddenSize,
    vocabSize,
    numHeads,
    numKvHeads,
    headDim,
    contextLength: shape.contextLength,
    tied,
    layers: repeat(numLayers, kind),
    embeddings: [tokenEmbedding(vocabSize, hiddenSize), ...embeddings],
    head: [...norms("final_norm", 1, hiddenSize, normBias), ...languageHead(vocabSize, hiddenSize, tied, headBias)],
  };
}

const WITH_BIASES = { qkvBias: true, outBias: true, mlpBias: true, numNorms: 2, normBias: true } as const;
const hidden = (config: ConfigReader, names: readonly string[]) => config.int(names, { max: 1 << 20 });
const layersOf = (config: ConfigReader, names: readonly string[]) => config.int(names, { max: MAX_LAYERS });
const headsOf = (config: ConfigReader, names: readonly string[]) => config.int(names, { max: 1 << 16 });
const vocabOf = (config: ConfigReader) => config.int("vocab_size", { max: 1 << 26 });

/** BLOOM: positions by attention biases, a norm on the embeddings. */
export const bloom: Architecture = (config) => {
  const hiddenSize = hidden(config, ["hidden_size", "n_embed"]);
  return early(
    config,
    {
      ...WITH_BIASES,
      hiddenSize,
      numLayers: layersOf(config, ["n_layer", "num_hidden_layers"]),
      numHeads: headsOf(config, ["n_head", "num_attention_heads"]),
      vocabSize: vocabOf(config),
      columns: 4 * hiddenSize,
      contextLength: config.optionalInt("seq_length") ?? 2048,
      tied: config.bool("tie_word_embeddings", true),
    },
    norms("embedding_norm", 1, hiddenSize, true),
  );
};

/** OPT: learned positions, two more than the context. */
export const opt: Architecture = (config) => {
  const hiddenSize = hidden(config, ["hidden_size"]);
  const positions = config.int("max_position_embeddings", { max: 1 << 26, default: 2048 });
  return early(
    config,
    {
      ...WITH_BIASES,
      hiddenSize,
      numLayers: layersOf(config, ["num_hidden_layers"]),
      numHeads: headsOf(config, ["num_attention_heads"]),
      vocabSize: vocabOf(config),
      columns: config.int("ffn_dim", { max: 1 << 22, default: 4 * hiddenSize }),
      contextLength: positions,
      tied: config.bool("tie_word_embeddings", true),
    },
    [weight("position.weight", "embedding", [positions + 2, hiddenSize])],
  );
};

/** GPT-J: attention and MLP side by side under one norm, a head with a bias. */
export const gptJ: Architecture = (config) => {
  const hiddenSize = hidden(config, ["n_embd", "hidden_size"]);
  return early(config, {
    hiddenSize,
    numLayers: layersOf(config, ["n_layer", "num_hidden_layers"]),
    numHeads: headsOf(config, ["n_head", "num_attention_heads"]),
    vocabSize: vocabOf(config),
    columns: config.optionalInt("n_inner", { max: 1 << 22 }) ?? 4 * hiddenSize,
    contextLength: config.optionalInt(["n_positions", "max_position_embeddings"]) ?? 2048,
    tied: config.bool("tie_word_embeddings", false),
    qkvBias: false,
    outBias: false,
    mlpBias: true,
    numNorms: 1,
    normBias: true,
    headBias: true,
  });
};

/** GPT-Neo: learned positions, queries, keys and values without biases. */
export const gptNeo: Architecture = (config) => {
  const hiddenSize = hidden(config, ["hidden_size"]);
  const positions = config.int("max_position_embeddings", { max: 1 << 26, default: 2048 });
  return early(
    config,
    {
      ...WITH_BIASES,
      qkvBias: false,
      hiddenSize,
      numLayers: layersOf(config, ["num_layers", "num_hidden_layers"]),
      numHeads: headsOf(config, ["num_heads", "num_attention_heads"]),
      vocabSize: vocabOf(config),
      columns: config.optionalInt("intermediate_size", { max: 1 << 22 }) ?? 4 * hiddenSize,
      contextLength: positions,
      tied: config.bool("tie_word_embeddings", true),
    },
    [weight("position.weight", "embedding", [positions, hiddenSize])],
  );
};

/** GPT-BigCode (StarCoder): one KV head, learned positions. */
export const gptBigCode: Architecture = (config) => {
  const hiddenSize = hidden(config, ["n_embd", "hidden_size"]);
  const positions = config.int("n_positions", { max: 1 << 26, default: 1024 });
  return early(
    config,
    {
      ...WITH_BIASES,
      hiddenSize,
      numLayers: layersOf(config, ["n_layer", "num_hidden_layers"]),
      numHeads: headsOf(config, ["n_head", "num_attention_heads"]),
      ...(config.bool("multi_query", true) ? { numKvHeads: 1 } : {}),
      vocabSize: vocabOf(config),
      columns: config.optionalInt("n_inner", { max: 1 << 22 }) ?? 4 * hiddenSize,
      contextLength: positions,
      tied: config.bool("tie_word_embeddings", true),
    },
    [weight("position.weight", "embedding", [positions, hiddenSize])],
  );
};

/** MPT: positions by attention biases, no biases anywhere. */
export const mpt: Architecture = (config) => {
  const hiddenSize = hidden(config, ["d_model", "hidden_size"]);
  return early(config, {
    hiddenSize,
    numLayers: layersOf(config, ["n_layers", "num_hidden_layers"]),
    numHeads: headsOf(config, ["n_heads", "num_attention_heads"]),
    vocabSize: vocabOf(config),
    columns: 4 * hiddenSize,
    contextLength: config.optionalInt("max_seq_len") ?? 2048,
    tied: config.bool("tie_word_embeddings", true),
    qkvBias: false,
    outBias: false,
    mlpBias: false,
    numNorms: 2,
    normBias: false,
  });
};

/** Phi-1 and Phi-2: attention and MLP side by side under one norm. */
export const phi: Architecture = (config) => {
  const base = basics(config);
  return early(config, {
    ...WITH_BIASES,
    ...base,
    columns: intermediate(config),
    numNorms: 1,
    headBias: true,
  });
};

/** StarCoder 2: grouped heads, an ungated MLP, biases throughout. */
export const starcoder2: Architecture = (config) => {
  const base = basics(config);
  const bias = config.bool("use_bias", true);
  return early(config, {
    ...base,
    columns: intermediate(config),
    qkvBias: bias,
    outBias: bias,
    mlpBias: bias,
    numNorms: 2,
    normBias: true,
  });
};
