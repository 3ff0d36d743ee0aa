/**
 * Activations: what a forward pass holds at once (inference), and what it must keep for the backward pass (training).
 * Training follows "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198), written out for
 * gated MLPs, grouped heads and flash attention, which keeps no score matrix.
 */
import type { LayerSpec, ModelSpec } from "../model/spec.ts";

/** Columns that the widest part of a layer holds per token on one tp rank: attention, or the MLP (chosen experts). */
function widths(layer: LayerSpec, tp: number): { attention: number; feedForward: number } {
  const { attention } = layer;
  if (attention.kind === "none") {
    // A recurrent mixer holds its inner columns about as often as attention holds queries, keys, values and output.
    const inner = layer.weights.reduce((widest, { component, shape, cut }) => {
      return component === "attention" && cut === "heads" && shape.length === 2
        ? Math.max(widest, shape[0] ?? 0)
        : widest;
    }, 0);
    return { attention: Math.ceil((1.5 * inner) / tp), feedForward: feedForwardColumns(layer, tp) };
  }
  const perHead = attention.kind === "gqa" ? attention.headDim : attention.qkNopeHeadDim + attention.qkRopeHeadDim;
  const valueDim = attention.kind === "gqa" ? attention.headDim : attention.vHeadDim;
  const heads = Math.ceil(attention.numHeads / tp);
  const kvHeads = attention.kind === "gqa" ? Math.max(1, Math.ceil(attention.numKvHeads / tp)) : heads;
  return {
    attention: heads * perHead + kvHeads * (perHead + valueDim) + heads * valueDim,
    feedForward: feedForwardColumns(layer, tp),
  };
}

function feedForwardColumns({ mlp }: LayerSpec, tp: number): number {
  const columns =
    mlp.kind === "dense"
      ? (mlp.gated ? 3 : 2) * mlp.intermediateSize
      : (mlp.gated ? 3 : 2) * (mlp.expertsPerToken * mlp.expertIntermediateSize + mlp.sharedIntermediateSize);
  return Math.ceil(columns / tp);
}

/** Bytes that a forward pass of `tokens` tokens holds at once: residual and normed input, and the widest layer's inside. */
export function forwardBytes(model: ModelSpec, tokens: number, tp: number, bytesPerElement: number): number {
  const inside = Math.max(
    ...model.layerKinds.map((layer) => {
      const { attention, feedForward } = widths(layer, tp);
      const expertCopies = layer.mlp.kind === "moe" ? layer.mlp.expertsPerToken * model.hiddenSize : 0;
      return Math.max(attention, feedForward + expertCopies);
    }),
  );
  return Math.ceil(tokens * (3 * model.hiddenSize + inside) * bytesPerElement);
}

/** Bytes of logits: of the last tokens in 16 bits on each shard, and gathered in f32 for sampling. */
export function logitsBytes(model: ModelSpec, rows: number, tp: number, bytesPerElement: number): number {
  if (!model.isDecoder) return 0;
  return Math.ceil(rows * (Math.ceil(model.vocabSize / tp) * bytesPerElement + model.vocabSize * 4));
}

/** Parts that engines of adapters cut the loss into, so that the logits of a whole batch are never there at once. */
const LOSS_CHUNKS = 8;

/**
 * Bytes of logits in training: in 16 bits and their gradient, in f32 and its softmax. Fine-tuning libraries compute
 * the loss in chunks (torchtune) or fused (Unsloth, Liger).
 */
export function lossBytes(model: ModelSpec, tokens: number, tp: number, inChunks: boolean): number {
  if (!model.isDecoder) return 0;
  const all = tokens * Math.ceil(model.vocabSize / tp) * 12;
  return Math.ceil(inChunks ? all / LOSS_CHUNKS : all);
}

export const CHECKPOINTING = ["none", "selective", "full"] as const;
export type Checkpointing = (typeof CHECKPOINTING)[number];

/** Bytes that one layer keeps per token for its backward pass on one tp rank; sequence parallel shards the residuals too. */
export function savedBytesPerToken(
  model: ModelSpec,
  layer: LayerSpec,
  tp: number,
  bytesPerElement: number,
  checkpointing: Checkpointing,
): number {
  const residual = model.hiddenSize / tp;
  if (checkpointing === "full") return residual * bytesPerElement;
  const { attention, feedForward } = widths(layer, tp);
  // Inputs of both norms and of both linear groups, queries/keys/values/output, and the MLP's columns.
  if (checkpointing === "none") return (4 * residual + attention + feedForward) * bytesPerElement;
  // Selective, as torchtitan does it: the layer's input, attention's output and every second product are kept; norms,
  // activation functions and the other products are computed again.
  return (2 * residual + attention / 2 + feedForward / 3 + 2 * residual) * bytesPerElement;
}
