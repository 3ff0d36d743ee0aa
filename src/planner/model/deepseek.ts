/**
 * DeepSeek's models from V2 on and those of the same shape. Field names and defaults are those of the configuration
 * classes of Hugging Face transformers.
 */
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { layer, mla, mlp, moe, norms, weight } from "./build.ts";
import { type Architecture, basics, ends, intermediate, layersOf, listedTypes, MAX_LAYERS } from "./draft.ts";
import { chosenExperts } from "./moe-families.ts";
import type { WeightSpec } from "./spec.ts";

/** `null` says that queries are not compressed; a config without the field has its class's default (DeepSeek-V3: 1536). */
function queryRank(config: ConfigReader, type: string | undefined): number | undefined {
  const given = config.optionalInt("q_lora_rank", { max: 1 << 20 });
  if (given !== undefined || config.isNull("q_lora_rank") || type === "deepseek_v2") return given;
  return 1536;
}

interface Indexer {
  readonly weights: readonly WeightSpec[];
  readonly keyDim: number;
}

/** DeepSeek-V3.2's lightning indexer, which picks the tokens that a layer attends to; undefined without. */
function indexerOf(config: ConfigReader, hiddenSize: number): Indexer | undefined {
  const heads = config.optionalInt("index_n_heads", { max: 1 << 12 });
  if (heads === undefined) return undefined;
  const dim = config.int("index_head_dim", { max: 1 << 12, default: 128 });
  const rank = config.int("q_lora_rank", { max: 1 << 20, default: 1536 });
  const weights = [
    weight("indexer.q.weight", "attention", [heads * dim, rank], { isLinear: true }),
    weight("indexer.k.weight", "attention", [dim, hiddenSize], { isLinear: true }),
    weight("indexer.head_weights.weight", "attention", [heads, hiddenSize]),
  ];
  return { weights, keyDim: dim };
}

/** For each layer whether it has an indexer of its own: GLM-5.2's `shared` layers attend to the tokens that an earlier one picked. */
function ownIndexers(config: ConfigReader, numLayers: number): boolean[] {
  const types = listedTypes(config, numLayers, "indexer_types");
  return Array.from({ length: numLayers }, (_, index) => types?.[index] !== "shared");
}

/** Groups of experts that a token's may come from; undefined where one group holds them all. */
function groupLimit(config: ConfigReader): number | undefined {
  const groups = config.optionalInt("n_group", { max: 1 << 16 }) ?? 1;
  return groups > 1 ? config.optionalInt("topk_group", { max: 1 << 16 }) : undefined;
}

/** DeepSeek V2, V3 and R1, V3.2, Kimi K2, GLM-5 and GLM-4.7-Flash, Mistral Large 3: latent attention, the first layers dense, then experts beside shared ones. */
export const deepseek: Architecture = (config) => {
  const base = basics(config, { headDim: 0 });
  const type = config.optionalString("model_type");
  const qkNopeHeadDim = config.int("qk_nope_head_dim", { max: 1 << 16 });
  const qkRopeHeadDim = config.int("qk_rope_head_dim", { max: 1 << 16 });
  const latent = {
    hiddenSize: base.hiddenSize,
    numHeads: base.numHeads,
    qLoraRank: queryRank(config, type),
    kvLoraRank: config.int("kv_lora_rank", { max: 1 << 20 }),
    qkNopeHeadDim,
    qkRopeHeadDim,
    vHeadDim: config.int("v_head_dim", { max: 1 << 16 }),
  };
  const indexer = indexerOf(config, base.hiddenSize);
  const plain = mla(latent);
  const indexed = mla({ ...latent, indexKeyDim: indexer?.keyDim });
  const attention = { ...indexed, weights: [...indexed.weights, ...(indexer?.weights ?? [])] };
  const layerNorms = norms("norm", 2, base.hiddenSize);
  const numDense = config.int("first_k_dense_replace", { min: 0, max: MAX_LAYERS, default: 0 });
  if (numDense > base.numLayers) {
    throw config.error("first_k_dense_replace", `is ${numDense}, more than the ${base.numLayers} layers`);
  }
  const every = config.int("moe_layer_freq", { default: 1 });
  const size = intermediate(config, "moe_intermediate_size");
  const denseMlp = mlp(base.hiddenSize, intermediate(config));
  const sparseMlp = moe({
    hiddenSize: base.hiddenSize,
    expertIntermediateSize: size,
    // One correction per expert where the router has no auxiliary loss (V3).
    routerBias: config.optionalString("topk_method") === "noaux_tc" || (type !== undefined && type !== "deepseek_v2"),
    sharedIntermediateSize: size * (config.optionalInt("n_shared_experts", { min: 0, max: 1 << 16 }) ?? 0),
    ...chosenExperts(config, config.int("n_routed_experts", { max: 1 << 16 }), [
      "num_experts_per_tok",
      "experts_per_token",
    ]),
    groupLimit: groupLimit(config),
  });
  const own = ownIndexers(config, base.numLayers);
  const layers = layersOf(
    base.numLayers,
    (index) => [index >= numDense && index % every === 0, own[index]],
    (isSparse, hasIndexer) =>
      layer(hasIndexer === true ? attention : plain, isSparse ? sparseMlp : denseMlp, layerNorms),
  );
  const mtp = config.optionalInt("num_nextn_predict_layers", { min: 0 }) ?? 0;
  return {
    ...base,
    numKvHeads: base.numHeads,
    headDim: qkNopeHeadDim + qkRopeHeadDim,
    ...ends(base),
    layers,
    assumptions: [
      ...(mtp === 0 ? [] : [`the ${mtp} multi-token-prediction layer(s) are not loaded`]),
      ...(config.has("index_n_heads") ? ["sparse attention is timed as if every token were attended to"] : []),
    ],
  };
};
