/** How many bytes of weights a rank holds: every weight cut as its table says, in its format. */
import type { LayerSpec, ModelSpec, WeightSpec } from "../model/spec.ts";
import { numTensorElements } from "../model/spec.ts";
import { bytesOf, type WeightFormat } from "./formats.ts";
import { getsMoreBits, type TensorPlace } from "./gguf-mixes.ts";

export interface ShardShape {
  readonly copies: number;
  readonly out: number;
  readonly input: number;
}

/** How many ways a cut divides by over tp: KV heads no finer than one head. */
function ways(weight: WeightSpec, tp: number, kvHeads: number): number {
  switch (weight.cut) {
    case "replicated":
      return 1;
    case "kvHeads":
      return Math.min(tp, kvHeads);
    default:
      return tp;
  }
}

/** The largest shard of a weight on one rank. A vocabulary that tp does not divide is padded up. */
export function shardShape(weight: WeightSpec, tp: number, ep: number, kvHeads: number): ShardShape {
  const [first = 1, ...rest] = weight.shape;
  const tail = rest.reduce((product, dim) => product * dim, 1);
  const n = ways(weight, tp, kvHeads);
  const copies = weight.perExpert ? Math.ceil(weight.copies / ep) : weight.copies;
  return weight.cutsInput && weight.cut !== "replicated"
    ? { copies, out: first, input: Math.ceil(tail / n) }
    : { copies, out: Math.ceil(first / n), input: tail };
}

/** KV heads of a layer; 1 for latent attention, whose cache every rank holds, and where there is none. */
export function kvHeadsOf(layer: LayerSpec): number {
  return layer.attention.kind === "gqa" ? layer.attention.numKvHeads : 1;
}

/** Layers that llama.cpp's mixes treat alike. */
function placeClass(layer: number, numLayers: number): string {
  const parts = [layer < 2, layer < 4, layer < Math.floor(numLayers / 16), layer < Math.floor(numLayers / 8)];
  parts.push(layer < Math.floor((7 * numLayers) / 8), getsMoreBits(layer, numLayers));
  return parts.map(Number).join("");
}

export interface WeightBytes {
  readonly embeddings: number;
  readonly layers: readonly number[];
  readonly head: number;
  /** Of the token embedding, which a tied head needs on the last stage too. */
  readonly tiedHead: number;
}

/**
 * Bytes of weights on one rank of (tp, ep), for each layer and both ends. Where a file was read and its format is kept,
 * the file's real sizes are used in place of the formula's, cut in the same proportion.
 */
export function weightBytes(model: ModelSpec, format: WeightFormat, tp: number, ep: number): WeightBytes {
  const hasExperts = model.layerKinds.some((kind) => kind.mlp.kind === "moe");
  const kvHeads = model.numKvHeads;
  const sum = (weights: readonly WeightSpec[], heads: number, t: number, e: number, place?: TensorPlace) =>
    weights.reduce(
      (total, weight) => total + bytesOf(weight, shardShape(weight, t, e, heads), format, hasExperts, place),
      0,
    );
  const layersAt = (t: number, e: number) => {
    const known = new Map<string, number>();
    return model.layers.map((kind, layer) => {
      const key = `${kind} ${format.gguf ? placeClass(layer, model.numLayers) : ""}`;
      const layerKind = model.layerKinds[kind];
      let bytes = known.get(key);
      if (bytes === undefined && layerKind !== undefined) {
        const heads = kvHeadsOf(layerKind);
        const place = { layer, numLayers: model.numLayers, groupedHeads: layerKind.attention.numHeads / heads };
        bytes = sum(layerKind.weights, heads, t, e, place);
        known.set(key, bytes);
      }
      return bytes ?? 0;
    });
  };
  const layers = layersAt(tp, ep);
  const embeddings = sum(model.embeddings, kvHeads, tp, ep);
  const head = sum(model.head, kvHeads, tp, ep);
  const table = model.embeddings.filter((weight) => weight.cut === "vocab");
  const tiedHead = model.tiedEmbeddings && model.isDecoder ? sum(table, kvHeads, tp, ep) : 0;
  const stored = model.storedBytes;
  if (stored === undefined || format.name !== model.weightFormat) return { embeddings, layers, head, tiedHead };
  const whole = layersAt(1, 1);
  const scale = (part: number, whole: number, real: number) => (whole === 0 ? 0 : Math.ceil((part / whole) * real));
  const realEmbeddings = stored.embeddings / Math.max(1, sum(model.embeddings, kvHeads, 1, 1));
  return {
    embeddings: Math.ceil(embeddings * realEmbeddings),
    layers: layers.map((bytes, index) => scale(bytes, whole[index] ?? 0, stored.layers[index] ?? bytes)),
    head: scale(head, sum(model.head, kvHeads, 1, 1), stored.head),
    tiedHead: Math.ceil(tiedHead * realEmbeddings),
  };
}

/** Elements of weights on one rank of (tp, ep), for each layer and both ends; for gradients and optimizer states. */
export function shardElements(model: ModelSpec, tp: number, ep: number): WeightBytes {
  const sum = (weights: readonly WeightSpec[], heads: number) =>
    weights.reduce((total, weight) => {
      const { copies, out, input } = shardShape(weight, tp, ep, heads);
      return total + copies * out * input;
    }, 0);
  const byKind = model.layerKinds.map((kind) => sum(kind.weights, kvHeadsOf(kind)));
  const table = model.embeddings.filter((weight) => weight.cut === "vocab");
  return {
    embeddings: sum(model.embeddings, model.numKvHeads),
    layers: model.layers.map((kind) => byKind[kind] ?? 0),
    head: sum(model.head, model.numKvHeads),
    tiedHead: model.tiedEmbeddings && model.isDecoder ? sum(table, model.numKvHeads) : 0,
  };
}

/** Bytes of all weights of a model in a format, on one device. */
export function modelBytes(model: ModelSpec, format: WeightFormat): number {
  const { embeddings, layers, head } = weightBytes(model, format, 1, 1);
  return embeddings + head + layers.reduce((sum, bytes) => sum + bytes, 0);
}

/** Parameters of a layer kind that are multiplied with every token, by group; experts per chosen expert. */
export function linearElements(layer: LayerSpec): { attention: number; dense: number; expert: number } {
  let attention = 0;
  let dense = 0;
  let expert = 0;
  for (const weight of layer.weights) {
    if (weight.shape.length < 2) continue;
    if (weight.perExpert) expert += numTensorElements(weight) / weight.copies;
    else if (weight.component === "attention") attention += numTensorElements(weight);
    else dense += numTensorElements(weight);
  }
  return { attention, dense, expert };
}
