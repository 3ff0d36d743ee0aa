/**
 * Mixtures of experts that came after Mixtral: GLM-4.5, MiniMax-M2, ERNIE 4.5, Hunyuan, Phi-3.5-MoE, Granite 3 MoE, DBRX,
 * Grok-1. Field names and defaults are those of the configuration classes of Hugging Face transformers.
 */
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { type GqaOptions, gqa, layer, type MoeOptions, mlp, moe, norms, weight } from "./build.ts";
import { type Architecture, basics, type Draft, ends, intermediate, MAX_LAYERS, repeat } from "./draft.ts";

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

/** Layers of attention and experts alone, which are as wide as the config's MLPs unless `experts` says so. */
export function mixture(
  config: ConfigReader,
  base: ReturnType<typeof basics>,
  attention: Partial<GqaOptions>,
  experts: Omit<MoeOptions, "hiddenSize" | "expertIntermediateSize"> & Partial<MoeOptions>,
  normBias = false,
): Draft {
  const { hiddenSize, numLayers } = base;
  const expertIntermediateSize = experts.expertIntermediateSize ?? intermediate(config);
  const kind = layer(
    gqa({ ...base, ...attention }),
    moe({ ...experts, hiddenSize, expertIntermediateSize }),
    norms("norm", 2, hiddenSize, normBias),
  );
  return { ...base, ...ends(base, normBias), layers: repeat(numLayers, kind) };
}

/** The first layers dense (as many as the config's field `first` says), then experts beside `numShared` shared ones. */
function denseFirst(
  config: ConfigReader,
  base: ReturnType<typeof basics>,
  options: Partial<GqaOptions>,
  first: string,
  numShared: number,
  chosen: ReturnType<typeof chosenExperts>,
): Draft {
  const { hiddenSize, numLayers } = base;
  const numDense = config.int(first, { min: 0, max: MAX_LAYERS, default: 1 });
  const size = intermediate(config, "moe_intermediate_size");
  const [attention, layerNorms] = [gqa({ ...base, ...options }), norms("norm", 2, hiddenSize)];
  const widths = { expertIntermediateSize: size, sharedIntermediateSize: size * numShared };
  const dense = layer(attention, mlp(hiddenSize, intermediate(config)), layerNorms);
  const sparse = layer(attention, moe({ hiddenSize, routerBias: true, ...widths, ...chosen }), layerNorms);
  const layers = Array.from({ length: numLayers }, (_, index) => (index < numDense ? dense : sparse));
  return { ...base, ...ends(base), activeWithout: "embedding", layers };
}

/** GLM-4.5 and its descendants: the first layers dense, then experts beside shared ones. */
export const glm4Moe: Architecture = (config) => {
  const base = basics(config, { headDim: 128 });
  const bias = config.bool("attention_bias", false);
  const qkNorm = config.bool("use_qk_norm", false) ? "perHead" : undefined;
  const numShared = config.int("n_shared_experts", { min: 0, max: 1 << 10, default: 1 });
  const chosen = chosenExperts(config, experts(config, "n_routed_experts"), "num_experts_per_tok");
  const attention: Partial<GqaOptions> = { qkvBias: bias, qkNorm };
  return {
    ...denseFirst(config, base, attention, "first_k_dense_replace", numShared, chosen),
    assumptions: ["multi-token-prediction layers are not loaded"],
  };
};

export const minimaxM2: Architecture = (config) => {
  const base = basics(config, { headDim: 128 });
  const qkNorm = config.bool("use_qk_norm", true) ? "full" : undefined;
  const chosen = chosenExperts(config, experts(config, "num_local_experts"), "num_experts_per_tok");
  return {
    ...mixture(config, base, { qkNorm }, { routerBias: true, ...chosen }),
    activeWithout: "embedding and head",
  };
};

export const ernieMoe: Architecture = (config) => {
  const base = basics(config, { tied: true });
  const bias = config.bool("use_bias", false);
  const numShared = config.int("moe_num_shared_experts", { min: 0, max: 1 << 10, default: 2 });
  const chosen = chosenExperts(config, experts(config, "moe_num_experts"), "moe_k", 6);
  return denseFirst(config, base, { qkvBias: bias, outBias: bias }, "moe_layer_start_index", numShared, chosen);
};

export const hunyuanMoe: Architecture = (config) => {
  const base = basics(config, { tied: true, headDim: 128 });
  const size = mostOf(config, "moe_intermediate_size", intermediate(config));
  const bias = config.bool("attention_bias", false);
  const attention = { qkvBias: bias, outBias: bias, qkNorm: "perHead" } as const;
  return mixture(config, base, attention, {
    expertIntermediateSize: size,
    sharedIntermediateSize: size * mostOf(config, "num_shared_expert", 1),
    numExperts: experts(config, "num_experts"),
    expertsPerToken: mostOf(config, "moe_topk", 8),
  });
};

export const phiMoe: Architecture = (config) => {
  const base = basics(config, { numKvHeads: 8 });
  const bias = config.bool("attention_bias", false);
  const chosen = chosenExperts(config, experts(config, "num_local_experts"), "num_experts_per_tok", 2);
  const draft = mixture(config, base, { qkvBias: bias, outBias: bias }, chosen, true);
  const headBias = config.bool("lm_head_bias", false)
    ? [weight("lm_head.bias", "head", [base.vocabSize], { cut: "vocab" })]
    : [];
  return { ...draft, head: [...draft.head, ...headBias] };
};

/** Granite 3's small mixtures (1B-A400M, 3B-A800M). */
export const graniteMoe: Architecture = (config) => {
  const chosen = chosenExperts(config, experts(config, "num_local_experts"), "num_experts_per_tok");
  return mixture(config, basics(config, { tied: true }), {}, chosen);
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
  return mixture(
    config,
    base,
    {},
    {
      expertIntermediateSize: ffn?.optionalInt("ffn_hidden_size", { max: 1 << 22 }) ?? 10_752,
      numExperts,
      expertsPerToken: Math.min(numExperts, ffn?.optionalInt("moe_top_k", { max: 1 << 16 }) ?? 4),
    },
  );
};
