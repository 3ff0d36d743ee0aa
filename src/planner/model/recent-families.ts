/**
 * Dense decoders and multimodal models that are variations of Llama or Qwen: GLM-4, Gemma 3n, Llama 3.2 Vision, Qwen-VL,
 * Mistral 3, and decoders with layer norms of their own. Field names and defaults are those of the configuration classes
 * of Hugging Face transformers.
 */
import { ConfigReader } from "../../foreign/formats/index.ts";
import { gqa, layer, mlp, norms, weight } from "./build.ts";
import { type Architecture, basics, type Draft, ends, intermediate, layersOf, repeat } from "./draft.ts";
import type { LayerSpec } from "./spec.ts";
import { mllamaVisionTower } from "./vision.ts";

/** The text model of a multimodal config: in `text_config`, or the config itself. */
const textOf = (config: ConfigReader) => config.optionalObject("text_config") ?? config;

/** GLM-4 0414: biases on queries, keys and values alone, four norms a layer. */
export const glm4: Architecture = (config) => {
  const base = basics(config, { headDim: 128 });
  const kind = layer(
    gqa({ ...base, qkvBias: config.bool("attention_bias", false) }),
    mlp(base.hiddenSize, intermediate(config)),
    norms("norm", 4, base.hiddenSize),
  );
  return { ...base, ...ends(base), layers: repeat(base.numLayers, kind) };
};

/** Gemma 3n: a table of vectors for each layer beside the token table, four residual streams, small low-rank mixers. */
export const gemma3n: Architecture = (config) => {
  const text = textOf(config);
  const base = basics(text, { tied: true, headDim: 256, numHeads: 8, numKvHeads: 2, vocabSize: 262_400 });
  const { hiddenSize, numLayers } = base;
  const columns = Array.isArray(text.raw("intermediate_size"))
    ? Math.max(...(text.optionalInts("intermediate_size") ?? []))
    : intermediate(text);
  const perLayer = text.int("hidden_size_per_layer_input", { max: 1 << 16, default: 256 });
  const perLayerVocab = text.int("vocab_size_per_layer_input", { max: 1 << 26, default: 262_144 });
  const streams = text.int("altup_num_inputs", { max: 64, default: 4 });
  const rank = text.int("laurel_rank", { max: 1 << 12, default: 64 });
  const window = text.int("sliding_window", { max: 1 << 26, default: 512 });
  const small = [
    weight("altup.prediction", "mlp", [streams * streams * streams]),
    weight("altup.correction", "mlp", [streams * streams]),
    weight("altup.router.weight", "mlp", [streams, hiddenSize]),
    weight("laurel.weight", "mlp", [2 * rank, hiddenSize], { isLinear: true }),
    weight("per_layer_gate.weight", "mlp", [perLayer, hiddenSize], { isLinear: true }),
    weight("per_layer_projection.weight", "mlp", [hiddenSize, perLayer], { isLinear: true }),
  ];
  const make = (own: number | undefined): LayerSpec => {
    const made = layer(
      gqa({ ...base, qkNorm: "perHead", window: own }),
      mlp(hiddenSize, columns),
      norms("norm", 7, hiddenSize),
    );
    return { ...made, weights: [...made.weights, ...small] };
  };
  const [local, global] = [make(window), make(undefined)];
  const { embeddings, head } = ends(base);
  return {
    ...base,
    embeddings: [
      ...embeddings,
      weight("embed_tokens_per_layer.weight", "embedding", [perLayerVocab, numLayers * perLayer]),
      weight("per_layer_model_projection.weight", "embedding", [numLayers * perLayer, hiddenSize]),
      weight("altup_projections.weight", "embedding", [2 * (streams - 1) * hiddenSize, hiddenSize]),
      // MobileNet-V5-300M and the audio encoder of 12 conformer layers, as the checkpoint's tensors add up.
      ...(config.has("text_config")
        ? [weight("vision.tower", "vision", [299_000_000]), weight("audio.tower", "vision", [680_000_000])]
        : []),
    ],
    head,
    layers: Array.from({ length: numLayers }, (_, index) => ((index + 1) % 5 === 0 ? global : local)),
  };
};

/** Llama 3.2 Vision: a Llama whose every fifth layer attends to the image. */
export const mllama: Architecture = (config) => {
  const text = textOf(config);
  const base = basics(text, { numKvHeads: 8, vocabSize: 128_256 });
  const listed = text.optionalInts("cross_attention_layers");
  const crossing = (index: number) => (listed === undefined ? index % 5 === 3 : listed.includes(index));
  const feedForward = mlp(base.hiddenSize, intermediate(text));
  const layerNorms = norms("norm", 2, base.hiddenSize);
  const own = layer(gqa(base), feedForward, layerNorms);
  // One tile of an image is 1,601 tokens, which these layers attend to and cache in place of the text.
  const cross = layer(gqa({ ...base, qkNorm: "perHead", window: 1601 }), feedForward, layerNorms);
  const { embeddings, head } = ends(base);
  const vision = config.optionalObject("vision_config") ?? new ConfigReader({}, config.where);
  return {
    ...base,
    embeddings: [
      ...embeddings,
      weight("image_token.weight", "embedding", [8, base.hiddenSize]),
      ...mllamaVisionTower(vision, base.hiddenSize),
    ],
    head,
    layers: Array.from({ length: base.numLayers }, (_, index) => (crossing(index) ? cross : own)),
  };
};

/** A text model with a vision tower in front of it: `always`, with the class's defaults, or where the config has one. */
export function withVision(
  text: Architecture,
  tower: (vision: ConfigReader, textHidden: number) => Draft["embeddings"],
  always: boolean,
  textPart = textOf,
): Architecture {
  return (config) => {
    const draft = text(textPart(config));
    const vision = config.optionalObject("vision_config") ?? (always ? new ConfigReader({}, config.where) : undefined);
    if (vision === undefined) return draft;
    return { ...draft, embeddings: [...draft.embeddings, ...tower(vision, draft.hiddenSize)] };
  };
}

/** StableLM 2 and the like: a Llama with layer norms that have biases. */
export const stablelm: Architecture = (config) => {
  const base = basics(config);
  const bias = config.bool("use_qkv_bias", false);
  const kind = layer(
    gqa({ ...base, qkvBias: bias }),
    mlp(base.hiddenSize, intermediate(config)),
    norms("norm", config.bool("use_parallel_residual", false) ? 1 : 2, base.hiddenSize, true),
  );
  return { ...base, ...ends(base, true), layers: repeat(base.numLayers, kind) };
};

/**
 * Llama thinned out by a search (Nemotron Super): some layers have no attention, and MLPs differ in width. Reads
 * `block_configs`; `num_attention_layers` stands for them where only totals are known.
 */
export const nemotronNas: Architecture = (config) => {
  const base = basics(config, { numKvHeads: 8 });
  const layerNorms = norms("norm", 2, base.hiddenSize);
  const blocks = config.raw("block_configs");
  const withAttention = config.optionalInt("num_attention_layers", { min: 0, max: base.numLayers });
  const layersBy = (kindOf: (index: number) => readonly [kvHeads: number, columns: number]) =>
    layersOf(base.numLayers, kindOf, (kvHeads, columns) =>
      layer(
        kvHeads === 0 ? { spec: { kind: "none", numHeads: 0 }, weights: [] } : gqa({ ...base, numKvHeads: kvHeads }),
        mlp(base.hiddenSize, columns),
        layerNorms,
      ),
    );
  const { head, embeddings } = ends(base);
  if (!Array.isArray(blocks)) {
    const columns = intermediate(config);
    return {
      ...base,
      head,
      embeddings,
      layers: layersBy((index) => [
        withAttention === undefined || index < withAttention ? base.numKvHeads : 0,
        columns,
      ]),
      assumptions: ["layers differ in width: each is given the average"],
    };
  }
  if (blocks.length !== base.numLayers) {
    throw config.error("block_configs", `has ${blocks.length} entries; num_hidden_layers is ${base.numLayers}`);
  }
  const layers = layersBy((index) => {
    const reader = new ConfigReader(blocks[index], `${config.where}: block_configs.${index}`);
    const attention = reader.optionalObject("attention");
    const ffn = reader.optionalObject("ffn");
    const perGroup = attention?.optionalInt("n_heads_in_group", { max: base.numHeads });
    const skips = attention?.bool("no_op", false) === true || attention?.bool("replace_with_linear", false) === true;
    const kvHeads = skips ? 0 : perGroup === undefined ? base.numKvHeads : Math.max(1, base.numHeads / perGroup);
    const times = ffn?.optionalNumber("ffn_mult", 0, 64);
    // The width is two thirds of the multiple, rounded up to 256, for gate and up each.
    const columns =
      ffn?.bool("no_op", false) === true
        ? 0
        : times === undefined
          ? intermediate(config)
          : Math.ceil((2 * times * base.hiddenSize) / 3 / 256) * 256;
    return [Number.isInteger(kvHeads) ? kvHeads : base.numKvHeads, columns];
  });
  return { ...base, head, embeddings, layers };
};
