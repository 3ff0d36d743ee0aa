/**
 * DeepSeek V4: one key for all heads, which is the value too, kept whole for the last tokens and compressed before them.
 * `compress_ratios` says for each layer how many tokens become one vector: 0 none are kept, 4 with an indexer that picks
 * among them, 128. Outputs are projected in groups; the residual has several streams that small matrices mix. Shapes from
 * the modelling code of Hugging Face transformers and of vLLM (read November 2026).
 */
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { layer, moe, norms, type Part, weight } from "./build.ts";
import { type Architecture, basics, ends, intermediate, layersOf } from "./draft.ts";
import { chosenExperts } from "./moe-families.ts";
import type { AttentionSpec, WeightSpec } from "./spec.ts";

/** Vectors of neighbouring groups overlap at this ratio: twice the columns, and an indexer. */
const OVERLAPPING = 4;

interface Shape {
  readonly hiddenSize: number;
  readonly numHeads: number;
  readonly headDim: number;
}

/** One vector of `dim` from `ratio` tokens: values and their weights, each of twice the columns where groups overlap. */
function compressor(name: string, hiddenSize: number, dim: number, ratio: number): WeightSpec[] {
  const columns = ratio === OVERLAPPING ? 2 * dim : dim;
  return [
    weight(`${name}.kv.weight`, "attention", [columns, hiddenSize], { isLinear: true }),
    weight(`${name}.gate.weight`, "attention", [columns, hiddenSize], { isLinear: true }),
    weight(`${name}.positions`, "attention", [ratio * columns]),
    weight(`${name}.norm`, "norm", [dim]),
  ];
}

function attentionOf(config: ConfigReader, shape: Shape, ratio: number): Part<AttentionSpec> {
  const { hiddenSize, numHeads, headDim } = shape;
  const size = (name: string, value: number) => config.int(name, { max: 1 << 20, default: value });
  const rank = size("q_lora_rank", 1024);
  const rope = size("qk_rope_head_dim", 64);
  const groups = size("o_groups", 8);
  const outRank = size("o_lora_rank", 1024);
  if (rope >= headDim) throw config.error("qk_rope_head_dim", `is ${rope}; expected less than head_dim ${headDim}`);
  if ((numHeads * headDim) % groups !== 0) {
    throw config.error(
      "o_groups",
      `is ${groups}; expected a divisor of the ${numHeads * headDim} columns of the heads`,
    );
  }
  const linear = { isLinear: true };
  const indexDim = ratio === OVERLAPPING ? size("index_head_dim", 128) : undefined;
  const indexHeads = size("index_n_heads", 64);
  const weights = [
    weight("attention.q_a.weight", "attention", [rank, hiddenSize], linear),
    weight("attention.q_a_norm", "norm", [rank]),
    weight("attention.q_b.weight", "attention", [numHeads * headDim, rank], { cut: "heads", isLinear: true }),
    weight("attention.kv.weight", "attention", [headDim, hiddenSize], linear),
    weight("attention.kv_norm", "norm", [headDim]),
    weight("attention.sinks", "attention", [numHeads], { cut: "heads" }),
    weight("attention.o_a.weight", "attention", [groups * outRank, (numHeads * headDim) / groups], {
      cut: "heads",
      isLinear: true,
    }),
    weight("attention.o_b.weight", "attention", [hiddenSize, groups * outRank], {
      cut: "heads",
      cutsInput: true,
      isLinear: true,
    }),
    ...(ratio === 0 ? [] : compressor("compressor", hiddenSize, headDim, ratio)),
    ...(indexDim === undefined
      ? []
      : [
          weight("indexer.q.weight", "attention", [indexHeads * indexDim, rank], linear),
          weight("indexer.head_weights.weight", "attention", [indexHeads, hiddenSize]),
          ...compressor("indexer.compressor", hiddenSize, indexDim, ratio),
        ]),
  ];
  const window = config.int("sliding_window", { max: 1 << 26, default: 128 });
  return {
    spec: {
      kind: "mla",
      numHeads,
      kvLoraRank: headDim - rope,
      qkRopeHeadDim: rope,
      qkNopeHeadDim: headDim - rope,
      vHeadDim: headDim,
      compression: { window, ratio },
      ...(indexDim === undefined ? {} : { indexKeyDim: indexDim }),
    },
    weights,
  };
}

export const deepseekV4: Architecture = (config) => {
  const base = basics(config, { headDim: 512, numKvHeads: 1 });
  const { hiddenSize, numLayers } = base;
  const ratios = config.optionalInts("compress_ratios");
  if (ratios === undefined) throw config.error("compress_ratios", "is missing");
  // One more for each layer of multi-token prediction.
  if (ratios.length < numLayers || ratios.length > numLayers + 16) {
    throw config.error("compress_ratios", `has ${ratios.length} entries; num_hidden_layers is ${numLayers}`);
  }
  const streams = config.int("hc_mult", { max: 64, default: 4 });
  const width = intermediate(config, "moe_intermediate_size");
  const feedForward = moe({
    hiddenSize,
    expertIntermediateSize: width,
    sharedIntermediateSize: width * config.int("n_shared_experts", { min: 0, max: 1 << 10, default: 1 }),
    routerBias: true,
    ...chosenExperts(config, config.int("n_routed_experts", { max: 1 << 16 }), "num_experts_per_tok", 6),
  });
  // Before attention and before the experts: what is read of the streams, written to them, and mixed among them.
  const mixed = (2 + streams) * streams;
  const streamMixers = [
    weight("streams.mixers.weight", "mlp", [2 * mixed, streams * hiddenSize]),
    weight("streams.base", "mlp", [2 * mixed + 6]),
  ];
  const layerNorms = norms("norm", 2, hiddenSize);
  const layers = layersOf(
    numLayers,
    (index) => [ratios[index] ?? 0],
    (ratio) => layer(attentionOf(config, base, ratio), feedForward, [...layerNorms, ...streamMixers]),
  );
  const mtp = config.optionalInt("num_nextn_predict_layers", { min: 0 }) ?? 0;
  return {
    ...base,
    ...ends(base),
    // The card's 13 and 49 billion leave the embedding out.
    activeWithout: "embedding",
    layers,
    assumptions: [
      ...(mtp === 0 ? [] : [`the ${mtp} multi-token-prediction layer(s) are not loaded`]),
      "sparse attention is timed as if every compressed token were attended to",
    ],
  };
};
