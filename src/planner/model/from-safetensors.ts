/**
 * What safetensors files say of a model: the real bytes of every layer, and, where there is no config, the shape of a
 * Llama-family model read off its tensors.
 */
import { FormatError, UnsupportedError } from "../../core/index.ts";
import type { SafetensorsTensor } from "../../foreign/formats/index.ts";
import { modelFromConfig } from "./from-config.ts";
import { countParameters, type ModelSpec, type StoredBytes } from "./spec.ts";

type Tensors = ReadonlyMap<string, SafetensorsTensor>;

/** `model.layers.12.`, `transformer.h.12.`, `gpt_neox.layers.12.`, `encoder.layer.12.`, `language_model.model.layers.12.` */
const LAYER = /(?:^|\.)(?:layers|h|layer|blocks)\.(\d+)\./;
const HEAD = /(?:^|\.)(?:lm_head|embed_out|pooler|score|classifier)\./;
const FINAL_NORM = /(?:^|\.)(?:norm|ln_f|final_layer_norm|final_layernorm)\.(?:weight|bias)$/;

/** Adds up what the files hold, by layer. @throws FormatError for a layer that the model does not have */
export function storedBytes(tensors: Tensors, numLayers: number, where: string): StoredBytes {
  const layers = Array.from({ length: numLayers }, () => 0);
  let embeddings = 0;
  let head = 0;
  for (const [name, { begin, end }] of tensors) {
    const bytes = end - begin;
    const layer = /vision|visual/.test(name) ? null : LAYER.exec(name);
    if (layer !== null) {
      const index = Number(layer[1]);
      // DeepSeek-V3 stores its multi-token-prediction layer after the last one; it is not loaded.
      if (index >= numLayers) continue;
      layers[index] = (layers[index] ?? 0) + bytes;
    } else if (HEAD.test(name) || FINAL_NORM.test(name)) head += bytes;
    else embeddings += bytes;
  }
  const missing = layers.indexOf(0);
  if (missing >= 0)
    throw new FormatError(where, `holds nothing of layer ${missing} of ${numLayers}`, { field: `layers.${missing}` });
  return { embeddings, layers, head };
}

/** Attaches the files' real sizes to a spec, and says where they differ from the formula. */
export function withStoredBytes(spec: ModelSpec, tensors: Tensors, where: string): ModelSpec {
  const stored = storedBytes(tensors, spec.numLayers, where);
  const assumptions = [...spec.assumptions];
  const plain = [...tensors.values()].every(({ dtype }) => ["F32", "F16", "BF16"].includes(dtype));
  const elements = [...tensors.values()].reduce((sum, tensor) => sum + tensor.numElements, 0);
  const { total } = countParameters(spec);
  if (plain && elements !== total) {
    assumptions.push(`its files hold ${elements} elements, the architecture's formula gives ${total}`);
  }
  return { ...spec, storedBytes: stored, assumptions };
}

function shapeOf(tensors: Tensors, name: string): readonly [number, number] | undefined {
  const shape = tensors.get(name)?.shape;
  return shape?.length === 2 ? [shape[0] ?? 0, shape[1] ?? 0] : undefined;
}

/** Head dims that models use, most common first: a projection does not say how many heads it stands for. */
const HEAD_DIMS = [128, 64, 96, 80, 256];

const DTYPES: ReadonlyMap<string, string> = new Map([
  ["F32", "float32"],
  ["F16", "float16"],
  ["BF16", "bfloat16"],
]);

/**
 * Reads a Llama-family model off its tensors' names and shapes.
 * @throws FormatError naming a tensor that is missing; UnsupportedError when the names are not of that family
 */
export function modelFromTensors(tensors: Tensors, where: string, name: string): ModelSpec {
  const table = shapeOf(tensors, "model.embed_tokens.weight");
  const layer0 = "model.layers.0.";
  if (table === undefined || ![...tensors.keys()].some((key) => key.startsWith(layer0))) {
    throw new UnsupportedError(
      `reading a model off the tensors of ${where}`,
      "put its config.json beside it (without one, only models named as Llama's are: model.embed_tokens, model.layers.N)",
    );
  }
  const need = (key: string): readonly [number, number] => {
    const shape = shapeOf(tensors, key);
    if (shape === undefined) throw new FormatError(where, "is missing, or no matrix", { field: key });
    return shape;
  };
  const [vocabSize, hiddenSize] = table;
  const [q] = need(`${layer0}self_attn.q_proj.weight`);
  const [kv] = need(`${layer0}self_attn.k_proj.weight`);
  // Not Math.max(...): a file may have more tensors than a call may have arguments.
  let numLayers = 0;
  for (const key of tensors.keys()) {
    const layer = /^model\.layers\.(\d+)\./.exec(key)?.[1];
    if (layer !== undefined) numLayers = Math.max(numLayers, Number(layer) + 1);
  }
  const qNorm = tensors.get(`${layer0}self_attn.q_norm.weight`)?.shape[0];
  const headDim = qNorm ?? HEAD_DIMS.find((dim) => q % dim === 0 && kv % dim === 0 && q / dim >= kv / dim);
  if (headDim === undefined)
    throw new FormatError(where, `has ${q} rows, of which no head size is known`, {
      field: `${layer0}self_attn.q_proj.weight`,
    });
  const experts = [...tensors.keys()].filter((key) =>
    /^model\.layers\.0\.block_sparse_moe\.experts\.\d+\.w1\.weight$/.test(key),
  ).length;
  const isMoe = experts > 0;
  const [intermediateSize] = need(
    isMoe ? `${layer0}block_sparse_moe.experts.0.w1.weight` : `${layer0}mlp.gate_proj.weight`,
  );
  const hasBias = tensors.has(`${layer0}self_attn.q_proj.bias`);
  const config = {
    model_type: isMoe ? "mixtral" : qNorm !== undefined ? "qwen3" : hasBias ? "qwen2" : "llama",
    hidden_size: hiddenSize,
    vocab_size: vocabSize,
    num_hidden_layers: numLayers,
    num_attention_heads: q / headDim,
    num_key_value_heads: kv / headDim,
    head_dim: headDim,
    intermediate_size: intermediateSize,
    tie_word_embeddings: !tensors.has("lm_head.weight"),
    ...(isMoe ? { num_local_experts: experts, num_experts_per_tok: Math.min(2, experts) } : {}),
    dtype: DTYPES.get(tensors.get("model.embed_tokens.weight")?.dtype ?? "") ?? "bfloat16",
  };
  const spec = modelFromConfig(config, where, name);
  const assumptions = [
    ...spec.assumptions,
    `read off the tensors, without a config: ${config.model_type} architecture`,
    ...(qNorm === undefined ? [`head size ${headDim} assumed`] : []),
    ...(isMoe ? ["2 experts a token assumed"] : []),
  ];
  return withStoredBytes({ ...spec, assumptions }, tensors, where);
}
