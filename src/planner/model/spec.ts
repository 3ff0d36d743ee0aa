/**
 * What the planner knows of a model: its weights, tensor by tensor, and how each may be cut. Everything else (parameter
 * counts, memory, FLOPs) is derived from these tables, so that there is one place where an architecture is described.
 * Plain data.
 */

/** What a weight belongs to; parameter counts are given by these. */
export const COMPONENTS = [
  "embedding",
  "attention",
  "mlp",
  "experts",
  "sharedExperts",
  "router",
  "norm",
  "head",
  "vision",
] as const;
export type Component = (typeof COMPONENTS)[number];

/**
 * Along which count a weight is cut over the tp axis (experts: over ep first, then tp inside each expert).
 * `kvHeads` are repeated when tp exceeds their number; `replicated` weights lie on every tp rank.
 */
export type Cut = "replicated" | "heads" | "kvHeads" | "intermediate" | "vocab";

/** One weight, or `copies` equal ones (experts). */
export interface WeightSpec {
  readonly name: string;
  readonly component: Component;
  /** [out, in] of a matrix, [n] of a vector. */
  readonly shape: readonly number[];
  readonly copies: number;
  readonly cut: Cut;
  /** Cut along `in` (a row-parallel matrix, whose output is then all-reduced) rather than along `out`. */
  readonly cutsInput: boolean;
  /** Lies on one ep rank only: copies are divided by ep. */
  readonly perExpert: boolean;
  /** A matrix that quantization schemes convert (norms, biases, routers and embeddings are left alone). */
  readonly isLinear: boolean;
}

export interface FullAttention {
  readonly kind: "gqa";
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Tokens that a sliding-window layer looks back, and caches. */
  readonly window?: number;
  /** Attends to the keys and values of an earlier layer and caches none of its own (Gemma 4's last layers). */
  readonly sharesCache?: true;
}

/** Multi-head latent attention (DeepSeek-V2 paper, arXiv 2405.04434): caches one compressed vector per token. */
export interface LatentAttention {
  readonly kind: "mla";
  readonly numHeads: number;
  readonly kvLoraRank: number;
  readonly qkRopeHeadDim: number;
  readonly qkNopeHeadDim: number;
  readonly vHeadDim: number;
  /** Width of the key that a lightning indexer caches for each token beside the vector (DeepSeek-V3.2, arXiv 2512.02556). */
  readonly indexKeyDim?: number;
  /** Keeps the last `window` tokens whole, and of all tokens one vector for `ratio` of them (0: none). DeepSeek V4. */
  readonly compression?: { readonly window: number; readonly ratio: number };
}

/** A layer that attends to nothing: a recurrent mixer (Mamba-2, gated delta net) or a plain MLP. */
export interface NoAttention {
  readonly kind: "none";
  /** Heads of the recurrent mixer, which tp cuts; 0 where there is none. */
  readonly numHeads: number;
}
export type AttentionSpec = FullAttention | LatentAttention | NoAttention;

export type MlpSpec =
  | { readonly kind: "dense"; readonly intermediateSize: number; readonly gated: boolean }
  | {
      readonly kind: "moe";
      readonly numExperts: number;
      readonly expertsPerToken: number;
      readonly expertIntermediateSize: number;
      readonly gated: boolean;
      /** Width of what routed experts take in and give back, where it is not the hidden size (Nemotron 3's latent experts). */
      readonly latentSize?: number;
      /** Columns of the experts that every token meets; 0 without. */
      readonly sharedIntermediateSize: number;
      /** Node-limited routing: most groups of experts that a token's may come from. */
      readonly groupLimit?: number;
    };

/** One kind of layer. A model has few kinds and many layers. */
export interface LayerSpec {
  readonly attention: AttentionSpec;
  readonly mlp: MlpSpec;
  readonly weights: readonly WeightSpec[];
  /** Elements of recurrent state that one sequence keeps in place of, or beside, a cache that grows. */
  readonly stateElements?: number;
}

/** Bytes that a file really holds, where a file was read. */
export interface StoredBytes {
  readonly embeddings: number;
  readonly layers: readonly number[];
  readonly head: number;
}

export interface ModelSpec {
  readonly name: string;
  /** `model_type` of the Hugging Face config. */
  readonly architecture: string;
  /** False for encoders: no KV cache, no decoding. */
  readonly isDecoder: boolean;
  readonly hiddenSize: number;
  readonly vocabSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly contextLength: number | undefined;
  readonly tiedEmbeddings: boolean;
  readonly layerKinds: readonly LayerSpec[];
  /** For each layer, its index in `layerKinds`. */
  readonly layers: readonly number[];
  /** Token and position embeddings and their norms; a vision tower. First stage. */
  readonly embeddings: readonly WeightSpec[];
  /** Final norm and language-model head. Last stage. A tied head is not repeated here. */
  readonly head: readonly WeightSpec[];
  /** The maker counts active parameters without the embedding table, of which a token reads one row, or without the head too. */
  readonly activeWithout?: "embedding" | "embedding and head";
  /** Name of the format that the weights are in (see memory/formats.ts). */
  readonly weightFormat: string;
  readonly storedBytes: StoredBytes | undefined;
  /** What was not known and therefore assumed. */
  readonly assumptions: readonly string[];
}

/** Parameters of one weight, all copies. */
export function numTensorElements(weight: WeightSpec): number {
  return weight.copies * weight.shape.reduce((product, dim) => product * dim, 1);
}

export interface ParameterCounts {
  readonly total: number;
  /** Those that one token meets: of the routed experts only the chosen ones; the embedding table as the maker counts it; no tower of images or sound. */
  readonly active: number;
  readonly byComponent: Readonly<Record<Component, number>>;
}

/**
 * Counts parameters exactly, by component. Tied embeddings count once (as embedding).
 * @example
 * import { countParameters, modelPreset } from "chorale/planner";
 * countParameters(modelPreset("gpt2")).total // 124439808
 */
export function countParameters(model: ModelSpec): ParameterCounts {
  const byComponent = Object.fromEntries(COMPONENTS.map((name) => [name, 0])) as Record<Component, number>;
  let active = 0;
  const add = (weight: WeightSpec, times: number, activeShare: number) => {
    const elements = numTensorElements(weight) * times;
    byComponent[weight.component] += elements;
    active += elements * activeShare;
  };
  const leftOut = model.activeWithout;
  for (const weight of model.embeddings) {
    // A vision or audio tower reads images and sound, not text.
    const counts = weight.component !== "vision" && (leftOut === undefined || weight.cut !== "vocab");
    add(weight, 1, counts ? 1 : 0);
  }
  for (const weight of model.head) {
    add(weight, 1, leftOut === "embedding and head" && weight.cut === "vocab" ? 0 : 1);
  }
  for (const [index, kind] of model.layerKinds.entries()) {
    const times = model.layers.reduce((sum, layer) => sum + (layer === index ? 1 : 0), 0);
    const share = kind.mlp.kind === "moe" ? kind.mlp.expertsPerToken / kind.mlp.numExperts : 1;
    for (const weight of kind.weights) add(weight, times, weight.perExpert ? share : 1);
  }
  const total = Object.values(byComponent).reduce((sum, value) => sum + value, 0);
  return { total, active: Math.round(active), byComponent };
}
