/**
 * Gemma 4: layers that attend within a window and, one in six (five in the small ones), to everything. Those have heads
 * twice as wide, fewer of them for keys, and in the large models no values of their own. The small models look up a vector
 * for each layer and token, and their last layers use the cache of an earlier one; the mixture has experts beside a dense
 * MLP. Field names and defaults are those of Hugging Face transformers' configuration class (read November 2026).
 */
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { gqa, layer, mlp, moe, norms, type Part, weight } from "./build.ts";
import { type Architecture, basics, ends, intermediate, layersOf, listedTypes } from "./draft.ts";
import { chosenExperts } from "./moe-families.ts";
import type { MlpSpec, WeightSpec } from "./spec.ts";
import { gemma4AudioTower, gemma4VisionTower } from "./vision.ts";

type Base = ReturnType<typeof basics>;

/** For each layer whether it attends to everything. The last one always does. */
function globalLayers(config: ConfigReader, numLayers: number): boolean[] {
  const types = listedTypes(config, numLayers);
  return Array.from({ length: numLayers }, (_, index) => {
    const isGlobal = types === undefined ? (index + 1) % 6 === 0 : types[index] === "full_attention";
    return isGlobal || index === numLayers - 1;
  });
}

/** A dense MLP, alone or beside experts (which the planner counts as a shared expert: every token meets it). */
function feedForwardOf(config: ConfigReader, hiddenSize: number, columns: number): Part<MlpSpec> {
  if (!config.bool("enable_moe_block", false)) return mlp(hiddenSize, columns);
  const numExperts = config.int("num_experts", { max: 1 << 16 });
  return moe({
    hiddenSize,
    expertIntermediateSize: intermediate(config, "moe_intermediate_size"),
    sharedIntermediateSize: columns,
    ...chosenExperts(config, numExperts, "top_k_experts"),
  });
}

/** Vectors that each layer adds for its token: looked up in a table as wide as all layers, gated and projected. */
function perLayerInputs(config: ConfigReader, base: Base): { table: WeightSpec[]; ofLayer: WeightSpec[] } {
  const { hiddenSize, numLayers } = base;
  const width = config.int("hidden_size_per_layer_input", { min: 0, max: 1 << 16, default: 256 });
  if (width === 0) return { table: [], ofLayer: [] };
  const vocab = config.int("vocab_size_per_layer_input", { max: 1 << 26, default: 262_144 });
  return {
    table: [
      weight("embed_tokens_per_layer.weight", "embedding", [vocab, numLayers * width]),
      weight("per_layer_model_projection.weight", "embedding", [numLayers * width, hiddenSize]),
    ],
    ofLayer: [
      weight("per_layer_gate.weight", "mlp", [width, hiddenSize], { isLinear: true }),
      weight("per_layer_projection.weight", "mlp", [hiddenSize, width], { isLinear: true }),
      weight("per_layer_norm", "norm", [hiddenSize]),
    ],
  };
}

export const gemma4: Architecture = (config) => {
  const text = config.optionalObject("text_config") ?? config;
  const base = basics(text, { tied: true, headDim: 256, numHeads: 8, numKvHeads: 4, vocabSize: 262_144 });
  const { hiddenSize, numLayers } = base;
  const isGlobal = globalLayers(text, numLayers);
  const window = text.int("sliding_window", { max: 1 << 26, default: 512 });
  const keysAreValues = text.bool("attention_k_eq_v", false);
  const wide = {
    headDim: text.int("global_head_dim", { max: 1 << 16, default: 512 }),
    numKvHeads:
      (keysAreValues ? text.optionalInt("num_global_key_value_heads", { max: base.numHeads }) : undefined) ??
      base.numKvHeads,
    keysAreValues,
  };
  if (base.numHeads % wide.numKvHeads !== 0) {
    throw text.error(
      "num_global_key_value_heads",
      `is ${wide.numKvHeads}; expected a divisor of num_attention_heads ${base.numHeads}`,
    );
  }
  const numSharing = text.int("num_kv_shared_layers", { min: 0, max: numLayers - 1, default: 0 });
  const columns = intermediate(text);
  const doubles = text.bool("use_double_wide_mlp", false);
  const { table, ofLayer } = perLayerInputs(text, base);
  const hasExperts = text.bool("enable_moe_block", false);
  const feedForward = feedForwardOf(text, hiddenSize, columns);
  const wider = doubles ? feedForwardOf(text, hiddenSize, 2 * columns) : feedForward;
  const layerNorms = norms("norm", hasExperts ? 7 : 4, hiddenSize);
  const layers = layersOf(
    numLayers,
    (index) => [isGlobal[index], index >= numLayers - numSharing],
    (global, sharesCache) => {
      const shape = global === true ? { ...base, ...wide } : { ...base, window };
      const attention = gqa({ ...shape, qkNorm: "perHead", sharesCache });
      return layer(attention, sharesCache ? wider : feedForward, [...layerNorms, ...ofLayer]);
    },
  );
  const { embeddings, head } = ends(base);
  const vision = config.optionalObject("vision_config");
  const audio = config.optionalObject("audio_config");
  return {
    ...base,
    embeddings: [
      ...embeddings,
      ...table,
      ...(vision === undefined ? [] : gemma4VisionTower(vision, hiddenSize)),
      ...(audio === undefined ? [] : gemma4AudioTower(audio, hiddenSize)),
    ],
    head,
    layers,
  };
};
