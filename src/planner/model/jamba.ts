/**
 * Jamba (arXiv 2403.19887): seven Mamba layers and one of attention, every other one with experts. Its Mamba mixers have
 * norms on the step, B and C. Field names and defaults are those of Hugging Face transformers' configuration class.
 */
import { gqa, layer, mlp, moe, norms, recurrentLayer, weight } from "./build.ts";
import { type Architecture, basics, ends, intermediate, layersOf, MAX_LAYERS } from "./draft.ts";
import { mamba1 } from "./hybrid-families.ts";
import { chosenExperts } from "./moe-families.ts";

export const jamba: Architecture = (config) => {
  const base = basics(config, { numKvHeads: 8 });
  const { hiddenSize } = base;
  const cycle = (what: string, period: number, offset: number) => {
    const length = config.int(`${what}_layer_period`, { max: MAX_LAYERS, default: period });
    const at = config.int(`${what}_layer_offset`, { min: 0, max: MAX_LAYERS, default: offset });
    if (at >= length)
      throw config.error(`${what}_layer_offset`, `is ${at}; expected less than the period of ${length}`);
    return (index: number) => index % length === at;
  };
  const [isAttention, isExpert] = [cycle("attn", 8, 4), cycle("expert", 2, 1)];
  const columns = intermediate(config);
  const numExperts = config.int("num_experts", { max: 1 << 16, default: 16 });
  const stateSize = config.int("mamba_d_state", { max: 1 << 14, default: 16 });
  const isAuto = config.raw("mamba_dt_rank") === "auto";
  const rank =
    (isAuto ? undefined : config.optionalInt("mamba_dt_rank", { max: 1 << 16 })) ?? Math.ceil(hiddenSize / 16);
  const mixer = mamba1({
    hiddenSize,
    inner: hiddenSize * config.int("mamba_expand", { max: 64, default: 2 }),
    stateSize,
    rank,
    convWidth: config.int("mamba_d_conv", { max: 64, default: 4 }),
  });
  const inner = weight("mamba.inner_norms", "norm", [rank + 2 * stateSize]);
  const dense = mlp(hiddenSize, columns);
  const sparse =
    numExperts === 1
      ? dense
      : moe({
          hiddenSize,
          expertIntermediateSize: columns,
          ...chosenExperts(config, numExperts, "num_experts_per_tok", 2),
        });
  const attention = gqa({ ...base, window: config.optionalInt("sliding_window") });
  const layerNorms = norms("norm", 2, hiddenSize);
  const layers = layersOf(
    base.numLayers,
    (index) => [isAttention(index), isExpert(index)],
    (attends, chooses) => {
      const feedForward = chooses ? sparse : dense;
      return attends
        ? layer(attention, feedForward, layerNorms)
        : recurrentLayer({ ...mixer, weights: [...mixer.weights, inner] }, feedForward, layerNorms);
    },
  );
  return { ...base, ...ends(base), layers };
};
