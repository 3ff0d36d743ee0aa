/** The parts that models are made of: attention, MLP, mixtures of experts, norms; each as a list of weights. */
import type { AttentionSpec, Component, Cut, LayerSpec, MlpSpec, WeightSpec } from "./spec.ts";

interface WeightOptions {
  readonly copies?: number;
  readonly cut?: Cut;
  readonly cutsInput?: boolean;
  readonly perExpert?: boolean;
  readonly isLinear?: boolean;
}

/** A weight with the usual defaults: one copy, replicated, not quantized. */
export function weight(
  name: string,
  component: Component,
  shape: readonly number[],
  options: WeightOptions = {},
): WeightSpec {
  return {
    name,
    component,
    shape,
    copies: options.copies ?? 1,
    cut: options.cut ?? "replicated",
    cutsInput: options.cutsInput ?? false,
    perExpert: options.perExpert ?? false,
    isLinear: options.isLinear ?? false,
  };
}

type Linear = (name: string, component: Component, out: number, input: number, cut: Cut, bias: boolean) => WeightSpec[];

const linear =
  (cutsInput: boolean): Linear =>
  (name, component, out, input, cut, bias) => [
    weight(`${name}.weight`, component, [out, input], { cut, cutsInput, isLinear: true }),
    ...(bias ? [weight(`${name}.bias`, component, [out], cutsInput ? {} : { cut })] : []),
  ];

/** A matrix [out, in] cut over its output (column-parallel), with an optional bias cut alike. */
export const column = linear(false);

/** A matrix [out, in] cut over its input (row-parallel); its bias lies on every rank. */
export const row = linear(true);

export interface GqaOptions {
  readonly hiddenSize: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly qkvBias?: boolean;
  readonly outBias?: boolean;
  /** Norms on queries and keys: one vector for all heads, or one over all of them. */
  readonly qkNorm?: "perHead" | "full" | undefined;
  /** One learned attention sink per head (GPT-OSS). */
  readonly sinks?: boolean;
  readonly window?: number | undefined;
  /** Uses the keys and values of an earlier layer. */
  readonly sharesCache?: boolean;
  /** Values are the keys before their norm and rotation: one projection serves both. */
  readonly keysAreValues?: boolean;
}

export interface Part<Spec> {
  readonly spec: Spec;
  readonly weights: readonly WeightSpec[];
}

/** Grouped-query attention: multi-head when numKvHeads = numHeads, multi-query when it is 1. */
export function gqa(options: GqaOptions): Part<AttentionSpec> {
  const { hiddenSize, numHeads, numKvHeads, headDim, qkvBias = false, outBias = false, qkNorm, window } = options;
  const q = numHeads * headDim;
  const kv = numKvHeads * headDim;
  const weights = [
    ...column("attention.q", "attention", q, hiddenSize, "heads", qkvBias),
    ...column("attention.k", "attention", kv, hiddenSize, "kvHeads", qkvBias),
    ...(options.keysAreValues === true ? [] : column("attention.v", "attention", kv, hiddenSize, "kvHeads", qkvBias)),
    ...row("attention.o", "attention", hiddenSize, q, "heads", outBias),
  ];
  if (qkNorm === "perHead") {
    weights.push(weight("attention.q_norm", "norm", [headDim]), weight("attention.k_norm", "norm", [headDim]));
  } else if (qkNorm === "full") {
    weights.push(
      weight("attention.q_norm", "norm", [q], { cut: "heads" }),
      weight("attention.k_norm", "norm", [kv], { cut: "kvHeads" }),
    );
  }
  if (options.sinks === true) weights.push(weight("attention.sinks", "attention", [numHeads], { cut: "heads" }));
  const spec: AttentionSpec = {
    kind: "gqa",
    numHeads,
    numKvHeads,
    headDim,
    ...(window === undefined ? {} : { window }),
    ...(options.sharesCache === true ? { sharesCache: true } : {}),
  };
  return { spec, weights };
}

export interface MlaOptions {
  readonly hiddenSize: number;
  readonly numHeads: number;
  /** Without it queries are not compressed (DeepSeek-V2-Lite). */
  readonly qLoraRank: number | undefined;
  readonly kvLoraRank: number;
  readonly qkNopeHeadDim: number;
  readonly qkRopeHeadDim: number;
  readonly vHeadDim: number;
  readonly indexKeyDim?: number | undefined;
}

/** Multi-head latent attention (arXiv 2405.04434, section 2.1). The compressed KV is needed whole by every tp rank. */
export function mla(options: MlaOptions): Part<AttentionSpec> {
  const { hiddenSize, numHeads, qLoraRank, kvLoraRank, qkNopeHeadDim, qkRopeHeadDim, vHeadDim } = options;
  const q = numHeads * (qkNopeHeadDim + qkRopeHeadDim);
  const linear = { isLinear: true };
  const weights = [
    ...(qLoraRank === undefined
      ? column("attention.q", "attention", q, hiddenSize, "heads", false)
      : [
          weight("attention.q_a.weight", "attention", [qLoraRank, hiddenSize], linear),
          weight("attention.q_a_norm", "norm", [qLoraRank]),
          ...column("attention.q_b", "attention", q, qLoraRank, "heads", false),
        ]),
    weight("attention.kv_a.weight", "attention", [kvLoraRank + qkRopeHeadDim, hiddenSize], linear),
    weight("attention.kv_a_norm", "norm", [kvLoraRank]),
    ...column("attention.kv_b", "attention", numHeads * (qkNopeHeadDim + vHeadDim), kvLoraRank, "heads", false),
    ...row("attention.o", "attention", hiddenSize, numHeads * vHeadDim, "heads", false),
  ];
  const { indexKeyDim } = options;
  const indexed = indexKeyDim === undefined ? {} : { indexKeyDim };
  return { spec: { kind: "mla", numHeads, kvLoraRank, qkRopeHeadDim, qkNopeHeadDim, vHeadDim, ...indexed }, weights };
}

/** Up and down, or gate, up and down. */
export function mlp(
  hiddenSize: number,
  intermediateSize: number,
  options: { gated?: boolean; bias?: boolean; component?: Component } = {},
): Part<MlpSpec> {
  const { gated = true, bias = false, component = "mlp" } = options;
  return {
    spec: { kind: "dense", intermediateSize, gated },
    weights: [
      ...(gated ? column("mlp.gate", component, intermediateSize, hiddenSize, "intermediate", bias) : []),
      ...column("mlp.up", component, intermediateSize, hiddenSize, "intermediate", bias),
      ...row("mlp.down", component, hiddenSize, intermediateSize, "intermediate", bias),
    ],
  };
}

export interface MoeOptions {
  readonly hiddenSize: number;
  readonly numExperts: number;
  readonly expertsPerToken: number;
  readonly expertIntermediateSize: number;
  readonly bias?: boolean;
  readonly routerBias?: boolean;
  /** Columns of the shared experts together; 0 without. */
  readonly sharedIntermediateSize?: number;
  /** A gate of one output before the shared expert (Qwen2-MoE). */
  readonly sharedGate?: boolean;
  /** Most groups of experts that a token's may come from, where the router limits them. */
  readonly groupLimit?: number | undefined;
  /** False: experts have an up and a down matrix alone. */
  readonly gated?: boolean;
  /** Routed experts work in a space of this width, into which every token is projected and out of which it comes back. */
  readonly latentSize?: number | undefined;
}

/** A mixture of experts: router, routed experts (gated MLPs unless said otherwise), shared experts. */
export function moe(options: MoeOptions): Part<MlpSpec> {
  const { hiddenSize, numExperts, expertsPerToken, expertIntermediateSize: columns } = options;
  const { bias = false, routerBias = false, sharedIntermediateSize = 0, sharedGate = false, groupLimit } = options;
  const { gated = true, latentSize } = options;
  const expert = { copies: numExperts, perExpert: true, cut: "intermediate" as const };
  const width = latentSize ?? hiddenSize;
  const upColumns = gated ? 2 * columns : columns;
  const upName = gated ? "experts.gate_up" : "experts.up";
  return {
    spec: {
      kind: "moe",
      numExperts,
      expertsPerToken,
      expertIntermediateSize: columns,
      gated,
      ...(latentSize === undefined ? {} : { latentSize }),
      sharedIntermediateSize,
      ...(groupLimit === undefined ? {} : { groupLimit }),
    },
    weights: [
      weight("router.weight", "router", [numExperts, hiddenSize]),
      ...(routerBias ? [weight("router.bias", "router", [numExperts])] : []),
      ...(latentSize === undefined
        ? []
        : [
            weight("experts.latent_in.weight", "sharedExperts", [latentSize, hiddenSize], { isLinear: true }),
            weight("experts.latent_out.weight", "sharedExperts", [hiddenSize, latentSize], { isLinear: true }),
          ]),
      weight(`${upName}.weight`, "experts", [upColumns, width], { ...expert, isLinear: true }),
      weight("experts.down.weight", "experts", [width, columns], { ...expert, cutsInput: true, isLinear: true }),
      ...(bias
        ? [
            weight(`${upName}.bias`, "experts", [upColumns], expert),
            weight("experts.down.bias", "experts", [width], { ...expert, cut: "replicated" }),
          ]
        : []),
      ...(sharedIntermediateSize > 0
        ? mlp(hiddenSize, sharedIntermediateSize, { gated, component: "sharedExperts" }).weights
        : []),
      ...(sharedGate ? [weight("shared_gate.weight", "sharedExperts", [1, hiddenSize])] : []),
    ],
  };
}

/** `count` norms of `size`; layer norms with a bias have two vectors each. */
export function norms(name: string, count: number, size: number, bias = false): WeightSpec[] {
  return Array.from({ length: count }, (_, index) => weight(`${name}.${index}`, "norm", [bias ? 2 * size : size]));
}

/** Puts a layer together. */
export function layer(
  attention: Part<AttentionSpec>,
  feedForward: Part<MlpSpec>,
  layerNorms: readonly WeightSpec[],
): LayerSpec {
  return {
    attention: attention.spec,
    mlp: feedForward.spec,
    weights: [...attention.weights, ...feedForward.weights, ...layerNorms],
  };
}

/** Puts a layer with a recurrent mixer in place of attention together. */
export function recurrentLayer(
  mixer: { readonly weights: readonly WeightSpec[]; readonly numHeads: number; readonly stateElements: number },
  feedForward: Part<MlpSpec>,
  layerNorms: readonly WeightSpec[],
): LayerSpec {
  return {
    attention: { kind: "none", numHeads: mixer.numHeads },
    mlp: feedForward.spec,
    weights: [...mixer.weights, ...feedForward.weights, ...layerNorms],
    stateElements: mixer.stateElements,
  };
}

/** The table of token vectors. */
export function tokenEmbedding(vocabSize: number, hiddenSize: number): WeightSpec {
  return weight("embed_tokens.weight", "embedding", [vocabSize, hiddenSize], { cut: "vocab" });
}

/** The matrix from hidden states to logits; none when it is tied to the embedding. */
export function languageHead(vocabSize: number, hiddenSize: number, tied: boolean, bias = false): WeightSpec[] {
  if (tied) return [];
  return [
    weight("lm_head.weight", "head", [vocabSize, hiddenSize], { cut: "vocab" }),
    ...(bias ? [weight("lm_head.bias", "head", [vocabSize], { cut: "vocab" })] : []),
  ];
}
