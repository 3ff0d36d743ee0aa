/**
 * Mixtures of experts that came after Mixtral: GLM-4.5, MiniMax-M2, ERNIE 4.5, Hunyuan, Phi-3.5-MoE, Granite 3 MoE, DBRX,
 * Grok-1. Field names and defaults are those of the configuration classes of Hugging Face transformers.
 */
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { gqa, layer, mlp, moe, norms, weight } from "./build.ts";
import { type Architecture, basics, ends, intermediate, MAX_LAYERS, repeat } from "./draft.ts";

/** Experts, and how many of them a token takes; checked against each other. */
export function chosenExperts(
  config: ConfigReader,
  numExperts: number,
  field: string | readonly string[],
  fallback?: number,
): { numExperts: number; expertsPerToken: number } {
  const names = typeof field === "string" ? [field] : field;
  const expertsPerToken = config.int(names, {
    max: 1 << 16,
    ...(fallback === undefined ? {} : { default: fallback }),
  });
  if (expertsPerToken > numExperts) {
    throw config.error(names[0] ?? "experts", `is ${expertsPerToken}, more than the ${numExperts} experts`);
  }
  return { numExperts, expertsPerToken };
}

const experts = (config: ConfigReader, name: string) => config.int(name, { max: 1 << 16 });

/** A list or a number that holds for every layer: the largest where they differ. */
function mostOf(config: ConfigReader, name: string, fallback: number): number {
  if (!Array.isArray(config.raw(name))) return config.int(name, { max: 1 << 22, default: fallback });
  return Math.max(...(config.optionalInts(name) ?? [fallback]));
}

/** GLM-4.5 and its descendants: the first layers dense, then experts beside shared ones. */
export const glm4Moe: Architecture = (config) => {
  const base = basics(config, { headDim: 128 });
  const bias = config.bool("attention_bias", false);
  const attention = gqa({
    ...base,
    qkvBias: bias,
    qkNorm: config.bool("use_qk_norm", false) ? "perHead" : undefined,
  });
  const numDense = config.int("first_k_dense_replace", { min: 0, max: MAX_LAYERS, default: 1 });
  const size = intermediate(config, "moe_intermediate_size");
  const layerNorms = norms("norm", 2, base.hiddenSize);
  const dense = layer(attention, mlp(base.hiddenSize, intermediate(config)), layerNorms);
  const sparse = layer(
    attention,
    moe({
      hiddenSize: base.hiddenSize,
      expertIntermediateSize: size,
      sharedIntermediateSize: size * config.int("n_shared_experts", { min: 0, max: 1 << 10, default: 1 }),
      routerBias: true,
      ...chosenExperts(config, experts(config, "n_routed_experts"), "num_experts_per_tok"),
    }),
    layerNorms,
  );
  return {
    ...base,
    ...ends(base),
    activeWithout: "embedding",
    layers: Array.from({ length: base.numLayers }, (_, index) => (index < numDense ? dense : sparse)),
    assumptions: ["multi-token-prediction layers are not loaded"],
  };
};

export const minimaxM2: Architecture = (config) => {
  const base = basics(config, { headDim: 128 });
  const kind = layer(
    gqa({ ...base, qkNorm: config.bool("use_qk_norm", true) ? "full" : undefined }),
    moe({
      hiddenSize: base.hiddenSize,
      expertIntermediateSize: intermediate(config),
      routerBias: true,
      ...chosenExperts(config, experts(config, "num_local_experts"), "num_experts_per_tok"),
    }),
    norms("norm", 2, base.hiddenSize),
  );
  return { ...base, ...ends(base), activeWithout: "embedding and head", layers: repeat(base.numLayers, kind) };
};

export const ernieMoe: Architecture = (config) => {
  const base = basics(config, { tied: true });
  const bias = config.bool("use_bias", false);
  const attention = gqa({ ...base, qkvBias: bias, outBias: bias });
  const start = config.int("moe_layer_start_index", { min: 0, max: MAX_LAYERS, default: 1 });
  const size = intermediate(config, "moe_intermediate_size");
  const layerNorms = norms("norm", 2, base.hiddenSize);
  const dense = layer(attention, mlp(base.hiddenSize, intermediate(config)), layerNorms);
  const sparse = layer(
    attention,
    moe({
      hiddenSize: base.hiddenSize,
      expertIntermediateSize: size,
      sharedIntermediateSize: size * config.int("moe_num_shared_experts", { min: 0, max: 1 << 10, default: 2 }),
      routerBias: true,
      ...chosenExperts(config, experts(config, "moe_num_experts"), "moe_k", 6),
    }),
    layerNorms,
  );
  return {
    ...base,
    ...ends(base),
    activeWithout: "embedding",
    layers: Array.from({ length: base.numLayers }, (_, index) => (index < start ? dense : sparse)),
  };
};

export const hunyuanMoe: Architecture = (config) => {
  const base = basics(config, { tied: true, headDim: 128 });
  const size = mostOf(config, "moe_intermediate_size", intermediate(config));
  const bias = config.bool("attention_bias", false);
  const kind = layer(
    gqa({ ...base, qkvBias: bias, outBias: bias, qkNorm: "perHead" }),
    moe({
      hiddenSize: base.hiddenSize,
      expertIntermediateSize: size,
      sharedIntermediateSize: size * mostOf(config, "num_shared_expert", 1),
      numExperts: experts(config, "num_experts"),
      expertsPerToken: mostOf(config, "moe_topk", 8),
    }),
    norms("norm", 2, base.hiddenSize),
  );
  return { ...base, ...ends(base), layers: repeat(base.numLayers, kind) };
};

export const phiMoe: Architecture = (config) => {
  const base = basics(config, { numKvHeads: 8 });
  const bias = config.bool("attention_bias", false);
  const { embeddings, head } = ends(base, true);
  const kind = layer(
    gqa({ ...base, qkvBias: bias, outBias: bias }),
    moe({
      hiddenSize: base.hiddenSize,
      expertIntermediateSize: intermediate(config),
      ...chosenExperts(config, experts(config, "num_local_experts"), "num_experts_per_tok", 2),
    }),
    norms("norm", 2, base.hiddenSize, true),
  );
  const headBias = config.bool("lm_head_bias", false)
    ? [weight("lm_head.bias", "head", [base.vocabSize], { cut: "vocab" })]
    : [];
  return { ...base, embeddings, head: [...head, ...headBias], layers: repeat(base.numLayers, kind) };
};

/** Granite 3's small mixtures (1B-A400M, 3B-A800M). */
export const graniteMoe: Architecture = (config) => {
  const base = basics(config, { tied: true });
  const kind = layer(
    gqa(base),
    moe({
      hiddenSize: base.hiddenSize,
      expertIntermediateSize: intermediate(config),
      ...chosenExperts(config, experts(config, "num_local_experts"), "num_experts_per_tok"),
    }),
    norms("norm", 2, base.hiddenSize),
  );
  return { ...base, ...ends(base), layers: repeat(base.numLayers, kind) };
};

export const dbrx: Architecture = (config) => {
  const hiddenSize = config.int("d_model", { max: 1 << 20 });
  const numHeads = config.int("n_heads", { max: 1 << 16 });
  const numLayers = config.int("n_layers", { max: MAX_LAYERS });
  const vocabSize = config.int("vocab_size", { max: 1 << 26 });
  const ffn = config.optionalObject("ffn_config");
  const attention = config.optionalObject("attn_config");
  const numKvHeads = attention?.optionalInt("kv_n_heads", { max: 1 << 16 }) ?? 8;
  const base = {
    hiddenSize,
    numLayers,
    vocabSize,
    numHeads,
    numKvHeads,
    headDim: Math.floor(hiddenSize / numHeads),
    contextLength: config.optionalInt("max_seq_len"),
    tied: false,
  };
  const numExperts = ffn?.optionalInt("moe_num_experts", { max: 1 << 16 }) ?? 16;
  const kind = layer(
    gqa(base),
    moe({
      hiddenSize,
      expertIntermediateSize: ffn?.optionalInt("ffn_hidden_size", { max: 1 << 22 }) ?? 10_752,
      numExperts,
      expertsPerToken: Math.min(numExperts, ffn?.optionalInt("moe_top_k", { max: 1 << 16 }) ?? 4),
    }),
    norms("norm", 2, hiddenSize),
  );
  return { ...base, ...ends(base), layers: repeat(numLayers, kind) };
};
