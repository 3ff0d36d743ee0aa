/**
 * LFM2 (arXiv 2511.23404): gated short convolutions, which keep the last tokens' columns alone, and a few layers of
 * attention; the mixtures have experts after the first layers. Field names and defaults are those of Hugging Face
 * transformers' configuration classes.
 */
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { column, gqa, layer, mlp, moe, norms, recurrentLayer, row, weight } from "./build.ts";
import { type Architecture, basics, ends, layersOf, listedTypes, MAX_LAYERS } from "./draft.ts";
import { chosenExperts } from "./moe-families.ts";

/** The MLP's columns: two thirds of what the config says, rounded up, where it asks for that. */
function mlpColumns(config: ConfigReader): number {
  const given = config.int(["block_ff_dim", "intermediate_size"], { max: 1 << 22 });
  if (!config.bool("block_auto_adjust_ff_dim", config.optionalString("model_type") !== "lfm2_moe")) return given;
  const multiple = config.int("block_multiple_of", { max: 1 << 16, default: 256 });
  const times = config.optionalNumber("block_ffn_dim_multiplier", 0, 64) ?? 1;
  return Math.max(1, Math.ceil(Math.floor(times * Math.floor((2 * given) / 3)) / multiple)) * multiple;
}

export const lfm2: Architecture = (config) => {
  const base = basics(config, { numKvHeads: 8, vocabSize: 65_536, tied: config.bool("tie_embedding", true) });
  const { hiddenSize, numLayers } = base;
  const types = listedTypes(config, numLayers);
  const listed = config.optionalInts("full_attn_idxs");
  const isAttention = (index: number) =>
    types === undefined ? listed === undefined || listed.includes(index) : types[index] === "full_attention";
  const width = config.int("conv_L_cache", { max: 64, default: 3 });
  const bias = config.bool("conv_bias", false);
  const convolution = {
    weights: [
      ...column("conv.in_proj", "attention", 3 * hiddenSize, hiddenSize, "heads", false),
      weight("conv.conv", "attention", [hiddenSize * (width + (bias ? 5 : 0))], { cut: "heads" }),
      ...row("conv.out_proj", "attention", hiddenSize, hiddenSize, "heads", false),
    ],
    numHeads: base.numHeads,
    stateElements: hiddenSize * width,
  };
  const dense = mlp(hiddenSize, mlpColumns(config));
  const numExperts = config.optionalInt("num_experts", { max: 1 << 16 });
  const numDense =
    numExperts === undefined ? numLayers : config.int("num_dense_layers", { min: 0, max: MAX_LAYERS, default: 2 });
  const sparse =
    numExperts === undefined
      ? dense
      : moe({
          hiddenSize,
          expertIntermediateSize: config.int("moe_intermediate_size", { max: 1 << 22 }),
          routerBias: config.bool("use_expert_bias", true),
          ...chosenExperts(config, numExperts, "num_experts_per_tok", 4),
        });
  const attention = gqa({ ...base, qkNorm: "perHead" });
  const layerNorms = norms("norm", 2, hiddenSize);
  const layers = layersOf(
    numLayers,
    (index) => [isAttention(index), index < numDense],
    (attends, isDense) => {
      const feedForward = isDense ? dense : sparse;
      return attends ? layer(attention, feedForward, layerNorms) : recurrentLayer(convolution, feedForward, layerNorms);
    },
  );
  return { ...base, ...ends(base), layers };
};
