/**
 * Models whose layers are not all attention: Mamba-2 mixers (Granite 4, Nemotron-H, Falcon-H1) and Mamba. A recurrent mixer keeps a state of fixed size for a sequence
 * where attention keeps a cache that grows. Weights as in the modelling code of Hugging Face transformers.
 */
import { wordTable } from "../../core/index.ts";
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { column, gqa, layer, mlp, moe, norms, type Part, recurrentLayer, row, weight } from "./build.ts";
import { type Architecture, basics, type Draft, ends, intermediate, listedTypes, MAX_LAYERS, repeat } from "./draft.ts";
import { chosenExperts } from "./moe-families.ts";
import type { AttentionSpec, LayerSpec, MlpSpec, WeightSpec } from "./spec.ts";

const NO_MLP: Part<MlpSpec> = { spec: { kind: "dense", intermediateSize: 0, gated: false }, weights: [] };
const NO_ATTENTION: Part<AttentionSpec> = { spec: { kind: "none", numHeads: 0 }, weights: [] };

interface MambaShape {
  readonly hiddenSize: number;
  readonly numHeads: number;
  readonly headDim: number;
  readonly numGroups: number;
  readonly stateSize: number;
  readonly convWidth: number;
}

/** A Mamba-2 mixer (arXiv 2405.21060): one projection in, a short convolution, the scan, one projection out. */
function mamba2(shape: MambaShape): { weights: WeightSpec[]; numHeads: number; stateElements: number } {
  const { hiddenSize, numHeads, headDim, numGroups, stateSize, convWidth } = shape;
  const inner = numHeads * headDim;
  const scanned = inner + 2 * numGroups * stateSize;
  return {
    weights: [
      ...column("mamba.in_proj", "attention", inner + scanned + numHeads, hiddenSize, "heads", false),
      weight("mamba.conv1d", "attention", [scanned * (convWidth + 1)], { cut: "heads" }),
      weight("mamba.dt_a_d", "attention", [3 * numHeads], { cut: "heads" }),
      weight("mamba.norm", "norm", [inner], { cut: "heads" }),
      ...row("mamba.out_proj", "attention", hiddenSize, inner, "heads", false),
    ],
    numHeads,
    stateElements: inner * stateSize + scanned * convWidth,
  };
}

function mambaShape(
  config: ConfigReader,
  hiddenSize: number,
  names: { heads: string; headDim: string; groups: string; state: string; conv: string },
  defaults: { heads: number; headDim: number; groups: number; state: number },
): MambaShape {
  const size = (name: string, value: number) => config.int(name, { max: 1 << 20, default: value });
  return {
    hiddenSize,
    numHeads: size(names.heads, defaults.heads),
    headDim: size(names.headDim, defaults.headDim),
    numGroups: size(names.groups, defaults.groups),
    stateSize: size(names.state, defaults.state),
    convWidth: config.int(names.conv, { max: 64, default: 4 }),
  };
}

/** Granite 4: most layers Mamba-2, one in ten attention, each followed by a mixture with a shared expert (or an MLP). */
export const graniteHybrid: Architecture = (config) => {
  const base = basics(config, { tied: true });
  const types = listedTypes(config, base.numLayers);
  const isAttention = (index: number) => (types === undefined ? index % 10 === 5 : types[index] === "attention");
  const size = intermediate(config);
  const shared = config.optionalInt("shared_intermediate_size", { min: 0, max: 1 << 22 }) ?? 2 * size;
  const numExperts = config.optionalInt("num_local_experts", { min: 0, max: 1 << 16 }) ?? 0;
  const feedForward =
    numExperts > 0
      ? moe({
          hiddenSize: base.hiddenSize,
          expertIntermediateSize: size,
          sharedIntermediateSize: shared,
          ...chosenExperts(config, numExperts, "num_experts_per_tok"),
        })
      : mlp(base.hiddenSize, shared);
  const shape = mambaShape(
    config,
    base.hiddenSize,
    {
      heads: "mamba_n_heads",
      headDim: "mamba_d_head",
      groups: "mamba_n_groups",
      state: "mamba_d_state",
      conv: "mamba_d_conv",
    },
    { heads: Math.ceil((2 * base.hiddenSize) / 64), headDim: 64, groups: 1, state: 128 },
  );
  const layerNorms = norms("norm", 2, base.hiddenSize);
  const attention = layer(gqa(base), feedForward, layerNorms);
  const recurrent = recurrentLayer(mamba2(shape), feedForward, layerNorms);
  return {
    ...base,
    ...ends(base),
    layers: Array.from({ length: base.numLayers }, (_, index) => (isAttention(index) ? attention : recurrent)),
    ...(types === undefined
      ? { assumptions: ["the config names no layer_types: one attention layer in ten assumed"] }
      : {}),
  };
};

/** Letters of the blocks that Nemotron 3's later configs list by name. */
const BLOCK_LETTERS: Readonly<Record<string, string>> = wordTable({ mamba: "M", attention: "*", mlp: "-", moe: "E" });

/**
 * A pattern of `M` (Mamba-2), `*` (attention), `-` (MLP) and `E` (experts), or a list of blocks by name; without either,
 * the proportions of Nemotron Nano 9B v2.
 */
function nemotronPattern(config: ConfigReader, numLayers: number): { pattern: string; assumed: boolean } {
  const given = config.optionalString("hybrid_override_pattern");
  if (given !== undefined) {
    if (!/^[M*E-]+$/.test(given) || given.length !== numLayers) {
      throw config.error("hybrid_override_pattern", `must have ${numLayers} letters, each M, *, - or E`);
    }
    return { pattern: given, assumed: false };
  }
  const blocks = config.optionalStrings("layers_block_type");
  if (blocks !== undefined) {
    const letters = blocks.map((block) => (Object.hasOwn(BLOCK_LETTERS, block) ? BLOCK_LETTERS[block] : undefined));
    if (letters.includes(undefined) || letters.length !== numLayers) {
      const known = Object.keys(BLOCK_LETTERS).join(", ");
      throw config.error("layers_block_type", `must have ${numLayers} entries, each of ${known}`);
    }
    return { pattern: letters.join(""), assumed: false };
  }
  const pattern = Array.from({ length: numLayers }, (_, index) => {
    if (index % 14 === 13) return "*";
    return (index - Math.floor(index / 14)) % 2 === 0 ? "M" : "-";
  }).join("");
  return { pattern, assumed: true };
}

/** Nemotron 3's experts: two matrices each, a wider shared one, in Super and Ultra in a latent space. */
function nemotronExperts(config: ConfigReader, hiddenSize: number): Part<MlpSpec> {
  const shared = config.int("moe_shared_expert_intermediate_size", { min: 0, max: 1 << 22, default: 0 });
  return moe({
    hiddenSize,
    gated: false,
    routerBias: true,
    expertIntermediateSize: intermediate(config, "moe_intermediate_size"),
    sharedIntermediateSize: shared * config.int("n_shared_experts", { min: 0, max: 1 << 10, default: 1 }),
    latentSize: config.optionalInt("moe_latent_size", { max: 1 << 20 }),
    ...chosenExperts(config, config.int("n_routed_experts", { max: 1 << 16 }), "num_experts_per_tok"),
  });
}

export const nemotronHybrid: Architecture = (config) => {
  const numBlocks = config.optionalStrings("layers_block_type")?.length;
  const base = basics(config, { headDim: 128, ...(numBlocks === undefined ? {} : { numLayers: numBlocks }) });
  const { pattern, assumed } = nemotronPattern(config, base.numLayers);
  const shape = mambaShape(
    config,
    base.hiddenSize,
    {
      heads: "mamba_num_heads",
      headDim: "mamba_head_dim",
      groups: "n_groups",
      state: "ssm_state_size",
      conv: "conv_kernel",
    },
    { heads: 128, headDim: 80, groups: 8, state: 128 },
  );
  const layerNorms = norms("norm", 1, base.hiddenSize);
  const kinds: Readonly<Record<string, LayerSpec>> = {
    M: recurrentLayer(mamba2(shape), NO_MLP, layerNorms),
    "*": layer(gqa(base), NO_MLP, layerNorms),
    "-": layer(NO_ATTENTION, mlp(base.hiddenSize, intermediate(config), { gated: false }), layerNorms),
    ...(pattern.includes("E") ? { E: layer(NO_ATTENTION, nemotronExperts(config, base.hiddenSize), layerNorms) } : {}),
  };
  const mtp = config.optionalInt("num_nextn_predict_layers", { min: 0 }) ?? 0;
  return {
    ...base,
    ...ends(base),
    layers: [...pattern].flatMap((letter) => kinds[letter] ?? []),
    assumptions: [
      ...(assumed ? ["the config has no hybrid_override_pattern: the proportions of Nemotron Nano 9B v2 assumed"] : []),
      ...(mtp === 0 ? [] : [`the ${mtp} multi-token-prediction layer(s) are not loaded`]),
    ],
  };
};

/** Falcon-H1: attention and a Mamba-2 mixer side by side in every layer. */
export const falconH1: Architecture = (config) => {
  const base = basics(config, { headDim: 128 });
  const inner = config.int("mamba_d_ssm", { max: 1 << 20, default: base.hiddenSize });
  const numHeads = config.int("mamba_n_heads", { max: 1 << 16, default: Math.max(1, Math.round(inner / 128)) });
  const shape: MambaShape = {
    hiddenSize: base.hiddenSize,
    numHeads,
    headDim: Math.round(inner / numHeads),
    numGroups: config.int("mamba_n_groups", { max: 1 << 12, default: 1 }),
    stateSize: config.int("mamba_d_state", { max: 1 << 14, default: 256 }),
    convWidth: config.int("mamba_d_conv", { max: 64, default: 4 }),
  };
  const mixer = mamba2(shape);
  const plain = layer(gqa(base), mlp(base.hiddenSize, intermediate(config)), norms("norm", 2, base.hiddenSize));
  const kind: LayerSpec = {
    ...plain,
    weights: [...plain.weights, ...mixer.weights],
    stateElements: mixer.stateElements,
  };
  return { ...base, ...ends(base), layers: repeat(base.numLayers, kind) };
};

/** A Mamba mixer (arXiv 2312.00752): the step, B and C come of a small projection of the inner columns. */
export function mamba1(shape: {
  hiddenSize: number;
  inner: number;
  stateSize: number;
  rank: number;
  convWidth: number;
}) {
  const { hiddenSize, inner, stateSize, rank, convWidth } = shape;
  return {
    weights: [
      weight("mamba.in_proj.weight", "attention", [2 * inner, hiddenSize], { cut: "heads", isLinear: true }),
      weight("mamba.conv1d", "attention", [inner * (convWidth + 1)], { cut: "heads" }),
      weight("mamba.x_proj.weight", "attention", [rank + 2 * stateSize, inner], { isLinear: true }),
      weight("mamba.dt_proj.weight", "attention", [inner, rank], { cut: "heads", isLinear: true }),
      weight("mamba.a_d_dt", "attention", [inner * (stateSize + 2)], { cut: "heads" }),
      ...row("mamba.out_proj", "attention", hiddenSize, inner, "heads", false),
    ],
    numHeads: 1,
    stateElements: inner * (stateSize + convWidth),
  };
}

/** Mamba-2 throughout (`mamba2`), and Falcon Mamba's first generation (`falcon_mamba`), whose inner shape is the same. */
export const pureMamba: Architecture = (config): Draft => {
  const hiddenSize = config.int("hidden_size", { max: 1 << 20 });
  const numLayers = config.int("num_hidden_layers", { max: MAX_LAYERS });
  const vocabSize = config.int("vocab_size", { max: 1 << 26 });
  const stateSize = config.int("state_size", { max: 1 << 14, default: 16 });
  const inner = config.int("intermediate_size", { max: 1 << 22, default: 2 * hiddenSize });
  const isFirst = config.optionalString("model_type") !== "mamba2";
  const numHeads = isFirst ? 1 : config.int("num_heads", { max: 1 << 16, default: Math.max(1, inner / 64) });
  const mixer = isFirst
    ? mamba1({ hiddenSize, inner, stateSize, rank: Math.ceil(hiddenSize / 16), convWidth: 4 })
    : mamba2({
        hiddenSize,
        numHeads,
        headDim: Math.round(inner / numHeads),
        numGroups: config.int("n_groups", { max: 1 << 12, default: 8 }),
        stateSize,
        convWidth: config.int("conv_kernel", { max: 64, default: 4 }),
      });
  const tied = config.bool("tie_word_embeddings", false);
  const base = {
    hiddenSize,
    numLayers,
    vocabSize,
    numHeads,
    numKvHeads: numHeads,
    headDim: Math.round(inner / numHeads),
    contextLength: config.optionalInt("max_position_embeddings"),
    tied,
  };
  const kind = recurrentLayer(mixer, NO_MLP, norms("norm", 1, hiddenSize));
  return { ...base, ...ends(base), layers: repeat(numLayers, kind) };
};
