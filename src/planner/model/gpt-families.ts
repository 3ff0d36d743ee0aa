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
const NO_BIASES = { qkvBias: false, outBias: false, mlpBias: false, numNorms: 2, normBias: false } as const;

/** The names by which a config has its hidden size, layers, heads and, where it may say them, the MLP's columns. */
interface ShapeNames {
  readonly hidden: readonly string[];
  readonly layers: readonly string[];
  readonly heads: readonly string[];
  readonly columns?: string;
}
const GPT_NAMES = {
  hidden: ["n_embd", "hidden_size"],
  layers: ["n_layer", "num_hidden_layers"],
  heads: ["n_head", "num_attention_heads"],
  columns: "n_inner",
} as const;

function shapeOf(config: ConfigReader, { hidden, layers, heads, columns }: ShapeNames, tied = true) {
  const hiddenSize = config.int(hidden, { max: 1 << 20 });
  const given = columns === undefined ? undefined : config.optionalInt(columns, { max: 1 << 22 });
  return {
    hiddenSize,
    numLayers: config.int(layers, { max: MAX_LAYERS }),
    numHeads: config.int(heads, { max: 1 << 16 }),
    vocabSize: config.int("vocab_size", { max: 1 << 26 }),
    columns: given ?? 4 * hiddenSize,
    tied: config.bool("tie_word_embeddings", tied),
  };
}

/** A table of a vector for each position, and for `more` beyond the context. */
const learned = (positions: number, { hiddenSize }: { readonly hiddenSize: number }, more = 0) => [
  weight("position.weight", "embedding", [positions + more, hiddenSize]),
];

export const gpt2: Architecture = (config) => {
  const shape = shapeOf(config, GPT_NAMES);
  const contextLength = config.int(["n_positions", "n_ctx"], { max: 1 << 26 });
  return early(config, { ...WITH_BIASES, ...shape, contextLength }, learned(contextLength, shape));
};

export const falcon: Architecture = (config) => {
  const shape = shapeOf(config, {
    hidden: ["hidden_size"],
    layers: ["num_hidden_layers", "n_layer"],
    heads: ["num_attention_heads", "n_head"],
  });
  const { hiddenSize, numHeads } = shape;
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
  return early(config, {
    ...shape,
    numKvHeads,
    columns: config.int("ffn_hidden_size", { default: 4 * hiddenSize, max: 1 << 24 }),
    contextLength: config.optionalInt("max_position_embeddings") ?? 2048,
    qkvBias: bias,
    outBias: bias,
    mlpBias: bias,
    numNorms: config.int("num_ln_in_parallel_attn", { default: newDecoder || !parallel ? 2 : 1, max: 2 }),
    normBias: true,
  });
};

/** BLOOM: positions by attention biases, a norm on the embeddings. */
export const bloom: Architecture = (config) => {
  const { layers, heads } = GPT_NAMES;
  const shape = shapeOf(config, { hidden: ["hidden_size", "n_embed"], layers, heads });
  const contextLength = config.optionalInt("seq_length") ?? 2048;
  const embeddings = norms("embedding_norm", 1, shape.hiddenSize, true);
  return early(config, { ...WITH_BIASES, ...shape, contextLength }, embeddings);
};

/** OPT: learned positions, two more than the context. */
export const opt: Architecture = (config) => {
  const names = { hidden: ["hidden_size"], layers: ["num_hidden_layers"], heads: ["num_attention_heads"] };
  const shape = shapeOf(config, names);
  const contextLength = config.int("max_position_embeddings", { max: 1 << 26, default: 2048 });
  const columns = config.int("ffn_dim", { max: 1 << 22, default: shape.columns });
  return early(config, { ...WITH_BIASES, ...shape, columns, contextLength }, learned(contextLength, shape, 2));
};

/** GPT-J: attention and MLP side by side under one norm, a head with a bias. */
export const gptJ: Architecture = (config) => {
  const shape = shapeOf(config, GPT_NAMES, false);
  const contextLength = config.optionalInt(["n_positions", "max_position_embeddings"]) ?? 2048;
  const own = { mlpBias: true, numNorms: 1, normBias: true, headBias: true };
  return early(config, { ...NO_BIASES, ...shape, ...own, contextLength });
};

/** GPT-Neo: learned positions, queries, keys and values without biases. */
export const gptNeo: Architecture = (config) => {
  const shape = shapeOf(config, {
    hidden: ["hidden_size"],
    layers: ["num_layers", "num_hidden_layers"],
    heads: ["num_heads", "num_attention_heads"],
    columns: "intermediate_size",
  });
  const contextLength = config.int("max_position_embeddings", { max: 1 << 26, default: 2048 });
  return early(config, { ...WITH_BIASES, qkvBias: false, ...shape, contextLength }, learned(contextLength, shape));
};

/** GPT-BigCode (StarCoder): one KV head, learned positions. */
export const gptBigCode: Architecture = (config) => {
  const shape = shapeOf(config, GPT_NAMES);
  const contextLength = config.int("n_positions", { max: 1 << 26, default: 1024 });
  const numKvHeads = config.bool("multi_query", true) ? 1 : shape.numHeads;
  return early(config, { ...WITH_BIASES, ...shape, numKvHeads, contextLength }, learned(contextLength, shape));
};

/** MPT: positions by attention biases, no biases anywhere. */
export const mpt: Architecture = (config) => {
  const shape = shapeOf(config, {
    hidden: ["d_model", "hidden_size"],
    layers: ["n_layers", "num_hidden_layers"],
    heads: ["n_heads", "num_attention_heads"],
  });
  return early(config, { ...NO_BIASES, ...shape, contextLength: config.optionalInt("max_seq_len") ?? 2048 });
};

/** Phi-1 and Phi-2: attention and MLP side by side under one norm. */
export const phi: Architecture = (config) => {
  const base = basics(config);
  return early(config, { ...WITH_BIASES, ...base, columns: intermediate(config), numNorms: 1, headBias: true });
};

/** StarCoder 2: grouped heads, an ungated MLP, biases throughout. */
export const starcoder2: Architecture = (config) => {
  const base = basics(config);
  const bias = config.bool("use_bias", true);
  const biases = { qkvBias: bias, outBias: bias, mlpBias: bias };
  return early(config, { ...WITH_BIASES, ...base, ...biases, columns: intermediate(config) });
};
