/**
 * The architectures: for each `model_type` of a Hugging Face config, which layers the model has. Field names and
 * defaults are those of the configuration classes of Hugging Face transformers; parameter counts are checked against
 * published ones in `architectures.test.ts`.
 * Refuses what it does not know: a model that is guessed wrong is worse than none.
 */
import { UnsupportedError, wordTable } from "../../core/index.ts";
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { type GqaOptions, gqa, layer, mlp, moe, norms, weight } from "./build.ts";
import { deepseek } from "./deepseek.ts";
import { deepseekV4 } from "./deepseek-v4.ts";
import { deltaHybrid } from "./delta-families.ts";
import {
  type Architecture,
  basics,
  type Draft,
  ends,
  intermediate,
  layersOf,
  listedTypes,
  repeat,
  textConfig,
} from "./draft.ts";
import { refuseEncoderDecoder } from "./encoder-decoders.ts";
import { gemma4 } from "./gemma4.ts";
import {
  bert,
  bloom,
  falcon,
  gpt2,
  gptBigCode,
  gptJ,
  gptNeo,
  gptNeox,
  mpt,
  opt,
  phi,
  starcoder2,
} from "./gpt-families.ts";
import { falconH1, graniteHybrid, nemotronHybrid, pureMamba } from "./hybrid-families.ts";
import { jamba } from "./jamba.ts";
import { lfm2 } from "./lfm2.ts";
import { llava } from "./llava.ts";
import {
  chosenExperts,
  dbrx,
  ernieMoe,
  glm4Moe,
  graniteMoe,
  hunyuanMoe,
  minimaxM2,
  mixture,
  phiMoe,
} from "./moe-families.ts";
import { gemma3n, glm4, mllama, nemotronNas, stablelm, withVision } from "./recent-families.ts";
import type { LayerSpec } from "./spec.ts";
import {
  gemma3VisionTower,
  kimiVisionTower,
  llama4VisionTower,
  pixtralVisionTower,
  qwen2VisionTower,
  qwen3VisionTower,
  qwen35VisionTower,
} from "./vision.ts";

/** For each layer whether it attends within the window only: `layer_types` decides, else the family's pattern. */
function localLayers(config: ConfigReader, numLayers: number, isLocal: (layer: number) => boolean): boolean[] {
  const types = listedTypes(config, numLayers);
  return Array.from({ length: numLayers }, (_, index) => {
    const type = types?.[index];
    return type === undefined ? isLocal(index) : type === "sliding_attention" || type === "chunked_attention";
  });
}

/** Layers that differ only in their window. */
function windowed(
  local: readonly boolean[],
  window: number | undefined,
  make: (window: number | undefined) => LayerSpec,
) {
  return layersOf(local.length, (index) => [local[index] === true ? window : undefined], make);
}

function decoder(
  options: (
    config: ConfigReader,
    base: ReturnType<typeof basics>,
  ) => {
    attention?: Partial<GqaOptions>;
    numNorms?: number;
    mlpBias?: boolean;
    local?: (layer: number) => boolean;
    window?: number | undefined;
  } = () => ({}),
  defaults: Parameters<typeof basics>[1] = {},
): Architecture {
  return (config) => {
    const base = basics(config, defaults);
    const { attention = {}, numNorms = 2, mlpBias = false, local = () => false, window } = options(config, base);
    const feedForward = mlp(base.hiddenSize, intermediate(config), { bias: mlpBias });
    const layers = windowed(localLayers(config, base.numLayers, local), window, (w) =>
      layer(gqa({ ...base, ...attention, window: w }), feedForward, norms("norm", numNorms, base.hiddenSize)),
    );
    return { ...base, ...ends(base), layers };
  };
}

const llama = decoder((config) => {
  const bias = config.bool("attention_bias", false);
  return { attention: { qkvBias: bias, outBias: bias }, mlpBias: config.bool("mlp_bias", false) };
});

const mistral = decoder((config) => {
  const window = config.optionalInt("sliding_window");
  return { window, local: () => window !== undefined };
});

const qwen2 = decoder((config) => {
  const window = config.bool("use_sliding_window", false) ? config.optionalInt("sliding_window") : undefined;
  const from = config.optionalInt("max_window_layers", { min: 0 }) ?? 0;
  return { attention: { qkvBias: true }, window, local: (layer) => window !== undefined && layer >= from };
});

const qwen3 = decoder(
  (config) => {
    const bias = config.bool("attention_bias", false);
    return { attention: { qkvBias: bias, outBias: bias, qkNorm: "perHead" } };
  },
  { headDim: 128 },
);

const gemma = decoder(() => ({}), { tied: true, headDim: 256 });

const gemma2 = decoder(
  (config) => ({
    numNorms: 4,
    window: config.int("sliding_window", { default: 4096 }),
    local: (layer) => layer % 2 === 0,
  }),
  { tied: true, headDim: 256 },
);

const gemma3Text = decoder(
  (config) => {
    const pattern = config.int("sliding_window_pattern", { default: 6 });
    return {
      attention: { qkNorm: "perHead" },
      numNorms: 4,
      window: config.int("sliding_window", { default: 4096 }),
      local: (layer) => (layer + 1) % pattern !== 0,
    };
  },
  { tied: true, headDim: 256, numHeads: 8, numKvHeads: 4, vocabSize: 262_208 },
);

const gemma3 = withVision(gemma3Text, gemma3VisionTower, false, textConfig);

const phi3 = decoder((config) => {
  const window = config.optionalInt("sliding_window");
  return { window, local: () => window !== undefined };
});

const olmo: Architecture = (config) => {
  const base = basics(config);
  const kind = layer(gqa(base), mlp(base.hiddenSize, intermediate(config)), []);
  const { embeddings, head } = ends(base);
  // OLMo's layer norms have no parameters (arXiv 2402.00838, section 2.1).
  return {
    ...base,
    embeddings,
    head: head.filter((item) => item.component !== "norm"),
    layers: repeat(base.numLayers, kind),
  };
};

const olmo2 = decoder(() => ({ attention: { qkNorm: "full" } }));

/** OLMo 3: three of four layers attend within a window. */
const olmo3 = decoder((config) => ({
  attention: { qkNorm: "full" },
  window: config.optionalInt("sliding_window"),
  local: (layer) => (layer + 1) % 4 !== 0,
}));

/** Seed-OSS: biases on queries, keys and values. */
const seedOss = decoder(
  (config) => ({
    attention: { qkvBias: config.bool("attention_bias", true), outBias: config.bool("attention_out_bias", false) },
  }),
  { headDim: 128, numKvHeads: 8 },
);

/** Hunyuan and EXAONE 4 dense: norms on queries and keys. */
const withQkNorm = decoder(() => ({ attention: { qkNorm: "perHead" } }));

function cohere(config: ConfigReader): Draft {
  const base = basics(config, { tied: true });
  const withQkNorm = config.bool("use_qk_norm", false);
  const attention = gqa(base);
  // One norm for each head here, unlike the other families (Command R+).
  const qkNorms = withQkNorm
    ? [
        weight("attention.q_norm", "norm", [base.numHeads * base.headDim], { cut: "heads" }),
        weight("attention.k_norm", "norm", [base.numKvHeads * base.headDim], { cut: "kvHeads" }),
      ]
    : [];
  const window = config.optionalInt("sliding_window");
  const pattern = config.int("sliding_window_pattern", { default: 4 });
  const local = localLayers(config, base.numLayers, (index) => window !== undefined && (index + 1) % pattern !== 0);
  const feedForward = mlp(base.hiddenSize, intermediate(config));
  const layers = windowed(local, window, (w) => {
    const part = w === undefined ? attention : gqa({ ...base, window: w });
    return layer(part, feedForward, [...norms("norm", 1, base.hiddenSize), ...qkNorms]);
  });
  return { ...base, ...ends(base), layers };
}

const mixtral: Architecture = (config) => {
  const base = basics(config, { numKvHeads: 8 });
  const attention = { window: config.optionalInt("sliding_window") };
  return mixture(config, base, attention, experts(config, "num_local_experts"));
};

function experts(config: ConfigReader, field: string, perToken = "num_experts_per_tok") {
  return chosenExperts(config, config.int(field, { max: 1 << 16 }), [perToken, "experts_per_token"]);
}

function qwenMoe(qk: Partial<GqaOptions>, shared: boolean, headDim?: number): Architecture {
  return (config) => {
    const base = basics(config, headDim === undefined ? {} : { headDim });
    const step = config.int("decoder_sparse_step", { default: 1 });
    const dense = new Set(config.optionalInts("mlp_only_layers") ?? []);
    const attention = gqa({ ...base, ...qk });
    const layerNorms = norms("norm", 2, base.hiddenSize);
    const sparse = layer(
      attention,
      moe({
        hiddenSize: base.hiddenSize,
        expertIntermediateSize: intermediate(config, "moe_intermediate_size"),
        ...experts(config, "num_experts"),
        ...(shared
          ? { sharedIntermediateSize: intermediate(config, "shared_expert_intermediate_size"), sharedGate: true }
          : {}),
      }),
      layerNorms,
    );
    const isDense = Array.from({ length: base.numLayers }, (_, index) => dense.has(index) || (index + 1) % step !== 0);
    const plain = isDense.includes(true)
      ? layer(attention, mlp(base.hiddenSize, intermediate(config)), layerNorms)
      : sparse;
    return { ...base, ...ends(base), layers: isDense.map((yes) => (yes ? plain : sparse)) };
  };
}

const olmoe: Architecture = (config) => {
  return mixture(config, basics(config), { qkNorm: "full" }, experts(config, "num_experts"));
};

const gptOss: Architecture = (config) => {
  const base = basics(config, { headDim: 64, numKvHeads: 8 });
  const feedForward = moe({
    hiddenSize: base.hiddenSize,
    expertIntermediateSize: intermediate(config),
    bias: true,
    routerBias: true,
    ...experts(config, "num_local_experts"),
  });
  const local = localLayers(config, base.numLayers, (index) => index % 2 === 0);
  const layers = windowed(local, config.int("sliding_window", { default: 128 }), (window) =>
    layer(
      gqa({ ...base, qkvBias: true, outBias: true, sinks: true, window }),
      feedForward,
      norms("norm", 2, base.hiddenSize),
    ),
  );
  return { ...base, ...ends(base), activeWithout: "embedding", layers };
};

function llama4Text(config: ConfigReader): Draft {
  const base = basics(config, { headDim: 128 });
  const size = intermediate(config);
  const step = config.int("interleave_moe_layer_step", { default: 1 });
  const listed = config.optionalInts("moe_layers");
  const isMoe = (index: number) => (listed === undefined ? (index + 1) % step === 0 : listed.includes(index));
  const window = config.optionalInt("attention_chunk_size");
  const local = localLayers(config, base.numLayers, (index) => (index + 1) % 4 !== 0);
  const layerNorms = norms("norm", 2, base.hiddenSize);
  const sparseMlp = moe({
    hiddenSize: base.hiddenSize,
    expertIntermediateSize: size,
    sharedIntermediateSize: size,
    ...experts(config, "num_local_experts"),
  });
  const everyLayer = Array.from({ length: base.numLayers }, (_, index) => index);
  const denseMlp = everyLayer.every(isMoe)
    ? sparseMlp
    : mlp(base.hiddenSize, intermediate(config, "intermediate_size_mlp"));
  const layers = layersOf(
    base.numLayers,
    (index) => [isMoe(index), local[index] === true ? window : undefined],
    (isSparse, near) => layer(gqa({ ...base, window: near }), isSparse ? sparseMlp : denseMlp, layerNorms),
  );
  return { ...base, ...ends(base), layers };
}

const llama4 = withVision(llama4Text, llama4VisionTower, false, textConfig);

const llavaOfAny = llava((config) => draftOf(config));

/** By `model_type`. */
export const ARCHITECTURES: Readonly<Record<string, Architecture>> = wordTable({
  llama,
  mistral,
  mixtral,
  qwen2,
  qwen2_moe: qwenMoe({ qkvBias: true }, true),
  qwen3,
  qwen3_moe: qwenMoe({ qkNorm: "perHead" }, false, 128),
  gemma,
  gemma2,
  gemma3_text: gemma3Text,
  gemma3,
  phi3,
  gpt2,
  gpt_neox: gptNeox,
  gpt_oss: gptOss,
  falcon,
  deepseek_v2: deepseek,
  deepseek_v3: deepseek,
  cohere,
  cohere2: cohere,
  olmo,
  olmo2,
  olmoe,
  llama4_text: llama4Text,
  llama4,
  bert,
  roberta: bert,
  "xlm-roberta": bert,
  camembert: bert,
  deepseek_v32: deepseek,
  deepseek_v4: deepseekV4,
  kimi_k2: deepseek,
  kimi_k25: withVision(deepseek, kimiVisionTower, false),
  glm_moe_dsa: deepseek,
  glm4_moe_lite: deepseek,
  glm4,
  glm: glm4,
  glm4_moe: glm4Moe,
  minimax_m2: minimaxM2,
  ernie4_5: decoder(() => ({}), { tied: true, headDim: 128 }),
  ernie4_5_moe: ernieMoe,
  hunyuan_v1_moe: hunyuanMoe,
  hunyuan_v1_dense: withQkNorm,
  phi,
  phimoe: phiMoe,
  granite: llama,
  granitemoe: graniteMoe,
  granitemoehybrid: graniteHybrid,
  nemotron_h: nemotronHybrid,
  "nemotron-nas": nemotronNas,
  falcon_h1: falconH1,
  falcon_mamba: pureMamba,
  mamba: pureMamba,
  mamba2: pureMamba,
  qwen3_next: deltaHybrid,
  qwen3_5: withVision(deltaHybrid, qwen35VisionTower, true),
  qwen3_5_text: deltaHybrid,
  qwen3_5_moe: withVision(deltaHybrid, qwen35VisionTower, true),
  qwen3_5_moe_text: deltaHybrid,
  qwen2_vl: withVision(qwen2, qwen2VisionTower, true),
  qwen2_5_vl: withVision(qwen2, qwen2VisionTower, true),
  qwen3_vl: withVision(qwen3, qwen3VisionTower, true),
  qwen3_vl_text: qwen3,
  qwen3_vl_moe: withVision(qwenMoe({ qkNorm: "perHead" }, false, 128), qwen3VisionTower, true),
  qwen3_vl_moe_text: qwenMoe({ qkNorm: "perHead" }, false, 128),
  mistral3: withVision(mistral, pixtralVisionTower, true),
  pixtral: withVision(mistral, pixtralVisionTower, false),
  ministral3: mistral,
  mllama,
  llava: llavaOfAny,
  llava_next: llavaOfAny,
  llava_onevision: llavaOfAny,
  gemma4,
  gemma4_text: gemma4,
  jamba,
  lfm2,
  lfm2_moe: lfm2,
  gemma3n,
  gemma3n_text: gemma3n,
  smollm3: llama,
  olmo3,
  seed_oss: seedOss,
  exaone4: withQkNorm,
  stablelm,
  dbrx,
  starcoder2,
  gptj: gptJ,
  gpt_neo: gptNeo,
  gpt_bigcode: gptBigCode,
  opt,
  bloom,
  mpt,
});

/**
 * Describes a model's layers from its config.
 * @throws FormatError naming a field that is missing, mistyped or out of range; UnsupportedError for an unknown model_type
 */
export function draftOf(config: ConfigReader): Draft {
  const type = config.optionalString("model_type");
  if (type === undefined) throw config.error("model_type", "is missing");
  refuseEncoderDecoder(config, type);
  const architecture = Object.hasOwn(ARCHITECTURES, type) ? ARCHITECTURES[type] : undefined;
  if (architecture === undefined) {
    throw new UnsupportedError(
      `model_type ${JSON.stringify(type)} (${config.where})`,
      `known ones are ${Object.keys(ARCHITECTURES).join(", ")}`,
    );
  }
  return architecture(config);
}
