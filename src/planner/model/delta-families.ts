/**
 * Models whose layers are mostly gated delta nets, which keep a matrix for each head in place of a cache that grows.
 * Field names and defaults are those of the configuration classes of Hugging Face transformers.
 */
import { column, gqa, layer, mlp, moe, norms, recurrentLayer, row, weight } from "./build.ts";
import { type Architecture, basics, ends, intermediate, listedTypes, MAX_LAYERS } from "./draft.ts";
import { chosenExperts } from "./moe-families.ts";

/**
 * Three gated delta nets (arXiv 2412.06464), then one gated attention, and so on (`layer_types`, or every
 * `full_attention_interval`-th): Qwen3-Next, Qwen3.5 and Qwen3.6. MLPs are mixtures with one shared expert where the
 * config has `num_experts`.
 */
export const deltaHybrid: Architecture = (config) => {
  const base = basics(config, { headDim: 256 });
  const { hiddenSize } = base;
  const every = config.int("full_attention_interval", { default: 4, max: MAX_LAYERS });
  const types = listedTypes(config, base.numLayers);
  const size = (name: string, value: number) => config.int(name, { max: 1 << 16, default: value });
  const [keyHeads, valueHeads] = [size("linear_num_key_heads", 16), size("linear_num_value_heads", 32)];
  const [keyDim, valueDim] = [size("linear_key_head_dim", 128), size("linear_value_head_dim", 128)];
  const keys = keyHeads * keyDim;
  const values = valueHeads * valueDim;
  const numExperts = config.optionalInt("num_experts", { min: 0, max: 1 << 16 }) ?? 0;
  const feedForward =
    numExperts === 0
      ? mlp(hiddenSize, intermediate(config))
      : moe({
          hiddenSize,
          expertIntermediateSize: intermediate(config, "moe_intermediate_size"),
          sharedIntermediateSize: intermediate(config, "shared_expert_intermediate_size"),
          sharedGate: true,
          ...chosenExperts(config, numExperts, "num_experts_per_tok"),
        });
  const layerNorms = norms("norm", 2, hiddenSize);
  const attention = gqa({ ...base, qkNorm: "perHead" });
  // Its queries come with a gate of the same width.
  const gate = column("attention.q_gate", "attention", base.numHeads * base.headDim, hiddenSize, "heads", false);
  const full = layer({ ...attention, weights: [...attention.weights, ...gate] }, feedForward, layerNorms);
  const delta = recurrentLayer(
    {
      weights: [
        ...column("delta.in_proj_qkvz", "attention", 2 * keys + 2 * values, hiddenSize, "heads", false),
        ...column("delta.in_proj_ba", "attention", 2 * valueHeads, hiddenSize, "heads", false),
        weight("delta.conv1d", "attention", [4 * (2 * keys + values)], { cut: "heads" }),
        weight("delta.dt_a_norm", "attention", [2 * valueHeads + valueDim]),
        ...row("delta.out_proj", "attention", hiddenSize, values, "heads", false),
      ],
      numHeads: valueHeads,
      stateElements: valueHeads * keyDim * valueDim + 4 * (2 * keys + values),
    },
    feedForward,
    layerNorms,
  );
  return {
    ...base,
    ...ends(base),
    layers: Array.from({ length: base.numLayers }, (_, index) => {
      const isFull = types === undefined ? (index + 1) % every === 0 : types[index] === "full_attention";
      return isFull ? full : delta;
    }),
  };
};
